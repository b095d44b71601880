"""Requests that are cancelled or expire in the queue while no model answers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from schemas.analysis import HumanReviewReason
from tests.fakes.handler_rig import HandlerRig, body, until
from tests.fakes.scripted import World, incident
from worker.app.halted import AT_ONCE, HaltedRequests
from worker.domain.journal.steps import FAILED, INTERNAL_ERROR
from worker.domain.values.errors import GiveUp, GiveUpReason
from worker.domain.values.ports import StoredRequest

REFUSED = GiveUp(GiveUpReason.MODEL_REFUSED_CREDENTIALS, "no such key")


def queue(rig, sequence, *, message=None, **fields):
    message = message or body(incident(remediation_id=f"rr-{sequence}"), **fields)
    rig.requests.stored[sequence] = StoredRequest(
        "rca.request.incident", sequence, rig.world.clock.now(), message
    )


def halted(rig):
    return HaltedRequests(rig.requests, rig.handler, rig.admission, rig.world.clock)


def reasons(rig):
    return {result.remediation_id: result.human_review_reason for result in rig.world.events.told}


async def test_a_queued_request_that_nobody_waits_for_gets_its_result_and_the_others_stay():
    rig = HandlerRig()
    expires_at = (rig.world.clock.now() + timedelta(minutes=1)).isoformat()
    queue(rig, 1)
    queue(rig, 2, expires_at=expires_at)
    queue(rig, 3)
    queue(rig, 4, message=b"unreadable")
    rig.cancellations.keys.add("rr-1")
    rig.admission.block("no such key")
    await halted(rig).look()
    assert {"rr-1": HumanReviewReason.OPERATOR_ESCALATION} == reasons(rig)
    rig.world.clock.advance(60)
    await halted(rig).look()
    assert {"rr-1", "rr-2"} == set(reasons(rig))
    assert [3, 4] == sorted(rig.requests.stored)
    assert (0, [], True) == (rig.world.model.calls, rig.world.cluster.calls, bool(rig.admission.blocked))
    assert ["response.complete"] * 2 == [
        event.event_type for event in rig.world.events.audits if event.event_type.startswith("response.")
    ]


async def test_a_request_that_has_begun_is_left_to_the_worker_that_holds_it():
    rig = HandlerRig(World.saying(REFUSED))
    rig.world.clock.sleep = lambda seconds: asyncio.sleep(60)
    taken = asyncio.create_task(rig.take(body(incident(remediation_id="rr-7")), sequence=7))
    queue(rig, 7)
    await until(lambda: rig.admission.blocked)
    await asyncio.sleep(0.05)  # the worker that holds it has looked, and looks again after two seconds
    rig.cancellations.keys.add("rr-7")
    await halted(rig).look()
    assert (set(), [7]) == (set(reasons(rig)), sorted(rig.requests.stored))
    taken.cancel()
    await asyncio.wait({taken})


async def test_a_request_that_was_answered_meanwhile_is_only_removed():
    rig = HandlerRig()
    queue(rig, 7)
    await rig.take(rig.requests.stored[7].body, sequence=7)
    rig.cancellations.keys.add("rr-7")
    await halted(rig).look()
    assert (1, {}) == (len(rig.world.events.told), rig.requests.stored)


async def test_a_request_that_cannot_be_answered_stops_neither_the_look_nor_the_worker():
    rig = HandlerRig()
    publish = rig.world.events.result

    async def result(found, **how):
        if found.remediation_id == "rr-1":
            raise ValueError("a message of 2000000 bytes")
        return await publish(found, **how)

    rig.world.events.result = result
    for sequence in (1, 2):
        queue(rig, sequence)
        rig.cancellations.keys.add(f"rr-{sequence}")
    rig.admission.block("no such key")
    await halted(rig).look()
    assert ({"rr-2"}, [1]) == (set(reasons(rig)), sorted(rig.requests.stored))
    assert [(FAILED, INTERNAL_ERROR)] == rig.ends


async def test_a_request_that_meets_a_defect_stops_neither_the_look_nor_the_worker():
    rig = HandlerRig()
    for sequence in (1, 2):
        queue(rig, sequence)
        rig.cancellations.keys.add(f"rr-{sequence}")
    rig.break_journal_of("rr-1")
    rig.admission.block("no such key")
    await halted(rig).look()
    assert ({"rr-2"}, [1]) == (set(reasons(rig)), sorted(rig.requests.stored))


async def test_a_long_queue_is_looked_at_part_by_part_again_and_again():
    rig = HandlerRig()
    for sequence in range(1, 2 * AT_ONCE):
        queue(rig, sequence)
    rig.cancellations.keys.add(f"rr-{AT_ONCE + 1}")
    looking = halted(rig)
    await looking.look()
    assert {} == reasons(rig)
    await looking.look()
    assert {f"rr-{AT_ONCE + 1}"} == set(reasons(rig))
    rig.cancellations.keys.add("rr-1")
    await looking.look()
    assert {f"rr-{AT_ONCE + 1}", "rr-1"} == set(reasons(rig))


@pytest.mark.parametrize("blocked", [True, False])
async def test_the_queue_is_looked_at_only_while_no_model_answers(blocked):
    rig, looks = HandlerRig(), []
    queue(rig, 1)
    rig.cancellations.keys.add("rr-1")
    if blocked:
        rig.admission.block("no such key")

    async def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            raise asyncio.CancelledError

    rig.world.clock.sleep = sleep
    with pytest.raises(asyncio.CancelledError):
        await halted(rig).run()
    assert blocked == bool(reasons(rig))
