from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.enrichment import DETECTED_LABELS, DetectedLabels
from tests.fakes.memory_catalog import MemoryCatalog, target_parameters, workflow
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.scripted import shop
from tests.fakes.tool_context import evidence_from
from worker.domain.untrusted.evidence import EvidenceLog
from worker.domain.values.errors import ClusterReason
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import SelectionContext
from worker.domain.verdict.answers.answer import Answer, AnsweredAlternative, AnsweredWorkflow
from worker.domain.verdict.checks.facts import FactFinder, label_values
from worker.domain.verdict.checks.targets import Existence

API = ObjectRef("Deployment", "api", "shop")
POD = ObjectRef("Pod", "api-7d9-x2x", "shop")
SIGNAL = ObjectRef("Deployment", "api", "shop")


def evidence(*bodies, ok=True):
    log = EvidenceLog()
    for body in bodies:
        log.add(evidence_from("get_events", "namespace shop", body, ok=ok))
    return log


def fact_finder(**fields):
    values = {
        "cluster": MemoryCluster(shop()),
        "catalog": MemoryCatalog([workflow(), workflow("other-v1"), workflow("drain-v1", "DrainNode")]),
        "evidence": evidence("Pod shop/api-7d9-x2x of Deployment api on worker-1"),
        "signal": SIGNAL,
        "requested_names": frozenset({"api"}),
        "context": SelectionContext(environment="production", priority="P1"),
    }
    return FactFinder(**{**values, **fields})


def answer(target=API, **fields):
    return Answer(severity="critical", affected_resource=target, **fields)


def chosen(workflow_id="restart-v1", **parameters):
    return AnsweredWorkflow(workflow_id, 0.9, parameters=parameters)


async def affected(target, **fields):
    return (await fact_finder(**fields).facts_for(answer(target))).affected


async def test_an_object_that_is_there_is_resolved_with_its_owners():
    found = await affected(POD)
    assert found.existence is Existence.EXISTS
    assert ["Pod", "ReplicaSet", "Deployment"] == [member.kind for member in found.chain]
    assert ("E1",) == found.seen_in
    assert found.namespaced is True


async def test_spelling_of_kind_and_scope_come_from_the_cluster():
    node = await affected(ObjectRef("nodes", "worker-1", "shop"))
    assert ObjectRef("Node", "worker-1", "", "v1") == node.ref
    assert (Existence.EXISTS, False) == (node.existence, node.namespaced)
    deployment = await affected(ObjectRef(" deploy ", " api ", " shop "))
    assert ("Deployment", "api", "shop", "apps/v1") == (
        deployment.ref.kind,
        deployment.ref.name,
        deployment.ref.namespace,
        deployment.ref.api_version,
    )


@pytest.mark.parametrize("target", [None, ObjectRef("", ""), ObjectRef("Pod", " "), ObjectRef(" ", "x")])
async def test_nothing_named_is_nothing_looked_up(target):
    cluster = MemoryCluster(shop())
    facts = await fact_finder(cluster=cluster).facts_for(answer(target))
    assert facts.affected is None
    assert facts.detected_labels is None
    assert cluster.calls == []


async def test_an_object_that_is_not_there_was_not_found():
    found = await affected(ObjectRef("ConfigMap", "no-such", "shop"))
    assert found.existence is Existence.NOT_FOUND
    assert "not found" in found.detail


@pytest.mark.parametrize("kind", ["Sorcerer", "Deployment (apps/v1)", "Deployment, Pod", "Pod/api-0", "🔥"])
async def test_a_kind_that_the_cluster_does_not_know_was_not_found(kind):
    found = await affected(ObjectRef(kind, "api", "shop"))
    assert found.existence is Existence.NOT_FOUND
    assert found.namespaced is None


@pytest.mark.parametrize(
    "reason", [ClusterReason.FORBIDDEN, ClusterReason.TIMEOUT, ClusterReason.UNAVAILABLE]
)
@pytest.mark.parametrize("method", ["kind", "get"])
async def test_a_cluster_without_an_answer_says_neither_yes_nor_no(reason, method):
    cluster = MemoryCluster(shop())
    cluster.fail(reason, method=method)
    facts = await fact_finder(cluster=cluster).facts_for(answer())
    assert facts.affected.existence is Existence.UNVERIFIABLE
    assert facts.affected.detail
    assert facts.detected_labels is None


async def test_the_resource_of_the_signal_may_be_gone():
    gone = ObjectRef("Pod", "api-old", "shop")
    assert (await affected(gone)).existence is Existence.NOT_FOUND
    found = await affected(gone, signal=ObjectRef("Pod", "api-old", "shop"))
    assert found.existence is Existence.ABSENT


@pytest.mark.parametrize(
    ("said", "existence"),
    [
        ('MountVolume.SetUp failed: configmap "api-conf" not found', Existence.ABSENT),
        ("ConfigMap shop/api-conf was deleted", Existence.ABSENT),
        ('secret "api-conf" not found', Existence.NOT_FOUND),  # another kind
        ('configmap "api-conf-2" not found', Existence.NOT_FOUND),  # another name
        ("ConfigMap shop/api-conf is fine\nsomething else was deleted", Existence.NOT_FOUND),  # another line
        (f"ConfigMap api-conf{'.' * 300}not found", Existence.NOT_FOUND),  # far away
    ],
)
async def test_absence_has_to_stand_in_the_evidence_near_kind_and_name(said, existence):
    found = await affected(ObjectRef("ConfigMap", "api-conf", "shop"), evidence=evidence(said))
    assert existence is found.existence


