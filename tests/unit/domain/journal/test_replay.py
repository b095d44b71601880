"""A run that was killed and resumed, at each of its steps in turn, differs in nothing from one that was not.

Compared are all messages to the model, all events, refused answers and the result. Only what names a run or a time may
differ, and the one call that was outstanding at the death may be made twice. The time that failed tries of a call took
is forgotten with the process: they are bounded by their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.fakes.dying_run import die_at
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_model import calls, final, says
from tests.fakes.scripted import CONTEXT, LOGS, LOOK, World, answer, chosen, incident, shop
from worker.domain.analyse import Rules
from worker.domain.investigation.models.chain import ModelChain
from worker.domain.values.conversation import ModelRequest, Reply, ToolTurn
from worker.domain.values.errors import ClusterError, ClusterReason, GiveUp, GiveUpReason, Retry, RetryReason
from worker.domain.values.limits import Limits
from worker.domain.values.step_kinds import BEGIN, LLM, TOOLS, TRIED

ACTIONS = ("list_available_actions", {"signal_type": "CrashLoopBackOff", "severity": "critical"})
WORKFLOWS = ("list_workflows", {"action_type": "RestartDeployment"})
WRONG = chosen(workflow_id="no-such-workflow")
NOWHERE = chosen(parameters={"TARGET_RESOURCE_NAME": "another"})


NOISE = b"".join(b"request %d took longer than it should\n" % n for n in range(400))


def logs(lines: int) -> tuple[str, dict[str, object]]:
    return ("get_pod_logs", {"pod": "api-7d9-x2x", "namespace": "shop", "tail_lines": lines})


@dataclass
class SlowModel:
    """Answers by what it was told, so that it does not matter which process asks. A call takes 3 s."""

    script: Callable[[ModelRequest], Reply | Exception]
    clock: FixedClock
    requests: list[ModelRequest] = field(default_factory=list)
    name: str = "memory-model"

    async def ask(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        self.clock.advance(3.0)
        said = self.script(request)
        if isinstance(said, Exception):
            raise said
        return said


class SlowCluster(MemoryCluster):
    """Each read takes half a second. While `fails` says so, no log can be read."""

    def __init__(self, clock: FixedClock, fails: Callable[[], bool]) -> None:
        super().__init__(shop(), {**LOGS, ("shop", "api-7d9-x2x", "app", False): NOISE})
        self._clock, self._fails = clock, fails

    async def get(self, ref):
        self._clock.advance(0.5)
        return await super().get(ref)

    async def logs(self, query):
        self._clock.advance(0.5)
        if self._fails():
            raise ClusterError(ClusterReason.UNAVAILABLE, "the kubelet does not answer")
        return await super().logs(query)


@dataclass
class Play:
    """A script and what else is wrong. `replies` are by number; `instead` may fail a call in place of a reply."""

    replies: list[Reply]
    instead: Callable[[World, ModelRequest, int], Exception | None] = lambda world, request, number: None
    limits: Limits = field(default_factory=Limits)
    logs_fail: Callable[[World], bool] = lambda world: False
    refusing_first: bool = False
    times: bool = True

    def world(self) -> tuple[World, list[ModelRequest]]:
        """A world of this play, and what its models are asked."""
        clock = FixedClock()
        world = World(clock=clock, rules=Rules(limits=self.limits))
        world.cluster = SlowCluster(clock, lambda: self.logs_fail(world))

        def script(request: ModelRequest) -> Reply | Exception:
            number = sum(isinstance(turn, Reply) for turn in request.turns)
            return self.instead(world, request, number) or self.replies[number]

        world.model = SlowModel(script, clock)
        return world, world.model.requests

    def new_process(self, world: World) -> None:
        """What a process knows by itself is gone; the outside world and the journal are what they were."""
        if self.refusing_first:
            first = SlowModel(lambda _: GiveUp(GiveUpReason.MODEL_REJECTED_REQUEST, "no"), world.clock)
            second = world.model if isinstance(world.model, SlowModel) else world.model._models[1]
            world.model = ModelChain([first, second], world.clock)


def kinds(world: World) -> list[str]:
    return [step.kind for step in world.journal.steps.get("rr-1", [])]


def tried_in_vain(world: World) -> int:
    """Failed tries of the reply that is due."""
    since = [kind for kind in kinds(world) if kind in {LLM, TRIED}]
    return len(since) - max((n for n, kind in enumerate(since, 1) if kind == LLM), default=0)


def busy_twice(world, request, number):
    if number == 1 and tried_in_vain(world) < 2:
        return Retry(RetryReason.MODEL_UNAVAILABLE, "overloaded")
    return None


def narrow(world, request, number):
    results = [r for turn in request.turns if isinstance(turn, ToolTurn) for r in turn.results]
    if sum(len(result.content) for result in results) > 6_000:
        return GiveUp(GiveUpReason.CONTEXT_OVERFLOW, "too long")
    return None


PLAYS = {
    "the same call again and again": Play(
        [
            calls(LOOK, LOOK, logs(10)),
            calls(LOOK, CONTEXT, logs(10)),
            calls(logs(11), logs(12), logs(13), logs(14)),
            calls(logs(15), LOOK),
            calls(ACTIONS, WORKFLOWS, ACTIONS),
            calls(ACTIONS, logs(16), logs(12)),
            final(answer()),
        ]
    ),
    "the same catalog call about another object": Play(
        [
            calls(ACTIONS),
            calls(("get_resource_context", {"kind": "Pod", "name": "api-7d9-x2x", "namespace": "shop"})),
            calls(ACTIONS),
            calls(CONTEXT),
            calls(ACTIONS, ("no_such_tool", {}), ("get_resource", {"kind": 1})),
            final(answer()),
        ]
    ),
    "the budget of tool calls": Play(
        [calls(*[LOOK] * 3), calls(logs(1), logs(2), logs(3)), calls(CONTEXT, ACTIONS), final(answer())],
        limits=Limits(tool_calls=7),
    ),
    "too many calls in one reply": Play([calls(*(logs(n) for n in range(1, 15))), final(answer())]),
    "the time is nearly up after the tools": Play(
        [calls(LOOK, CONTEXT), calls(logs(5), CONTEXT), final(WRONG), final(answer())],
        limits=Limits(wall_seconds=10.5),
    ),
    "the time is used up": Play([calls(LOOK), calls(logs(5), CONTEXT)], limits=Limits(wall_seconds=7.5)),
    "calls too late": Play(
        [calls(LOOK), calls(CONTEXT), calls(logs(5)), final(answer())], limits=Limits(llm_calls=5)
    ),
    "corrections": Play([calls(LOOK), says("I think so."), final(WRONG), final(answer())]),
    "three wrong answers": Play([calls(LOOK, logs(9)), final(WRONG), final(NOWHERE), final(WRONG)]),
    "an object that is not there": Play(
        [
            calls(("get_resource", {"kind": "Deployment", "name": "gone", "namespace": "shop"})),
            calls(("get_resource", {"kind": "Deployment", "name": "gone", "namespace": "shop"})),
            final(answer()),
        ]
    ),
    "logs that can be read later": Play(
        [calls(logs(5), LOOK), calls(logs(5), LOOK), calls(logs(5)), final(answer())],
        logs_fail=lambda world: kinds(world).count(TOOLS) < 1,
    ),
    "a conversation that is too long": Play(
        [calls(logs(200)), calls(LOOK, logs(201)), calls(LOOK, logs(5)), calls(logs(200)), final(answer())],
        instead=narrow,
    ),
    "a model that is busy": Play(
        [calls(LOOK), calls(LOOK, CONTEXT), final(answer())], instead=busy_twice, times=False
    ),
    "a fallback": Play(
        [calls(LOOK), calls(LOOK, CONTEXT), final(WRONG), final(answer())], refusing_first=True
    ),
    "no model that works": Play(
        [calls(LOOK)],
        instead=lambda world, request, number: (
            GiveUp(GiveUpReason.MODEL_REJECTED_REQUEST, "no") if number else None
        ),
    ),
}


@dataclass(frozen=True)
class Traces:
    """What the outside has seen of a request."""

    requests: list[object]
    events: list[object]
    refused: list[object]
    result: str


def traces(world, requests, result, *, times: bool) -> Traces:
    events = []
    for event in world.events.audits:
        if event.event_type == "request.resumed":
            continue
        payload = event.payload.model_dump(mode="json")
        payload.pop("duration_seconds", None)
        payload.pop("result_sha256", None)
        if not times:
            payload.get("usage", {}).pop("wall_seconds", None)
        events.append((event.event_type, event.outcome, payload))
    return Traces(
        once(requests),
        once(events),
        [failure.model_dump(exclude={"failed_at"}) for failure in world.events.rejections],
        result.model_dump_json(
            exclude={
                "completed_at": True,
                "evidence": {"__all__": {"seen_at"}},
                "validation_attempts": {"__all__": {"timestamp"}},
                "usage": {"wall_seconds"} if not times else {},
            }
        ),
    )


def once(items):
    """Without what is there already: a call that was outstanding is announced and made again."""
    found = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


async def undisturbed(play):
    world, requests = play.world()
    play.new_process(world)
    result = await world.analyse()
    return world, traces(world, requests, result, times=play.times)


@pytest.mark.parametrize("name", PLAYS)
async def test_a_resumed_run_differs_in_nothing_wherever_it_was_killed(name):
    play = PLAYS[name]
    whole, expected = await undisturbed(play)
    appends = len([kind for kind in kinds(whole) if kind != BEGIN])
    for append in range(1, appends + 1):
        before = append % 2 == 0
        world, requests = play.world()
        play.new_process(world)
        assert await die_at(world, incident(), append, before=before) is True
        play.new_process(world)
        result = await world.analyse(run="run-2")
        assert expected == traces(world, requests, result, times=play.times), (append, before)
        assert result.usage.llm_calls == sum(kind == LLM for kind in kinds(world))


@pytest.mark.parametrize("name", PLAYS)
async def test_a_run_that_is_killed_after_every_step_still_differs_in_nothing(name):
    play = PLAYS[name]
    _, expected = await undisturbed(play)
    world, requests = play.world()
    for number in range(1, 60):
        play.new_process(world)
        if not await die_at(world, incident(), 1, name=f"run-{number}"):
            break
    play.new_process(world)
    result = await world.analyse(run="last")
    assert expected == traces(world, requests, result, times=play.times)


async def test_each_replayed_run_covers_its_case():
    """Each play gets to the place that its name promises."""
    said = {}
    for name, play in PLAYS.items():
        _, whole = await undisturbed(play)
        said[name] = (repr(whole.requests), whole.result)
    assert "the same call as before" in said["the same call again and again"][0]
    assert "differ only in details" in said["the same call again and again"][0]
    assert "the budget of this investigation is used up" in said["the budget of tool calls"][0]
    assert "at most 12 tool calls" in said["too many calls in one reply"][0]
    assert "nearly used up" in said["the time is nearly up after the tools"][0]
    assert "seconds used up" in said["the time is used up"][1]
    assert "taken out to make room" in said["a conversation that is too long"][0]
    assert "kubelet does not answer" in said["logs that can be read later"][0]
    assert "workflow_not_found" in said["three wrong answers"][1]
    assert "investigation_inconclusive" in said["no model that works"][1]
