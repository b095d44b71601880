from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.enrichment import DetectedLabels
from tests.fakes.memory_catalog import MemoryCatalog, labels, workflow
from tests.fakes.tokens import real_tokens
from tests.fakes.tool_context import tool_context
from worker.domain.investigation.toolbox.catalog import (
    MOST_RESULTS,
    GetWorkflow,
    ListAvailableActions,
    ListWorkflows,
    SearchWorkflowCatalog,
    get_workflow,
    list_available_actions,
    list_workflows,
    search_workflow_catalog,
)
from worker.domain.investigation.toolbox.tool import RESULT_TOKENS, ToolProblem
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflow_search import Target
from worker.domain.values.workflows import ActionText, Parameter, ParameterType, SelectionContext

BASE = SelectionContext(environment="production", priority="P1")
API = ObjectRef("Deployment", "api", "shop", "apps/v1")


async def search(workflows, query="CrashLoopBackOff critical", *, target=None, base=BASE, **arguments):
    context = tool_context(catalog=MemoryCatalog(workflows), labels=base, target=target)
    asked = SearchWorkflowCatalog.model_validate({"query": query, **arguments})
    finding = await search_workflow_catalog(context, asked)
    return json.loads(finding.body), finding


async def names(workflows, query="CrashLoopBackOff critical", **options):
    shown, _ = await search(workflows, query, **options)
    return [w["workflow_id"] for w in shown["workflows"]]


async def test_a_result_has_the_fields_of_the_contract():
    known = workflow(
        title="Restart",
        description="CrashLoopBackOff critical: restarts.",
        parameters=(
            Parameter("REASON", required=True, description="why", min_length=3),
            Parameter("WAIT", ParameterType.INTEGER, default=3),
        ),
        estimated_duration_seconds=90,
        success_rate=0.0,
    )
    shown, finding = await search([known, workflow("z-v1", labels=labels(environment="staging"))])
    assert {
        "query": "CrashLoopBackOff critical",
        "total_results": 1,
        "workflows": [
            {
                "workflow_id": "restart-v1",
                "title": "Restart",
                "version": "1.2.0",
                "action_type": "RestartWorkload",
                "description": "CrashLoopBackOff critical: restarts.",
                "confidence": 0.99,
                "estimated_duration": "90s",
                "success_rate": 0.0,
                "parameters": [
                    {"name": "REASON", "type": "string", "required": True, "description": "why"},
                    {"name": "WAIT", "type": "integer"},
                ],
            }
        ],
    } == shown
    assert "signal_type=CrashLoopBackOff, severity=critical" in finding.scope
    assert "environment" not in finding.scope  # the first message has it


async def test_lists_show_when_to_use_what_and_what_has_to_be_filled_in():
    text = ActionText("restarts", "a leak", "a bad image")
    parameters = (
        Parameter("TARGET_RESOURCE_NAME", required=True),
        Parameter("targetNamespace", required=True),
        Parameter("deployment_name"),
        Parameter("REASON", required=True),
        Parameter("WAIT"),
    )
    catalog = MemoryCatalog([workflow(parameters=parameters)], {"RestartWorkload": text})
    context = tool_context(catalog=catalog, labels=BASE)
    actions = json.loads((await list_available_actions(context, ListAvailableActions())).body)["actions"]
    assert [
        {
            "action_type": "RestartWorkload",
            "description": "restarts",
            "when_to_use": "a leak",
            "when_not_to_use": "a bad image",
            "workflow_count": 1,
        }
    ] == actions
    listed = json.loads((await list_workflows(context, ListWorkflows(action_type="RestartWorkload"))).body)
    assert ["REASON*", "WAIT"] == listed["workflows"][0]["parameters"]


async def test_a_bad_query_is_answered_with_how_to_write_it():
    with pytest.raises(ToolProblem, match=r"write <signal_type> <severity> \[keywords\]"):
        await search([workflow()], "the pod keeps crashing")


async def test_names_of_the_target_do_not_belong_into_a_query():
    target = Target(API, (API,), DetectedLabels())
    with pytest.raises(ToolProblem, match='leave "api" out'):
        await search([workflow()], "CrashLoopBackOff critical api", target=target)


async def test_filters_that_code_knows_better_are_reported():
    shown, _ = await search([workflow()], filters={"environment": "staging", "hpa_enabled": True})
    assert ["environment=staging is not applied: the request has production"] == shown["notes"]
    assert 1 == shown["total_results"]


async def test_filters_and_custom_labels_rank_where_nothing_is_known():
    plain = workflow("a")
    mesh = workflow("z", detected_labels={"service_mesh": "istio"})
    team = workflow("b", custom_labels={"team": ("payments",)})
    assert ["a", "b", "z"] == await names([plain, mesh, team])
    assert ["z", "a", "b"] == await names([plain, mesh, team], filters={"serviceMesh": "istio"})
    assert ["b", "a", "z"] == await names([plain, mesh, team], custom_labels={"team": "payments"})


async def test_the_target_sets_component_and_labels():
    target = Target(API, (API,), DetectedLabels(gitops_managed=True))
    aware = workflow("z", custom_labels={"gitops_aware": ("true",)})
    node = workflow("n", labels=labels(component="Node"))
    assert ["a", "z"] == await names([workflow("a"), aware])
    assert ["z", "a"] == await names([workflow("a"), aware, node], target=target)


