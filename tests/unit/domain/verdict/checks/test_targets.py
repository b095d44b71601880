from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.fakes.memory_catalog import labels, target_parameters, workflow
from tests.fakes.verdicts import CONFIG, DEPLOYMENT, NODE, POD, REPLICA_SET, resolved
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import Parameter
from worker.domain.verdict.answers.answer import ProblemKind
from worker.domain.verdict.checks.report import CheckReport
from worker.domain.verdict.checks.targets import (
    Existence,
    choose_target,
    covered_kinds,
    other_target,
    within_scope,
)

CHAIN = resolved(POD, REPLICA_SET, DEPLOYMENT)
NAMED = {
    "TARGET_RESOURCE_NAME": "api",
    "TARGET_RESOURCE_KIND": "Deployment",
    "TARGET_RESOURCE_NAMESPACE": "shop",
}
NODE_WORKFLOW = workflow(
    "uncordon-v1", labels=labels(component="v1/Node"), parameters=target_parameters("Node")
)


def choose(workflow, given, affected, other=None):
    """The choice, with everything that its checks found."""
    report = CheckReport()
    choice = choose_target(workflow, given, affected, report, other)
    return SimpleNamespace(
        target=choice.target,
        parameters=choice.parameters,
        problems=report.problems,
        factors=report.factors,
        notes=report.notes,
    )


def paths(choice):
    return [p.path.rpartition(".")[2] for p in choice.problems]


def test_missing_target_parameters_are_filled_in():
    choice = choose(workflow(), {}, CHAIN)
    assert (choice.target, choice.parameters, choice.problems) == (DEPLOYMENT, NAMED, [])
    assert len(choice.notes) == 3


@pytest.mark.parametrize(
    "given",
    [
        {"TARGET_RESOURCE_NAME": "api-7d9-x2x", "TARGET_RESOURCE_KIND": "Pod"},
        {"TARGET_RESOURCE_NAME": "api-7d9", "TARGET_RESOURCE_KIND": "ReplicaSet"},
        {"TARGET_RESOURCE_NAME": "api-7d9-x2x", "TARGET_RESOURCE_KIND": "Deployment"},
        {"TARGET_RESOURCE_NAME": "api", "TARGET_RESOURCE_KIND": "deployment"},
        {"TARGET_RESOURCE_NAME": "api", "TARGET_RESOURCE_NAMESPACE": ""},
    ],
)
def test_another_member_of_the_chain_is_corrected(given):
    choice = choose(workflow(), given, CHAIN)
    assert (choice.parameters, choice.problems) == (NAMED, [])
    assert choice.notes


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"TARGET_RESOURCE_NAME": "billing"}, ["TARGET_RESOURCE_NAME"]),
        ({"TARGET_RESOURCE_NAMESPACE": "kube-system"}, ["TARGET_RESOURCE_NAMESPACE"]),
        ({"TARGET_RESOURCE_KIND": "StatefulSet"}, ["TARGET_RESOURCE_KIND"]),
        ({"TARGET_RESOURCE_NAME": ["api"]}, ["TARGET_RESOURCE_NAME"]),
        (
            {"TARGET_RESOURCE_NAME": "billing", "TARGET_RESOURCE_NAMESPACE": "pay"},
            ["TARGET_RESOURCE_NAME", "TARGET_RESOURCE_NAMESPACE"],
        ),
    ],
)
def test_an_object_outside_the_chain_is_an_error(given, wrong):
    assert wrong == paths(choose(workflow(), given, CHAIN))


def test_a_covered_member_of_the_chain_that_is_named_is_kept():
    either = workflow(labels={}, parameters=target_parameters("Pod", "Deployment"))
    named_pod = {"TARGET_RESOURCE_NAME": POD.name, "TARGET_RESOURCE_KIND": "Pod"}
    assert choose(either, named_pod, CHAIN).target == POD
    assert choose(either, NAMED, CHAIN).target == DEPLOYMENT
    assert choose(either, {}, CHAIN).target == POD


@pytest.mark.parametrize("name", ["TARGET_NAME", "DEPLOYMENT_NAME", "TARGET_DEPLOYMENT"])
def test_other_spellings_of_the_name_are_filled_too(name):
    spelt = workflow(labels={}, parameters=(Parameter(name, required=True), Parameter("NAMESPACE")))
    affected = resolved(DEPLOYMENT)
    assert {name: "api", "NAMESPACE": "shop"} == choose(spelt, {}, affected).parameters


def test_a_deployment_name_covers_deployments_only():
    spelt = workflow(labels={}, parameters=(Parameter("DEPLOYMENT_NAME", required=True),))
    assert covered_kinds(spelt) == ("Deployment",)
    assert choose(spelt, {}, CHAIN).parameters == {"DEPLOYMENT_NAME": "api"}


