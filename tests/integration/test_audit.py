"""The trail of real runs is whole, also when a worker was killed in between; what is done to it is found and named."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from nats.js.api import StreamSource
from nats.js.errors import NotFoundError

from schemas.subjects import Subjects
from tests.commands import rca
from tests.fakes.audit_chains import accepted, bodies, chain, whole
from tests.integration.test_pipeline import BODY, CASE, investigate_then_answer
from tests.integration.test_worker_process import KEY, Held, stage, started, until
from tests.nats_servers import one_server, provisioned
from tests.pipeline import running
from worker.adapters.audit_archive import ArchiveError, AuditArchive
from worker.adapters.ed25519_keys import Ed25519Check, Ed25519Signer
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.app.auditing import Auditing
from worker.app.cli.requests import with_new_ids
from worker.app.settings.groups import AuditSettings
from worker.domain.audit.findings import ChainProblem, ChainStatus
from worker.domain.values.errors import Unavailable

SEED = b"seed of the audit trail for test"
COPY = Subjects("copy")


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "signing.key"
    path.write_bytes(base64.b64encode(SEED))
    return path


def public(seed=SEED):
    return Ed25519Check(bytes(Ed25519Signer(seed)._key.verify_key))


async def stored(run, stream, subjects=None):
    """All messages: (sequence, subject, body)."""
    name, js = getattr(subjects or run.subjects, stream), run.nc.jetstream()
    state, found = (await js.stream_info(name)).state, []
    for sequence in range(state.first_seq, state.last_seq + 1):
        message = await js.get_msg(name, sequence)
        found.append((sequence, message.subject, message.data))
    return found


@asynccontextmanager
async def two_requests(tmp_path, key_file):
    """The keys of two that were answered; one body for each."""
    other = with_new_ids(BODY)
    keys = [json.loads(body)["remediation_id"] for body in (BODY, other)]
    audit = AuditSettings(signing_key_file=key_file)
    async with running(investigate_then_answer, CASE, tmp_path, audit=audit) as run:
        for body in (BODY, other):
            run.llm.requests.clear()
            async with run.client.waiting("incident", body) as waiter:
                assert await run.client.outcome(waiter, await run.client.submit(body, "incident"), 30)
        yield run, keys


async def copied(run, change):
    """The report about a copy of both streams, whose audit events went through `change`."""
    js = run.nc.jetstream()
    for stream in (COPY.audit_stream, COPY.results_stream):
        with contextlib.suppress(NotFoundError):
            await js.delete_stream(stream)
    await provision(run.nc, wanted(COPY))
    for _, subject, body in await stored(run, "results_stream"):
        await js.publish(subject.replace("rca.", "copy.", 1), body)
    events = [(subject, body) for _, subject, body in await stored(run, "audit_stream")]
    change(events)
    for subject, body in events:
        await js.publish(subject.replace("rca.", "copy.", 1), body)
    return await Auditing(run.nc, COPY).check([public()])


def of(events, key):
    """Where the events of a request are."""
    return [n for n, (_, body) in enumerate(events) if json.loads(body)["request_key"] == key]


async def test_the_trail_of_finished_requests_is_whole_and_signed(tmp_path, key_file):
    async with two_requests(tmp_path, key_file) as (run, keys):
        report = await Auditing(run.nc, run.subjects).check([public()])
        assert ([], 2, 2, 2) == (report.findings, report.requests, report.ends, report.signed)
        assert {ChainStatus.COMPLETE: 2} == dict(report.chains)
        assert (2, len(await stored(run, "audit_stream"))) == (report.checked_results, report.events)
        other_key = await Auditing(run.nc, run.subjects).check([public(b"x" * 32)], only=keys[1])
        assert [(keys[1], ChainProblem.UNKNOWN_KEY)] == [
            (f.request_key, f.problem) for f in other_key.findings
        ]
        unsigned = await Auditing(run.nc, run.subjects).check([], only=keys[0])
        [chain] = unsigned.notable
        assert (ChainStatus.COMPLETE, chain.events) == (chain.status, unsigned.events)


def dropped(nth):
    def change(events, first, second):
        del events[of(events, second)[nth]]

    return change


def rewritten(events, first, second):
    at = of(events, first)[2]
    subject, body = events[at]
    events[at] = (subject, body.replace(b'"incident_id":"', b'"incident_id":"x', 1))


def swapped(events, first, second):
    one, two = of(events, second)[2:4]
    events[one], events[two] = events[two], events[one]


def emptied(events, first, second):
    events[:] = [event for n, event in enumerate(events) if n in of(events, first)]


async def test_each_manipulation_of_a_copied_trail_is_named(tmp_path, key_file):
    async with two_requests(tmp_path, key_file) as (run, keys):
        report = await copied(run, lambda events: None)
        assert ([], 2) == (report.findings, report.signed)
        last = report.events // 2
        for change, which, sequence, problem in (
            (dropped(3), 1, 4, ChainProblem.MISSING),
            (dropped(0), 1, 1, ChainProblem.MISSING),
            (dropped(-1), 1, last, ChainProblem.TRUNCATED),
            (rewritten, 0, 3, ChainProblem.CHANGED),
            (swapped, 1, 3, ChainProblem.MISSING),
            (emptied, 1, 1, ChainProblem.NO_EVENTS),
        ):
            report = await copied(run, lambda events, change=change: change(events, *keys))
            found = [(f.request_key, f.sequence, f.problem) for f in report.findings]
            assert [(keys[which], sequence, problem)] == found


async def test_a_result_that_was_replaced_is_named(tmp_path, key_file):
    async with two_requests(tmp_path, key_file) as (run, keys):
        js, subject = run.nc.jetstream(), run.subjects.result("incident", keys[0])
        result = json.loads((await js.get_last_msg(run.subjects.results_stream, subject)).data)
        await js.publish(subject, json.dumps({**result, "analysis": "all is well"}).encode())
        report = await Auditing(run.nc, run.subjects).check([])
    assert [(keys[0], ChainProblem.OTHER_RESULT)] == [(f.request_key, f.problem) for f in report.findings]


async def test_a_request_that_still_waits_is_open_however_long(tmp_path):
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        auditing, begun = Auditing(case.nc, Subjects()), datetime.now(UTC)
        await case.js.publish("rca.request.incident", BODY)
        for body in bodies(chain(KEY, [accepted()], start=begun)):
            await case.js.publish("rca.audit.request.accepted", body)
        in_two_days = begun + timedelta(days=2)
        assert {ChainStatus.OPEN: 1} == (await auditing.check([], now=in_two_days)).chains
        await case.js.purge_stream("RCA_REQUESTS")
        assert {ChainStatus.OPEN: 1} == (await auditing.check([])).chains
        report = await auditing.check([], now=in_two_days)
    assert [(KEY, 2, ChainProblem.TRUNCATED)] == [
        (f.request_key, f.sequence, f.problem) for f in report.findings
    ]


async def test_a_missing_beginning_is_a_finding_unless_it_may_have_expired(tmp_path):
    """Somebody has deleted what is younger."""
    messages = bodies(whole(KEY, 4, start=datetime.now(UTC) - timedelta(days=20)))
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        for body in messages:
            await case.js.publish("rca.audit.policy.decided", body)
        await case.js.purge_stream("RCA_AUDIT", keep=2)
        report = await Auditing(case.nc, Subjects()).check([])
    assert [("", 0, ChainProblem.STREAM_EMPTIED), (KEY, 1, ChainProblem.MISSING)] == [
        (f.request_key, f.sequence, f.problem) for f in report.findings
    ]


AGE_OF_A_SECOND = {"max_age": 1.0, "duplicate_window": 1.0}


@pytest.mark.parametrize("mended", [False, True], ids=["as it was left", "limits set back"])
@pytest.mark.parametrize("results", [False, True], ids=["results gone as well", "results there"])
async def test_a_trail_that_was_emptied_by_an_update_of_the_stream_is_noticed(tmp_path, mended, results):
    messages = bodies(whole(KEY, 4, start=datetime.now(UTC)))
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        for body in messages:
            await case.js.publish("rca.audit.policy.decided", body)
        if results:
            await case.js.publish(f"rca.result.incident.{KEY}", b'{"status": "completed"}')
        config = (await case.js.stream_info("RCA_AUDIT")).config
        await case.js.update_stream(config.evolve(**AGE_OF_A_SECOND))
        while await case.count("RCA_AUDIT"):  # noqa: ASYNC110 - what is waited for happens in the server
            await asyncio.sleep(0.1)
        if mended:
            await case.js.update_stream(config)
        report = await Auditing(case.nc, Subjects()).check([])
    found = {finding.problem for finding in report.findings}
    limits, missing = {ChainProblem.STREAM_LIMITS}, {ChainProblem.NO_EVENTS}
    assert {
        ChainProblem.STREAM_EMPTIED,
        *(set() if mended else limits),
        *(missing if results else ()),
    } == found


async def test_a_stream_that_is_fed_by_another_one_is_noticed(tmp_path):
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        await case.js.add_stream(name="FORGED", subjects=["forged.>"])
        config = (await case.js.stream_info("RCA_AUDIT")).config
        assert (await Auditing(case.nc, Subjects()).check([])).good
        await case.js.update_stream(config.evolve(sources=[StreamSource(name="FORGED")]))
        report = await Auditing(case.nc, Subjects()).check([])
    assert [ChainProblem.STREAM_FEED] == [finding.problem for finding in report.findings]


async def test_results_without_a_stream_of_events_are_noticed(tmp_path):
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        await case.js.publish(f"rca.result.incident.{KEY}", b'{"status": "completed"}')
        await case.js.delete_stream("RCA_AUDIT")
        with pytest.raises(Unavailable, match="rca provision"):
            await Auditing(case.nc, Subjects()).check([])
        await provision(case.nc, wanted(Subjects()))
        report = await Auditing(case.nc, Subjects()).check([])
    assert [ChainProblem.NO_EVENTS] == [finding.problem for finding in report.findings]


async def test_an_archive_continues_where_the_last_export_ended_and_stands_for_what_was_purged(tmp_path):
    def published(key, start):
        return bodies(whole(key, 4, start=start))

    directory, now = tmp_path / "archive", datetime.now(UTC)
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        auditing = Auditing(case.nc, Subjects())

        async def publish(key):
            for body in published(key, now):
                await case.js.publish("rca.audit.policy.decided", body)
            result = json.dumps({"status": "completed", "remediation_id": key}).encode()
            await case.js.publish(f"rca.result.incident.{key}", result)

        await publish("rr-1")
        assert [1, 4] == [each.messages for each in await auditing.export(AuditArchive(directory))]
        assert [0, 0] == [each.messages for each in await auditing.export(AuditArchive(directory))]
        head = AuditArchive(directory).head
        await publish("rr-2")
        [audit_file] = directory.glob("audit-*")
        audit_file.write_bytes(audit_file.read_bytes() + b'{"half a line')  # an export that broke off
        assert [1, 4] == [each.messages for each in await auditing.export(AuditArchive(directory))]
        assert published("rr-1", now) + published("rr-2", now) == audit_file.read_bytes().splitlines()

        await case.js.purge_stream("RCA_AUDIT", seq=7)
        await publish("rr-3")
        alone = await auditing.check([])
        assert ChainProblem.STREAM_EMPTIED in {finding.problem for finding in alone.findings}
        both = await auditing.check([], archive=AuditArchive(directory), head=head)
        other_result = {(finding.request_key, finding.problem) for finding in both.findings}
        assert {
            (f"rr-{n}", ChainProblem.OTHER_RESULT) for n in (1, 2, 3)
        } == other_result  # as they are made up
        assert (12, {ChainStatus.BAD: 3}) == (both.events, both.chains)
        await case.js.purge_stream("RCA_AUDIT", seq=11)  # more than was exported
        assert "messages 9 to 10 are gone" in str(
            (await auditing.check([], archive=AuditArchive(directory))).findings
        )

        await case.js.delete_stream("RCA_AUDIT")
        await provision(case.nc, wanted(Subjects()))
        await publish("rr-4")
        for use in (
            auditing.export(AuditArchive(directory)),
            auditing.check([], archive=AuditArchive(directory)),
        ):
            with pytest.raises(ArchiveError, match="created anew"):
                await use


@pytest.mark.process
@pytest.mark.timeout(600)  # many commands, each a process: minutes on a slow machine
async def test_the_trail_of_a_request_whose_worker_was_killed_is_whole(tmp_path, key_file):
    script = Held(2)
    async with stage(tmp_path, script) as s:
        signing = {"RCA_AUDIT__SIGNING_KEY_FILE": str(key_file)}
        async with started(s.worker(**signing)) as first:
            await s.submit()
            await asyncio.wait_for(script.asked.wait(), 100)
            await first.kill()
        env = {"RCA_NATS__SERVERS": s.env["RCA_NATS__SERVERS"]}
        running_on = await rca("audit", "verify", "--json", env=env)
        assert (0, {"open": 1}) == (running_on.code, running_on.json()["chains"])
        script.free = True
        async with started(s.worker("w1", **signing)):
            await until(s.answered)

        public_file = tmp_path / "public.key"
        public_file.write_bytes(base64.b64encode(bytes(Ed25519Signer(SEED)._key.verify_key)))
        good = await rca("audit", "verify", "--key", str(public_file), env=env)
        assert (0, "") == (good.code, good.err)
        assert "chains: 1 complete" in good.out
        assert "1 of 1 final events have a valid signature" in good.out

        exported = tmp_path / "events.jsonl"
        exported.write_text((await rca("audit", "export", "--request", KEY, env=env)).out)
        from_file = await rca("audit", "verify", "--file", str(exported), "--key", str(public_file))
        assert (0, True) == (from_file.code, "chains: 1 complete" in from_file.out)
        lines = exported.read_text().splitlines(keepends=True)
        exported.write_text("".join([*lines[:4], *lines[5:]]))
        cut = await rca("audit", "verify", "--file", str(exported))
        assert (1, True) == (cut.code, f"{KEY}: event 5: missing" in cut.out)

        await s.case.js.delete_msg("RCA_AUDIT", 3)
        bad = await rca("audit", "verify", "--json", env=env)
        document = bad.json()
        assert (1, False, False) == (bad.code, document["good"], document["checked_signatures"])
        assert [("", 0, "stream_deleted"), (KEY, 3, "missing")] == [
            (f["request_key"], f["sequence"], f["problem"]) for f in document["findings"]
        ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"not a key", "neither PEM nor base64"),
        (base64.b64encode(b"short"), "5 bytes in base64; an Ed25519 key has 32"),
    ],
)
async def test_a_key_file_that_is_invalid_is_a_clear_error(tmp_path, content, said):
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    env = {"RCA_AUDIT__SIGNING_KEY_FILE": str(path), "RCA_LLM__MODEL": "openai-chat:x"}
    ended = await rca("worker", env=env)
    assert (1, True) == (ended.code, f"RCA_AUDIT__SIGNING_KEY_FILE: {path}: {said}" in ended.err)
    assert "Traceback" not in ended.err
