"""Failed calls of the model: how often they are made again, by whom, and how it ends."""

from __future__ import annotations

import pytest

from schemas.analysis import HumanReviewReason, Status
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_model import MemoryModel, calls, final, says
from tests.fakes.scripted import LOGS, LOOK, World, answer, assert_checked, shop
from worker.domain.analyse import Rules
from worker.domain.investigation.models.shrink import shrunk
from worker.domain.investigation.models.tries import TryRule
from worker.domain.values.conversation import CallUsage, ToolTurn
from worker.domain.values.delays import RATE_LIMIT_FLOOR_SECONDS
from worker.domain.values.errors import BLOCKING, GiveUp, GiveUpReason, Retry, RetryReason
from worker.domain.values.limits import Limits
from worker.domain.values.step_kinds import CLAIM, LLM, TRIED

DOWN = Retry(RetryReason.MODEL_UNAVAILABLE, "529")
LEFT_ALONE = Retry(RetryReason.MODEL_UNAVAILABLE, "not asked", 30.0, tried=False)
OVERFLOW = GiveUp(GiveUpReason.CONTEXT_OVERFLOW, "more than 8192 tokens")
REVIEW = (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.INVESTIGATION_INCONCLUSIVE)
SHORT = Rules(tries=TryRule(tries=3, first_pause_seconds=1.0))
IMPATIENT = Rules(tries=TryRule(tries=3, patience_seconds=0.0))


def limited(after):
    return Retry(RetryReason.MODEL_RATE_LIMITED, "429", after)


def kinds(world):
    return [step.kind for step in world.journal.steps["rr-1"]]


async def runs(world, most=20):
    """One run after the other until there is a result, as the queue would have it. (result, seconds to wait each)."""
    waits = []
    for number in range(1, most):
        try:
            return await world.analyse(run=f"run-{number}"), waits
        except Retry as e:
            waits.append(e.after)
    raise AssertionError("no result")


async def test_a_failed_call_is_made_again_after_a_pause_and_costs_nobody_a_delivery():
    world = World.saying(DOWN, calls(LOOK), DOWN, DOWN, final(answer()))
    world.rules = SHORT
    before = world.clock.monotonic()
    result = await world.analyse()
    assert Status.COMPLETED is result.status
    assert [CLAIM, TRIED, CLAIM, LLM] == kinds(world)[2:6]
    assert 5 == world.model.calls
    assert 0.75 + 0.75 + 3.0 == world.clock.monotonic() - before
    assert 2 == result.usage.llm_calls


async def test_after_so_many_tries_the_findings_are_escalated():
    world = World.saying(calls(LOOK), DOWN)
    world.rules = SHORT
    result = await world.analyse()
    assert_checked(result)
    assert REVIEW == (result.status, result.human_review_reason)
    assert "no answer in 3 tries" in result.human_review_detail
    assert 4 == world.model.calls
    assert "get_resource" in {item.source for item in result.evidence}
    assert (1, 1) == (result.usage.llm_calls, result.usage.tool_calls)


async def test_every_run_counts_on_where_the_one_before_stopped():
    world = World.saying(calls(LOOK), DOWN)
    world.rules = IMPATIENT
    result, waits = await runs(world)
    assert REVIEW == (result.status, result.human_review_reason)
    assert 4 == world.model.calls
    assert 2 == len(waits)
    assert waits[0] < waits[1]


async def test_a_run_after_the_last_try_asks_no_more():
    world = World.saying(DOWN)
    world.rules = SHORT
    await world.analyse()
    [journal] = world.journal.steps.values()
    while journal[-1].kind != TRIED:
        journal.pop()
    world.model = MemoryModel([final(answer())])
    result = await world.analyse(run="run-2")
    assert REVIEW == (result.status, result.human_review_reason)
    assert world.model.calls == 0


async def test_the_tries_of_one_reply_are_not_those_of_the_next():
    world = World.saying(DOWN, DOWN, calls(LOOK), DOWN, DOWN, final(answer()))
    world.rules = IMPATIENT
    result, waits = await runs(world)
    assert Status.COMPLETED is result.status
    assert 4 == len(waits)


