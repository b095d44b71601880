"""What providers and gateways say when a call fails, over the wire, and what it means for a run."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.fakes.llm_server import Said
from tests.ports.test_model import asked, model_on
from worker.adapters.pydantic_ai.answers import MAX_BODY_BYTES
from worker.domain.values.conversation import Finish, UserTurn
from worker.domain.values.errors import BLOCKING, GiveUp, GiveUpReason, Retry, RetryReason

CREDENTIALS, SPENDING = GiveUpReason.MODEL_REFUSED_CREDENTIALS, GiveUpReason.MODEL_SPEND_CAP
NO_MODEL, TOO_LONG = GiveUpReason.MODEL_NOT_FOUND, GiveUpReason.CONTEXT_OVERFLOW
REJECTED = GiveUpReason.MODEL_REJECTED_REQUEST
RATE_LIMITED, UNAVAILABLE = RetryReason.MODEL_RATE_LIMITED, RetryReason.MODEL_UNAVAILABLE


def error(message, **fields):
    return {"error": {"message": message, **fields}}


FAILURES = [
    # every call is refused until somebody acts
    ("openai", 401, error("Incorrect API key provided.", code="invalid_api_key"), CREDENTIALS),
    ("openai", 429, error("You exceeded your current quota.", code="insufficient_quota"), SPENDING),
    ("openai", 404, error("The model `gpt-0` does not exist.", code="model_not_found"), NO_MODEL),
    (
        "openai",
        400,
        error("Billing hard limit has been reached", code="billing_hard_limit_reached"),
        SPENDING,
    ),
    ("gateway", 400, error("Your credit balance is too low to access the API."), SPENDING),
    ("gateway", 400, error("You have reached your specified API usage limits."), SPENDING),
    ("litellm", 400, error("Budget has been exceeded! Current cost: 10.1, Max budget: 10.0"), SPENDING),
    ("litellm", 400, error("litellm.BadRequestError: Invalid model name passed in model=gpt-0"), NO_MODEL),
    (
        "azure",
        404,
        error("The API deployment for this resource does not exist.", code="DeploymentNotFound"),
        NO_MODEL,
    ),
    ("azure", 401, error("Access denied due to invalid subscription key.", code="401"), CREDENTIALS),
    ("bedrock", 403, {"message": "The security token included in the request is invalid."}, CREDENTIALS),
    ("bedrock", 400, {"message": "The provided model identifier is invalid."}, NO_MODEL),
    (
        "bedrock",
        404,
        {"__type": "ResourceNotFoundException", "message": "Model version reached end of life."},
        NO_MODEL,
    ),
    (
        "gemini",
        400,
        error("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT"),
        CREDENTIALS,
    ),
    ("gemini", 404, error("models/gemini-0 is not found for API version v1", status="NOT_FOUND"), NO_MODEL),
    (
        "groq",
        400,
        error("The model `llama-0` has been decommissioned.", code="model_decommissioned"),
        NO_MODEL,
    ),
    (
        "mistral",
        400,
        {"object": "error", "message": "Invalid model: mistral-0", "type": "invalid_model"},
        NO_MODEL,
    ),
    (
        "vllm",
        404,
        {"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError"},
        NO_MODEL,
    ),
    ("ollama", 404, {"error": 'model "x" not found, try pulling it first'}, NO_MODEL),
    ("other", 402, error("Insufficient Balance"), SPENDING),
    # the conversation is too long
    ("openai", 400, error("maximum context length is 8192 tokens", code="context_length_exceeded"), TOO_LONG),
    ("anthropic", 413, error("Request exceeds the maximum size", type="request_too_large"), TOO_LONG),
    (
        "anthropic",
        400,
        error("input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000"),
        TOO_LONG,
    ),
    ("bedrock", 400, {"message": "Input is too long for requested model."}, TOO_LONG),
    (
        "gemini",
        400,
        error("The input token count (1048600) exceeds the maximum number of tokens allowed"),
        TOO_LONG,
    ),
    (
        "groq",
        413,
        error("Request too large for model `llama`", type="tokens", code="rate_limit_exceeded"),
        TOO_LONG,
    ),
    (
        "mistral",
        400,
        {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"},
        TOO_LONG,
    ),
    (
        "vllm",
        400,
        {
            "message": "the model's context length is only 65536 tokens, resulting in a maximum input length of 61440"
        },
        TOO_LONG,
    ),
    (
        "llama.cpp",
        400,
        error("the request exceeds the available context size", type="exceed_context_size_error"),
        TOO_LONG,
    ),
    ("litellm", 400, error("litellm.ContextWindowExceededError: too many tokens"), TOO_LONG),
    # it may pass
    ("openai", 429, error("Rate limit reached", code="rate_limit_exceeded"), RATE_LIMITED),
    ("gemini", 429, error("Resource has been exhausted", status="RESOURCE_EXHAUSTED"), RATE_LIMITED),
    ("bedrock", 429, {"__type": "ThrottlingException", "message": "Too many requests"}, RATE_LIMITED),
    ("bedrock", 424, {"__type": "ModelNotReadyException", "message": "Model is not ready."}, UNAVAILABLE),
    ("anthropic", 529, error("Overloaded", type="overloaded_error"), UNAVAILABLE),
    ("llama.cpp", 503, error("Loading model", type="unavailable_error"), UNAVAILABLE),
    ("gateway", 502, {}, UNAVAILABLE),
    # this request only
    ("openai", 400, error("Invalid value for 'messages[3].content'", type="invalid_request_error"), REJECTED),
    ("azure", 400, error("The response was filtered", code="content_filter"), REJECTED),
    ("other", 422, {"detail": "unprocessable"}, REJECTED),
]


@pytest.mark.parametrize("name", ["openai-chat:test-model", "anthropic:claude-sonnet-4-6"])
@pytest.mark.parametrize(
    ("status", "body", "meaning"),
    [f[1:] for f in FAILURES],
    ids=[f"{f[0]}-{f[1]}-{n}" for n, f in enumerate(FAILURES)],
)
async def test_what_a_failure_means(name, status, body, meaning):
    said = Said(status=status, body=json.dumps(body).encode())
    async with model_on(lambda request, number: said, name) as (model, llm):
        with pytest.raises((GiveUp, Retry)) as raised:
            await model.ask(asked(UserTurn("An incident.")))
    assert meaning == raised.value.reason
    assert 1 == len(llm.requests)


def test_what_concerns_every_call_pauses_intake():
    assert {CREDENTIALS, SPENDING, NO_MODEL} <= BLOCKING
    assert not {TOO_LONG, REJECTED} & BLOCKING


async def test_the_message_of_the_provider_is_kept():
    said = Said(status=401, error={"message": "Incorrect API key provided", "code": "invalid_api_key"})
    async with model_on(lambda request, number: said) as (model, _):
        with pytest.raises(GiveUp, match="401: Incorrect API key provided"):
            await model.ask(asked(UserTurn("An incident.")))


def completion(**fields):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Done."}}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    answer["usage"] = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    message = fields.pop("message", {})
    finish = fields.pop("finish_reason", "stop")
    choice["message"] = {**choice["message"], **message}
    choice["finish_reason"] = finish
    return {**answer, **fields}


READABLE = {
    "null usage": completion(usage=None),
    "null numbers in usage": completion(
        usage={"prompt_tokens": None, "completion_tokens": 2, "total_tokens": None}
    ),
    "null model": completion(model=None),
    "null id and created": completion(id=None, created=None),
    "no role": completion(message={"role": None}),
    "empty finish reason": completion(finish_reason=""),
    "no finish reason": completion(finish_reason=None),
    "tool calls without a call": completion(finish_reason="tool_calls", message={"tool_calls": []}),
    "function call without a call": completion(finish_reason="function_call"),
}


@pytest.mark.parametrize("body", READABLE.values(), ids=READABLE)
async def test_a_complete_answer_is_read_whatever_is_missing_around_it(body):
    said = Said(body=json.dumps(body).encode())
    async with model_on(lambda request, number: said) as (model, _):
        reply = await model.ask(asked(UserTurn("An incident.")))
    assert ("Done.", Finish.STOP) == (reply.text, reply.finish)


@pytest.mark.parametrize("reason", ["abort", "error", "insufficient_system_resource"])
async def test_an_answer_that_ends_for_an_unknown_reason_is_not_taken_for_complete(reason):
    said = Said(body=json.dumps(completion(finish_reason=reason)).encode())
    async with model_on(lambda request, number: said) as (model, _):
        reply = await model.ask(asked(UserTurn("An incident.")))
    assert ("Done.", Finish.OTHER) == (reply.text, reply.finish)


MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "Done."}],
    "usage": {"input_tokens": 10, "output_tokens": 2},
}


@pytest.mark.parametrize(
    "change",
    [
        {"usage": None},
        {"id": None, "model": None},
        {"content": [{"type": "text", "text": "Done."}, {"type": "invented", "x": 1}]},
    ],
)
async def test_a_message_of_anthropic_is_read_whatever_is_missing_around_it(change):
    said = Said(body=json.dumps({**MESSAGE, **change}).encode())
    async with model_on(lambda request, number: said, "anthropic:claude-sonnet-4-6") as (model, _):
        reply = await model.ask(asked(UserTurn("An incident.")))
    assert ("Done.", Finish.STOP) == (reply.text, reply.finish)


@pytest.mark.parametrize(
    "body", [completion(choices=[]), {"choices": None}, {}, [], "text", {"choices": [1]}]
)
@pytest.mark.parametrize("name", ["openai-chat:test-model", "anthropic:claude-sonnet-4-6"])
async def test_an_answer_without_content_is_a_failed_try(name, body):
    said = Said(body=json.dumps(body).encode())
    async with model_on(lambda request, number: said, name) as (model, _):
        with pytest.raises(Retry) as raised:
            await model.ask(asked(UserTurn("An incident.")))
    assert UNAVAILABLE == raised.value.reason


async def test_thoughts_are_counted_and_are_no_answer():
    said = Said(
        body=json.dumps(
            completion(message={"content": None, "reasoning_content": "It is the memory."})
        ).encode()
    )
    async with model_on(lambda request, number: said) as (model, _):
        reply = await model.ask(asked(UserTurn("An incident.")))
    assert ("", len("It is the memory.")) == (reply.text, reply.thinking_chars)


@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_an_answer_that_never_ends_is_given_up(encoding):
    body = json.dumps(completion(message={"content": "x" * (MAX_BODY_BYTES + 1)})).encode()
    said = Said(
        body=gzip.compress(body) if encoding else body,
        headers={"Content-Encoding": encoding} if encoding else {},
    )
    async with model_on(lambda request, number: said) as (model, llm):
        with pytest.raises(GiveUp, match="longer than 16 MiB"):
            await model.ask(asked(UserTurn("An incident.")))
    assert 1 == len(llm.requests)


async def test_a_compressed_answer_is_read():
    said = Said(body=gzip.compress(json.dumps(completion()).encode()), headers={"Content-Encoding": "gzip"})
    async with model_on(lambda request, number: said) as (model, _):
        assert "Done." == (await model.ask(asked(UserTurn("An incident.")))).text


async def test_a_redirect_is_not_followed():
    said = Said(status=307, body=b"{}", headers={"Location": "http://127.0.0.1:1/elsewhere"})
    async with model_on(lambda request, number: said) as (model, llm):
        with pytest.raises((Retry, GiveUp)):
            await model.ask(asked(UserTurn("An incident.")))
    assert 1 == len(llm.requests)


async def test_a_turn_has_a_bounded_number_of_calls():
    said = Said(tool_calls=[("get_resource", {"kind": "Pod"})] * 200)
    async with model_on(lambda request, number: said) as (model, _):
        reply = await model.ask(asked(UserTurn("An incident.")))
    assert 64 == len(reply.tool_calls)
