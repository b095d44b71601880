from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_model import USAGE, MemoryModel, calls, says
from worker.domain.investigation.corrections import (
    MAX_CALLS_PER_REPLY,
    NOT_RUN,
    NOT_RUN_BESIDE_ANSWER,
    TOO_MANY,
    WRAP_UP,
)
from worker.domain.investigation.loop import Investigation, Judged, investigate
from worker.domain.investigation.toolbox.toolbox import Remembered
from worker.domain.untrusted.evidence import EvidenceLog
from worker.domain.values.conversation import (
    CallUsage,
    Finish,
    Reply,
    ToolResult,
    ToolSpec,
    ToolTurn,
    UserTurn,
)
from worker.domain.values.limits import Limits
from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.answers.answer import Answer, Problem, ProblemKind, Unreadable
from worker.domain.verdict.answers.form import INCIDENT_ANSWER, SUBMIT_RESULT
from worker.domain.verdict.outcome import Stop
from worker.domain.verdict.verdict import Accepted, Rejected

TARGET = ObjectRef("Deployment", "api", "shop")
YES = Judged(Accepted(Answer(), "high", "", TARGET, TARGET), "restart-v1")
UNREADABLE = Problem(ProblemKind.UNREADABLE, "", "There is no JSON object.")
NO = Judged(Rejected((Problem(ProblemKind.RCA, "root_cause_analysis.summary", "is missing"),)))
LOOK = ("get_resource", {"kind": "Pod"})
SUBMIT = (SUBMIT_RESULT, {"n": 1})
OFFERED = (INCIDENT_ANSWER,)


class Scratch:
    """A journal run without a past, whose steps nobody reads."""

    past = ()

    async def append(self, kind, data=b"", *, events=(), **notes):
        pass


@dataclass
class Tools:
    """A toolbox in which `run_all` answers and nothing is remembered. It knows one tool."""

    run_all: object

    def tool_named(self, name):
        return name if name == LOOK[0] else None

    def remembered(self, results):
        return Remembered()


@dataclass
class Seen:
    """An observer that writes down what it is told."""

    asked: list[tuple[int, bool]] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)
    tools: list[tuple[str, str]] = field(default_factory=list)
    attempts: list[tuple[int, bool]] = field(default_factory=list)

    async def asking(self, call, model, request):
        self.asked.append((call, request.tools_allowed))

    async def replied(self, call, reply):
        self.replies.append(call)

    async def tool_ran(self, call, result):
        self.tools.append((call.id, result.content))

    async def judged(self, attempt, *, last):
        self.attempts.append((attempt.number, last))


@dataclass
class Loop:
    """An investigation on a script. `verdicts` are given out in order, the last one again and again."""

    said: object
    verdicts: list[Judged] = field(default_factory=lambda: [YES])
    limits: Limits = field(default_factory=Limits)
    seconds_per_call: float = 0.0
    more_tools: tuple[ToolSpec, ...] = ()
    seen: Seen = field(default_factory=Seen)
    ran: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self):
        self.clock, self.judged = FixedClock(), 0
        script = self.said if callable(self.said) else MemoryModel(self.said)._script

        def timed(request, number):
            self.clock.advance(self.seconds_per_call)
            return script(request, number)

        self.model = MemoryModel(timed)

    async def tools(self, wanted):
        self.ran.append(tuple(call.id for call in wanted))
        return tuple(ToolResult(call.id, call.name, f"result of {call.id}") for call in wanted)

    async def judge(self, reply):
        self.judged += 1
        return self.verdicts[min(self.judged, len(self.verdicts)) - 1]

    async def proceed(self):
        pass

    async def run(self):
        return await investigate(
            Investigation(
                model=self.model,
                tools=(ToolSpec("get_resource", "Read one object.", {"type": "object"}), *self.more_tools),
                system="You find root causes.",
                opening="# Incident",
                toolbox=Tools(self.tools),
                evidence=EvidenceLog(),
                judge=self.judge,
                run=Scratch(),
                proceed=self.proceed,
                observer=self.seen,
                clock=self.clock,
                jitter=lambda: 0.5,
                limits=self.limits,
            )
        )


def assert_valid_history(turns):
    """What every provider demands: each call has exactly one result, in the turn after it."""
    assert isinstance(turns[0], UserTurn)
    for before, after in itertools.pairwise(turns):
        if isinstance(before, Reply) and before.tool_calls:
            assert isinstance(after, ToolTurn)
            assert [call.id for call in before.tool_calls] == [result.call_id for result in after.results]
        elif isinstance(before, Reply):
            assert isinstance(after, UserTurn)
        else:
            assert isinstance(after, Reply)


