from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import audit
from schemas.analysis import Approval, HumanReviewReason
from schemas.audit import AuditEvent
from schemas.chain import event_hash, genesis, head_text
from schemas.failure import EXCERPT_BYTES, ValidationCode
from tests.fakes.fixed_clock import START, FixedClock
from tests.fakes.memory_model import calls, says
from tests.fakes.memory_nats import MemoryEvents, MemoryJournal
from tests.fakes.scripted import DELIVERY, incident
from tests.fakes.verdicts import DEPLOYMENT, answer
from worker.domain.audit.trail import CODES, PREVIEW_CHARS
from worker.domain.intake.accepted import AcceptedRequest
from worker.domain.journal.run import Run
from worker.domain.values.conversation import (
    CallUsage,
    ModelRequest,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolTurn,
    UserTurn,
)
from worker.domain.values.limits import Spent, usage_of
from worker.domain.verdict.answers.answer import Problem, ProblemKind
from worker.domain.verdict.verdict import Accepted, Attempt, Rejected

SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"
YES = Accepted(answer(), "high", "", DEPLOYMENT, DEPLOYMENT)
TOOL = ToolSpec("get_resource", "", {})


class Trail:
    """The audit trail of a run with what it has told; `flush` makes the step that publishes it."""

    def __init__(self, delivery=DELIVERY, journal=None, events=None, run="run-1", signer=None):
        self.events, self.clock = events or MemoryEvents(), FixedClock()
        self.inner = Kept() if journal is None else journal
        accepted = AcceptedRequest(incident(), delivery)
        arguments = {"name": run, "proceed": None, "new_token": None, "signer": signer}
        self.run = Run(accepted, self.inner, self.events, self.clock, **arguments)

    def __getattr__(self, name):
        return getattr(self.run.trail, name)

    @property
    def told(self):
        return [AuditEvent.model_validate_json(record.body) for record in self.run.trail._recorded]

    @property
    def last(self):
        return self.told[-1]


class Kept:
    """A journal run without a past."""

    past = ()


def request(*turns, tools_allowed=True):
    return ModelRequest("system", (TOOL,), turns, tools_allowed=tools_allowed)


def decided():
    return audit.PolicyDecided(policy="p", approval=Approval(required=False))


async def test_events_are_numbered_and_name_the_request():
    trail = Trail()
    trail.record(decided())
    trail.record(decided(), audit.Outcome.FAILURE)
    first, second = trail.told
    assert [1, 2] == [first.sequence, second.sequence]
    assert ("rr-1", "rr-1", "inc-1", START) == (
        first.correlation_id,
        first.request_key,
        first.incident_id,
        first.time,
    )
    assert audit.EventType.POLICY_DECIDED is first.event_type
    assert [audit.Outcome.SUCCESS, audit.Outcome.FAILURE] == [first.outcome, second.outcome]


async def test_ids_are_those_of_the_run_and_the_place_in_the_chain():
    ids = []
    for options in ({}, {}, {"run": "run-2"}):
        trail = Trail(**options)
        trail.record(decided())
        trail.record(decided())
        ids.append([event.event_id for event in trail.told])
    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 4


async def test_a_successor_continues_with_the_numbers():
    journal, events = MemoryJournal(), MemoryEvents()
    first = Trail(journal=await journal.open("rr-1", "run-1"), events=events)
    first.record(decided())
    await first.tool_ran(ToolCall("c1", "get_resource", {}), ToolResult("c1", "x", "body"))
    await first.run.append("tools", b"")
    second = Trail(journal=await journal.open("rr-1", "run-2"), events=events, run="run-2")
    await second.tool_ran(ToolCall("c2", "get_resource", {}), ToolResult("c2", "x", "body"))
    second.record(decided())
    assert [(3, 2), (4, None)] == [(e.sequence, getattr(e.payload, "index", None)) for e in second.told]
    assert [1, 2] == [event.sequence for event in events.audits]


async def test_a_call_is_told_with_its_size_and_the_start_of_what_is_new():
    trail = Trail()
    results = ToolTurn((ToolResult("c1", "get_resource", "first"), ToolResult("c2", "x", "second")))
    await trail.asking(2, "model-a", request(UserTurn("opening"), says("reply"), results))
    payload = trail.last.payload
    assert (2, "model-a", ("get_resource",)) == (payload.call, payload.model, payload.tools)
    assert len("system" + "opening" + "reply" + "first\nsecond") == payload.prompt_chars
    assert payload.prompt_preview == ""  # results have events of their own
    await trail.asking(3, "model-a", request(replace(results, note="too many calls")))
    assert trail.last.payload.prompt_preview == "too many calls"
    await trail.asking(4, "model-a", request(UserTurn("x" * 9_000), tools_allowed=False))
    assert ((), PREVIEW_CHARS) == (trail.last.payload.tools, len(trail.last.payload.prompt_preview))


