from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.fixed_clock import FixedClock
from tests.fakes.hostile import VALUES
from tests.fakes.manifests import deployment, obj
from tests.fakes.memory_catalog import MemoryCatalog, labels, workflow
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_history import MemoryHistory
from tests.fakes.tokens import real_tokens
from worker.domain.cluster.fields import reference
from worker.domain.investigation.toolbox.catalog import NO_TARGET
from worker.domain.investigation.toolbox.served import NOT_NARROWED, SERVED, ServedTools
from worker.domain.values.remediations import PastRemediation
from worker.domain.values.workflows import BUSINESS_LABELS

API = deployment("api")
SHOP = [obj("Namespace", "shop", namespace=""), API]
OBJECT = {"resource_kind": "Deployment", "resource_name": "api", "resource_namespace": "shop"}
STAGING = workflow("staging-v1", "RestartWorkload", labels=labels(environment="staging"))
NODES = workflow("nodes-v1", "DrainNode", labels=labels(component="node", environment="*"))


def served(*workflows, cluster=None, catalog=None, history=None):
    return ServedTools(
        cluster or MemoryCluster(SHOP),
        catalog or MemoryCatalog(workflows or [workflow(), STAGING, NODES]),
        FixedClock(),
        history,
    )


async def ask(tools, tool, /, **arguments):
    found = await tools.call(tool, arguments)
    assert found.ok, found.body
    return json.loads(found.body), found.note


async def actions(**said):
    shown, note = await ask(served(), "list_available_actions", **said)
    return {action["action_type"]: action["workflow_count"] for action in shown["actions"]}, note


def test_tools_take_their_own_arguments_and_those_for_a_choice_the_circumstances():
    specs = {spec.name: spec.parameters for spec in served().specs}
    assert sorted(SERVED) == list(specs)
    assert {"kind", "name", "namespace", "api_version"} == set(specs["get_resource_context"]["properties"])
    circumstances = {*BUSINESS_LABELS, *OBJECT, "resource_api_version"}
    for name, tool in SERVED.items():
        properties = set(specs[name]["properties"])
        assert (circumstances if tool.uses_target else set()) == circumstances & properties
        assert set(tool.arguments.model_fields) <= properties
        assert tool.arguments.model_json_schema().get("required", []) == specs[name].get("required", [])


async def test_absent_arguments_constrain_nothing():
    found, note = await actions()
    assert {"RestartWorkload": 2, "DrainNode": 1} == found
    assert "filters: none" in note


@pytest.mark.parametrize("word", ["staging", "Staging", " STAGING "])
async def test_labels_of_the_caller_filter(word):
    found, note = await actions(environment=word)
    assert {"RestartWorkload": 1, "DrainNode": 1} == found
    assert "environment=staging" in note


async def test_an_unknown_environment_is_none():
    assert ({"RestartWorkload": 2, "DrainNode": 1}, 0) == ((await actions(environment="unknown"))[0], 0)


async def test_the_affected_object_filters_by_its_kind():
    found, note = await actions(**OBJECT)
    assert {"RestartWorkload": 2} == found
    assert "component=Deployment" in note


async def test_without_an_object_the_caller_is_told_how_to_name_one():
    _, note = await actions()
    assert NOT_NARROWED in note
    assert NO_TARGET not in note


async def test_two_calls_know_nothing_of_each_other():
    tools = served()
    await ask(tools, "list_available_actions", **OBJECT)
    shown, _ = await ask(tools, "list_available_actions")
    assert 2 == len(shown["actions"])


async def test_calls_at_the_same_time_keep_their_circumstances():
    tools = served()
    said = [{"environment": "staging"}, {"environment": "production"}, OBJECT, {}] * 5
    found = await asyncio.gather(*(ask(tools, "list_available_actions", **each) for each in said))
    alone = [await ask(served(), "list_available_actions", **each) for each in said]
    assert alone == found


async def test_labels_among_the_filters_of_a_search_count_as_said():
    tools = served()
    query = {"query": "CrashLoopBackOff critical"}
    own = await ask(tools, "search_workflow_catalog", **query, environment="staging")
    assert own == await ask(tools, "search_workflow_catalog", **query, filters={"environment": "staging"})
    both = await ask(
        tools,
        "search_workflow_catalog",
        **query,
        environment="staging",
        filters={"environment": "production"},
    )
    assert [w["workflow_id"] for w in own[0]["workflows"]] == [w["workflow_id"] for w in both[0]["workflows"]]
    assert "environment=production is not applied" in json.dumps(both[0])


