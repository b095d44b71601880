"""What a failed call says about all others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes.memory_model import MemoryModel
from worker.domain.investigation.models.health import ModelHealth, WatchedModel
from worker.domain.values.conversation import ModelRequest, UserTurn
from worker.domain.values.errors import GiveUp, GiveUpReason, Retry, RetryReason

REQUEST = ModelRequest(system="", turns=(UserTurn("one"),), tools=(), deadline_seconds=60.0)
OTHER = replace(REQUEST, turns=(UserTurn("two"),))


def rejection(number):
    return GiveUp(
        GiveUpReason.MODEL_REJECTED_REQUEST, f"400: max_tokens is too large (request req_{number}a)"
    )


async def reason_of(model, request):
    with pytest.raises(GiveUp) as raised:
        await model.ask(request)
    return raised.value.reason


async def test_the_same_rejection_of_two_requests_is_one_of_all():
    model = WatchedModel(MemoryModel([rejection(1), rejection(2), rejection(3)]), ModelHealth())
    reasons = [await reason_of(model, request) for request in (REQUEST, REQUEST, OTHER)]
    rejected = GiveUpReason.MODEL_REJECTED_REQUEST
    assert [rejected, rejected, GiveUpReason.MODEL_REJECTS_ALL] == reasons


async def test_another_reason_or_an_answer_in_between_leaves_it_with_the_request():
    health = ModelHealth()
    model = WatchedModel(
        MemoryModel([rejection(1), GiveUp(GiveUpReason.MODEL_REJECTED_REQUEST, "400: content")]), health
    )
    await reason_of(model, REQUEST)
    assert GiveUpReason.MODEL_REJECTED_REQUEST is await reason_of(model, OTHER)
    health.answered()
    assert not health.rejects_every_request("two", "400: content")


@pytest.mark.parametrize(
    ("left_alone", "silence", "outage"), [(True, 13.0, True), (True, 1.0, False), (False, 13.0, False)]
)
async def test_an_outage_is_told_from_a_failure_of_one_request(left_alone, silence, outage):
    now = [100.0]
    health = ModelHealth(lambda: left_alone, lambda: now[0])
    health.answered()
    now[0] += silence
    failing = WatchedModel(MemoryModel([Retry(RetryReason.MODEL_UNAVAILABLE, "503", 2.0)]), health)
    with pytest.raises(GiveUp if outage else Retry) as raised:
        await failing.ask(REQUEST)
    assert (
        GiveUpReason.MODEL_UNREACHABLE if outage else RetryReason.MODEL_UNAVAILABLE
    ) is raised.value.reason


@pytest.mark.parametrize("after", [None, 30.0, 90.0])
def test_only_a_long_rate_limit_is_an_outage(after):
    limited = Retry(RetryReason.MODEL_RATE_LIMITED, "429", after, tried=False)
    assert (after == 90.0) is ModelHealth().is_outage(limited)


async def test_a_model_that_does_not_answer_is_mentioned_while_somebody_waits():
    now = [100.0]
    health = ModelHealth(now=lambda: now[0])
    with health.waiting():
        now[0] += 9.0
        assert (9.0, "") == (health.silent_seconds(), health.silence())
        with health.waiting():
            now[0] += 3.0
            assert ("12 s" in health.silence(), "2 are waiting" in health.silence()) == (True, True)
        health.answered()
        now[0] += 1.0
        assert (1.0, "") == (health.silent_seconds(), health.silence())
    now[0] += 100.0
    assert (0.0, "") == (health.silent_seconds(), health.silence())