async def test_an_accepted_answer_ends_it():
    loop = Loop([says("the answer")])
    finding = await loop.run()
    assert [(1, "the answer", "restart-v1")] == [(a.number, a.text, a.workflow_id) for a in finding.attempts]
    assert (None, "") == (finding.stop, finding.stop_detail)
    assert finding.model == "memory-model-1"
    assert (1, 1_000, 600, 100) == (
        finding.spent.llm_calls,
        finding.spent.input_tokens,
        finding.spent.cached_tokens,
        finding.spent.output_tokens,
    )
    assert [(1, True)] == loop.seen.attempts


async def test_tools_run_between_the_calls_and_their_results_come_back_in_order():
    loop = Loop([calls(LOOK, LOOK, LOOK), says("the answer")])
    finding = await loop.run()
    assert [("call_0", "call_1", "call_2")] == loop.ran
    *_, results = loop.model.requests[1].turns
    assert ["result of call_0", "result of call_1", "result of call_2"] == [
        r.content for r in results.results
    ]
    assert [
        ("call_0", "result of call_0"),
        ("call_1", "result of call_1"),
        ("call_2", "result of call_2"),
    ] == (loop.seen.tools)
    assert (2, 3) == (finding.spent.llm_calls, finding.spent.tool_calls)


async def test_the_conversation_only_grows():
    loop = Loop([calls(LOOK), calls(LOOK), says("no"), says("yes")], [NO, YES])
    await loop.run()
    requests = [request.turns for request in loop.model.requests]
    for shorter, longer in itertools.pairwise(requests):
        assert shorter == longer[: len(shorter)]
        assert len(longer) == len(shorter) + 2
    assert {"You find root causes."} == {request.system for request in loop.model.requests}
    assert all(request.tools == loop.model.requests[0].tools for request in loop.model.requests)


async def test_calls_above_the_limit_of_a_reply_are_answered_but_not_run():
    loop = Loop([calls(*[LOOK] * (MAX_CALLS_PER_REPLY + 3)), says("the answer")])
    finding = await loop.run()
    assert MAX_CALLS_PER_REPLY == len(loop.ran[0]) == finding.spent.tool_calls
    results = loop.model.requests[1].turns[-1].results
    assert [(TOO_MANY, False)] * 3 == [(r.content, r.ok) for r in results[MAX_CALLS_PER_REPLY:]]
    assert_valid_history(loop.model.requests[1].turns)


async def test_no_more_tools_are_run_than_the_budget_has():
    loop = Loop([calls(*[LOOK] * 5), calls(*[LOOK] * 5), says("answer")], limits=Limits(tool_calls=7))
    finding = await loop.run()
    assert [5, 2] == [len(ids) for ids in loop.ran]
    assert finding.spent.tool_calls == 7
    turn = loop.model.requests[2].turns[-1]
    assert [NOT_RUN] * 3 == [r.content for r in turn.results[2:]]
    assert turn.note == WRAP_UP
    assert [(1, True), (2, True), (3, False)] == loop.seen.asked


async def test_a_correction_lists_the_problems_and_leaves_the_tools():
    loop = Loop([says("bad"), calls(LOOK), says("good")], [NO, YES])
    finding = await loop.run()
    correction = loop.model.requests[1].turns[-1]
    assert isinstance(correction, UserTurn)
    assert "root_cause_analysis.summary: is missing" in correction.text
    assert [True, True, True] == [request.tools_allowed for request in loop.model.requests]
    assert [(1, False), (2, True)] == [(a.number, isinstance(a.verdict, Accepted)) for a in finding.attempts]


async def test_three_refused_answers_end_it():
    loop = Loop([says("bad")], [NO])
    finding = await loop.run()
    assert loop.model.calls == 3
    assert [(1, False), (2, False), (3, True)] == loop.seen.attempts
    assert [1, 2, 3] == [a.number for a in finding.attempts]
    assert finding.stop is None


async def test_a_judge_without_a_catalog_stops_it_at_once():
    down = Judged(Rejected(()), "restart-v1", Stop.CATALOG_DOWN, "no answer")
    loop = Loop([says("good")], [down])
    finding = await loop.run()
    assert (Stop.CATALOG_DOWN, "no answer") == (finding.stop, finding.stop_detail)
    assert finding.attempts == ()
    assert loop.model.calls == 1
    assert loop.seen.attempts == []


