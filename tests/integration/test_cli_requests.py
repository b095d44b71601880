"""Commands that look after requests: what they say of each, and with which exit code."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass

import nats
import pytest

from schemas.subjects import Header, Subjects
from tests.fakes.messages import dead, refused, review_result
from tests.nats_servers import one_server
from tests.processes import COMMAND, Ended, environment, rca
from worker.adapters.nats.provision import provision, wanted
from worker.app.operations import Operations, State


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


@pytest.mark.parametrize(
    ("happened", "state", "said"),
    [
        (queue_it, "waiting", "which waits in the queue: its result will say operator_escalation"),
        (begin_it, "begun", "which has begun: it stops at its next step"),
        (nobody_knows_it, "unknown", "no request rr-1.2 is known: check the key"),
    ],
)
async def test_cancel_says_what_is_known_of_the_request(place, happened, state, said):
    await happened(place)
    shown = await place.rca("cancel", "rr-1.2")
    assert (0, True) == (shown.code, said in shown.out), shown
    assert await cancelled(place, "rr-1.2")
    document = (await place.rca("cancel", "rr-1.2", "--json")).json()
    assert {"key": "rr-1.2", "state": state, "cancelled": True, "status": None} == document


async def test_a_request_that_has_its_result_is_not_cancelled(place):
    result = review_result("rr.1")
    await place.js.publish("rca.result.incident.rr%2E1", result.model_dump_json().encode())
    shown = await place.rca("cancel", "rr%2E1")
    assert (1, True) == (
        shown.code,
        "rr%2E1 has its result already: needs_human_review (investigation_inconclusive), 2026" in shown.err,
    )
    ended = await place.rca("cancel", "rr%2E1", "--json")
    assert (1, {"key": "rr%2E1", "state": "done", "cancelled": False, "status": "needs_human_review"}) == (
        ended.code,
        ended.json(),
    )
    assert not await cancelled(place, "rr=2E1")
    assert State.DONE == await Operations(place.nc, Subjects()).state("rr%2E1")


@pytest.mark.parametrize(("given", "key"), [("rr 1", "rr%201"), ("a.b.c", "a%2Eb%2Ec"), ("\udcff", "%3F")])
async def test_the_key_of_an_id_that_is_given_in_place_of_it_is_named(place, given, key):
    ended = await place.rca("cancel", given)
    assert (1, True) == (ended.code, f" is {key}, for a recovery" in ended.err), ended.err


# -- dlq


async def letters(place, *remediation_ids):
    for number, remediation_id in enumerate(remediation_ids, start=1):
        made = dead(number, error="the model \x1b[2J said something very long, " * 5)
        await place.js.publish(
            f"rca.dlq.{made.reason}",
            body(remediation_id),
            headers={**made.headers(), Header.CE_ID: str(number)},
        )


@pytest.mark.parametrize("command", ["replay", "drop"])
async def test_what_became_of_each_dead_letter_is_there_for_scripts(place, command):
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


async def test_a_rejection_of_before_is_the_outcome_of_the_same_message_again(place):
    first = json.loads((await place.rca("submit", "-", "--json", stdin=b"{}")).out)
    other = refused(first["sequence"] + 7)
    for failure in (refused(first["sequence"]), other):
        await place.js.publish("rca.validation.request", failure.model_dump_json().encode())
    await place.js.publish("rca.validation.request", b'{"of": "a newer version"}')
    answer = refused(first["sequence"], attempt=1)
    await place.js.publish("rca.validation.response.rr-1", answer.model_dump_json().encode())
    again = await place.rca("submit", "-", "--wait", "--timeout", "60", "--json", stdin=b"{}")
    assert (5, first["sequence"], None) == (
        again.code,
        again.json()["origin_sequence"],
        again.json()["attempt"],
    )


async def test_without_an_id_no_result_is_promised(place):
    ended = await place.rca("submit", "-", "--wait", "--timeout", "1", stdin=b"{}")
    assert 4 == ended.code
    assert "returns its result" not in ended.err
    assert "it will be rejected" in ended.err


async def test_an_interrupted_wait_says_that_the_request_is_kept(place):
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("submit", "-", "--wait"),
        env=environment(place.env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    process.stdin.write(body("rr-1"))
    process.stdin.write_eof()
    submitted = (await process.stderr.readline()).decode()
    assert submitted.startswith("submitted rr-1 to rca.request.incident")
    process.send_signal(signal.SIGINT)
    rest = (await asyncio.wait_for(process.stderr.read(), 60)).decode()
    kept = "interrupted; the request is kept: submit it again to see its result, or `rca cancel rr-1`"
    assert (130, kept) == (await process.wait(), rest.splitlines()[-1])
