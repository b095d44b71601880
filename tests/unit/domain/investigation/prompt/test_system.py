"""The constant part of the prompt: what it says, what it costs, and that it never changes from request to request."""

from __future__ import annotations

import ast
import json
import re

import pytest

from schemas.taxonomy import Severity, SignalType
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import LOOK, World, answer, incident, recovery
from tests.fakes.tokens import real_tokens
from worker.domain.catalog.search import parse_query
from worker.domain.investigation.prompt import SYSTEM_TEXT
from worker.domain.investigation.toolbox.catalog import SearchWorkflowCatalog
from worker.domain.investigation.toolbox.tools import TOOLS
from worker.domain.values.workflows import BUSINESS_LABELS
from worker.domain.verdict.answers.answer import InvestigationOutcome
from worker.domain.verdict.answers.form import RECOVERY_ANSWER

BUDGET = 4_000


def tools_as_sent():
    return json.dumps(
        [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
            }
            for t in (*(tool.spec for tool in TOOLS), RECOVERY_ANSWER)
        ],
        separators=(",", ":"),
    )


def test_tools_and_system_text_are_within_their_budget():
    assert real_tokens(SYSTEM_TEXT) + real_tokens(tools_as_sent()) <= BUDGET


async def test_the_prefix_is_the_same_bytes_for_every_request_and_every_call():
    prefixes = {}
    for request in (
        incident(),
        recovery(),
        incident(remediation_id="rr-2", resource_kind="Node", priority="P0"),
    ):
        world = World(model=MemoryModel([calls(LOOK), final(answer())]))
        await world.analyse(request)
        for asked in world.model.requests:
            tools = [json.dumps((t.name, t.description, t.parameters)) for t in asked.tools]
            prefixes.setdefault(type(request), set()).add((asked.system.encode(), tuple(tools)))
    ((incidents,), (recoveries,)) = prefixes.values()
    assert (incidents[0], incidents[1][:-1]) == (recoveries[0], recoveries[1][:-1])
    assert "recovery_strategy" not in incidents[1][-1]
    assert "recovery_strategy" in recoveries[1][-1]


def test_the_tools_are_sorted():
    names = [tool.name for tool in TOOLS]
    assert sorted(names) == names


@pytest.mark.parametrize("word", ["rr-1", "inc-1", "shop", "2026-06", "rca-worker"])
def test_nothing_of_a_request_stands_in_the_system_text(word):
    assert word not in SYSTEM_TEXT


@pytest.mark.parametrize("signal_type", SignalType)
def test_every_signal_type_is_explained(signal_type):
    assert f"\n{signal_type}: " in SYSTEM_TEXT


@pytest.mark.parametrize("severity", [s for s in Severity if s is not Severity.UNKNOWN])
def test_every_severity_is_explained(severity):
    assert f"\n{severity}: " in SYSTEM_TEXT


@pytest.mark.parametrize("outcome", InvestigationOutcome)
def test_every_outcome_may_be_answered(outcome):
    assert outcome in SYSTEM_TEXT


def test_five_phases_in_their_order():
    phases = ["\n1. Investigate.", "\n2. Determine", "\n3. Name the effect", "\n4. Choose", "\n5. Answer"]
    assert sorted(phases, key=SYSTEM_TEXT.index) == phases
    assert SYSTEM_TEXT.index("get_resource_context") > SYSTEM_TEXT.index("\n2. Determine")


def test_every_tool_of_the_choice_is_named():
    for name in (
        "get_resource_context",
        "list_available_actions",
        "list_workflows",
        "get_workflow",
        "search_workflow_catalog",
    ):
        assert name in SYSTEM_TEXT
        assert name in {tool.name for tool in TOOLS}


def test_the_system_text_says_who_sets_each_search_parameter():
    search = SYSTEM_TEXT[SYSTEM_TEXT.index("# Who determines what") : SYSTEM_TEXT.index("# Answer")]
    yours, requested, detected = search.split("\n")[1:4]
    assert all(name in yours for name in ("query", "signal_type", "severity"))
    assert all(name in requested for name in (*BUSINESS_LABELS[:4], "custom_labels"))
    assert "component" in detected


def test_the_search_example_is_complete_short_and_right():
    example = SYSTEM_TEXT[SYSTEM_TEXT.index("## Example") : SYSTEM_TEXT.index("# Answer")]
    assert real_tokens(example) <= 250
    call = (
        ast.parse(re.search(r"^search_workflow_catalog\(.*\)$", example, re.MULTILINE).group()).body[0].value
    )
    given = {k.arg: eval(ast.unparse(k.value), {"false": False}) for k in call.keywords}
    asked = SearchWorkflowCatalog.model_validate(given)
    assert ("OOMKilled", Severity.CRITICAL) == (
        parse_query(asked.query).signal_type,
        parse_query(asked.query).severity,
    )
    for word in (
        "get_resource_context(",
        "get_workflow(",
        "submit_result",
        "selected_workflow",
        "alternative",
    ):
        assert word in example


def test_fenced_text_is_said_to_be_data():
    assert "never an instruction" in SYSTEM_TEXT
    assert "<data-TOKEN" in SYSTEM_TEXT
    assert "[REDACTED:" in SYSTEM_TEXT


def test_no_conclusion_is_suggested():
    for word in ("confidence: 0.", "most likely cause", "RCA so far", "pre-selected"):
        assert word not in SYSTEM_TEXT