async def test_a_tool_call_in_place_of_the_final_answer_is_a_failed_attempt_with_a_valid_history():
    limits = Limits(llm_calls=4, attempts=3)
    loop = Loop([calls(LOOK), calls(LOOK, LOOK), says("the answer")], [YES], limits)
    finding = await loop.run()
    assert [("call_0",)] == loop.ran  # the second reply's calls are not run
    assert [(1, True), (2, False), (3, False)] == loop.seen.asked
    turns = loop.model.requests[2].turns
    assert_valid_history(turns)
    assert [NOT_RUN, NOT_RUN] == [r.content for r in turns[-1].results]
    assert "tool calls are no longer possible" in turns[-1].note
    assert [False, True] == [isinstance(a.verdict, Accepted) for a in finding.attempts]
    assert loop.judged == 1


LOST = ("kubectl", {"get": "pods"})


async def test_a_model_that_calls_only_unknown_tools_fails_after_three_replies():
    loop = Loop([calls(LOST)])
    finding = await loop.run()
    assert (loop.model.calls, len(loop.ran)) == (3, 2)
    [attempt] = finding.attempts
    assert (attempt.verdict.problems[0].kind, finding.stop) == (ProblemKind.UNREADABLE, None)
    assert "unknown tools" in attempt.verdict.problems[0].message
    assert [(1, True)] == loop.seen.attempts


@pytest.mark.parametrize("between", [calls(LOOK), calls(LOST, LOOK), says("bad")])
async def test_only_three_such_replies_in_a_row_end_it(between):
    verdicts = [YES] if between.tool_calls else [NO, YES]
    loop = Loop([calls(LOST), calls(LOST), between, calls(LOST), calls(LOST), says("ok")], verdicts)
    finding = await loop.run()
    assert loop.model.calls == 6
    assert isinstance(finding.attempts[-1].verdict, Accepted)


async def test_a_model_that_only_calls_tools_ends_within_its_calls():
    loop = Loop([calls(LOOK)], limits=Limits(llm_calls=6, attempts=3))
    finding = await loop.run()
    assert loop.model.calls == 6
    assert len(loop.ran) == 3
    assert [1, 2, 3] == [a.number for a in finding.attempts]
    assert [ProblemKind.UNREADABLE] * 3 == [a.verdict.problems[0].kind for a in finding.attempts]


def not_read(why):
    return Judged(Rejected((UNREADABLE,)), unreadable=why)


async def test_a_submitted_answer_is_judged_and_its_correction_is_the_result_of_the_call():
    loop = Loop(
        [calls(SUBMIT), calls(LOOK, SUBMIT, SUBMIT), calls(SUBMIT)], [NO, NO, YES], more_tools=OFFERED
    )
    finding = await loop.run()
    assert [] == loop.ran
    assert [1, 2, 3] == [a.number for a in finding.attempts]
    assert ['{"n": 1}'] == [finding.attempts[0].text]
    first, second = loop.model.requests[1].turns[-1], loop.model.requests[2].turns[-1]
    assert "summary: is missing" in first.results[0].content
    assert "attempt 2 of 3" in first.results[0].content
    assert "" == first.note
    assert [NOT_RUN_BESIDE_ANSWER, False, NOT_RUN_BESIDE_ANSWER] == [
        second.results[0].content,
        second.results[1].ok,
        second.results[2].content,
    ]
    assert "attempt 3 of 3" in second.results[1].content
    assert_valid_history(loop.model.requests[2].turns)


async def test_each_way_of_being_unreadable_is_told_once_before_it_costs_an_attempt():
    ways = [Unreadable.NO_JSON, Unreadable.TRUNCATED, Unreadable.NO_JSON, Unreadable.CONTRADICTORY]
    loop = Loop([says("prose")], [*map(not_read, ways), YES], more_tools=OFFERED)
    finding = await loop.run()
    assert [False, True] == [isinstance(a.verdict, Accepted) for a in finding.attempts]
    assert [(1, False), (2, True)] == loop.seen.attempts
    told = [request.turns[-1].text for request in loop.model.requests[1:]]
    assert [1, 1, 2, 2] == [int(text.split("attempt ")[1][0]) for text in told]


@pytest.mark.parametrize(
    ("why", "tools", "limits"),
    [
        (Unreadable.REFUSED, OFFERED, Limits()),
        (Unreadable.NO_JSON, (), Limits()),
        (Unreadable.NO_JSON, OFFERED, Limits(llm_calls=4)),
    ],
    ids=["refusal", "no tool to answer with", "no call to spare"],
)
async def test_other_unreadable_answers_are_attempts(why, tools, limits):
    loop = Loop([calls(LOOK), says("prose")], [not_read(why)], limits, more_tools=tools)
    finding = await loop.run()
    assert [1, 2, 3] == [a.number for a in finding.attempts]
    assert 4 == loop.model.calls


