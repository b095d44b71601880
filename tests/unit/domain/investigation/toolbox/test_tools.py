from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.fakes.memory_external import MemoryExternal
from tests.fakes.memory_metrics import MemoryMetrics
from tests.fakes.tokens import real_tokens
from worker.domain.investigation.prompt.system import SYSTEM_TEXT
from worker.domain.investigation.toolbox.catalog import ListWorkflows
from worker.domain.investigation.toolbox.cluster import GetResource
from worker.domain.investigation.toolbox.logs import GetPodLogs
from worker.domain.investigation.toolbox.served import ServedTools
from worker.domain.investigation.toolbox.tool import argument_problems
from worker.domain.investigation.toolbox.tools import OPTIONAL_TOOLS, TOOLS, offered_tools

SNAPSHOTS = Path(__file__).parent / "snapshots"


def as_sent(tools):
    functions = [
        {"name": s.name, "description": s.description, "parameters": dict(s.parameters)}
        for s in (tool.spec for tool in tools)
    ]
    return json.dumps([{"type": "function", "function": f} for f in functions], separators=(",", ":"))


def described(specs):
    shown = [{"name": s.name, "description": s.description, "parameters": dict(s.parameters)} for s in specs]
    return json.dumps(shown, indent=1, ensure_ascii=False) + "\n"


def test_the_definitions_are_sent_as_they_always_were():
    """Providers cache them: a changed byte costs every request its cached prefix once.

    `UPDATE_SNAPSHOTS=1 pytest <this file>` writes them anew.
    """
    sent = [tool.spec for tool in offered_tools(MemoryMetrics(), None)]
    served = ServedTools(None, None, None, None).specs
    for file, specs in {"model.json": sent, "served.json": served}.items():
        if os.environ.get("UPDATE_SNAPSHOTS"):
            (SNAPSHOTS / file).write_text(described(specs))
        assert (SNAPSHOTS / file).read_text() == described(specs)


@pytest.mark.parametrize("tool", [*TOOLS, *OPTIONAL_TOOLS], ids=lambda tool: tool.name)
def test_schemas_say_which_values_are_taken(tool):
    """Every number has its limits and its default, every closed set its words."""
    for name, given in tool.spec.parameters["properties"].items():
        if given["type"] in {"integer", "number"}:
            assert {"default", "minimum", "maximum"} <= set(given)
        if name == "severity":
            assert given["enum"] == ["critical", "high", "medium", "low"]
        if name == "namespace" and "name" in tool.spec.parameters.get("required", ()):
            assert "required for namespaced kinds" in given["description"]


def test_what_is_not_configured_is_not_offered():
    assert TOOLS == offered_tools(None, None)
    names = [tool.name for tool in offered_tools(MemoryMetrics(), MemoryExternal())]
    assert sorted({*names, "docs_search", "query_prometheus"}) == names


def test_tools_are_within_their_budget_and_leave_room_for_the_system_text():
    assert real_tokens(as_sent(TOOLS)) <= 1300
    assert real_tokens(as_sent(TOOLS)) + real_tokens(SYSTEM_TEXT) <= 4000


@pytest.mark.parametrize("tool", [*TOOLS, *OPTIONAL_TOOLS], ids=lambda tool: tool.name)
def test_schemas_name_every_argument_and_what_is_required(tool):
    model, parameters = tool.arguments, tool.spec.parameters
    known_to_code = {"filters", "custom_labels"}
    assert set(model.model_fields) - known_to_code == set(parameters["properties"])
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert required == set(parameters.get("required", ()))
    assert "title" not in json.dumps(parameters)
    assert tool.details <= set(model.model_fields)


def test_null_means_absent():
    asked = GetPodLogs.model_validate(
        {"pod": "a", "namespace": "b", "previous": None, "tail_lines": None, "grep": None}
    )
    assert GetPodLogs(pod="a", namespace="b") == asked


@pytest.mark.parametrize(("given", "expected"), [(50, 50), ("50", 50), (0, 1), (999_999, 2000)])
def test_tail_lines_are_bounded(given, expected):
    assert (
        expected == GetPodLogs.model_validate({"pod": "a", "namespace": "b", "tail_lines": given}).tail_lines
    )


def test_other_spellings_of_arguments_are_understood():
    assert (
        "apps/v1"
        == GetResource.model_validate({"kind": "x", "name": "y", "apiVersion": "apps/v1"}).api_version
    )
    asked = GetResource.model_validate({"kind": "apps/v1/deployments", "name": "y"})
    assert ("Deployment", "apps/v1") == (asked.resolved_kind, asked.resolved_api_version)


def test_what_is_wrong_is_told_all_at_once_with_what_is_allowed():
    with pytest.raises(ValidationError) as raised:
        ListWorkflows.model_validate({"signal_type": ["OOMKilled"], "environment": "production"})
    text = argument_problems(ListWorkflows, raised.value)
    for part in (
        "action_type: Field required",
        "signal_type",
        "environment: Extra",
        "Allowed: ",
        "cursor?: string",
    ):
        assert part in text