@pytest.mark.parametrize("error", [LEFT_ALONE, limited(30.0)], ids=["left alone", "rate limit"])
async def test_what_was_never_sent_and_a_rate_limit_are_no_tries(error):
    world = World.saying(*[error] * 8, final(answer()))
    world.rules = SHORT
    result, waits = await runs(world)
    assert Status.COMPLETED is result.status
    assert TRIED not in kinds(world)
    assert 8 == len(waits)
    assert all(wait >= 30.0 for wait in waits)


async def test_a_short_retry_after_is_waited_out_and_never_undercut():
    world = World.saying(limited(3.0), final(answer()))
    world.rules = SHORT
    before = world.clock.monotonic()
    await world.analyse()
    assert 3.5 == world.clock.monotonic() - before


async def test_many_short_waits_are_handed_back_too():
    world = World.saying(*[limited(6.0)] * 4, final(answer()))
    world.rules = SHORT
    result, waits = await runs(world)
    assert Status.COMPLETED is result.status
    assert 1 == len(waits)


@pytest.mark.parametrize("reason", sorted(BLOCKING))
async def test_what_only_a_human_can_fix_is_no_result(reason):
    world = World.saying(GiveUp(reason, "no"))
    with pytest.raises(GiveUp):
        await world.analyse()
    assert world.events.results == {}


async def test_a_request_that_no_model_takes_is_escalated_with_what_was_found():
    world = World.saying(calls(LOOK), GiveUp(GiveUpReason.MODEL_REJECTED_REQUEST, "400: tools"))
    result = await world.analyse()
    assert REVIEW == (result.status, result.human_review_reason)
    assert "400: tools" in result.human_review_detail
    assert result.usage.tool_calls == 1


def test_pauses_grow_and_keep_what_the_provider_asked_for():
    rule = TryRule(first_pause_seconds=2.0)
    assert [2.0, 8.0, 32.0, 128.0] == [rule.pause(n, DOWN, 1.0) for n in range(1, 5)]
    assert [1.0, 4.0] == [rule.pause(n, DOWN, 0.0) for n in (1, 2)]
    assert [30.0, 31.0] == [rule.pause(3, limited(30.0), jitter) for jitter in (0.0, 0.5)]


async def test_a_rate_limit_that_names_no_time_is_not_hurried():
    world = World.saying(*[limited(None)] * 9)
    with pytest.raises(Retry):
        await world.analyse()
    assert len(world.model.requests) <= 20.0 / RATE_LIMIT_FLOOR_SECONDS + 1


# -- Budgets


async def test_tries_that_hang_end_with_the_time_of_the_investigation():
    limits, tries = Limits(wall_seconds=300.0, call_seconds=120.0), TryRule(first_pause_seconds=0.1)
    world = World(rules=Rules(limits=limits, tries=tries))

    def hang(request, number):
        if number == 1:
            return calls(LOOK)
        world.clock.advance(request.deadline_seconds)
        return DOWN

    world.model = MemoryModel(hang)
    result = await world.analyse()
    assert REVIEW == (result.status, result.human_review_reason)
    assert "seconds used up" in result.human_review_detail
    deadlines = [request.deadline_seconds for request in world.model.requests[1:]]
    assert [120.0, 120.0] == deadlines[:2]
    assert sum(deadlines) <= 300.0
    assert "get_resource" in {item.source for item in result.evidence}


@pytest.mark.parametrize(
    ("limits", "usage", "named"),
    [
        (Limits(cost_usd=1.0), CallUsage(input_tokens=10, cost_usd=0.3), "US dollars"),
        (Limits(input_tokens=100_000), CallUsage(input_tokens=30_000), "input tokens"),
        (Limits(llm_calls=6), CallUsage(), ""),
    ],
    ids=["money", "tokens", "calls"],
)
async def test_near_the_end_of_a_budget_the_model_is_told_and_then_the_findings_are_escalated(
    limits, usage, named
):
    """A model that only ever calls tools, whatever it is told."""
    world = World.saying(calls(LOOK, usage=usage))
    world.rules = Rules(limits=limits)
    result = await world.analyse()
    assert_checked(result)
    assert Status.NEEDS_HUMAN_REVIEW is result.status
    told = [request for request in world.model.requests if not request.tools_allowed]
    assert told
    notes = [turn.note for turn in told[0].turns if isinstance(turn, ToolTurn)]
    assert "final answer now" in notes[-1]
    assert [False] * len(told) == [r.tools_allowed for r in world.model.requests[-len(told) :]]
    assert "get_resource" in {item.source for item in result.evidence}
    if named:
        assert HumanReviewReason.INVESTIGATION_INCONCLUSIVE is result.human_review_reason
        assert named in result.human_review_detail
        assert result.usage.cost_usd is None or result.usage.cost_usd <= limits.cost_usd
        assert result.usage.input_tokens <= limits.input_tokens
    else:
        assert HumanReviewReason.LLM_PARSING_ERROR is result.human_review_reason
    assert world.model.calls <= limits.llm_calls


