"""However a request comes to its end, its audit events are a whole chain, and say so of the result that was published."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace

import pytest
import structlog

from schemas.analysis import AnalysisResult, Status
from schemas.subjects import REPLAY_HEADER
from tests.fakes.desk import Desk, body
from tests.fakes.dying_run import die_at
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import LOOK, World, answer, incident
from worker.adapters.ed25519_keys import Ed25519Check, Ed25519Signer
from worker.domain.audit.check import AuditCheck
from worker.domain.audit.findings import AuditFacts, ChainStatus, StoredResult
from worker.domain.values.delivery import ACK, LET_GO, Fate
from worker.domain.values.errors import Retry, RetryReason, Unavailable
from worker.domain.values.ports import Step
from worker.domain.values.step_kinds import BEGIN, LLM

SIGNER = Ed25519Signer(b"k" * 32)
PUBLIC = Ed25519Check(bytes(SIGNER._key.verify_key))
LEFT_ALONE = Retry(RetryReason.MODEL_UNAVAILABLE, "the model is left alone for a while", 30.0, tried=False)


@pytest.fixture(autouse=True)
def logged():
    """What is logged: event names and fields."""
    with structlog.testing.capture_logs() as entries:
        yield entries


def checked(world, keys=()):
    """What a check says of everything that was published."""
    results = {}
    for (_, key), stored in world.events.results.items():
        failed = AnalysisResult.model_validate_json(stored).status is Status.FAILED
        results[key] = StoredResult(hashlib.sha256(stored).hexdigest(), failed)
    check = AuditCheck(keys)
    for position, event in enumerate(world.events.bodies.values(), start=1):
        check.add(position, event)
    return check.finish(AuditFacts(world.clock.now(), results))


def whole(world, **chains):
    """Nothing is wrong, and that many chains there are of each kind; one that is complete unless told otherwise."""
    report = checked(world)
    assert [] == list(report.findings)
    assert (chains or {"COMPLETE": 1}) == {status.name: n for status, n in report.chains.items()}
    return True


async def _unavailable(result, *, replace_failed=False):
    raise Unavailable("the stream is full")


async def test_a_request_that_is_answered():
    desk = Desk()
    assert ACK == await desk.take()
    assert whole(desk.world)


async def test_ends_are_signed_with_the_configured_key():
    desk = Desk()
    desk.handler._ports = replace(desk.handler._ports, signer=SIGNER)
    await desk.take()
    report = checked(desk.world, [PUBLIC])
    assert ([], 1, 1) == (list(report.findings), report.ends, report.signed)
    signatures = [event.signature for event in desk.world.events.audits]
    assert [SIGNER.key_id] == [signature.key_id for signature in signatures if signature]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("append", range(1, 9))
async def test_a_request_whose_process_was_killed(append, before):
    said = [calls(LOOK), final(answer())]
    world = World(model=MemoryModel(said))
    await die_at(world, incident(), append, before=before)
    replies = sum(step.kind == LLM for step in world.journal.steps["rr-1"])
    world.model = MemoryModel(said[replies:])
    desk = Desk(world)
    assert ACK == await desk.take()
    assert whole(world)


async def test_runs_that_are_postponed():
    desk = Desk(World.saying(calls(LOOK), LEFT_ALONE, LEFT_ALONE, final(answer())))
    assert ACK == await desk.take()
    assert whole(desk.world)


async def test_a_result_that_could_not_be_published_at_once():
    desk = Desk()
    store, desk.world.events.result = desk.world.events.result, _unavailable
    assert (await desk.take()).fate is Fate.RETRY
    desk.world.events.result = store
    assert ACK == await desk.take()
    assert whole(desk.world)
    assert "response.complete" == desk.world.events.audits[-1].event_type


async def test_a_result_that_this_version_cannot_read_is_followed_by_another_end():
    desk = Desk()
    store, desk.world.events.result = desk.world.events.result, _unavailable
    await desk.take()
    desk.world.events.result = store
    desk.steps[:] = [replace(s, data=b"{}") if s.kind == "result" else s for s in desk.steps if s]
    assert ACK == await desk.take()
    assert whole(desk.world)
    assert 2 == sum(event.event_type == "response.complete" for event in desk.world.events.audits)


async def test_a_run_that_was_replaced_publishes_nothing_that_is_not_in_the_journal():
    desk, other = Desk(World.saying(calls(LOOK), final(answer()))), []

    def replaced(request, number):
        if not other:
            other.append(1)
            steps = desk.steps
            tail = [event for step in steps for event in step.events][-1]
            steps.append(Step(len(steps) + 1, BEGIN, "newer", b"", {"digest": "", "at": ""}))
            assert tail.body in desk.world.events.bodies.values()
        return final(answer())

    desk.world.model = MemoryModel(replaced)
    desk.new_process()
    assert LET_GO == await desk.take()
    kept = [event.body for step in desk.steps for event in step.events]
    assert kept == list(desk.world.events.bodies.values())
    assert ACK == await desk.take()
    assert whole(desk.world)


@pytest.mark.parametrize("when", range(1, 14))
async def test_a_broker_that_fails_at_any_event(when):
    """The event may be stored or not; the next run tells what is in the journal."""
    desk = Desk(World.saying(calls(LOOK), final(answer()), final(answer())), rules={"hold_seconds": 0.0})
    publish, left = desk.world.events.audit, [when]

    async def failing(record):
        left[0] -= 1
        if left[0] == 0:
            raise Unavailable("no answer")
        await publish(record)

    desk.world.events.audit = failing
    while (await desk.take()).fate is Fate.RETRY:
        pass
    assert whole(desk.world)


async def test_a_run_that_is_stopped_in_a_call():
    desk, asked = Desk(), asyncio.Event()

    class Slow(MemoryModel):
        async def ask(self, request):
            asked.set()
            await asyncio.sleep(60)

    desk.world.model = Slow([])
    desk.new_process()
    task = asyncio.create_task(desk.take())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert whole(desk.world, OPEN=1)
    desk.says(final(answer()))
    assert ACK == await desk.take()
    assert whole(desk.world)


# -- Journals that are gone


@pytest.mark.parametrize("gap", range(7))
async def test_a_journal_with_a_gap(gap):
    """The chain goes on where its last event can be read; else another one names the last one that could be."""
    desk = Desk(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await desk.take()
    told = [bool(step.events) for step in desk.steps]
    desk.steps[gap] = None
    desk.says(final(answer()))
    assert ACK == await desk.take()
    last_is_gone = not any(told[gap + 1 :])
    assert whole(desk.world, **({"ABANDONED": 1, "COMPLETE": 1} if last_is_gone else {"COMPLETE": 1}))


async def test_a_journal_that_is_gone_altogether():
    desk = Desk(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await desk.take()
    desk.steps.clear()
    desk.world.clock.advance(25 * 3_600.0)
    desk.says(final(answer()))
    assert ACK == await desk.take()
    assert whole(desk.world, ABANDONED=1, COMPLETE=1)


@pytest.mark.parametrize("kind", ["opening", "llm", "tools"])
async def test_a_step_that_makes_no_sense_to_this_version(kind):
    desk = Desk(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await desk.take()
    desk.steps[:] = [replace(s, data=b"garbage") if s.kind == kind else s for s in desk.steps if s]
    desk.says(final(answer()))
    assert ACK == await desk.take()
    assert whole(desk.world)


async def test_events_of_a_version_without_chains_are_not_gone_on_from():
    desk = Desk(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await desk.take()
    old = [replace(e, chain="", hash="") for step in desk.steps for e in step.events]
    desk.steps[:] = [
        replace(s, events=tuple(e for e in old if e.event_id in {x.event_id for x in s.events}))
        for s in desk.steps
    ]
    desk.says(final(answer()))
    assert ACK == await desk.take()
    last = desk.world.events.audits[-1]
    assert (1, True) == (
        len({e.chain for e in desk.world.events.audits if e.chain == last.chain}),
        last.sequence < 9,
    )
    first = next(e for e in desk.world.events.audits if e.chain == last.chain and e.sequence == 1)
    assert ("request.resumed", None) == (first.event_type, first.payload.continues)


# -- Dead letters


async def test_a_dead_letter_and_its_replay():
    desk = Desk(World.saying(KeyError("boom")), rules={"max_failures": 1})
    assert (await desk.take()).fate is Fate.TERMINATE
    assert whole(desk.world)
    end = json.loads(list(desk.world.events.bodies.values())[-1])["payload"]
    [stored] = desk.world.events.results.values()
    assert hashlib.sha256(stored).hexdigest() == end["result_sha256"]
    desk.says(final(answer()))
    assert ACK == await desk.take(sequence=8, headers={REPLAY_HEADER: "1"})
    assert Status.COMPLETED is desk.result.status
    assert whole(desk.world)


async def test_a_replay_when_the_journal_is_gone():
    desk = Desk(World.saying(KeyError("boom")), rules={"max_failures": 1})
    await desk.take()
    desk.steps.clear()
    desk.says(final(answer()))
    assert ACK == await desk.take(sequence=8, headers={REPLAY_HEADER: "1"})
    assert whole(desk.world, COMPLETE=2)
    begun = [event.payload for event in desk.world.events.audits if event.sequence == 1]
    assert [False, True] == [payload.replayed for payload in begun]


async def test_a_dead_letter_that_could_not_be_published_at_once_is_told_of_once():
    desk = Desk(World.saying(KeyError("boom")), rules={"max_failures": 1})
    publish = desk.world.events.dead_letter

    async def unreachable(letter, raw):
        raise Unavailable("the stream is full")

    desk.world.events.dead_letter = unreachable
    assert (await desk.take()).fate is Fate.RETRY
    desk.world.events.dead_letter = publish
    assert (await desk.take()).fate is Fate.TERMINATE
    assert whole(desk.world)
    assert "response.failed" == desk.world.events.audits[-1].event_type


async def test_what_is_refused_before_a_run_begins_leaves_no_event():
    desk = Desk()
    await desk.take(b"no JSON")
    await desk.take()
    told = len(desk.world.events.audits)
    await desk.take(body(description="another question"), sequence=9)  # under the same key
    assert (2, told) == (len(desk.world.events.rejections), len(desk.world.events.audits))
    assert whole(desk.world)
    assert ChainStatus.COMPLETE in checked(desk.world).chains
