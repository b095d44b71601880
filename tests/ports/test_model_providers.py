"""Each provider over its own protocol: what is sent, what is read, and what its failures mean."""

from __future__ import annotations

import importlib.util
import json
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fakes.llm_server import Said, serve
from tests.ports.test_model import asked
from worker.adapters.pydantic_ai import ModelUnusable, PydanticAIModel
from worker.domain.values.conversation import Finish, ToolResult, ToolTurn, UserTurn
from worker.domain.values.errors import GiveUp, GiveUpReason, Retry, RetryReason

OPENING = UserTurn("An incident.")


@dataclass(frozen=True)
class ProviderCase:
    """A provider as it is configured: `client` is its module, `environment` what is set beside RCA_LLM__*.

    `address` is the variable of the provider that holds its address; empty when the base URL does. `key` is the header with
    the credentials, and a part of its value.
    """

    model: str
    client: str
    path: str
    key: tuple[str, str]
    environment: tuple[tuple[str, str], ...] = ()
    address: str = ""
    api_key: str | None = "test-key"

    @property
    def kind(self) -> str:
        return self.model.partition(":")[0]


GEMINI = "models/gemini-2.5-pro:generateContent"
CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"
BEARER = ("Authorization", "Bearer test-key")
CASES = [
    ProviderCase("mistral:mistral-large-latest", "mistralai", "/v1/chat/completions", BEARER),
    ProviderCase("groq:llama-3.3-70b-versatile", "groq", "/openai/v1/chat/completions", BEARER),
    ProviderCase(
        "google:gemini-2.5-pro", "google.genai", f"/v1beta/{GEMINI}", ("x-goog-api-key", "test-key")
    ),
    ProviderCase(
        "google-cloud:gemini-2.5-pro",
        "google.genai",
        f"/v1beta1/publishers/google/{GEMINI}",
        ("x-goog-api-key", "test-key"),
    ),
    ProviderCase(
        "azure:gpt-5",
        "openai",
        "/openai/deployments/gpt-5/chat/completions?api-version=2025-04-01-preview",
        ("api-key", "test-key"),
        (("OPENAI_API_VERSION", "2025-04-01-preview"),),
        address="AZURE_OPENAI_ENDPOINT",
    ),
    ProviderCase(
        f"bedrock:{CLAUDE}",
        "boto3",
        f"/model/{CLAUDE.replace(':', '%3A')}/converse",
        ("Authorization", "Credential=test-key/"),
        (
            ("AWS_DEFAULT_REGION", "eu-central-1"),
            ("AWS_ACCESS_KEY_ID", "test-key"),
            ("AWS_SECRET_ACCESS_KEY", "test-secret"),
        ),
        api_key=None,
    ),
]


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(params=CASES, ids=lambda case: case.kind)
def case(request, monkeypatch):
    if not installed(request.param.client):
        pytest.skip(f"{request.param.client}, the client of this provider, is not installed (docs/models.md)")
    for name, value in request.param.environment:
        monkeypatch.setenv(name, value)
    return request.param


@asynccontextmanager
async def model_of(case, script, monkeypatch, **options):
    async with serve(script) as llm:
        if case.address:
            monkeypatch.setenv(case.address, llm.url)
        model = PydanticAIModel(
            case.model, base_url=None if case.address else llm.url, api_key=case.api_key, **options
        )
        try:
            yield model, llm
        finally:
            await model.close()


def texts(value: Any) -> list[str]:
    """Every text in a body that was sent."""
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inside for text in texts(item)]


async def test_a_conversation_goes_over_the_wire(case, monkeypatch):
    def script(request, number):
        if number == 1:
            return Said(text="Looking.", tool_calls=[("get_resource", {"kind": "Pod"})])
        return Said(text="Done.")

    async with model_of(case, script, monkeypatch) as (model, llm):
        first = await model.ask(asked(OPENING))
        results = ToolTurn((ToolResult(first.tool_calls[0].id, "get_resource", "a pod"),), note="Hurry.")
        second = await model.ask(asked(OPENING, first, results))
    assert [case.path] * 2 == llm.paths
    assert case.key[1] in llm.headers[0][case.key[0]]
    assert ("Looking.", Finish.TOOL_CALLS, "Done.", Finish.STOP) == (
        first.text,
        first.finish,
        second.text,
        second.finish,
    )
    assert [("get_resource", {"kind": "Pod"})] == [(c.name, c.arguments) for c in first.tool_calls]
    assert (1000, 900, 50) == (
        first.usage.input_tokens,
        first.usage.cached_tokens,
        first.usage.output_tokens,
    )
    sent, again = (texts(request) for request in llm.requests)
    assert {"You find root causes.", "An incident.", "get_resource", "Read one object."} <= set(sent)
    assert {"You find root causes.", "An incident.", "a pod", "Hurry."} <= set(again)
    assert again.index("An incident.") < again.index("a pod") < again.index("Hurry.")
    assert "4096" in json.dumps(llm.requests[0])


