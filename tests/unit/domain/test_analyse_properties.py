"""Whatever a model says, a run ends in one valid result: checked, or for a person to look at."""

from __future__ import annotations

import copy
import json

from hypothesis import given
from hypothesis import strategies as st

from tests.corpus_files import corpus_path, reply_rows
from tests.examples import examples
from tests.fakes.memory_model import MemoryModel, calls, final, says
from tests.fakes.scripted import World, answer, assert_checked, incident, recovery
from worker.domain.analyse import Rules
from worker.domain.values.conversation import CallUsage, Finish, Reply, ToolCall
from worker.domain.values.limits import Limits

MANY = examples(150)
REQUESTS = st.sampled_from([incident(), recovery()])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=40),
    st.sampled_from(
        ["", "null", "restart-v1", "api", "Deployment", "critical", "0.9", "90%", "not_actionable", "Pod"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=8,
)


def places(value, path=()):
    """Paths of all members of a JSON value."""
    yield path
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, child in children:
        yield from places(child, (*path, key))


PLACES = [path for path in places(answer()) if path]


def changed(value, path, change):
    """The value with another member at the path, or without it for `...`; as it is when there is none any more."""
    copied = copy.deepcopy(value)
    inner = copied
    for key in path[:-1]:
        inner = inner.get(key) if isinstance(inner, dict) else None
    if isinstance(inner, dict) and path[-1] in inner:
        if change is ...:
            del inner[path[-1]]
        else:
            inner[path[-1]] = change
    return copied


@st.composite
def mutated_answers(draw):
    """The valid answer with some members replaced, removed or renamed, written in one of many ways."""
    said = answer()
    for path in draw(st.lists(st.sampled_from(PLACES), max_size=4)):
        said = changed(said, path, draw(st.just(...) | VALUES))
    text = json.dumps(said, ensure_ascii=draw(st.booleans()), indent=draw(st.none() | st.just(1)))
    cut = draw(st.integers(0, len(text)) | st.just(len(text)))
    shape = draw(
        st.sampled_from(["{}", "prose\n```json\n{}\n```", "<think>x</think>{}", "{}\n{}", "a { b {} c"])
    )
    return shape.replace("{}", text[:cut])


TEXTS = st.one_of(
    st.text(max_size=400),
    st.text(alphabet='{}[]":,\\`<>/ \nabcnrt0123456789', max_size=400),
    VALUES.map(lambda value: json.dumps(value, allow_nan=True)),
    mutated_answers(),
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(
        ["kind", "name", "namespace", "pod", "path", "grep", "since", "workflow_id", "action_type", "x"]
    ),
    st.one_of(
        st.text(max_size=30), st.sampled_from(["Pod", "api", "shop", "Deployment", "deploy", "*"]), VALUES
    ),
    max_size=5,
)
TOOLS = st.sampled_from([
    "get_resource", "list_resources", "get_events", "get_pod_logs", "get_resource_context", "list_available_actions",
    "list_workflows", "get_workflow", "no_such_tool", "",
])  # fmt: skip
CALLS = st.lists(
    st.builds(
        ToolCall,
        st.text(max_size=5),
        TOOLS | st.text(max_size=20),
        ARGUMENTS,
        st.just("") | st.text(max_size=20),
    ),
    max_size=15,
)
REPLIES = st.builds(
    Reply,
    text=TEXTS,
    tool_calls=CALLS.map(tuple),
    finish=st.sampled_from(Finish),
    usage=st.builds(
        CallUsage, st.integers(0, 40_000), st.integers(0, 10), st.integers(0, 10), st.none() | st.floats(0, 1)
    ),
    model=st.text(max_size=20),
    raw=st.text(max_size=20),
)


async def checked_result(world, request):
    result = await world.analyse(request)
    assert_checked(result)
    if not result.needs_human_review:
        assert result.validation_attempts[-1].is_valid
        assert result.root_cause_analysis is not None
        assert result.affected_resource is not None
    assert len(result.validation_attempts) <= 3
    assert world.model.calls == result.usage.llm_calls <= world.rules.limits.llm_calls
    return result


@MANY
@given(text=TEXTS, finish=st.sampled_from(Finish), request_=REQUESTS)
async def test_any_text_ends_in_a_result_that_is_checked(text, finish, request_):
    await checked_result(World.saying(says(text, finish)), request_)


@MANY
@given(text=mutated_answers(), request_=REQUESTS)
async def test_any_mutation_of_a_valid_answer_too(text, request_):
    await checked_result(World.saying(says(text)), request_)


@MANY
@given(replies=st.lists(REPLIES, min_size=1, max_size=8), request_=REQUESTS)
async def test_any_conversation_too(replies, request_):
    rules = Rules(limits=Limits(llm_calls=8, tool_calls=20))
    await checked_result(World(model=MemoryModel(replies), rules=rules), request_)


@examples(30)
@given(replies=st.lists(REPLIES, min_size=1, max_size=6), dies=st.integers(1, 6))
async def test_any_conversation_is_replayed_as_it_was(replies, dies):
    class DownError(Exception):
        """The model's provider breaks down at some call."""

    def until(number_of_calls):
        def script(_, number):
            return DownError() if number > number_of_calls else replies[min(number, len(replies)) - 1]

        return script

    rules = Rules(limits=Limits(llm_calls=8, tool_calls=20))
    expected = await World(model=MemoryModel(until(99)), rules=rules).analyse()
    world = World(model=MemoryModel(until(dies)), rules=rules)
    try:
        await world.analyse()
    except DownError:
        done = sum(step.kind == "llm" for step in world.journal.steps["rr-1"])
        script = until(99)
        world.model = MemoryModel(lambda request, number: script(request, number + done))
    result = await world.analyse(run="run-2")
    same = ("status", "human_review_reason", "selected_workflow", "usage", "analysis", "model")
    assert [getattr(expected, name) for name in same] == [getattr(result, name) for name in same]


async def test_every_reply_of_the_corpus_ends_in_a_result_that_is_checked():
    for row in reply_rows():
        text = corpus_path(f"llm_replies/{row.file}").read_bytes().decode("utf-8", "replace")
        await checked_result(World.saying(says(text)), incident())


async def test_a_model_without_an_end_of_tool_calls_ends_in_a_result():
    world = World.with_script(
        lambda _, number: calls(("get_resource", {"kind": "Pod", "name": f"p{number}", "namespace": "shop"}))
    )
    result = await checked_result(world, incident())
    assert result.needs_human_review is True


async def test_the_valid_answer_is_accepted_by_the_same_check():
    result = await checked_result(World.saying(final(answer())), incident())
    assert result.needs_human_review is False
