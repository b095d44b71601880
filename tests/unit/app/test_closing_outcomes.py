"""A bad outcome is rejected once, a good one stays where it is."""

from __future__ import annotations

import json
from dataclasses import replace

from schemas.failure import ValidationCode
from schemas.subjects import OUTCOMES, Subjects
from tests.fakes import samples
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_nats import MemoryEvents
from tests.fakes.scripted import DELIVERY
from worker.app.closing import Closing, OutcomeCheck
from worker.app.metrics import WorkerMetrics
from worker.domain.values.delivery import ACK, Fate

SUBJECTS = Subjects()
GOOD = samples.OUTCOME.model_dump(mode="json")
DELIVERED = replace(
    DELIVERY, stream=SUBJECTS.outcomes_stream, subject=SUBJECTS.outcome("rr-1"), durable=OUTCOMES, sequence=9
)


async def settled(events, **changes):
    check = OutcomeCheck(Closing(events, FixedClock(), WorkerMetrics()), SUBJECTS)
    return await check(json.dumps(GOOD | changes).encode(), {}, DELIVERED)


async def test_a_good_outcome_is_left_alone():
    events = MemoryEvents()
    assert ACK == await settled(events)
    assert [] == events.rejections


async def test_a_bad_outcome_is_rejected():
    events = MemoryEvents()
    assert Fate.TERMINATE is (await settled(events, outcome="great")).fate
    [failure] = events.rejections
    assert (ValidationCode.SCHEMA, "outcome", "rr-1") == (failure.code, failure.path, failure.request_key)
    assert ("RCA_OUTCOMES", 9) == (failure.origin_stream, failure.origin_sequence)


async def test_a_bad_outcome_that_cannot_be_rejected_yet_comes_again():
    events = MemoryEvents(down=True)
    assert Fate.RETRY is (await settled(events, outcome="great")).fate
