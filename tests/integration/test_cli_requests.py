"""Commands that look after requests: what they say of each, and with which exit code."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass

import nats
import pytest

from schemas.analysis import AnalysisResult, Status
from schemas.audit import AuditEvent, LLMToolCall
from schemas.subjects import Header, Subjects
from tests.commands import rca
from tests.corpus_files import corpus_path
from tests.fakes.audit_chains import accepted, chain, complete, failed
from tests.fakes.messages import NOON, dead, refused, review_result
from tests.nats_servers import one_server
from tests.processes import COMMAND, Ended, environment
from worker.adapters.nats.journal import NatsJournal
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.adapters.nats.stream import FencedStream
from worker.app.operations import AT_ONCE, STOPPED, Operations, State
from worker.domain.values.step_kinds import BEGIN, END

REFUSED = "model refused credentials"


@dataclass
class Place:
    """A provisioned server without a worker, and the commands on it."""

    nc: nats.NATS
    env: dict[str, str]

    @property
    def js(self) -> nats.js.JetStreamContext:
        return self.nc.jetstream()

    async def rca(self, *arguments, stdin=None) -> Ended:
        return await rca(*arguments, env=self.env, stdin=stdin)


@pytest.fixture
async def place(tmp_path):
    async with one_server(tmp_path) as server, nats_client(server.url) as nc:
        await provision(nc, wanted(Subjects()))
        yield Place(nc, {"RCA_NATS__SERVERS": server.url})


@asynccontextmanager
async def nats_client(url):
    nc = await nats.connect(url)
    try:
        yield nc
    finally:
        await nc.close()


def body(remediation_id, **fields):
    return json.dumps({"remediation_id": remediation_id, **fields}).encode()


def incident(remediation_id):
    """A valid one."""
    path = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json")
    return json.dumps(json.loads(path.read_bytes()) | {"remediation_id": remediation_id}).encode()


async def cancelled(place, key):
    """Whether a worker would find the flag."""
    try:
        return bool((await place.js.get_last_msg("KV_RCA_CANCEL", f"$KV.RCA_CANCEL.{key}")).data)
    except nats.js.errors.NotFoundError:
        return False


# -- cancel


async def queue_it(place):
    await place.js.publish("rca.request.incident", body("rr-other"))
    await place.js.publish("rca.request.incident", b"no request")
    await place.js.publish("rca.request.recovery.p0", body("rr-1", recovery_attempt_number=2))


async def begin_it(place):
    await place.js.publish("$KV.RCA_JOURNAL.rr-1.2.1", b"a step")


async def nobody_knows_it(place):
    await place.js.publish("rca.request.incident", body("rr-1"))
    await place.js.publish("$KV.RCA_JOURNAL.rr-1.1", b"a step of the incident, not of the recovery")


async def let_it_wait(place, **notes):
    journal = NatsJournal(FencedStream(place.nc, "KV_RCA_JOURNAL"), place.nc)
    run = await journal.open("rr-1.2", "a-run")
    await run.append(BEGIN)
    await run.append(END, outcome="released", **notes)


async def refuse_it(place):
    await let_it_wait(place, reason="model_refused_credentials")


async def attack_it(place):
    await let_it_wait(place, reason="{what.x} \x1b[2J\nerror: nothing")


@pytest.mark.parametrize(
    ("happened", "state", "code"),
    [(queue_it, "queued", 0), (begin_it, "started", 0), (nobody_knows_it, "unknown", 1)],
)
async def test_cancel_tells_what_is_known_of_the_request(place, happened, state, code):
    await happened(place)
    shown = await place.rca("cancel", "rr-1.2")
    assert (code, code == 0) == (shown.code, bool(shown.out)), shown
    assert "rr-1" in shown.out + shown.err
    assert await cancelled(place, "rr-1.2")
    ended = await place.rca("cancel", "rr-1.2", "--json")
    document = {"key": "rr-1.2", "state": state, "cancelled": True, "status": None}
    assert (code, document) == (ended.code, ended.json())


async def test_a_request_that_is_still_to_come_can_be_cancelled_ahead(place):
    shown = await place.rca("cancel", "rr-1", "--ahead")
    assert (0, "") == (shown.code, shown.err)
    assert await cancelled(place, "rr-1")


async def test_a_request_that_has_its_result_is_not_cancelled(place):
    result = review_result("rr.1")
    await place.js.publish("rca.result.incident.rr%2E1", result.model_dump_json().encode())
    shown = await place.rca("cancel", "rr%2E1")
    assert (1, True) == (
        shown.code,
        "rr%2E1 has already ended: needs_human_review (investigation_inconclusive), 2026" in shown.err,
    )
    ended = await place.rca("cancel", "rr%2E1", "--json")
    assert (
        1,
        {"key": "rr%2E1", "state": "finished", "cancelled": False, "status": "needs_human_review"},
    ) == (
        ended.code,
        ended.json(),
    )
    assert not await cancelled(place, "rr=2E1")
    assert State.FINISHED == await Operations(place.nc, Subjects()).state("rr%2E1")


async def test_the_replay_of_a_dead_letter_can_be_cancelled_and_its_failed_result_alone_cannot(place):
    failed_result = review_result("rr-1").model_copy(update={"status": Status.FAILED})
    await place.js.publish("rca.result.incident.rr-1", failed_result.model_dump_json().encode())
    await place.js.publish("$KV.RCA_JOURNAL.rr-1.1", b"a step")
    operations = Operations(place.nc, Subjects())
    assert failed_result == await operations.cancel("rr-1", at=NOON, token="1")
    assert not await cancelled(place, "rr-1")
    await place.js.publish("rca.request.incident", body("rr-1"))
    shown = await place.rca("cancel", "rr-1", "--json")
    assert (0, {"key": "rr-1", "state": "started", "cancelled": True, "status": None}) == (
        shown.code,
        shown.json(),
    )
    assert await cancelled(place, "rr-1")


async def test_a_remediation_id_is_understood_in_place_of_its_key(place):
    await place.js.publish("rca.request.incident", body("rr 1"))
    assert "queued" == (await place.rca("cancel", "rr 1", "--json")).json()["state"]
    assert await cancelled(place, "rr=201")


# -- show


async def test_the_result_of_a_request_is_shown_by_key_or_by_id(place):
    result = review_result("rr.1")
    await place.js.publish("rca.result.incident.rr%2E1", result.model_dump_json().encode())
    await place.js.publish("rca.result.incident.rr%201", review_result("rr 1").model_dump_json().encode())
    for key in ("rr%2E1", "rr 1"):
        shown = await place.rca("show", key)
        assert (0, True) == (shown.code, "HUMAN REVIEW NEEDED" in shown.out.splitlines()[1]), shown
    ended = await place.rca("show", "rr%2E1", "--json")
    assert (0, result) == (ended.code, AnalysisResult.model_validate(ended.json()))


@pytest.mark.parametrize(
    ("happened", "said", "state", "waits_for"),
    [
        (queue_it, "queue", "queued", None),
        (begin_it, "analysed", "started", None),
        (refuse_it, f"waits ({REFUSED})", "started", REFUSED),
        (let_it_wait, f"waits ({STOPPED})", "started", STOPPED),
        (
            attack_it,
            r"waits ({what.x} \u{1b}[2J error: nothing)",
            "started",
            r"{what.x} \u{1b}[2J error: nothing",
        ),
        (nobody_knows_it, "rr-1.2 is unknown", "unknown", None),
    ],
)
async def test_a_request_without_a_result_has_its_state_told(place, happened, said, state, waits_for):
    await happened(place)
    shown = await place.rca("show", "rr-1.2")
    assert (1, "", True) == (shown.code, shown.out, said in shown.err)
    told = await place.rca("show", "rr-1.2", "--json")
    assert (1, True) == (told.code, said in told.err)
    assert {"key": "rr-1.2", "state": state, "waits_for": waits_for} == told.json()


# -- results


async def test_the_newest_results_are_listed_with_their_keys(place):
    none = await place.rca("results")
    assert (0, "", "no results\n") == (none.code, none.out, none.err)
    for key in ("rr-1", "rr-2", "rr-3"):
        await place.js.publish(f"rca.result.incident.{key}", review_result(key).model_dump_json().encode())
    await place.js.publish("rca.result.incident.rr-4", b"{}")  # of another version
    listed = await place.rca("results", "--count", "3")
    assert ["rr-3", "rr-2"] == [line.strip() for line in listed.out.splitlines() if "rr-" in line]
    assert max(map(len, listed.out.splitlines())) <= 80
    facts = (await place.rca("results", "--json")).json()
    assert [
        ("rr-3", "needs_human_review"),
        ("rr-2", "needs_human_review"),
        ("rr-1", "needs_human_review"),
    ] == [(each["request_key"], each["status"]) for each in facts]
    assert "HUMAN REVIEW NEEDED  investigation inconclusive" == facts[0]["verdict"]


# -- report


async def test_a_result_is_written_as_a_file_with_its_timeline(place, tmp_path):
    await place.js.publish("rca.result.incident.rr-1", review_result("rr-1").model_dump_json().encode())
    for event in [*chain("rr-2", [accepted()]), *chain("rr-1", [accepted(), complete("rr-1")])]:
        await place.js.publish(f"rca.audit.{event.event_type}", event.model_dump_json().encode())
    html = tmp_path / "incident.html"
    written = await place.rca("report", "rr-1", "-o", str(html))
    assert (0, "") == (written.code, written.out), written
    page = await asyncio.to_thread(html.read_text)
    assert ["<!doctype html>", 1] == [page.splitlines()[0], page.count("request accepted")]
    shown = await place.rca("report", "rr-1", "--no-timeline")
    assert (0, "# HUMAN REVIEW NEEDED") == (shown.code, shown.out[:21])
    missing = await place.rca("report", "rr-2")
    assert (1, True) == (missing.code, "rca show rr-2" in missing.err)


# -- watch


@pytest.mark.parametrize(("end", "code"), [("complete", 0), ("failed", 3)])
async def test_a_request_is_followed_until_it_ends(place, end, code):
    events = chain("rr-1", [accepted(), complete("rr-1") if end == "complete" else failed("rr-1")])
    following = asyncio.create_task(place.rca("watch", "rr-1"))
    while not following.done():  # it is heard as soon as the command listens
        for event in [*chain("rr-2", [accepted(), complete("rr-2")]), *events]:
            await place.nc.publish(f"rca.audit.{event.event_type}", event.model_dump_json().encode())
        await place.nc.flush()
        await asyncio.sleep(0.2)
    ended = following.result()
    assert code == ended.code, ended
    assert "rr-1" in ended.out
    assert "rr-2" not in ended.out


async def test_followed_events_cannot_control_the_terminal(place):
    hostile = LLMToolCall(index=1, name="t", succeeded=True, result_chars=5, result_preview="\x9b2J\u202e")
    events = chain("rr-1", [accepted(), hostile, complete("rr-1")])
    following = asyncio.create_task(place.rca("watch", "rr-1", "--json"))
    while not following.done():  # it is heard as soon as the command listens
        for event in events:
            await place.nc.publish(f"rca.audit.{event.event_type}", event.model_dump_json().encode())
        await place.nc.flush()
        await asyncio.sleep(0.2)
    printed = following.result().out
    assert printed.isascii()
    assert hostile in [AuditEvent.model_validate_json(line).payload for line in printed.splitlines()]


async def busy(place):
    for event in chain("rr-2", [accepted()] * 1_000):
        await place.nc.publish(f"rca.audit.{event.event_type}", event.model_dump_json().encode())
        await asyncio.sleep(0.2)


@pytest.mark.process
async def test_watch_says_why_a_request_waits_while_others_go_on(place):
    await refuse_it(place)
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "watch", "rr-1.2"), env=environment(place.env), stderr=asyncio.subprocess.PIPE
    )
    assert (await process.stderr.readline()).startswith(b"waiting for steps")
    others = asyncio.create_task(busy(place))
    assert b"rr-1.2 waits: model refused credentials\n" == await asyncio.wait_for(
        process.stderr.readline(), 60
    )
    others.cancel()
    result = review_result("rr-1", 2, kind="recovery")
    await place.js.publish("rca.result.recovery.rr-1.2", result.model_dump_json().encode())
    assert (0, True) == (await process.wait(), b"has ended" in await process.stderr.read())


async def test_the_newest_events_are_read_in_their_order(place):
    events = chain("rr-1", [accepted(), complete("rr-1")])
    for body in (b"{}", *(event.model_dump_json().encode() for event in events)):
        await place.js.publish("rca.audit.request.accepted", body)
    operations = Operations(place.nc, Subjects())
    assert events == await operations.newest_events(3)
    assert events[1:] == await operations.newest_events(1)


async def test_why_several_requests_wait_is_asked_at_the_same_time(place):
    await refuse_it(place)
    operations, asking = Operations(place.nc, Subjects()), Counter[str]()
    newest = operations._journal.newest

    async def counted(subject):
        asking["now"] += 1
        asking["most"] = max(asking.values())
        try:
            return await newest(subject)
        finally:
            asking["now"] -= 1

    operations._journal.newest = counted
    keys = ["rr-1.2", *(f"rr-{n}" for n in range(2, 42))]
    waits = await operations.waits(keys)
    assert dict.fromkeys(keys, "") | {"rr-1.2": REFUSED} == waits
    assert AT_ONCE == asking["most"]


async def test_watch_says_that_a_request_has_ended(place):
    await place.js.publish("rca.result.incident.rr-1", review_result("rr-1").model_dump_json().encode())
    ended = await place.rca("watch", "rr-1")
    assert (0, "", True) == (ended.code, ended.out, "rca show rr-1" in ended.err)


# -- dlq


async def letters(place, *remediation_ids):
    for number, remediation_id in enumerate(remediation_ids, start=1):
        made = dead(number, error="the model \x1b[2J said something very long, " * 5)
        await place.js.publish(
            f"rca.dlq.{made.reason}",
            body(remediation_id),
            headers={**made.headers(), Header.CE_ID: str(number)},
        )


async def test_no_dead_letter_has_an_id_that_the_server_cannot_read(place):
    number = str(10**20 - 1)
    ended = await place.rca("dlq", "show", number)
    error = f"error: there is no dead letter {number}; `rca dlq list` shows them"
    assert (1, error) == (ended.code, ended.err.splitlines()[-1])


@pytest.mark.parametrize("command", ["replay", "drop"])
async def test_json_reports_each_dead_letter_of_a_command(place, command):
    await letters(place, "rr-1")
    ended = await place.rca("dlq", command, "1", "9", "--json")
    assert 1 == ended.code
    error = "there is no dead letter 9; `rca dlq list` shows them"
    assert [
        {"id": 1, "done": True, "remediation_id": "rr-1", "error": ""},
        {"id": 9, "done": False, "remediation_id": "", "error": error},
    ] == ended.json()
    assert [] == (await place.rca("dlq", "list", "--json")).json()


async def test_a_list_of_dead_letters_fits_the_screen(place):
    await letters(place, "rr-1", "rr-2")
    ended = await place.rca("dlq", "list")
    assert (0, True) == (ended.code, max(map(len, ended.out.splitlines())) <= 80), ended.out
    assert "rr-1" in ended.out
    assert "\x1b" not in ended.out


# -- submit


async def test_an_earlier_rejection_is_the_outcome_of_a_repeated_message(place):
    first = json.loads((await place.rca("submit", "-", "--unchecked", "--json", stdin=b"{}")).out)
    other = refused(first["sequence"] + 7)
    for failure in (refused(first["sequence"]), other):
        await place.js.publish("rca.validation.request", failure.model_dump_json().encode())
    await place.js.publish("rca.validation.request", b'{"of": "a newer version"}')
    answer = refused(first["sequence"], attempt=1)
    await place.js.publish("rca.validation.response.rr-1", answer.model_dump_json().encode())
    again = await place.rca("submit", "-", "--unchecked", "--wait", "--timeout", "60", "--json", stdin=b"{}")
    assert (5, first["sequence"], None) == (
        again.code,
        again.json()["origin_sequence"],
        again.json()["attempt"],
    )


async def test_without_an_id_no_result_is_promised(place):
    ended = await place.rca("submit", "-", "--unchecked", "--wait", "--timeout", "1", stdin=b"{}")
    assert 4 == ended.code
    assert "stays in the queue" not in ended.err
    assert "a worker will reject" in ended.err


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--wait",)])
async def test_an_invalid_request_is_refused_without_a_connection(more):
    away = {"RCA_NATS__SERVERS": "nats://127.0.0.1:9", "RCA_NATS__CONNECT_SECONDS": "1"}
    secret = b'{"remediation_id": "rr.1", "severity": "ghp_FAKE0123456789abcdefghijklmnopqrstuv"}'
    shown = await rca("submit", "-", *more, env=away, stdin=secret)
    assert (5, "") == (shown.code, shown.out)
    assert "incident_id" in shown.err
    assert "FAKE" not in shown.err
    ended = await rca("submit", "-", *more, "--json", env=away, stdin=secret)
    document = ended.json()
    assert (5, "schema", "rr%2E1", False) == (
        ended.code,
        document["code"],
        document["request_key"],
        document["published"],
    )
    assert {"incident_id", "severity"} <= {error["path"] for error in document["errors"]}


async def test_a_dry_run_of_a_valid_request_needs_no_server():
    request = corpus_path("payloads/48-recovery-reason-unknown-code.json").read_bytes()
    with_more = json.dumps(json.loads(request) | {"colour": "red"}).encode()
    shown = await rca("submit", "-", "--recovery", "--dry-run", stdin=with_more)
    assert (0, "", True) == (shown.code, shown.out, "colour" in shown.err)
    ended = await rca("submit", "-", "--recovery", "--dry-run", "--json", stdin=with_more)
    assert (0, ["colour"], False) == (
        ended.code,
        ended.json()["ignored_fields"],
        ended.json()["published"],
    )


@pytest.mark.process
async def test_an_interrupted_wait_says_that_the_request_is_kept(place):
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("submit", "-", "--wait"),
        env=environment(place.env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        # a job that a shell starts in the background ignores it, and so would this process
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    process.stdin.write(incident("rr-1"))
    process.stdin.write_eof()
    submitted = (await process.stderr.readline()).decode()
    assert submitted.startswith("submitted rr-1 to rca.request.incident")
    process.send_signal(signal.SIGINT)
    rest = (await asyncio.wait_for(process.stderr.read(), 100)).decode()
    kept = "interrupted; the request stays in the queue: `rca watch rr-1` follows it, `rca show rr-1` prints its result, `rca cancel rr-1` ends it"
    assert (130, kept) == (await process.wait(), rest.splitlines()[-1])
