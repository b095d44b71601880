"""Models that fail in every way, through the production path: what a consumer gets all the same."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from schemas.analysis import HumanReviewReason, Status
from schemas.taxonomy import RequestKind
from tests.corpus_files import corpus_path
from tests.drills.model import ANSWER, LOOK
from tests.fakes.llm_server import Said
from tests.pipeline import final, running

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
BODY = (CASE / "incident.json").read_bytes()
QUICK = {"retry_seconds": 0.05, "breaker_seconds": 0.2}
REFUSED = Said(status=401)
CAPPED = Said(
    status=429, error={"message": "quota", "code": "insufficient_quota", "type": "insufficient_quota"}
)


async def result_of(run, seconds=30):
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
        if sum(map(len, tools)) > 5_000:
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


async def test_refused_credentials_keep_the_request(tmp_path):
    async with running(lambda request, number: REFUSED, CASE, tmp_path, model=QUICK) as run:
        assert await result_of(run, 2) is None
        requests = await run.nc.jetstream().stream_info("RCA_REQUESTS")
    assert 1 == len(run.llm.requests)
    assert 1 == requests.state.messages


async def test_streamed_answers_make_the_same_result(tmp_path):
    async with running(
        lambda request, number: looks_then_answers(request), CASE, tmp_path, model={"stream": True}
    ) as run:
        result = await result_of(run)
    assert Status.COMPLETED is result.status
    assert all(request["stream"] for request in run.llm.requests)
    assert 2_000 < result.usage.input_tokens
