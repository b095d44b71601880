"""Models that fail in every way, through the production path: what a consumer gets all the same."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import pytest

from schemas.analysis import HumanReviewReason, Status
from schemas.taxonomy import RequestKind
from tests.corpus_files import corpus_path
from tests.drills.accounts import until
from tests.drills.model import ANSWER, KEY, LOOK
from tests.fakes.llm_server import Said
from tests.pipeline import final, running
from worker.app.operations import Operations

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
BODY = (CASE / "incident.json").read_bytes()
QUICK = {"retry_seconds": 0.05, "breaker_seconds": 0.2}
REFUSED = Said(status=401)
CAPPED = Said(
    status=429, error={"message": "quota", "code": "insufficient_quota", "type": "insufficient_quota"}
)


async def result_of(run, seconds=100):
    async with run.client.waiting(RequestKind.INCIDENT, BODY) as waiter:
        submitted = await run.client.submit(BODY, RequestKind.INCIDENT)
        return await run.client.outcome(waiter, submitted, seconds)


def looks_then_answers(request):
    if any(message["role"] == "assistant" for message in request["messages"]):
        return final(ANSWER)
    return Said(tool_calls=LOOK)


@pytest.mark.parametrize(
    "refusal", [Said(status=529), REFUSED, CAPPED, Said(status=404)], ids=["529", "401", "quota", "404"]
)
async def test_the_next_model_answers_where_the_first_does_not(refusal, tmp_path):
    def script(request, number):
        return refusal if request["model"] == "scripted" else looks_then_answers(request)

    model = {**QUICK, "fallbacks": ("openai-chat:second",)}
    async with running(script, CASE, tmp_path, model=model) as run:
        result = await result_of(run)
    assert (Status.COMPLETED, "second") == (result.status, result.model)
    asked = Counter(request["model"] for request in run.llm.requests)
    assert 2 == asked["second"]


async def test_a_model_that_never_works_sends_the_incident_to_a_person_with_what_was_found(tmp_path):
    def script(request, number):
        return Said(tool_calls=LOOK) if number == 1 else Said(status=529)

    async with running(script, CASE, tmp_path, model=QUICK) as run:
        result = await result_of(run)
    assert (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.INVESTIGATION_INCONCLUSIVE) == (
        result.status,
        result.human_review_reason,
    )
    assert "5 tries" in result.human_review_detail
    assert 6 == len(run.llm.requests)
    assert any(item.source == "get_resource_context" for item in result.evidence)


async def test_a_conversation_that_is_too_long_is_shrunk_and_answered(tmp_path):
    def script(request, number):
        tools = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        if sum(map(len, tools)) > 4_000:
            return Said(status=400, error={"message": "too long", "code": "context_length_exceeded"})
        if any("taken out" in text for text in tools):
            return final(ANSWER)
        kinds = ["Pod", "Deployment", "ReplicaSet", "Node", "Event", "ConfigMap", "Service"]
        return Said(tool_calls=[("list_resources", {"kind": kind}) for kind in kinds] + LOOK)

    async with running(script, CASE, tmp_path, model=QUICK) as run:
        result = await result_of(run)
    assert Status.COMPLETED is result.status
    assert any("too long" in note for note in result.notes)
    assert "taken out" in json.dumps(run.llm.requests[-1])


BLOCKING = {
    "401": REFUSED,
    "403": Said(status=403),
    "spend cap": CAPPED,
}


@pytest.mark.parametrize("name", BLOCKING)
async def test_a_model_that_refuses_all_calls_pauses_intake_until_it_works_again(tmp_path, name):
    mended = False

    def script(request, number):
        return looks_then_answers(request) if mended else BLOCKING[name]

    requests = [body(n) for n in range(8)]
    async with running(script, CASE, tmp_path, model=QUICK, worker={"probe_seconds": 0.3}) as run:
        for request in requests:
            await run.client.submit(request, RequestKind.INCIDENT)
        await until(lambda: len(run.llm.requests) >= 4, 30)
        asked_about = Counter(remediation(request) for request in run.llm.requests)
        kept = await stored(run, run.subjects.requests_stream)
        out = await taken(run)
        says = run.worker.checks["model"]()
        refusals, mended = len(run.llm.requests), True
        assert await until(lambda: answered(run, len(requests)), 60)
        assert await until(lambda: all_acknowledged(run), 30)
        letters = await stored(run, run.subjects.dlq_stream)
        ready_again = run.worker.checks["model"]()
    assert 8 == kept
    assert "model_refused_credentials" in says or "model_spend_cap" in says
    [(_, tries), *others] = asked_about.most_common()
    assert tries >= 2  # one request is tried again and again
    assert len(others) <= 1  # besides it only what was already at work, once
    assert {1} >= {count for _, count in others}
    assert 2 >= out
    assert (0, "") == (letters, ready_again)
    assert refusals == len(run.llm.requests) - 2 * len(requests)


async def test_a_queued_request_that_is_cancelled_gets_its_result_while_the_model_refuses_all_calls(tmp_path):
    async with running(
        lambda request, number: REFUSED, CASE, tmp_path, model=QUICK, worker={"probe_seconds": 60.0}
    ) as run:
        for number in range(8):
            await run.client.submit(body(number), RequestKind.INCIDENT)
        assert await until(lambda: bool(run.worker.checks["model"]()), 30)
        asked = len(run.llm.requests)
        operations = Operations(run.nc, run.subjects)
        await operations.cancel("blocked-7", at=datetime.now(UTC), token="t")
        assert await until(lambda: answered(run, 1), 30)
        result = await operations.result("blocked-7")
        assert await until(lambda: left(run, 7), 30)
        assert (asked, 2 >= await taken(run)) == (len(run.llm.requests), True)
        assert run.worker.checks["model"]()
    assert HumanReviewReason.OPERATOR_ESCALATION is result.human_review_reason
    assert "blocked-7" not in {remediation(request) for request in run.llm.requests}


async def left(run, count):
    return await stored(run, run.subjects.requests_stream) == count


def body(number):
    request = json.loads(BODY)
    message = f"{request['error_message']} drill key blocked-{number}."
    return json.dumps({**request, "remediation_id": f"blocked-{number}", "error_message": message}).encode()


def remediation(request):
    return KEY.search(json.dumps(request["messages"]))[1]


async def test_a_request_whose_answers_cannot_be_read_delays_no_other(tmp_path):
    """It is the only one for a while, so nothing shows that the model answers others."""
    empty = b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[]}'

    def script(request, number):
        return Said(body=empty) if remediation(request) == "blocked-0" else looks_then_answers(request)

    async with running(script, CASE, tmp_path, model={"retry_seconds": 0.05}) as run:
        await run.client.submit(body(0), RequestKind.INCIDENT)
        assert await until(lambda: answered(run, 1), 100)
        tries = len(run.llm.requests)
        await run.client.submit(body(1), RequestKind.INCIDENT)
        assert await until(lambda: answered(run, 2), 100)
        calls = len(run.llm.requests)
    assert (5, 7) == (tries, calls)


async def stored(run, stream):
    return (await run.nc.jetstream().stream_info(stream)).state.messages


async def taken(run):
    """Requests that are out at the worker, or wait for their time after being given back."""
    lanes = await run.nc.jetstream().consumers_info(run.subjects.requests_stream)
    return sum(lane.num_ack_pending for lane in lanes)


async def answered(run, count):
    return await stored(run, run.subjects.results_stream) >= count


async def all_acknowledged(run):
    """The worker acknowledges a request after it has published the result."""
    return await stored(run, run.subjects.requests_stream) == 0


async def test_streamed_answers_make_the_same_result(tmp_path):
    async with running(
        lambda request, number: looks_then_answers(request), CASE, tmp_path, model={"stream": True}
    ) as run:
        result = await result_of(run)
    assert Status.COMPLETED is result.status
    assert all(request["stream"] for request in run.llm.requests)
    assert 2_000 < result.usage.input_tokens