def test_the_api_version_is_corrected_when_it_is_known():
    declared = workflow(
        parameters=(*target_parameters("Deployment"), Parameter("TARGET_RESOURCE_API_VERSION"))
    )
    choice = choose(declared, {**NAMED, "TARGET_RESOURCE_API_VERSION": "apps/v1beta1"}, CHAIN)
    assert (choice.parameters["TARGET_RESOURCE_API_VERSION"], choice.problems) == ("apps/v1", [])


def test_undeclared_target_parameters_are_left_out():
    silent = workflow(parameters=())
    choice = choose(silent, NAMED, CHAIN)
    assert (choice.parameters, choice.problems) == ({}, [])


def test_a_required_namespace_is_empty_for_a_cluster_scoped_target():
    choice = choose(NODE_WORKFLOW, {"TARGET_RESOURCE_NAMESPACE": "default"}, resolved(NODE))
    assert choice.parameters["TARGET_RESOURCE_NAMESPACE"] == ""
    assert choice.problems == []


def test_an_optional_namespace_is_left_out_for_a_cluster_scoped_target():
    optional = workflow(labels={}, parameters=(Parameter("TARGET_NAME"), Parameter("TARGET_NAMESPACE")))
    choice = choose(optional, {"TARGET_NAMESPACE": ""}, resolved(NODE))
    assert choice.parameters == {"TARGET_NAME": "worker-1"}


NODE_NAMED = {"TARGET_RESOURCE_NAME": "worker-1", "TARGET_RESOURCE_KIND": "Node"}


def test_an_object_of_another_kind_has_to_be_looked_up():
    named = other_target(NODE_WORKFLOW, NODE_NAMED, CHAIN)
    assert ObjectRef("Node", "worker-1", "shop", "") == named
    assert None is other_target(workflow(), NODE_NAMED, CHAIN)
    assert None is other_target(NODE_WORKFLOW, {}, CHAIN)
    assert None is other_target(NODE_WORKFLOW, {**NODE_NAMED, "TARGET_RESOURCE_KIND": "Namespace"}, CHAIN)


def test_the_only_covered_kind_needs_no_naming():
    assert ObjectRef("Node", "n", "shop", "v1") == other_target(
        workflow(labels=labels(component="v1/Node"), parameters=(Parameter("TARGET_NAME"),)),
        {"TARGET_NAME": "n"},
        CHAIN,
    )


def test_an_object_of_another_kind_that_exists_and_was_seen_is_accepted_for_approval():
    choice = choose(NODE_WORKFLOW, NODE_NAMED, CHAIN, resolved(NODE))
    assert (choice.target, choice.problems) == (NODE, [])
    assert choice.parameters == {**NODE_NAMED, "TARGET_RESOURCE_NAMESPACE": ""}
    assert ["target_not_affected_resource"] == [found.code for found in choice.factors]


@pytest.mark.parametrize(
    ("given", "other", "reason"),
    [
        (NODE_NAMED, resolved(NODE, existence=Existence.NOT_FOUND), "was not found"),
        (NODE_NAMED, resolved(NODE, existence=Existence.UNVERIFIABLE), "did not say whether it exists"),
        (NODE_NAMED, resolved(NODE, existence=Existence.ABSENT), "no longer exists"),
        (NODE_NAMED, resolved(NODE, seen_in=()), "no evidence shows"),
        (NODE_NAMED, None, "could not be looked up"),
        (NODE_NAMED, resolved(ObjectRef("Node", "worker-2")), "could not be looked up"),
        ({}, resolved(NODE), "must name the Node"),
    ],
)
def test_any_other_object_is_an_error(given, other, reason):
    choice = choose(NODE_WORKFLOW, given, CHAIN, other)
    assert (choice.target, paths(choice)) == (None, ["TARGET_RESOURCE_NAME"])
    assert reason in choice.problems[0].message


def test_a_workflow_for_another_kind_without_a_target_parameter_does_not_fit():
    choice = choose(workflow(labels=labels(component="v1/Node"), parameters=()), {}, CHAIN)
    assert [p.kind for p in choice.problems] == [ProblemKind.WORKFLOW_UNKNOWN]


def test_a_secondary_deployment_name_follows_the_chain():
    spelt = workflow(parameters=(*target_parameters("ConfigMap"), Parameter("DEPLOYMENT_NAME")))
    given = {"DEPLOYMENT_NAME": "api"}
    assert choose(spelt, given, resolved(CONFIG)).parameters["DEPLOYMENT_NAME"] == "api"


def test_a_cluster_scoped_kind_loses_its_namespace():
    written = resolved(ObjectRef("Node", "worker-1", "shop"), namespaced=False)
    assert ObjectRef("Node", "worker-1") == within_scope(written).ref
    assert within_scope(CHAIN) == CHAIN