async def test_past_remediations_are_told_where_a_history_is_configured():
    past = PastRemediation("rr-0", FixedClock().now(), "restart-v1", "RestartWorkload", outcome="failed")
    target = {"kind": "Deployment", "name": "api", "namespace": "shop"}
    shown, _ = await ask(
        served(history=MemoryHistory.of(reference(API), past)), "get_resource_context", **target
    )
    assert "RestartWorkload (restart-v1)" in json.dumps(shown["remediation_history"])
    shown, _ = await ask(served(), "get_resource_context", **target)
    assert "no history store is configured" in json.dumps(shown["remediation_history"])


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("list_workflows", {}, "action_type: Field required"),
        ("list_workflows", {"action_type": "x", "namespace": "y"}, "namespace: Extra inputs"),
        ("list_available_actions", {"priority": "P9"}, "must be one of P0, P1, P2, P3"),
        ("list_available_actions", {"environment": "x" * 300}, "at most 253"),
        ("list_available_actions", {"resource_kind": "Pod"}, "go together"),
        ("list_available_actions", {**OBJECT, "resource_name": "no"}, "Deployment shop/no does not exist"),
        ("list_available_actions", {**OBJECT, "resource_namespace": ""}, "namespace is required"),
        ("list_available_actions", {**OBJECT, "resource_kind": "Gadget"}, "does not know this kind"),
        (
            "get_resource_context",
            {"kind": "Deployment", "name": "api", "environment": "x"},
            "environment: Extra inputs",
        ),
        ("get_workflow", {"workflow_id": "no-such"}, "does not exist or does not fit"),
        ("get_pod_logs", {"pod": "a", "namespace": "b"}, "unknown tool"),
    ],
)
async def test_what_cannot_be_answered_is_explained(tool, arguments, expected):
    found = await served().call(tool, arguments)
    assert not found.ok
    assert found.body.startswith("error: ")
    assert expected in found.body


async def test_a_catalog_that_is_away_is_reported():
    catalog = MemoryCatalog([workflow()])
    catalog.down = True
    found = await served(catalog=catalog).call("list_available_actions", {})
    assert (False, "error: the workflow catalog cannot be read: the catalog is down") == (
        found.ok,
        found.body,
    )


async def test_an_answer_is_bounded_redacted_and_made_visible():
    text = "password=hunter2hunter2 \u202e " + "words and words " * 5_000
    found = await served(workflow("big-v1", when_to_use=text)).call("get_workflow", {"workflow_id": "big-v1"})
    assert found.ok
    assert "hunter2" not in found.body
    assert "\u202e" not in found.body
    assert 2_000 >= real_tokens(found.body)
    assert "cut: " in found.note


@given(st.sampled_from(sorted(SERVED)), st.dictionaries(st.sampled_from([*OBJECT, "environment", "query", "filters", "severity", "kind", "name", "action_type", "workflow_id", "custom_labels"]) | st.text(max_size=5), VALUES, max_size=6))  # fmt: skip
def test_any_arguments_get_an_answer(tool, arguments):
    found = asyncio.run(served().call(tool, arguments))
    assert found.ok is not found.body.startswith("error: ")


@pytest.mark.parametrize("kind", ["Secret", "secrets"])
async def test_the_context_of_a_secret_is_refused_and_yet_it_may_narrow_a_choice(kind):
    cluster = MemoryCluster(SHOP)
    found = await served(cluster=cluster).call(
        "get_resource_context", {"kind": kind, "name": "db", "namespace": "shop"}
    )
    assert (False, "error: Secrets are never read; look at the objects that use them") == (
        found.ok,
        found.body,
    )
    said = {"resource_kind": kind, "resource_name": "db", "resource_namespace": "shop"}
    await ask(served(cluster=cluster), "list_available_actions", **said)


async def test_a_priority_that_does_not_exist_is_explained():
    found = await served().call("list_available_actions", {"priority": "P9"})
    assert not found.ok
    assert "P0" in found.body


async def test_a_priority_is_understood_in_any_case():
    _, note = await actions(priority="p1")
    assert "priority=P1" in note
