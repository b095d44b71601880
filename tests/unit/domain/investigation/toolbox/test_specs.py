from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from tests.fakes.tokens import real_tokens
from worker.domain.investigation.prompt.system import SYSTEM_TEXT
from worker.domain.investigation.toolbox.specs import (
    ARGUMENTS,
    GetPodLogs,
    GetResource,
    ListWorkflows,
    argument_problems,
    tool_specs,
)
from worker.domain.values.conversation import ToolSpec


def as_sent(specs):
    functions = [
        {"name": s.name, "description": s.description, "parameters": dict(s.parameters)} for s in specs
    ]
    return json.dumps([{"type": "function", "function": f} for f in functions], separators=(",", ":"))


def test_the_list_is_constant_and_sorted():
    names = [spec.name for spec in tool_specs()]
    assert sorted(names) == names
    assert as_sent(tool_specs()) == as_sent(tool_specs())


def test_tools_are_within_their_budget_and_leave_room_for_the_system_text():
    assert real_tokens(as_sent(tool_specs())) <= 1300
    assert real_tokens(as_sent(tool_specs())) + real_tokens(SYSTEM_TEXT) <= 4000


def test_configured_tools_are_sorted_in():
    names = [spec.name for spec in tool_specs([ToolSpec("grafana_query", "Query", {"type": "object"})])]
    assert sorted(names) == names
    assert "grafana_query" in names


@pytest.mark.parametrize("spec", tool_specs(), ids=lambda spec: spec.name)
def test_schemas_name_every_argument_and_what_is_required(spec):
    model = ARGUMENTS[spec.name]
    assert set(model.model_fields) == set(spec.parameters["properties"])
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert required == set(spec.parameters.get("required", ()))
    assert "title" not in json.dumps(spec.parameters)


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