async def test_a_reply_is_told_with_its_cost_and_time():
    trail = Trail()
    await trail.asking(1, "m", request(UserTurn("opening")))
    trail.clock.advance(1.23456)
    await trail.replied(1, calls(("get_resource", {}), text="looking", usage=CallUsage(10, 6, 4, 0.5)))
    payload = trail.last.payload
    assert (1, "memory-model-1", "tool_calls", 7, "looking", 1, 1.235) == (
        payload.call,
        payload.model,
        payload.finish,
        payload.response_chars,
        payload.response_preview,
        payload.tool_calls,
        payload.duration_seconds,
    )
    assert (1, 10, 6, 4, 0.5) == (
        payload.usage.llm_calls,
        payload.usage.input_tokens,
        payload.usage.cached_tokens,
        payload.usage.output_tokens,
        payload.usage.cost_usd,
    )


async def test_tool_calls_are_counted_over_the_request():
    trail = Trail()
    await trail.tool_ran(
        ToolCall("c1", "get_resource", {"kind": "Pod", "n": 3}),
        ToolResult("c1", "x", "body", seconds=1.23456),
    )
    await trail.tool_ran(ToolCall("c2", "no\nsuch" + "x" * 300, {}), ToolResult("c2", "x", "error", ok=False))
    first, second = (event.payload for event in trail.told)
    assert (1, "get_resource", {"kind": "Pod", "n": "3"}, True, 4, "body", 1.235) == (
        first.index,
        first.name,
        first.arguments,
        first.succeeded,
        first.result_chars,
        first.result_preview,
        first.duration_seconds,
    )
    assert (2, False) == (second.index, second.succeeded)
    assert "\n" not in second.name
    assert len(second.name) <= 128
    assert audit.Outcome.FAILURE is trail.last.outcome


@pytest.mark.parametrize(("last", "outcome"), [(False, audit.Outcome.PENDING), (True, audit.Outcome.FAILURE)])
async def test_a_refused_answer_is_published_with_all_problems(last, outcome):
    trail = Trail()
    problems = (Problem(ProblemKind.PARAMETERS, "a.b", "must be 1"), Problem(ProblemKind.RCA, "", "no cause"))
    await trail.judged(Attempt(2, Rejected(problems), "the answer", "restart-v1"), last=last)
    payload = trail.last.payload
    assert HumanReviewReason.RCA_INCOMPLETE is payload.human_review_reason
    assert (2, 3, False, ("a.b: must be 1", "no cause"), "restart-v1", last, outcome) == (
        payload.attempt,
        payload.max_attempts,
        payload.is_valid,
        payload.errors,
        payload.workflow_id,
        payload.is_final_attempt,
        trail.last.outcome,
    )
    [failure] = trail.events.rejections
    assert (ValidationCode.ANSWER_PARAMETERS, "a.b", "the answer", 2, "rr-1", "RCA_REQUESTS", 7) == (
        failure.code,
        failure.path,
        failure.excerpt,
        failure.attempt,
        failure.request_key,
        failure.origin_stream,
        failure.origin_sequence,
    )
    assert [("a.b", "must be 1"), ("", "no cause")] == [(e.path, e.expected) for e in failure.errors]


async def test_an_accepted_answer_is_no_failure():
    trail = Trail()
    await trail.judged(Attempt(1, YES, "text"), last=True)
    assert (True, (), None, audit.Outcome.SUCCESS) == (
        trail.last.payload.is_valid,
        trail.last.payload.errors,
        trail.last.payload.workflow_id,
        trail.last.outcome,
    )
    assert trail.events.rejections == []


def test_every_kind_of_problem_has_its_code():
    assert set(ProblemKind) == set(CODES)
    assert len(set(CODES.values())) == len(CODES)


