"""What servers behind an address of their own do in their own way, in answers and in what they want back."""

from __future__ import annotations

import json

import pytest

from tests.fakes.llm_server import Said
from tests.ports.test_model import asked, model_on
from worker.domain.values.conversation import (
    CallUsage,
    Finish,
    Reply,
    ToolCall,
    ToolResult,
    ToolTurn,
    UserTurn,
)
from worker.domain.values.errors import Retry, RetryReason

OPENING = UserTurn("An incident.")
CALL = {"id": "a", "type": "function", "function": {"name": "get_resource", "arguments": '{"kind": "Pod"}'}}


def message(**fields):
    answer = {
        "model": "m",
        "choices": [{"message": {"role": "assistant", **fields}, "finish_reason": "stop"}],
    }
    return Said(body=json.dumps(answer).encode())


def pieces(*deltas, end="\n", finish="stop"):
    """An answer in pieces, as servers write it that leave characters unescaped."""
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    lines = [f"data: {json.dumps(chunk, ensure_ascii=False)}{end}{end}" for chunk in chunks]
    return Said(body="".join([f": a comment{end}{end}", *lines, f"data: [DONE]{end}{end}"]).encode())


async def replies(*said, turns=(), **options):
    """The replies to one conversation, in which each reply gets the results of its tool calls, and what was sent."""
    conversation = (OPENING, *turns)
    got = []
    async with model_on(lambda request, number: said[number - 1], **options) as (model, llm):
        for _ in said:
            reply = await model.ask(asked(*conversation))
            got.append(reply)
            conversation += reply, ToolTurn(tuple(ToolResult(c.id, c.name, "x") for c in reply.tool_calls))
    return got, llm.requests


@pytest.mark.parametrize("end", ["\n", "\r\n"])
async def test_lines_of_a_stream_end_only_where_the_protocol_says(end):
    [reply], _ = await replies(
        pieces({"content": "one\u2028"}, {"content": "two\x85"}, end=end), silence_seconds=5
    )
    assert "one\u2028two\x85" == reply.text


async def test_pieces_of_tool_calls_need_no_index():
    first, second = ({"name": "get_resource", "arguments": text} for text in ('{"kind":', '{"kind": "Node"}'))
    deltas = [
        {"tool_calls": [{"id": "a", "function": first}]},
        {"tool_calls": [{"function": {"arguments": ' "Pod"}'}}]},
        {"tool_calls": [{"id": "b", "function": second}]},
    ]
    [reply], _ = await replies(pieces(*deltas, finish="tool_calls"), silence_seconds=5)
    assert [{"kind": "Pod"}, {"kind": "Node"}] == [call.arguments for call in reply.tool_calls]
    assert Finish.TOOL_CALLS == reply.finish


async def test_a_failure_in_a_stream_means_what_it_means_outside():
    chunk = {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}
    with pytest.raises(Retry) as failed:
        await replies(Said(body=f"data: {json.dumps(chunk)}\n\n".encode()), silence_seconds=5)
    assert RetryReason.MODEL_RATE_LIMITED == failed.value.reason


async def test_a_failure_without_words_has_a_name():
    async with model_on(lambda *_: Said(delay_seconds=2), silence_seconds=0.1) as (model, _):
        with pytest.raises(Retry, match="ReadTimeout"):
            await model.ask(asked(OPENING))


async def test_control_tokens_of_chat_templates_reach_the_model_broken():
    """A server may read them in a text as the start of another turn. The reply is read without the joiner."""
    token, broken = "<|im_start|>", "<\u200d|im_start|>"
    spoken = message(
        content=f"I saw {broken}.",
        tool_calls=[
            {**CALL, "function": {"name": "get_resource", "arguments": json.dumps({"kind": broken})}}
        ],
    )
    [reply, _], [_, sent] = await replies(
        spoken, message(content="Done."), turns=(UserTurn(f"log: {token}"),)
    )
    assert (f"I saw {token}.", {"kind": token}) == (reply.text, reply.tool_calls[0].arguments)
    assert token not in json.dumps(sent["messages"], ensure_ascii=False)
    assert 3 == json.dumps(sent["messages"], ensure_ascii=False).count(broken)


async def test_thoughts_go_back_in_their_field_and_it_is_never_missing_after_them():
    thinking = message(content=None, reasoning_content="Hm.", tool_calls=[CALL])
    got, [_, second, third] = await replies(thinking, message(tool_calls=[CALL]), message(content="Done."))
    sent = [said for said in third["messages"] if said["role"] == "assistant"]
    assert ["Hm.", ""] == [said["reasoning_content"] for said in sent]
    assert second["messages"] == third["messages"][: len(second["messages"])]
    assert [3, 0, 0] == [reply.thinking_chars for reply in got]


async def test_thoughts_of_another_provider_and_in_tags_are_texts_of_the_history():
    part = {"part_kind": "thinking", "content": "Hm.", "signature": "s", "provider_name": "anthropic"}
    call = {"part_kind": "tool-call", "tool_name": "get_resource", "args": {"kind": "é"}, "tool_call_id": "c"}
    other = Reply(
        "",
        (ToolCall("c", "get_resource", {}),),
        Finish.STOP,
        CallUsage(),
        "m",
        json.dumps([{"parts": [part, call]}]),
    )
    silent = Reply("", (), Finish.STOP, CallUsage(), "m", '[{"parts": []}]')
    [reply], [sent] = await replies(message(content="<think>So.</think>Done."), turns=(other, silent))
    assert ("Done.", 3) == (reply.text, reply.thinking_chars)
    [said] = [said for said in sent["messages"] if said["role"] == "assistant"]
    assert ("<think>\nHm.\n</think>", '{"kind":"é"}') == (
        said["content"],
        said["tool_calls"][0]["function"]["arguments"],
    )


async def test_what_signs_a_tool_call_goes_back_with_it():
    signed = {**CALL, "extra_content": {"google": {"thought_signature": "s"}}}
    for first in (message(tool_calls=[signed]), pieces({"tool_calls": [{"index": 0, **signed}]})):
        streams = 5 if first.body.startswith(b":") else None
        _, [_, sent] = await replies(
            first, pieces({"content": "."}) if streams else message(), silence_seconds=streams
        )
        [said] = [said for said in sent["messages"] if said["role"] == "assistant"]
        assert signed["extra_content"] == said["tool_calls"][0]["extra_content"]


async def test_text_in_a_list_of_parts_is_read():
    parts = [
        {"type": "text", "text": "Do"},
        {"type": "reference", "ids": [1]},
        {"type": "text", "text": "ne."},
    ]
    [reply], _ = await replies(message(content=parts))
    assert "Done." == reply.text
