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
from tests.fakes.dying_run import die_at
from tests.fakes.handler_rig import HandlerRig, body
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import LOOK, World, answer, incident
from worker.adapters.ed25519_keys import Ed25519Check, Ed25519Signer
from worker.domain.audit.check import AuditCheck
from worker.domain.audit.findings import AuditFacts, ChainStatus, StoredResult
from worker.domain.values.delays import CLAIM_SECONDS
from worker.domain.values.delivery import ACK, LET_GO, Fate
from worker.domain.values.errors import Retry, RetryReason, Unavailable
from worker.domain.values.ports import Step
from worker.domain.values.step_kinds import BEGIN, CLAIM, END, LLM, OPENING, RESULT

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
    rig = HandlerRig()
    assert ACK == await rig.take()
    assert whole(rig.world)


async def test_ends_are_signed_with_the_configured_key():
    rig = HandlerRig()
    rig.handler.ports = replace(rig.handler.ports, signer=SIGNER)
    await rig.take()
    report = checked(rig.world, [PUBLIC])
    assert ([], 1, 1) == (list(report.findings), report.ends, report.signed)
    signatures = [event.signature for event in rig.world.events.audits]
    assert [SIGNER.key_id] == [signature.key_id for signature in signatures if signature]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("append", range(1, 9))
async def test_a_request_whose_process_was_killed(append, before):
    said = [calls(LOOK), final(answer())]
    world = World(model=MemoryModel(said))
    await die_at(world, incident(), append, before=before)
    replies = sum(step.kind == LLM for step in world.journal.steps["rr-1"])
    world.model = MemoryModel(said[replies:])
    rig = HandlerRig(world)
    assert ACK == await rig.take()
    assert whole(world)


async def test_runs_that_are_postponed():
    rig = HandlerRig(World.saying(calls(LOOK), LEFT_ALONE, LEFT_ALONE, final(answer())))
    assert ACK == await rig.take()
    assert whole(rig.world)


async def test_a_result_that_could_not_be_published_at_once():
    rig = HandlerRig()
    store, rig.world.events.result = rig.world.events.result, _unavailable
    assert (await rig.take()).fate is Fate.RETRY
    rig.world.events.result = store
    assert ACK == await rig.take()
    assert whole(rig.world)
    assert "response.complete" == rig.world.events.audits[-1].event_type


async def test_a_result_that_this_version_cannot_read_is_followed_by_another_end():
    rig = HandlerRig()
    store, rig.world.events.result = rig.world.events.result, _unavailable
    await rig.take()
    rig.world.events.result = store
    rig.steps[:] = [replace(s, data=b"{}") if s.kind == "result" else s for s in rig.steps if s]
    assert ACK == await rig.take()
    assert whole(rig.world)
    assert 2 == sum(event.event_type == "response.complete" for event in rig.world.events.audits)


async def test_a_run_that_was_replaced_publishes_nothing_that_is_not_in_the_journal():
    rig, other = HandlerRig(World.saying(calls(LOOK), final(answer()))), []

    def replaced(request, number):
        if not other:
            other.append(1)
            steps = rig.steps
            tail = [event for step in steps for event in step.events][-1]
            steps.append(Step(len(steps) + 1, BEGIN, "newer", b"", {"digest": "", "at": ""}))
            assert tail.body in rig.world.events.bodies.values()
        return final(answer())

    rig.world.model = MemoryModel(replaced)
    rig.new_process()
    assert LET_GO == await rig.take()
    kept = [event.body for step in rig.steps for event in step.events]
    assert kept == list(rig.world.events.bodies.values())
    assert ACK == await rig.take()
    assert whole(rig.world)


async def test_a_run_that_was_replaced_while_it_published_its_claim_makes_no_call():
    rig = HandlerRig()
    publish = rig.world.events.audit

    async def frozen(record):
        if record.event_type == "llm.request":
            rig.world.clock.advance(CLAIM_SECONDS + 1.0)
            rig.steps.append(Step(len(rig.steps) + 1, BEGIN, "newer", b"", {"digest": "", "at": ""}))
        await publish(record)

    rig.world.events.audit = frozen
    assert LET_GO == await rig.take()
    assert 0 == rig.world.model.calls
    rig.world.events.audit = publish
    assert ACK == await rig.take()
    assert whole(rig.world)


async def test_a_claim_that_took_long_is_repeated_before_the_call():
    rig = HandlerRig()
    publish = rig.world.events.audit

    async def slow(record):
        rig.world.clock.advance(CLAIM_SECONDS + 1.0)
        await publish(record)

    rig.world.events.audit = slow
    assert ACK == await rig.take()
    assert [BEGIN, OPENING, CLAIM, CLAIM, LLM, RESULT] == [step.kind for step in rig.steps]
    assert whole(rig.world)


@pytest.mark.parametrize("when", range(1, 14))
async def test_a_broker_that_fails_at_any_event(when):
    """The event may be stored or not; the next run tells what is in the journal."""
    rig = HandlerRig(World.saying(calls(LOOK), final(answer()), final(answer())), rules={"hold_seconds": 0.0})
    publish, left = rig.world.events.audit, [when]

    async def failing(record):
        left[0] -= 1
        if left[0] == 0:
            raise Unavailable("no answer")
        await publish(record)

    rig.world.events.audit = failing
    while (await rig.take()).fate is Fate.RETRY:
        pass
    assert whole(rig.world)