async def test_secrets_reach_no_event():
    trail = Trail()
    await trail.asking(1, "m", request(UserTurn(f"opening {SECRET}")))
    await trail.replied(1, says(f"reply {SECRET}"))
    await trail.tool_ran(
        ToolCall("c", "get_pod_logs", {"grep": SECRET, "deep": {"token": SECRET}}),
        ToolResult("c", "x", SECRET),
    )
    problem = Problem(ProblemKind.RCA, "p", f"wrong: {SECRET}")
    await trail.judged(Attempt(1, Rejected((problem,)), f"answer {SECRET}"), last=False)
    published = [m.model_dump_json() for m in (*trail.told, *trail.events.rejections)]
    assert len(published) == 5
    assert not any("FAKE" in body for body in published)


@pytest.mark.parametrize(
    "arguments",
    [
        {SECRET: "x"},
        {f"name with {SECRET} in it": "x"},
        {"password": "FAKE-hunter2"},
        {"deep": {"password": "FAKE-hunter2"}},
        {"x " * 20 + SECRET: "x"},
        {f"key{n}": SECRET for n in range(100)},
    ],
)
async def test_secrets_in_arguments_reach_no_event_whichever_side_they_are_on(arguments):
    trail = Trail()
    await trail.tool_ran(ToolCall("c", SECRET, arguments), ToolResult("c", "x", "body"))
    assert "FAKE" not in trail.last.model_dump_json()


async def test_arguments_are_bounded_in_number_and_size():
    trail = Trail()
    many = {f"{n} " * 100: "v" * 10_000 for n in range(1_000)}
    await trail.tool_ran(ToolCall("c", "n" * 10_000, many), ToolResult("c", "x", "body"))
    shown = trail.last.payload.arguments
    assert (32, 64, PREVIEW_CHARS) == (len(shown), max(map(len, shown)), max(map(len, shown.values())))
    assert len(trail.last.payload.name) <= 128


async def test_events_are_a_chain_that_begins_with_the_request():
    trail = Trail()
    for _ in range(3):
        trail.record(decided())
    first, second, third = trail.told
    assert (genesis("rr-1", "run-1"), first.hash, second.hash) == (first.prev, second.prev, third.prev)
    assert {"run-1"} == {event.chain for event in trail.told}
    for event in trail.told:
        assert event_hash(event.model_dump(mode="json")) == event.hash


async def test_only_ends_are_signed():
    trail = Trail(signer=Shouting())
    trail.record(decided())
    end = audit.ResponseFailed(reason="internal_error", error="boom", result_sha256="0" * 64)
    trail.record(end, audit.Outcome.FAILURE)
    decision, failed = trail.told
    assert (None, Shouting.key_id) == (decision.signature, failed.signature.key_id)
    assert head_text(failed.model_dump(mode="json"))[:64] == base64.b64decode(failed.signature.value)


class Shouting:
    """A signer whose signatures can be read."""

    key_id = "5" * 64

    def sign(self, text):
        return text[:64]


@pytest.mark.parametrize("where", range(PREVIEW_CHARS - len(SECRET), 9_000, 37))
async def test_a_secret_is_not_shown_by_half_where_a_preview_ends(where):
    trail = Trail()
    await trail.replied(1, says("x " * (where // 2) + SECRET + " tail"))
    assert "FAKE" not in trail.last.payload.response_preview


async def test_an_excerpt_is_bounded():
    trail = Trail()
    problem = Problem(ProblemKind.UNREADABLE, "", "no JSON")
    await trail.judged(Attempt(1, Rejected((problem,)), "ü" * EXCERPT_BYTES), last=True)
    assert len(trail.events.rejections[0].excerpt.encode()) <= EXCERPT_BYTES


def test_usage_rounds_time_only():
    assert usage_of(Spent(1, 2, 3, 4, 5, 0.123456, 1.23456)).model_dump() == {
        "llm_calls": 1,
        "tool_calls": 2,
        "input_tokens": 3,
        "cached_tokens": 4,
        "output_tokens": 5,
        "cost_usd": 0.123456,
        "wall_seconds": 1.235,
    }


@given(
    name=st.text(max_size=200),
    arguments=st.dictionaries(
        st.text(max_size=90), st.recursive(st.none() | st.text() | st.floats(), st.lists)
    ),
    text=st.text(max_size=2_000),
)
async def test_whatever_a_model_asks_for_can_be_published(name, arguments, text):
    trail = Trail()
    await trail.replied(1, says(text))
    await trail.tool_ran(ToolCall("c", name, arguments), ToolResult("c", name, text))
    for event in trail.told:
        assert event == audit.AuditEvent.model_validate_json(event.model_dump_json())