async def test_names_of_the_request_are_reported():
    assert (await affected(API)).requested is True
    assert (await affected(POD)).requested is False


async def test_labels_and_components_of_the_affected_resource_join_the_context_of_the_request():
    facts = await fact_finder(context=SelectionContext(environment="production")).facts_for(answer(POD))
    context = facts.context
    assert context.environment == "production"
    assert [("v1", "Pod"), ("apps/v1", "ReplicaSet"), ("apps/v1", "Deployment")] == list(context.components)
    assert set(DETECTED_LABELS) == set(context.detected_labels)
    assert facts.detected_labels is not None


async def test_the_chosen_workflow_and_known_alternatives_are_fetched():
    said = answer(
        selected_workflow=chosen(),
        alternatives=tuple(AnsweredAlternative(name) for name in ("other-v1", "no-such", "drain-v1")),
    )
    facts = await fact_finder().facts_for(said)
    assert facts.workflow.workflow_id == "restart-v1"
    assert frozenset({"other-v1", "drain-v1"}) == facts.alternatives


async def test_only_the_first_alternatives_are_looked_up():
    said = answer(
        alternatives=(
            *tuple(AnsweredAlternative(f"no-{n}") for n in range(9)),
            AnsweredAlternative("other-v1"),
        )
    )
    assert (await fact_finder().facts_for(said)).alternatives == frozenset()


async def test_a_workflow_that_does_not_fit_the_request_is_not_there():
    said = answer(selected_workflow=chosen())
    context = SelectionContext(environment="staging")
    assert (await fact_finder(context=context).facts_for(said)).workflow is None


async def test_a_workflow_for_another_kind_has_its_target_looked_up():
    drain = workflow(
        "drain-v1", "DrainNode", labels={"component": ("Node",)}, parameters=target_parameters("Node")
    )
    said = answer(
        selected_workflow=chosen("drain-v1", TARGET_RESOURCE_KIND="Node", TARGET_RESOURCE_NAME="worker-1")
    )
    facts = await fact_finder(catalog=MemoryCatalog([drain])).facts_for(said)
    assert (ObjectRef("Node", "worker-1", "", "v1"), Existence.EXISTS) == (
        facts.other_target.ref,
        facts.other_target.existence,
    )
    assert ("E1",) == facts.other_target.seen_in


@pytest.mark.parametrize(
    ("action", "found"),
    [
        ("drain_node", "drain-v1"),
        ("drain_nodes", "drain-v1"),
        ("drain-v1", "drain-v1"),
        ("restart_workload", None),  # two workflows take it
        ("delete_node", None),
    ],
)
async def test_an_action_stands_for_the_only_workflow_that_takes_it(action, found):
    labelled = {"labels": workflow().labels}
    catalog = MemoryCatalog([workflow(), workflow("other-v1"), workflow("drain-v1", "DrainNode", **labelled)])
    named = AnsweredWorkflow(action, 0.9, by_action=True)
    facts = await fact_finder(catalog=catalog).facts_for(answer(selected_workflow=named))
    assert found == (facts.workflow.workflow_id if facts.workflow else None)


async def test_signal_types_are_those_of_the_catalog_and_the_settings():
    facts = await fact_finder(extra_signal_types=frozenset({"DiskSlow"})).facts_for(answer())
    assert {"CrashLoopBackOff", "DiskSlow"} <= facts.signal_types


async def test_without_a_catalog_the_facts_of_the_cluster_are_there():
    catalog = MemoryCatalog([workflow()])
    catalog.down = True
    facts = await fact_finder(catalog=catalog).facts_for(answer(selected_workflow=chosen()))
    assert facts.catalog_problem
    assert (Existence.EXISTS, None) == (facts.affected.existence, facts.workflow)


def test_unknown_labels_have_no_value():
    values = label_values(DetectedLabels(stateful=True, failed_detections=("pdbProtected", "gitOpsManaged")))
    assert (True, None, None, False) == (
        values["stateful"],
        values["pdb_protected"],
        values["gitops_managed"],
        values["helm_managed"],
    )


@given(st.builds(ObjectRef, *[st.text(max_size=40)] * 4))
async def test_any_target_can_be_reviewed(target):
    facts = await fact_finder().facts_for(
        answer(target, selected_workflow=chosen(TARGET_RESOURCE_NAME=target.name))
    )
    assert facts.affected is None or facts.affected.existence in set(Existence)


async def test_other_requests_get_their_turn_while_evidence_is_read():
    bodies, turns = [f"Pod shop/api-{number} is ready" for number in range(50)], 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    await fact_finder(evidence=evidence(*bodies)).facts_for(answer(None))
    beside.cancel()
    assert turns >= len(bodies)


async def test_each_item_of_evidence_is_checked_once():
    log, known = evidence("2026-06-04T19:22:52Z Warning FailedCreate ReplicaSet shop/api-7d9: denied"), {}
    finder = fact_finder(evidence=log, _reasons=known)
    await finder.facts_for(answer())
    assert {log.items[0]} == set(known)
    known[log.items[0]] = frozenset({"remembered"}), frozenset()
    assert {"remembered"} == (await finder.facts_for(answer())).shown
