"""What `rca watch` makes of audit events."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from schemas import audit
from schemas.analysis import Status
from schemas.failure import DeadLetterReason
from schemas.usage import Usage
from tests.fakes.audit_chains import accepted
from worker.adapters.nats.stream_info import ConsumerState
from worker.app.activity import ENDED_KEPT, IN_FLIGHT_KEPT, Activity
from worker.app.cli.watch import picture
from worker.app.event_line import step_of

BEGAN = datetime(2026, 6, 4, 10, 0, tzinfo=UTC)
USAGE = Usage(input_tokens=900, output_tokens=100, cost_usd=0.25, wall_seconds=12.0)
REPLY = audit.LLMResponse(call=1, model="m", finish="tool_calls", response_chars=0, tool_calls=2, usage=USAGE)
TOOL = audit.LLMToolCall(
    index=1, name="get_resource", arguments={"kind": "Pod"}, succeeded=True, result_chars=9
)
DONE = audit.ResponseComplete(
    status=Status.COMPLETED, workflow_id="undo-rollout", result_sha256="0" * 64, usage=USAGE
)
DEAD = audit.ResponseFailed(reason=DeadLetterReason.INTERNAL_ERROR, error="boom", result_sha256="0" * 64)


def event(payload, key="rr-1", *, seconds=0):
    return audit.AuditEvent(
        event_id=f"{key}-{seconds}",
        chain="c",
        sequence=1,
        prev="0" * 64,
        hash="0" * 64,
        event_type=payload.event_type,
        time=BEGAN + timedelta(seconds=seconds),
        correlation_id="rr-1",
        request_key=key,
        incident_id="inc-1",
        payload=payload,
    )


def activity(*events):
    made = Activity()
    for one in events:
        made.record(one)
    return made


def test_a_tool_call_names_its_arguments_unless_they_are_texts():
    arguments = {"pod": "api-1", "previous": True, "lines": 60}
    call = TOOL.model_copy(update={"arguments": arguments})
    assert "  get_resource(api-1, previous=True, lines=60)" == step_of(event(call))


def test_an_analysis_in_flight_counts_what_it_has_spent():
    run = activity(event(accepted()), event(REPLY, seconds=3), event(TOOL, seconds=4)).in_flight["rr-1"]
    assert (BEGAN, 1, 1, 1_000, 0.25) == (run.began, run.calls, run.tools, run.tokens, run.cost_usd)


def test_an_unknown_price_is_no_price_of_zero():
    free = REPLY.model_copy(update={"usage": Usage(input_tokens=5)})
    assert activity(event(free)).in_flight["rr-1"].cost_usd is None


@pytest.mark.parametrize(("end", "verdict"), [(DONE, "completed"), (DEAD, "internal_error")])
def test_an_analysis_that_ends_moves_to_the_ended_ones(end, verdict):
    made = activity(event(accepted()), event(end, seconds=9))
    assert not made.in_flight
    assert [("rr-1", verdict)] == [(done.key, done.verdict) for done in made.ended]


def test_an_event_that_is_published_again_counts_once():
    events = [event(accepted()), event(REPLY, seconds=1), event(DONE, seconds=2)]
    run = activity(*events[:2], events[1]).in_flight["rr-1"]
    assert (1_000, 0.25) == (run.tokens, run.cost_usd)
    made = activity(*events, *events)
    assert (0, 1) == (len(made.in_flight), len(made.ended))


def test_a_request_that_is_accepted_again_begins_again():
    made = activity(event(accepted()), event(REPLY), event(accepted(), seconds=60))
    assert (BEGAN + timedelta(seconds=60), 0) == (made.in_flight["rr-1"].began, made.in_flight["rr-1"].calls)


def test_the_board_stays_small_whatever_is_heard():
    made = activity(*(event(accepted(), f"rr-{n}") for n in range(IN_FLIGHT_KEPT + 5)))
    assert (IN_FLIGHT_KEPT, "rr-5") == (len(made.in_flight), next(iter(made.in_flight)))
    assert ENDED_KEPT == len(activity(*(event(DONE, f"rr-{n}") for n in range(ENDED_KEPT + 5))).ended)


def shown(made, width=80, waits=None, **state):
    out = io.StringIO()
    state = {"delivered": {"stream_seq": 9}, "ack_floor": {"stream_seq": 1}, "num_pending": 1234, **state}
    lanes = {"p0": ConsumerState.model_validate(state)}
    screen = picture(made, lanes, waits or {}, BEGAN + timedelta(seconds=30))
    Console(file=out, width=width, highlight=False).print(screen)
    return out.getvalue()


def test_the_live_view_says_why_requests_wait():
    made = activity(event(accepted()), event(accepted(), "rr-2"))
    lines = shown(made, waits={"rr-1": "model refused credentials", "rr-2": ""}).splitlines()
    assert max(map(len, lines)) <= 80
    assert ["waits" in line for line in lines if "rr-" in line] == [True, False]
    assert ["waiting: model refused credentials; /readyz of the workers says more"] == [
        line.strip() for line in lines if line.startswith("waiting")
    ]


@pytest.mark.parametrize(("waiting", "analysed", "said"), [(3, 0, True), (3, 1, False), (0, 0, False)])
def test_the_live_view_says_when_nobody_takes_requests(waiting, analysed, said):
    text = shown(activity(), num_pending=waiting, num_ack_pending=analysed)
    assert said == ("no worker takes them" in text)


def test_the_live_view_shows_queues_analyses_and_verdicts_in_80_columns():
    lines = shown(activity(event(accepted()), event(TOOL, seconds=4), event(DONE, "rr-0"))).splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for part in ("p0", "1,234", "rr-1", "get_resource(Pod)", "30 s", "undo-rollout", "$0.25"):
        assert part in text, part


def test_hostile_text_cannot_control_the_terminal():
    hostile = TOOL.model_copy(update={"name": "\x1b[2J", "arguments": {"a": "\u202e[red]"}})
    done = DONE.model_copy(update={"workflow_id": "\x1b[2Jundo"})
    running = event(hostile).model_copy(update={"request_key": "rr\x1b[2J"})
    ended = event(done, seconds=1).model_copy(update={"request_key": "\u202err"})
    text = shown(activity(running, ended), width=160)
    assert not {"\x1b", "\u202e"} & set(text)
    assert "[red]" in text


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (audit.ValidationAttempted(attempt=1, max_attempts=3, is_valid=False), "answer rejected: "),
        (DONE, "result: completed"),
        (DEAD, "dead letter: internal_error"),
        (TOOL, "  get_resource(Pod)"),
    ],
)
def test_a_step_is_told_in_a_few_words(payload, words):
    assert words == step_of(event(payload))
