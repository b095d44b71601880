"""The Model port on the real adapter, against a server that speaks the wire protocols."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.fakes.fixed_clock import FixedClock
from tests.fakes.llm_server import Said, serve
from worker.adapters.pydantic_ai import PydanticAIModel
from worker.adapters.pydantic_ai.answers import MAX_PARTS, completed
from worker.adapters.pydantic_ai.replies import MAX_TOKENS, MAX_TOOL_CALLS, read_arguments
from worker.domain.investigation.models.chain import ModelChain
from worker.domain.values.conversation import Finish, ModelRequest, ToolResult, ToolSpec, ToolTurn, UserTurn
from worker.domain.values.errors import GiveUp, GiveUpReason, Retry, RetryReason
from worker.domain.verdict.answers.form import INCIDENT_ANSWER, SUBMIT_RESULT
from worker.domain.verdict.answers.json_text import same_value

TOOLS = (
    ToolSpec(
        "get_resource",
        "Read one object.",
        {
            "type": "object",
            "properties": {"kind": {"type": "string"}},
            "required": ["kind"],
            "additionalProperties": False,
        },
    ),
)


@asynccontextmanager
async def model_on(script, name="openai-chat:test-model", **options):
    async with serve(script) as llm:
        base = llm.url if name.startswith("anthropic") else f"{llm.url}/v1"
        model = PydanticAIModel(name, base_url=base, api_key="test-key", **options)
        try:
            yield model, llm
        finally:
            await model.close()


def asked(*turns, tools_allowed=True, deadline_seconds=10.0):
    return ModelRequest(
        system="You find root causes.",
        tools=TOOLS,
        turns=turns,
        tools_allowed=tools_allowed,
        deadline_seconds=deadline_seconds,
    )


async def test_a_conversation_goes_over_the_openai_wire_word_for_word():
    def script(request, number):
        if number == 1:
            return Said(text="Looking.", tool_calls=[("get_resource", {"kind": "Pod"})])
        return Said(text="Done.")

    async with model_on(script) as (model, llm):
        opening = UserTurn("An incident.")
        first = await model.ask(asked(opening))
        results = ToolTurn((ToolResult(first.tool_calls[0].id, "get_resource", "a pod"),), note="Hurry.")
        second = await model.ask(asked(opening, first, results))

    call_id = first.tool_calls[0].id
    tool = {
        "type": "function",
        "function": {
            "name": "get_resource",
            "description": "Read one object.",
            "parameters": dict(TOOLS[0].parameters),
        },
    }
    sent_first, sent_second = llm.requests
    assert [
        {"role": "system", "content": "You find root causes."},
        {"role": "user", "content": "An incident."},
    ] == sent_first["messages"]
    assert [tool] == [{k: t[k] for k in ("type", "function")} for t in _without_strict(sent_first["tools"])]
    assert sent_first["messages"] == sent_second["messages"][:2]
    assert [
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": "get_resource", "arguments": '{"kind":"Pod"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call_id, "content": "a pod"},
        {"role": "user", "content": "Hurry."},
    ] == sent_second["messages"][2:]
    assert sent_first["tools"] == sent_second["tools"]
    assert "temperature" not in sent_first
    assert (Finish.TOOL_CALLS, Finish.STOP) == (first.finish, second.finish)
    assert (1000, 900, 50) == (
        first.usage.input_tokens,
        first.usage.cached_tokens,
        first.usage.output_tokens,
    )
    assert (None, 0.1) == (first.usage.cost_usd, first.usage.cached_price)


@pytest.mark.parametrize(("name", "share"), [("gpt-4o", 0.5), ("gpt-5", 0.1)])
async def test_cached_tokens_have_the_price_of_their_model(name, share):
    async with serve(lambda *_: Said(text="Done.")) as llm:
        model = PydanticAIModel(f"openai-chat:{name}", base_url=f"{llm.url}/v1", api_key="none")
        reply = await model.ask(asked(UserTurn("Go.")))
        await model.close()
    assert reply.usage.cached_price == share


@pytest.mark.parametrize("count", [10**25, 1_000])
async def test_impossible_counts_of_tokens_lift_no_budget_and_fit_into_a_result(count):
    usage = {
        "prompt_tokens": count,
        "completion_tokens": count,
        "total_tokens": count,
        "prompt_tokens_details": {"cached_tokens": 10**25},
    }
    answered = {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hm."}}
        ],
        "usage": usage,
    }
    async with model_on(lambda *_: Said(body=json.dumps(answered).encode())) as (model, _):
        used = (await model.ask(asked(UserTurn("Go.")))).usage
    assert 0 <= used.cached_tokens <= used.input_tokens <= MAX_TOKENS
    assert 0 <= used.output_tokens <= MAX_TOKENS
    assert (used.cost_usd or 0.0) >= 0.0


def _without_strict(tools):
    return [{**t, "function": {k: v for k, v in t["function"].items() if k != "strict"}} for t in tools]


async def test_a_conversation_goes_over_the_anthropic_wire_with_cache_marks():
    def script(request, number):
        if number == 1:
            return Said(tool_calls=[("get_resource", {"kind": "Pod"})])
        return Said(text="Done.")

    async with model_on(script, "anthropic:claude-sonnet-4-6") as (model, llm):
        opening = UserTurn("An incident.")
        first = await model.ask(asked(opening))
        results = ToolTurn((ToolResult(first.tool_calls[0].id, "get_resource", "a pod"),))
        second = await model.ask(asked(opening, first, results))

    assert "Done." == second.text
    assert Finish.TOOL_CALLS == first.finish
    assert 4_096 == llm.requests[0]["max_tokens"]
    assert "You find root causes." in json.dumps(llm.requests[0]["system"])
    assert "cache_control" in json.dumps(llm.requests[0])
    assert "a pod" in json.dumps(llm.requests[1]["messages"])
    assert first.tool_calls[0].id in json.dumps(llm.requests[1]["messages"])


async def test_calls_can_be_forbidden_while_the_tools_stay_in_the_prefix():
    async with model_on(lambda request, number: Said(text="Done.")) as (model, llm):
        await model.ask(asked(UserTurn("An incident."), tools_allowed=False))
    assert "none" == llm.requests[0]["tool_choice"]
    assert 1 == len(llm.requests[0]["tools"])


async def test_the_answer_can_always_be_submitted_and_its_form_is_enforced():
    async with model_on(lambda request, number: Said(text="Done.")) as (model, llm):
        request = replace(
            asked(UserTurn("An incident."), tools_allowed=False), tools=(*TOOLS, INCIDENT_ANSWER)
        )
        await model.ask(request)
    (sent,) = llm.requests
    assert "auto" == sent["tool_choice"]  # not every server behind an address can force one tool
    form = sent["tools"][1]["function"]
    assert form["strict"] is True
    assert form["parameters"]["additionalProperties"] is False
    assert form["parameters"]["required"] == INCIDENT_ANSWER.parameters["required"]


def test_at_the_providers_own_address_only_the_answer_can_be_called():
    model = PydanticAIModel("openai-chat:gpt-5", api_key="k")
    assert [SUBMIT_RESULT] == model._only_the_answer((*TOOLS, INCIDENT_ANSWER))
    assert "none" == model._only_the_answer(TOOLS)
    free = PydanticAIModel("anthropic:claude-opus-5-5", api_key="k")
    assert "auto" == free._only_the_answer((*TOOLS, INCIDENT_ANSWER))


async def test_tool_call_ids_that_repeat_are_minted_anew():
    said = Said(
        tool_calls=[("get_resource", {"kind": "Pod"}), ("get_resource", {"kind": "Node"})], call_id="same"
    )
    async with model_on(lambda request, number: said) as (model, _):
        reply = await model.ask(asked(UserTurn("An incident.")))
    assert 2 == len({call.id for call in reply.tool_calls})
    assert ["Pod", "Node"] == [call.arguments["kind"] for call in reply.tool_calls]


@pytest.mark.parametrize(
    ("arguments", "named"), [('{"kind": "Po', "JSON"), ("[1, 2]", "list"), ("7", "int"), ('"Pod"', "str")]
)
async def test_malformed_arguments_are_one_problem_and_an_empty_object_in_the_history(arguments, named):
    said = Said(tool_calls=[("get_resource", arguments), ("get_resource", {"kind": "Node"})])
    async with model_on(lambda request, number: said) as (model, llm):
        opening = UserTurn("An incident.")
        reply = await model.ask(asked(opening))
        results = ToolTurn(tuple(ToolResult(c.id, c.name, "x") for c in reply.tool_calls))
        await model.ask(asked(opening, reply, results))
    bad, good = reply.tool_calls
    assert named in bad.problem
    assert {} == bad.arguments
    assert ("", {"kind": "Node"}) == (good.problem, good.arguments)
    sent = llm.requests[1]["messages"][2]["tool_calls"]
    assert ["{}", '{"kind":"Node"}'] == [call["function"]["arguments"] for call in sent]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_arguments_that_were_encoded_more_than_once_are_read(times):
    arguments = {"kind": "Pod", "text": '{"a": 1}'}
    encoded = arguments
    for _ in range(times):
        encoded = json.dumps(encoded)
    assert (arguments, "") == read_arguments(encoded)


@pytest.mark.parametrize(
    "text", ['"{"', '"{\\"kind\\": "', json.dumps(json.dumps(json.dumps(json.dumps({}))))]
)
def test_arguments_in_a_string_that_are_no_complete_object_are_a_problem(text):
    assert {} == read_arguments(text)[0]
    assert read_arguments(text)[1]


VALUES = (
    st.none() | st.booleans() | st.floats(0, 1) | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)


@given(st.text(max_size=8), VALUES, VALUES, st.sampled_from(["%s", '{"a": [%s]}']), st.integers(0, 2))
def test_a_key_with_two_values_is_a_problem(key, one, other, form, encodings):
    text = form % f'{{{json.dumps(key)}: {json.dumps(one)}, "x": 1, {json.dumps(key)}: {json.dumps(other)}}}'
    for _ in range(encodings):
        text = json.dumps(text)
    assume(key != "x")
    assert bool(read_arguments(text)[1]) is (not same_value(one, other))


def test_absent_arguments_are_an_empty_object():
    assert ({}, "") == read_arguments(None)
    assert ({}, "") == read_arguments("")


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        (Said(text="half an ans", finish="length"), Finish.LENGTH),
        (Said(text=None, refusal="I will not."), Finish.REFUSAL),
        (Said(text="cut", finish="content_filter"), Finish.REFUSAL),
        (Said(text=None), Finish.STOP),
        (Said(text=""), Finish.STOP),
    ],
)
async def test_how_a_model_stopped_is_told_apart(said, finish):
    async with model_on(lambda request, number: said) as (model, _):
        reply = await model.ask(asked(UserTurn("An incident.")))
    assert finish == reply.finish
    assert () == reply.tool_calls


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Said(status=401), GiveUpReason.MODEL_REFUSED_CREDENTIALS),
        (Said(status=403), GiveUpReason.MODEL_REFUSED_CREDENTIALS),
        (Said(status=400), GiveUpReason.MODEL_REJECTED_REQUEST),
        (Said(status=404), GiveUpReason.MODEL_NOT_FOUND),
        (
            Said(status=400, error={"message": "too long", "code": "context_length_exceeded"}),
            GiveUpReason.CONTEXT_OVERFLOW,
        ),
        (
            Said(
                status=429,
                error={"message": "quota", "code": "insufficient_quota", "type": "insufficient_quota"},
            ),
            GiveUpReason.MODEL_SPEND_CAP,
        ),
    ],
)
async def test_what_never_passes_is_given_up(said, reason):
    async with model_on(lambda request, number: said) as (model, llm):
        with pytest.raises(GiveUp) as raised:
            await model.ask(asked(UserTurn("An incident.")))
    assert reason == raised.value.reason
    assert 1 == len(llm.requests)


@pytest.mark.parametrize(
    ("said", "reason", "after"),
    [
        (Said(status=429, headers={"Retry-After": "7"}), RetryReason.MODEL_RATE_LIMITED, 7.0),
        (Said(status=429), RetryReason.MODEL_RATE_LIMITED, None),
        (Said(status=503, headers={"Retry-After": "3"}), RetryReason.MODEL_UNAVAILABLE, 3.0),
        (Said(status=529), RetryReason.MODEL_UNAVAILABLE, None),
        (Said(status=500), RetryReason.MODEL_UNAVAILABLE, None),
        (Said(body=b'{"choices": []}'), RetryReason.MODEL_UNAVAILABLE, None),
        (Said(body=b"<html>"), RetryReason.MODEL_UNAVAILABLE, None),
    ],
)
async def test_what_may_pass_is_retried_by_the_caller_and_not_by_the_client(said, reason, after):
    async with model_on(lambda request, number: said) as (model, llm):
        with pytest.raises(Retry) as raised:
            await model.ask(asked(UserTurn("An incident.")))
    assert (reason, after) == (raised.value.reason, raised.value.after)
    assert 1 == len(llm.requests)


async def test_a_call_has_a_deadline():
    async with model_on(lambda request, number: Said(text="late", delay_seconds=5)) as (model, _):
        with pytest.raises(Retry, match="no answer within"):
            await model.ask(asked(UserTurn("An incident."), deadline_seconds=0.2))


async def test_all_calls_are_sent_at_once():
    calls, sent, answer = 150, asyncio.Event(), Said(text="Done.", delay_seconds=3_600.0)

    def script(request, number):
        if number == calls:
            sent.set()
        return answer

    async with model_on(script) as (model, _), asyncio.TaskGroup() as group:
        asking = [
            group.create_task(model.ask(asked(UserTurn(f"Incident {n}."), deadline_seconds=60.0)))
            for n in range(calls)
        ]
        await sent.wait()
        for call in asking:
            call.cancel()


async def test_nobody_there_is_retried():
    model = PydanticAIModel("openai-chat:test-model", base_url="http://127.0.0.1:9/v1", api_key="k")
    with pytest.raises(Retry) as raised:
        await model.ask(asked(UserTurn("An incident.")))
    await model.close()
    assert RetryReason.MODEL_UNAVAILABLE == raised.value.reason


@pytest.mark.parametrize("name", ["openai-chat:test-model", "anthropic:claude-sonnet-4-6"])
async def test_unpaired_surrogates_of_a_model_are_replaced(name):
    said = Said(text="half \ud83d", tool_calls=[("get_resource", {"kind": "\udfff", "x": ["\ud800"]})])
    async with model_on(lambda request, number: said, name) as (model, _):
        reply = await model.ask(asked(UserTurn("Incident.")))
        again = await model.ask(asked(UserTurn("Incident."), reply, ToolTurn((ToolResult("c", "x", "y"),))))
    assert reply.text == "half ?"
    assert {"kind": "?", "x": ["?"]} == reply.tool_calls[0].arguments
    assert json.loads(reply.raw)
    assert again.text == "half ?"


@pytest.mark.parametrize("depth", [33, 200, 300, 900, 5_000])
def test_arguments_nested_beyond_reason_are_a_problem(depth):
    value, problem = read_arguments('{"a":' * depth + "1" + "}" * depth)
    assert value == {}
    assert problem


async def test_another_provider_goes_on_with_the_conversation_of_the_first():
    """What one provider said, calls and all, is read by the next; either way round."""

    def first(request, number):
        if number == 1:
            return Said(text="Looking.", tool_calls=[("get_resource", {"kind": "Pod"})])
        return Said(status=529)

    names = ["openai-chat:test-model", "anthropic:claude-sonnet-4-6"]
    for one, other in (names, names[::-1]):
        async with (
            model_on(first, one) as (primary, _),
            model_on(lambda request, number: Said(text="Done."), other) as (secondary, llm),
        ):
            chain = ModelChain([primary, secondary], FixedClock())
            opening = UserTurn("An incident.")
            reply = await chain.ask(asked(opening))
            results = ToolTurn((ToolResult(reply.tool_calls[0].id, "get_resource", "a pod"),))
            assert (await chain.ask(asked(opening, reply, results))).text == "Done."
        sent = json.dumps(llm.requests[0]["messages"])
        assert sent.count(reply.tool_calls[0].id) == 2
        assert "Looking." in sent
        assert "a pod" in sent


@pytest.mark.parametrize("value", [float("nan"), 10**5000, "\ud800"], ids=["nan", "digits", "surrogate"])
@pytest.mark.parametrize("name", ["openai-chat:test-model", "anthropic:test-model"])
async def test_a_request_that_cannot_be_written_is_given_up(name, value):
    tool = ToolSpec("docs", "Search.", {"type": "object", "properties": {"q": {"enum": [value]}}})
    request = replace(asked(UserTurn("An incident.")), tools=(tool,))
    async with model_on(lambda request, number: Said(text="Done."), name) as (model, llm):
        with pytest.raises(GiveUp) as caught:
            await model.ask(request)
    assert GiveUpReason.MODEL_REJECTED_REQUEST == caught.value.reason
    assert [] == llm.requests


@pytest.mark.parametrize("text", ['{"n": NaN}', '{"n": [1, 1e999]}', '{"n": -Infinity}'])
def test_numbers_that_json_does_not_have_are_no_arguments(text):
    arguments, problem = read_arguments(text)
    assert {} == arguments
    assert "not valid JSON" in problem


@pytest.mark.parametrize("name", ["openai-chat:test-model", "anthropic:test-model"])
async def test_the_calls_of_one_turn_are_bounded(name):
    many = Said(tool_calls=[("get_resource", {"kind": "Pod"})] * 1_000)
    async with model_on(lambda *_: many, name) as (model, _):
        reply = await model.ask(asked(UserTurn("?")))
    assert len(reply.tool_calls) == MAX_TOOL_CALLS


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": [{"message": {"tool_calls": [{"id": "c"}] * 5_000}}]},
        {"choices": [{"message": {"content": "x"}}] * 5_000},
        {"type": "message", "content": [{"type": "tool_use"}] * 5_000},
    ],
)
def test_an_answer_with_too_many_parts_is_cut_before_the_client_reads_it(answer):
    """Reading them would hold up every other request of the worker for seconds."""
    cut = json.loads(completed(json.dumps(answer).encode()))
    choices = cut.get("choices", [])
    calls = [choice["message"].get("tool_calls", []) for choice in choices]
    assert MAX_PARTS == max(map(len, (choices, cut.get("content", []), *calls)))