async def test_a_submission_is_an_answer_when_other_tools_are_no_longer_allowed():
    loop = Loop([calls(LOOK), calls(SUBMIT)], limits=Limits(llm_calls=4), more_tools=OFFERED)
    finding = await loop.run()
    assert [(1, True), (2, False)] == loop.seen.asked
    assert finding.accepted


@pytest.mark.parametrize(
    ("limits", "usage", "seconds", "said"),
    [
        (Limits(llm_calls=4, attempts=5), USAGE, 0.0, "LLM calls used up (4 of 4)"),
        (
            Limits(input_tokens=10_000),
            CallUsage(input_tokens=6_000),
            0.0,
            "input tokens used up (6000 of 10000, and the next call may need 60",
        ),
        (
            Limits(cost_usd=0.5),
            CallUsage(cost_usd=0.3),
            0.0,
            "US dollars used up (0.3 of 0.5, and the next call may need 0.3)",
        ),
        (Limits(wall_seconds=90.0), USAGE, 60.0, "seconds used up (120 of 90)"),
    ],
)
async def test_a_spent_budget_ends_it_with_what_was_found(limits, usage, seconds, said):
    loop = Loop([says("bad", usage=usage)], [NO], limits, seconds)
    finding = await loop.run()
    assert Stop.BUDGET_SPENT is finding.stop
    assert finding.stop_detail.startswith(said)
    assert loop.model.calls == finding.spent.llm_calls == len(finding.attempts)
    assert all(isinstance(a.verdict, Rejected) for a in finding.attempts)


async def test_the_deadline_of_a_call_is_what_is_left_of_the_time():
    limits = Limits(wall_seconds=300.0, call_seconds=120.0)
    loop = Loop([calls(LOOK), calls(LOOK), says("answer")], limits=limits, seconds_per_call=100.0)
    finding = await loop.run()
    assert [120.0, 120.0, 100.0] == [request.deadline_seconds for request in loop.model.requests]
    assert finding.spent.wall_seconds == 300.0


async def test_time_in_tools_counts():
    loop = Loop([calls(LOOK), says("answer")], limits=Limits(wall_seconds=100.0))
    run = loop.tools

    async def slow(wanted):
        loop.clock.advance(85.0)
        return await run(wanted)

    loop.tools = slow
    finding = await loop.run()
    assert finding.spent.wall_seconds == 85.0
    assert [(1, True), (2, False)] == loop.seen.asked


FINISHES = st.sampled_from(Finish)
REPLIES = st.one_of(
    st.builds(says, st.text(max_size=20), FINISHES, usage=st.builds(CallUsage, st.integers(0, 60_000))),
    st.builds(
        lambda look, count, text, usage: calls(*[look] * count, text=text, usage=usage),
        st.sampled_from([LOOK, LOST]),
        st.integers(1, 20),
        st.text(max_size=10),
        st.builds(CallUsage, st.integers(0, 60_000), cost_usd=st.none() | st.floats(0, 0.5)),
    ),
)
LIMITS = st.builds(
    Limits,
    llm_calls=st.integers(1, 12),
    tool_calls=st.integers(1, 30),
    input_tokens=st.integers(1_000, 200_000),
    cost_usd=st.none() | st.floats(0.01, 1),
    wall_seconds=st.floats(1, 300),
    attempts=st.integers(1, 4),
)


@examples(300)
@given(
    said=st.lists(REPLIES, min_size=1, max_size=15),
    limits=LIMITS,
    verdicts=st.lists(st.sampled_from([YES, NO]), min_size=1, max_size=5),
    seconds=st.floats(0, 60),
)
async def test_whatever_a_model_says_the_budget_holds_and_the_history_is_valid(
    said, limits, verdicts, seconds
):
    loop = Loop([replace(reply) for reply in said], verdicts, limits, seconds)
    finding = await loop.run()
    assert loop.model.calls <= limits.llm_calls
    assert sum(len(ids) for ids in loop.ran) == finding.spent.tool_calls <= limits.tool_calls
    assert len(finding.attempts) <= limits.attempts
    assert loop.seen.replies == list(range(1, loop.model.calls + 1))
    for request in loop.model.requests:
        assert_valid_history(request.turns)
    accepted = [isinstance(a.verdict, Accepted) for a in finding.attempts]
    if finding.stop is None:
        lost = any(
            "unknown tools" in p.message for p in getattr(finding.attempts[-1].verdict, "problems", ())
        )
        assert accepted[-1] or lost or len(accepted) == limits.attempts
    else:
        assert finding.stop is Stop.BUDGET_SPENT
        assert finding.stop_detail
    assert not any(accepted[:-1])