async def test_an_answer_within_the_reserve_still_counts():
    usage = CallUsage(input_tokens=10, cost_usd=0.3)
    world = World.saying(*[calls(LOOK, usage=usage)] * 2, final(answer(), usage=CallUsage(cost_usd=0.35)))
    world.rules = Rules(limits=Limits(cost_usd=1.0))
    result = await world.analyse()
    assert (Status.COMPLETED, pytest.approx(0.95)) == (result.status, result.usage.cost_usd)
    assert not world.model.requests[-1].tools_allowed


# -- Conversations that become too long

LONG_LOGS = {key: b"".join(b"line %d of many: %s\n" % (n, b"x" * 60) for n in range(40)) for key in LOGS}


def logs(n):
    """A call for the logs, with another number of lines each time: the toolbox answers a repeated call shortly."""
    pod = {"pod": "api-7d9-x2x", "namespace": "shop", "previous": True}
    return calls(("get_pod_logs", {**pod, "tail_lines": 100 + n}))


def overflowing(*said):
    """A model that refuses conversations with more than 4,000 characters of tool results."""
    lines = iter(said)

    def script(request, number):
        size = sum(len(r.content) for t in request.turns if isinstance(t, ToolTurn) for r in t.results)
        return OVERFLOW if size > 4_000 else next(lines)

    return MemoryModel(script)


def long_world(*said):
    return World(cluster=MemoryCluster(shop(), LONG_LOGS), model=overflowing(*said))


async def test_a_conversation_that_is_too_long_is_shrunk_once_and_continues():
    world = long_world(logs(1), logs(2), says("no answer"), final(answer()))
    result = await world.analyse()
    assert Status.COMPLETED is result.status
    assert any("too long" in note for note in result.notes)
    sent = [request.turns for request in world.model.requests]
    assert [shrunk(sent[2])] == [sent[3]]
    assert sent[3] == sent[4][: len(sent[3])]  # what was taken out stays out
    assert 4 == result.usage.llm_calls
    assert 2 == sum(item.source == "get_pod_logs" for item in result.evidence)


async def test_too_long_again_is_escalated_with_the_reason():
    world = long_world(*[logs(n) for n in range(9)])
    result = await world.analyse()
    assert REVIEW == (result.status, result.human_review_reason)
    assert "too long for the model" in result.human_review_detail
    assert "8192" in result.human_review_detail
    assert sum(item.source == "get_pod_logs" for item in result.evidence) >= 2


async def test_an_incident_that_is_too_long_by_itself_is_escalated_after_one_call():
    world = World.saying(OVERFLOW)
    result = await world.analyse()
    assert REVIEW == (result.status, result.human_review_reason)
    assert world.model.calls == 1


@pytest.mark.parametrize("kept", range(2, 13))
async def test_a_successor_shrinks_what_the_run_before_has_shrunk(kept):
    said = [logs(1), logs(2), says("no answer"), final(answer())]
    whole = long_world(*said)
    expected = await whole.analyse()
    [journal] = whole.journal.steps.values()
    asked = sum(step.kind == LLM for step in journal[:kept])
    world = long_world(*said[asked:])
    world.journal.steps["rr-1"] = list(journal[:kept])
    result = await world.analyse(run="run-2")
    assert expected.model_dump_json() == result.model_dump_json()
    sent = [request.turns for request in world.model.requests]
    assert sent == [request.turns for request in whole.model.requests][-len(sent) :] or not sent
