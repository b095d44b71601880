"""An answer that was cut is never used: over both protocols, in one piece or streamed, at any byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes.llm_server import Said, answer_bytes, serve
from worker.adapters.pydantic_ai import PydanticAIModel
from worker.domain.values.conversation import ModelRequest, ToolSpec, UserTurn
from worker.domain.values.errors import Retry, RetryReason

OPENAI, ANTHROPIC = "openai-chat:test-model", "anthropic:claude-sonnet-4-6"
TEXT = Said(text='Found it.\n```json\n{"a": {"b": 1}}\n```')
CALLS = Said(text="Looking.", tool_calls=[("get_resource", {"kind": "Pod", "name": "api-0"})])
REQUEST = ModelRequest(
    "You find root causes.",
    (ToolSpec("get_resource", "Read one object.", {"type": "object", "properties": {}}),),
    (UserTurn("An incident."),),
    deadline_seconds=10.0,
)


WAYS = [(OPENAI, None), (OPENAI, 5.0), (ANTHROPIC, None), (ANTHROPIC, 5.0)]
"""Model, and the silence that is allowed when it streams."""


def offsets(said, name, *, streamed):
    """Where to cut (around the end of each event, near the end, here and there), the size, where the last word stands."""
    request = {"model": "m", "stream": streamed}
    whole, _ = answer_bytes(said, request, 1, "/messages" if name == ANTHROPIC else "/chat")
    size = len(whole)
    edges = {i for i in range(size) if whole[i : i + 2] == b"\n\n"}
    near = {edge + step for edge in edges for step in (0, 1, 2)}
    cuts = sorted(n for n in {*near, *range(0, size, 41), *range(size - 6, size)} if n < size)
    mark = b'"stop_reason": "' if name == ANTHROPIC else b'"finish_reason": "'
    return cuts, size, whole.index(mark) if streamed else size


async def asked(model):
    """The reply as far as it matters, None when the call failed in a way that is worth a new try."""
    try:
        reply = await model.ask(REQUEST)
    except Retry as e:
        return None if e.reason is RetryReason.MODEL_UNAVAILABLE else e
    return reply.text, [(c.name, c.arguments, c.problem) for c in reply.tool_calls], reply.finish


@pytest.mark.parametrize("said", [TEXT, CALLS], ids=["text", "calls"])
@pytest.mark.parametrize("politely", [False, True], ids=["closed", "ended"])
@pytest.mark.parametrize(
    ("name", "silence"), WAYS, ids=["openai", "openai-sse", "anthropic", "anthropic-sse"]
)
async def test_a_cut_answer_is_a_failed_call(name, silence, politely, said):
    cut_at = None

    def script(request, number):
        return replace(said, cut_at=cut_at, cut_politely=politely)

    async with serve(script) as llm:
        base = llm.url if name == ANTHROPIC else f"{llm.url}/v1"
        model = PydanticAIModel(name, base_url=base, api_key="k", silence_seconds=silence)
        whole = await asked(model)
        assert whole is not None
        cuts, size, last_word = offsets(said, name, streamed=silence is not None)
        for cut in cuts:
            cut_at = cut - size  # from the end: ids and counts make the answers differ in length
            reply = await asked(model)
            assert reply in ((None,) if cut < last_word else (None, whole)), cut
        await model.close()
    assert all(bool(request.get("stream")) is (silence is not None) for request in llm.requests)


@pytest.mark.parametrize("name", [OPENAI, ANTHROPIC])
async def test_a_stream_that_falls_silent_has_failed_long_before_the_deadline(name):
    async with serve(lambda request, number: replace(TEXT, delay_seconds=3.0)) as llm:
        base = llm.url if name == ANTHROPIC else f"{llm.url}/v1"
        model = PydanticAIModel(name, base_url=base, api_key="k", silence_seconds=0.2)
        assert await asked(model) is None
        await model.close()
    assert len(llm.requests) == 1


@pytest.mark.parametrize("name", [OPENAI, ANTHROPIC])
async def test_a_streamed_answer_is_the_same_as_one_in_one_piece(name):
    said = [TEXT, CALLS]
    replies = []
    for silence in (None, 5.0):
        async with serve(lambda request, number: said[number - 1]) as llm:
            base = llm.url if name == ANTHROPIC else f"{llm.url}/v1"
            model = PydanticAIModel(name, base_url=base, api_key="k", silence_seconds=silence)
            pair = [await model.ask(REQUEST), await model.ask(REQUEST)]
            replies.append([replace(reply, raw="") for reply in pair])
            await model.close()
    assert replies[0] == replies[1]


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_refused_stream_keeps_what_the_provider_asked_for(status):
    said = Said(status=status, headers={"Retry-After": "7"})
    async with serve(lambda request, number: said) as llm:
        model = PydanticAIModel(OPENAI, base_url=f"{llm.url}/v1", api_key="k", silence_seconds=5.0)
        with pytest.raises(Retry) as raised:
            await model.ask(REQUEST)
        await model.close()
    assert raised.value.after == 7.0