async def test_a_request_whose_first_step_could_not_be_stored_is_accepted_by_the_next_run():
    rig = HandlerRig()
    opened, failing = rig.world.journal.open, [True]

    async def opening(key, run):
        journal = await opened(key, run)
        append = journal.append

        async def appending(kind, *rest, **options):
            if kind == BEGIN and failing and failing.pop():
                raise Unavailable("no answer")
            await append(kind, *rest, **options)

        journal.append = appending
        return journal

    rig.world.journal.open = opening
    assert (await rig.take()).fate is Fate.RETRY
    assert [END] == [step.kind for step in rig.steps]
    assert ACK == await rig.take()
    assert whole(rig.world)
    assert "request.accepted" == rig.world.events.audits[0].event_type


async def test_a_run_that_is_stopped_in_a_call():
    rig, asked = HandlerRig(), asyncio.Event()

    class Slow(MemoryModel):
        async def ask(self, request):
            asked.set()
            await asyncio.sleep(60)

    rig.world.model = Slow([])
    rig.new_process()
    task = asyncio.create_task(rig.take())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert whole(rig.world, OPEN=1)
    rig.says(final(answer()))
    assert ACK == await rig.take()
    assert whole(rig.world)


# -- Journals that are gone


@pytest.mark.parametrize("gap", range(7))
async def test_a_journal_with_a_gap(gap):
    """The chain goes on where its last event can be read; else another one names the last one that could be."""
    rig = HandlerRig(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await rig.take()
    told = [bool(step.events) for step in rig.steps]
    rig.steps[gap] = None
    rig.says(final(answer()))
    assert ACK == await rig.take()
    last_is_gone = not any(told[gap + 1 :])
    assert whole(rig.world, **({"ABANDONED": 1, "COMPLETE": 1} if last_is_gone else {"COMPLETE": 1}))


async def test_a_journal_that_is_gone_altogether():
    rig = HandlerRig(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await rig.take()
    rig.steps.clear()
    rig.world.clock.advance(25 * 3_600.0)
    rig.says(final(answer()))
    assert ACK == await rig.take()
    assert whole(rig.world, ABANDONED=1, COMPLETE=1)


@pytest.mark.parametrize("kind", ["opening", "llm", "tools"])
async def test_a_step_that_makes_no_sense_to_this_version(kind):
    rig = HandlerRig(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await rig.take()
    rig.steps[:] = [replace(s, data=b"garbage") if s.kind == kind else s for s in rig.steps if s]
    rig.says(final(answer()))
    assert ACK == await rig.take()
    assert whole(rig.world)


async def test_events_of_a_version_without_chains_are_not_continued():
    rig = HandlerRig(World.saying(calls(LOOK), LEFT_ALONE), rules={"hold_seconds": 0.0})
    await rig.take()
    old = [replace(e, chain="", hash="") for step in rig.steps for e in step.events]
    rig.steps[:] = [
        replace(s, events=tuple(e for e in old if e.event_id in {x.event_id for x in s.events}))
        for s in rig.steps
    ]
    rig.says(final(answer()))
    assert ACK == await rig.take()
    last = rig.world.events.audits[-1]
    assert (1, True) == (
        len({e.chain for e in rig.world.events.audits if e.chain == last.chain}),
        last.sequence < 9,
    )
    first = next(e for e in rig.world.events.audits if e.chain == last.chain and e.sequence == 1)
    assert ("request.resumed", None) == (first.event_type, first.payload.continues)


# -- Dead letters


async def test_a_dead_letter_and_its_replay():
    rig = HandlerRig(World.saying(KeyError("boom")), rules={"max_failures": 1})
    assert (await rig.take()).fate is Fate.TERMINATE
    assert whole(rig.world)
    end = json.loads(list(rig.world.events.bodies.values())[-1])["payload"]
    [stored] = rig.world.events.results.values()
    assert hashlib.sha256(stored).hexdigest() == end["result_sha256"]
    rig.says(final(answer()))
    assert ACK == await rig.take(sequence=8, headers={REPLAY_HEADER: "1"})
    assert Status.COMPLETED is rig.result.status
    assert whole(rig.world)


async def test_a_replay_when_the_journal_is_gone():
    rig = HandlerRig(World.saying(KeyError("boom")), rules={"max_failures": 1})
    await rig.take()
    rig.steps.clear()
    rig.says(final(answer()))
    assert ACK == await rig.take(sequence=8, headers={REPLAY_HEADER: "1"})
    assert whole(rig.world, COMPLETE=2)
    begun = [event.payload for event in rig.world.events.audits if event.sequence == 1]
    assert [False, True] == [payload.replayed for payload in begun]


async def test_a_dead_letter_that_could_not_be_published_at_once_is_reported_once():
    rig = HandlerRig(World.saying(KeyError("boom")), rules={"max_failures": 1})
    publish = rig.world.events.dead_letter

    async def unreachable(letter, raw):
        raise Unavailable("the stream is full")

    rig.world.events.dead_letter = unreachable
    assert (await rig.take()).fate is Fate.RETRY
    rig.world.events.dead_letter = publish
    assert (await rig.take()).fate is Fate.TERMINATE
    assert whole(rig.world)
    assert "response.failed" == rig.world.events.audits[-1].event_type


async def test_what_is_refused_before_a_run_begins_leaves_no_event():
    rig = HandlerRig()
    await rig.take(b"no JSON")
    await rig.take()
    told = len(rig.world.events.audits)
    await rig.take(body(description="another question"), sequence=9)  # under the same key
    assert (2, told) == (len(rig.world.events.rejections), len(rig.world.events.audits))
    assert whole(rig.world)
    assert ChainStatus.COMPLETE in checked(rig.world).chains
