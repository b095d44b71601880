from __future__ import annotations

import asyncio

import pytest

from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_model import MemoryModel, says
from worker.domain.investigation.models.chain import ModelChain, outcome
from worker.domain.values.breaker import BreakerRule
from worker.domain.values.conversation import ModelRequest, UserTurn
from worker.domain.values.errors import GiveUp, GiveUpReason, Retry, RetryReason

RULE = BreakerRule(failures=2, open_seconds=10.0, longest_seconds=40.0)
REQUEST = ModelRequest("system", (), (UserTurn("incident"),), deadline_seconds=120.0)
DOWN = Retry(RetryReason.MODEL_UNAVAILABLE, "529")
REFUSED = GiveUp(GiveUpReason.MODEL_REFUSED_CREDENTIALS, "401")
CAPPED = GiveUp(GiveUpReason.MODEL_SPEND_CAP, "quota")
OVERFLOW = GiveUp(GiveUpReason.CONTEXT_OVERFLOW, "too long")
REJECTED = GiveUp(GiveUpReason.MODEL_REJECTED_REQUEST, "400")


def limited(after=None):
    return Retry(RetryReason.MODEL_RATE_LIMITED, "429", after)


class Chain:
    """A chain on scripts, each a list of replies and exceptions, or a function."""

    def __init__(self, *scripts, **options):
        self.clock, self.notices = FixedClock(), []
        self.models = [MemoryModel(script, f"provider-{n}:m{n}") for n, script in enumerate(scripts)]
        self.chain = ModelChain(self.models, self.clock, rule=RULE, notice=self.notices.append, **options)

    async def ask(self, **changes):
        return (await self.chain.ask(ModelRequest("system", (), REQUEST.turns, **changes))).text

    async def fails(self, **changes):
        with pytest.raises((Retry, GiveUp)) as raised:
            await self.ask(**changes)
        return raised.value

    @property
    def calls(self):
        return [model.calls for model in self.models]


def test_a_chain_of_nothing_is_a_mistake():
    with pytest.raises(ValueError, match="needs a model"):
        ModelChain([], FixedClock())


async def test_the_first_model_answers_and_gives_the_chain_its_name():
    chain = Chain([says("first")], [says("second")])
    assert await chain.ask() == "first"
    assert (chain.chain.name, chain.calls) == ("provider-0:m0", [1, 0])


@pytest.mark.parametrize("error", [DOWN, limited(30.0), REFUSED, CAPPED, OVERFLOW, REJECTED], ids=str)
async def test_whatever_stops_a_model_the_next_is_asked(error):
    chain = Chain([error], [says("second")])
    assert await chain.ask() == "second"
    assert chain.calls == [1, 1]


async def test_the_request_goes_to_each_model_word_for_word():
    chain = Chain([DOWN], [says("second")])
    await chain.ask(tools_allowed=False, urgency=0)
    first, second = (model.requests[0] for model in chain.models)
    assert first.turns is second.turns
    assert (False, 0) == (second.tools_allowed, second.urgency)


async def test_a_model_that_keeps_failing_is_left_alone_then_probed_and_trusted_again():
    said = [DOWN, DOWN, says("back"), says("back")]
    chain = Chain(said, [says("second")])
    for _ in range(4):
        assert await chain.ask() == "second"
    assert chain.calls == [2, 4]
    chain.clock.advance(10.0)
    assert [await chain.ask() for _ in range(2)] == ["back", "back"]
    assert [("provider-0:m0", 10.0), ("provider-0:m0", 0.0)] == [
        (notice.model, notice.pause_seconds) for notice in chain.notices
    ]


async def test_a_problem_is_that_no_model_can_be_reached():
    chain = Chain([DOWN, says("back")], [REFUSED])
    assert "" == chain.chain.problem()
    await chain.fails()
    assert "provider-0:m0: 529; provider-1:m1: 401" == chain.chain.problem()
    await chain.ask()
    assert "" == chain.chain.problem()


@pytest.mark.parametrize("error", [limited(30.0), OVERFLOW, REJECTED], ids=str)
async def test_a_model_that_answers_is_no_problem_whatever_it_answers(error):
    chain = Chain([error])
    await chain.fails()
    assert "" == chain.chain.problem()


async def test_nobody_calls_before_retry_after_has_passed():
    chain = Chain([limited(30.0), says("answer")])
    await chain.fails()
    error = await chain.fails()
    assert (RetryReason.MODEL_RATE_LIMITED, 30.0, False) == (error.reason, error.after, error.tried)
    chain.clock.advance(29.0)
    await chain.fails()
    assert chain.calls == [1]
    chain.clock.advance(1.0)
    assert await chain.ask() == "answer"


async def test_retry_after_is_the_longest_that_was_asked_for():
    chain = Chain([limited(5.0)], [limited(30.0)])
    error = await chain.fails()
    assert (RetryReason.MODEL_RATE_LIMITED, 30.0) == (error.reason, error.after)


async def test_all_blocked_is_given_up_and_stays_so_until_it_is_time_to_look_again():
    chain = Chain([REFUSED, says("mended")], [CAPPED])
    for _ in range(3):
        error = await chain.fails()
        assert isinstance(error, GiveUp)
        assert GiveUpReason.MODEL_REFUSED_CREDENTIALS == error.reason
        assert "401" in error.message
        assert "quota" in error.message
    assert chain.calls == [1, 1]
    chain.clock.advance(BreakerRule().refused_seconds)
    assert await chain.ask() == "mended"