async def test_a_model_that_stops_at_its_limit_says_so(case, monkeypatch):
    async with model_of(case, lambda request, number: Said(text="half", finish="length"), monkeypatch) as (
        model,
        _,
    ):
        assert Finish.LENGTH == (await model.ask(asked(OPENING))).finish


async def test_an_answer_is_received_in_pieces(case, monkeypatch):
    if case.kind == "bedrock":
        pytest.skip("the stand-in does not speak Amazon's event stream")

    def script(request, number):
        return Said(text="Looking.", tool_calls=[("get_resource", {"kind": "Pod"})])

    async with model_of(case, script, monkeypatch, silence_seconds=5.0) as (model, _):
        reply = await model.ask(asked(OPENING))
    assert ("Looking.", Finish.TOOL_CALLS, 1, 50) == (
        reply.text,
        reply.finish,
        len(reply.tool_calls),
        reply.usage.output_tokens,
    )


BEDROCK_ERRORS = {
    401: "UnrecognizedClientException",
    404: "ResourceNotFoundException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}


def error(case, status):
    message = "no"
    headers = {"x-amzn-errortype": BEDROCK_ERRORS[status]} if case.kind == "bedrock" else {}
    if case.kind == "bedrock":
        return Said(status=status, body=json.dumps({"message": message}).encode(), headers=headers)
    return Said(status=status, error={"message": message, "code": status})


@pytest.mark.parametrize(
    ("status", "raised", "reason"),
    [
        (401, GiveUp, GiveUpReason.MODEL_REFUSED_CREDENTIALS),
        (404, GiveUp, GiveUpReason.MODEL_NOT_FOUND),
        (429, Retry, RetryReason.MODEL_RATE_LIMITED),
        (503, Retry, RetryReason.MODEL_UNAVAILABLE),
    ],
)
async def test_a_failure_means_what_it_means_elsewhere_and_is_tried_once(
    case, monkeypatch, status, raised, reason
):
    async with model_of(case, lambda request, number: error(case, status), monkeypatch) as (model, llm):
        with pytest.raises(raised) as failed:
            await model.ask(asked(OPENING))
    assert reason == failed.value.reason
    assert 1 == len(llm.requests)


async def test_nobody_there_is_retried(case, monkeypatch):
    async with serve(lambda request, number: Said()) as llm:
        url = llm.url
    if case.address:
        monkeypatch.setenv(case.address, url)
    model = PydanticAIModel(case.model, base_url=None if case.address else url, api_key=case.api_key)
    with pytest.raises(Retry) as failed:
        await model.ask(asked(OPENING))
    await model.close()
    assert RetryReason.MODEL_UNAVAILABLE == failed.value.reason


@pytest.mark.parametrize(
    ("name", "client", "named"),
    [
        ("azure:gpt-5", "openai", "AZURE_OPENAI_ENDPOINT"),
        ("bedrock:x", "boto3", "AWS_REGION"),
        ("google:gemini-2.5-pro", "google.genai", "RCA_LLM__API_KEY"),
        ("google-cloud:gemini-2.5-pro", "google.genai", "GOOGLE_CLOUD_PROJECT"),
        ("groq:llama", "groq", "RCA_LLM__API_KEY"),
        ("mistral:large", "mistralai", "RCA_LLM__API_KEY"),
    ],
)
def test_what_is_missing_is_named(name, client, named, monkeypatch):
    if not installed(client):
        pytest.skip(f"{client} is not installed")
    for variable in ("HOME", "AWS_REGION", "AWS_DEFAULT_REGION", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(ModelUnusable, match=named):
        PydanticAIModel(name)


@pytest.mark.parametrize(
    ("name", "client", "extra"),
    [("mistral:large", "mistralai", "mistral"), ("google-cloud:gemini-2.5-pro", "google.genai", "google")],
)
def test_a_missing_client_is_named_by_its_extra(name, client, extra, monkeypatch):
    provider = name.partition(":")[0].replace("-", "_")
    for module in (client, *(name for name in sys.modules if name.startswith(f"{client}."))):
        monkeypatch.setitem(sys.modules, module, None)
    for module in (f"pydantic_ai.providers.{provider}", f"pydantic_ai.models.{extra}"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ModelUnusable, match=f"install the extra {extra}$"):
        PydanticAIModel(name, api_key="k")


def test_azure_has_no_base_url():
    with pytest.raises(ModelUnusable, match="no base URL"):
        PydanticAIModel("azure:gpt-5", base_url="https://example.com", api_key="k")


@pytest.mark.skipif(not installed("boto3"), reason="boto3 is not installed")
async def test_without_credentials_of_the_cloud_every_call_waits(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    model = PydanticAIModel("bedrock:amazon.nova-pro-v1:0", base_url="http://127.0.0.1:9")
    with pytest.raises(GiveUp) as failed:
        await model.ask(asked(OPENING))
    await model.close()
    assert GiveUpReason.MODEL_REFUSED_CREDENTIALS == failed.value.reason