async def test_when_nothing_fits_the_labels_that_left_workflows_out_are_counted():
    out = [
        workflow("a", labels=labels(signal_type="crashloopbackoff", environment="staging")),
        workflow("b", labels=labels(environment="staging", priority="P0")),
    ]
    shown, _ = await search(out)
    assert ([], 0) == (shown["workflows"], shown["total_results"])
    assert {"environment": 2, "priority": 1} == shown["left_out_by"]
    assert {"environment": 1} == shown["left_out_only_by"]
    assert "selecting none is the right answer" in shown["notes"][-1]


async def test_a_signal_type_of_no_workflow_brings_those_that_are_near():
    shown, _ = await search([workflow(labels=labels(signal_type="HPAMaxedOut"))], "HPAMaxed high")
    assert "no workflow is declared for HPAMaxed; near ones are HPAMaxedOut" == shown["notes"][-1]
    shown, _ = await search([workflow(labels=labels(signal_type="HPAMaxedOut"))], "DiskSlow high")
    assert "list_available_actions shows the signal types" in shown["notes"][-1]


async def test_weaker_matches_are_counted_and_found_when_asked_for():
    weak = workflow("weak", labels=labels(signal_type="*"))
    shown, _ = await search([weak, workflow("good")])
    assert ["1 more fit with a confidence below 0.7"] == shown["notes"]
    assert ["good", "weak"] == await names([weak, workflow("good")], min_confidence=0.4)
    alone, _ = await search([weak])
    assert ["1 fit with a confidence below 0.7: lower min_confidence to see them"] == alone["notes"]


async def test_many_results_are_cut_to_the_budget_by_whole_workflows():
    wordy = [
        workflow(
            f"w-{n:02}",
            description=f"CrashLoopBackOff critical: {'does this and that, ' * 12}",
            parameters=tuple(
                Parameter(f"PARAMETER_{m}", description="what it is for " * 9) for m in range(8)
            ),
        )
        for n in range(30)
    ]
    shown, finding = await search(wordy, max_results=MOST_RESULTS)
    assert real_tokens(finding.body) <= RESULT_TOKENS
    assert 30 == shown["total_results"]
    count = len(shown["workflows"])
    assert f"{30 - count} more match: add keywords, or ask list_workflows" == shown["notes"][-1]
    assert 8 == len(shown["workflows"][-1]["parameters"])
    assert "" == finding.cut


async def test_parameters_lose_their_descriptions_before_workflows_are_lost():
    parameters = tuple(Parameter(f"PARAMETER_{m}", description="what it is for " * 9) for m in range(8))
    shown, _ = await search([workflow(f"w-{n}", parameters=parameters) for n in range(5)])
    assert 5 == len(shown["workflows"])
    assert {"name": "PARAMETER_0", "type": "string"} == shown["workflows"][0]["parameters"][0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_results": 0}, {"max_results": 1}),
        ({"max_results": "500"}, {"max_results": MOST_RESULTS}),
        ({"min_confidence": 7}, {"min_confidence": 1.0}),
        ({"min_confidence": None, "filters": None}, {"min_confidence": 0.7, "filters": {}}),
        ({"filters": ""}, {"filters": {}}),
        ({"filters": '{"stateful": true}'}, {"filters": {"stateful": True}}),
        ({"filters": {"a": "b", "c": ["d"], "e": False}}, {"filters": {"a": "b", "c": ("d",), "e": False}}),
        ({"custom_labels": {"team": "x"}}, {"custom_labels": {"team": ("x",)}}),
    ],
)
def test_arguments_are_read_as_models_write_them(given, expected):
    asked = SearchWorkflowCatalog.model_validate({"query": "x", **given})
    assert expected == {name: getattr(asked, name) for name in expected}


@pytest.mark.parametrize(
    "given",
    [
        {"min_confidence": "nan"},
        {"filters": "stateful"},
        {"filters": {f"f{n}": "x" for n in range(21)}},
        {"filters": {"a": {"b": "c"}}},
        {"custom_labels": ["team"]},
        {"environment": "staging"},
    ],
)
def test_other_arguments_are_refused(given):
    with pytest.raises(ValidationError):
        SearchWorkflowCatalog.model_validate({"query": "x", **given})


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.text(max_size=300), JSON, JSON)
async def test_whatever_is_asked_is_answered_or_refused(query, filters, custom):
    try:
        SearchWorkflowCatalog.model_validate({"query": query, "filters": filters, "custom_labels": custom})
    except ValidationError:
        return
    with contextlib.suppress(ToolProblem):
        shown, _ = await search([workflow()], query, filters=filters, custom_labels=custom)
        assert shown["total_results"] in {0, 1}


async def test_the_context_of_the_request_is_not_changed_by_a_search():
    base = replace(BASE, custom_labels={"team": ["a"]})
    await search([workflow()], base=base, custom_labels={"tier": "b"}, filters={"stateful": True})
    assert {"team": ["a"]} == base.custom_labels


async def test_the_elements_of_an_array_parameter_are_described():
    several = Parameter("PODS", ParameterType.ARRAY, items=Parameter("", min_length=3))
    context = tool_context(catalog=MemoryCatalog([workflow(parameters=(several,))]))
    found = await get_workflow(context, GetWorkflow(workflow_id="restart-v1"))
    [parameter] = json.loads(found.body)["parameters"]
    assert {"name": "PODS", "type": "array", "items": {"type": "string", "min_length": 3}} == parameter