def taking(clock_of, seconds, reply):
    def script(request, number):
        clock_of().clock.advance(min(seconds, request.deadline_seconds))
        return DOWN if seconds > request.deadline_seconds else reply

    return script


async def test_all_models_together_have_the_deadline_of_the_call():
    chain = Chain(
        taking(lambda: chain, 500.0, says("-")),
        taking(lambda: chain, 500.0, says("-")),
        taking(lambda: chain, 30.0, says("third")),
    )
    started = chain.clock.monotonic()
    assert await chain.ask(deadline_seconds=120.0) == "third"
    assert [40.0, 40.0, 40.0] == [model.requests[0].deadline_seconds for model in chain.models]
    assert chain.clock.monotonic() - started <= 120.0


async def test_a_model_that_is_left_alone_leaves_its_time_to_the_others():
    chain = Chain([REFUSED], [DOWN], [says("third")])
    await chain.ask()
    await chain.ask()
    assert [60.0, 120.0] == [model.requests[1].deadline_seconds for model in chain.models[1:]]


async def test_a_model_that_had_too_little_time_is_not_held_to_be_down():
    chain = Chain(taking(lambda: chain, 500.0, says("-")))
    for _ in range(5):
        await chain.fails(deadline_seconds=1.0)
    assert chain.calls == [5]
    assert chain.notices == []


class Slow:
    """A model that answers when it is told to."""

    def __init__(self, name="provider:slow"):
        self.name, self.out, self.let = name, 0, asyncio.Event()
        self.most = 0

    async def ask(self, request):
        self.out += 1
        self.most = max(self.most, self.out)
        await self.let.wait()
        self.out -= 1
        return says("done")


async def settle():
    """Let all tasks run until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_calls_to_one_provider_are_bounded_whatever_model_is_asked():
    first, second = Slow("same:a"), Slow("same:b")
    chains = [ModelChain([model], FixedClock(), max_concurrent=2) for model in (first, second)]
    calls = [asyncio.create_task(chains[0].ask(REQUEST)) for _ in range(5)]
    await settle()
    assert first.out == 1  # the second slot is kept for the most urgent
    urgent = asyncio.create_task(chains[0].ask(ModelRequest("s", (), REQUEST.turns, urgency=0)))
    await settle()
    assert first.out == 2
    first.let.set()
    await asyncio.gather(*calls, urgent)
    assert first.most == 2


async def test_a_call_that_gets_no_slot_in_time_was_not_tried():
    slow = Slow()
    chain = ModelChain([slow], FixedClock(), max_concurrent=1)
    running = asyncio.create_task(chain.ask(REQUEST))
    await asyncio.sleep(0)
    with pytest.raises(Retry, match="no free slot") as raised:
        await chain.ask(ModelRequest("s", (), REQUEST.turns, deadline_seconds=0.01))
    assert raised.value.tried is False
    slow.let.set()
    await running


async def test_a_probe_that_is_cancelled_lets_the_next_one_try():
    slow, clock = Slow(), FixedClock()
    failing = [DOWN, DOWN]

    class Model:
        name = "provider:m"

        async def ask(self, request):
            if failing:
                raise failing.pop()
            return await slow.ask(request)

    chain = ModelChain([Model()], clock, rule=RULE)
    for _ in range(2):
        with pytest.raises(Retry):
            await chain.ask(REQUEST)
    clock.advance(10.0)
    probe = asyncio.create_task(chain.ask(REQUEST))
    await asyncio.sleep(0)
    with pytest.raises(Retry, match="not called"):
        await chain.ask(REQUEST)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    slow.let.set()
    assert (await chain.ask(REQUEST)).text == "done"


def test_what_the_caller_can_mend_goes_before_what_passes_and_that_before_what_a_person_must_mend():
    reasons = [
        GiveUpReason.CONTEXT_OVERFLOW,
        RetryReason.MODEL_UNAVAILABLE,
        GiveUpReason.MODEL_REJECTED_REQUEST,
    ]
    left = [CAPPED, REJECTED, DOWN, OVERFLOW]
    for reason in reasons:
        assert reason == outcome(left).reason
        left.pop()
    assert GiveUpReason.MODEL_SPEND_CAP == outcome(left).reason


@pytest.mark.parametrize(
    ("errors", "reason", "tried"),
    [
        ([limited(1.0), limited(2.0)], RetryReason.MODEL_RATE_LIMITED, False),
        ([limited(1.0), DOWN], RetryReason.MODEL_UNAVAILABLE, True),
        ([limited(1.0), REFUSED], RetryReason.MODEL_RATE_LIMITED, False),
        (
            [Retry(RetryReason.MODEL_UNAVAILABLE, "left alone", 9.0, tried=False)],
            RetryReason.MODEL_UNAVAILABLE,
            False,
        ),
    ],
)
def test_a_try_is_a_call_that_failed(errors, reason, tried):
    error = outcome(errors)
    assert (reason, tried) == (error.reason, error.tried)
