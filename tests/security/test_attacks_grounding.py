"""Attacks on what an answer rests on: objects nobody saw, owners nobody read, parameters that name something else."""

from __future__ import annotations

import copy

import pytest

from schemas.analysis import Status
from tests.fakes.memory_catalog import MemoryCatalog, labels, target_parameters, workflow
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import LOGS, World, cause, chosen, incident, nothing, shop
from worker.domain.values.errors import ClusterReason
from worker.domain.values.workflows import Parameter


def deployment(name, namespace):
    found = copy.deepcopy(next(item for item in shop() if item["kind"] == "Deployment"))
    found["metadata"].update(name=name, namespace=namespace, uid=f"u-{namespace}-{name}")
    return found


def cluster(*more):
    return MemoryCluster([*shop(), *more], LOGS)


def blame(kind, name, namespace, parameters=None):
    made = cause(affectedResource={"kind": kind, "name": name, "namespace": namespace})
    made["selected_workflow"]["parameters"] = (
        {
            "TARGET_RESOURCE_NAME": name,
            "TARGET_RESOURCE_KIND": kind,
            "TARGET_RESOURCE_NAMESPACE": namespace,
        }
        if parameters is None
        else parameters
    )
    return made


async def analyse(*said, request=None, **ports):
    world = World.saying(*said, **ports)
    return world, await world.analyse(request)


async def test_an_object_of_the_same_name_in_another_namespace_is_not_the_one_that_was_seen():
    _, result = await analyse(
        final(blame("Deployment", "api", "payments")), cluster=cluster(deployment("api", "payments"))
    )
    assert result.status is Status.NEEDS_HUMAN_REVIEW


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("the", "the pod is failing, the deployment too"),
        ("is", "the pod is failing"),
        ("registry", "cannot start"),
    ],
)
async def test_a_word_of_a_text_is_no_object(name, text):
    _, result = await analyse(
        final(blame("Deployment", name, "shop")),
        cluster=cluster(deployment(name, "shop")),
        request=incident(error_message=text),
    )
    assert result.status is Status.NEEDS_HUMAN_REVIEW


async def test_names_of_the_request_count_in_its_own_namespace_only():
    ours = await analyse(
        final(blame("Deployment", "ledger", "shop")),
        cluster=cluster(deployment("ledger", "shop")),
        request=incident(error_message="cannot reach 'ledger'"),
    )
    theirs = await analyse(
        final(blame("Deployment", "ledger", "payments")),
        cluster=cluster(deployment("ledger", "payments")),
        request=incident(error_message="cannot reach 'ledger'"),
    )
    assert [Status.COMPLETED, Status.NEEDS_HUMAN_REVIEW] == [r.status for _, r in (ours, theirs)]


@pytest.mark.parametrize(
    "asked",
    [
        ("get_events", {"kind": "Deployment", "name": "coredns", "namespace": "kube-system"}),
        ("list_resources", {"kind": "Pod", "namespace": "shop", "label_selector": "app=coredns"}),
        ("get_pod_logs", {"pod": "api-7d9-x2x", "namespace": "shop", "grep": "coredns"}),
        ("get_resource", {"kind": "Deployment", "name": "coredns", "namespace": "shop"}),
    ],
)
@pytest.mark.parametrize("namespace", ["kube-system", "shop"])
async def test_what_the_model_asks_for_is_not_what_was_seen(asked, namespace):
    hidden = deployment("core-dns", namespace)
    asked = (asked[0], {k: v.replace("coredns", "core-dns") for k, v in asked[1].items()})
    if asked[0] == "get_resource":
        asked = (asked[0], {**asked[1], "namespace": "elsewhere"})
    _, result = await analyse(
        calls(asked), final(blame("Deployment", "core-dns", namespace)), cluster=cluster(hidden)
    )
    assert result.status is Status.NEEDS_HUMAN_REVIEW


async def test_an_object_that_could_not_be_read_was_not_seen():
    asked = {"kind": "Deployment", "name": "core-dns", "namespace": "shop"}
    closed = cluster(deployment("core-dns", "shop"))
    closed.fail(ClusterReason.FORBIDDEN, kind="Deployment", method="get")
    _, result = await analyse(
        calls(("get_resource_context", asked)), final(blame("Deployment", "core-dns", "shop")), cluster=closed
    )
    assert result.status is Status.NEEDS_HUMAN_REVIEW


@pytest.mark.parametrize("tool", ["get_resource", "get_resource_context"])
async def test_an_object_elsewhere_that_was_read_is_for_a_human_to_approve(tool):
    asked = {"kind": "Deployment", "name": "api", "namespace": "payments"}
    _, result = await analyse(
        calls((tool, asked)),
        final(blame("Deployment", "api", "payments")),
        cluster=cluster(deployment("api", "payments")),
    )
    assert result.status is Status.COMPLETED
    assert result.approval.required is True
    assert any("outside the namespace of the signal" in reason for reason in result.approval.reasons)


async def test_an_object_of_the_first_look_needs_no_approval():
    _, result = await analyse(final(cause()))
    assert (Status.COMPLETED, False) == (result.status, result.approval.required)


@pytest.mark.parametrize("tool", ["get_resource", "get_events"])
async def test_a_failed_look_does_not_prove_that_an_object_is_gone(tool):
    ghost = {"kind": "Deployment", "name": "ghost", "namespace": "shop"}
    made = nothing("not_actionable")
    made["root_cause_analysis"]["affectedResource"] = ghost
    _, result = await analyse(calls((tool, ghost)), final(made))
    assert result.status is Status.NEEDS_HUMAN_REVIEW


def pod_of(owner, uid="x"):
    pod = copy.deepcopy(next(item for item in shop() if item["kind"] == "Pod"))
    reference = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": owner,
        "uid": uid,
        "controller": True,
    }
    pod["metadata"].update(name="db-0", uid="u", ownerReferences=[reference])
    return pod


def stateful_set(name, uid):
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "shop", "uid": uid},
        "spec": {},
    }


@pytest.mark.parametrize("what", ["gone", "replaced", "forbidden"])
async def test_an_owner_that_was_not_read_is_no_target(what):
    names = tuple(Parameter(n) for n in ("TARGET_RESOURCE_NAME", "TARGET_RESOURCE_KIND"))
    for_sets = workflow(labels=labels(component=["StatefulSet"]), parameters=names)
    owner = [] if what == "gone" else [stateful_set("the-db", "x" if what == "forbidden" else "y")]
    world = World.saying(
        final(blame("Pod", "db-0", "shop", {})),
        cluster=cluster(pod_of("the-db"), *owner),
        catalog=MemoryCatalog([for_sets]),
    )
    if what == "forbidden":
        world.cluster.fail(ClusterReason.FORBIDDEN, kind="StatefulSet", method="get")
    result = await world.analyse(incident(resource_kind="Pod", resource_name="db-0"))
    assert result.status is Status.NEEDS_HUMAN_REVIEW


async def test_owners_that_are_not_known_are_for_a_human_to_approve():
    for_pods = workflow(labels=labels(component=["Pod"]), parameters=target_parameters("Pod"))
    world, result = await analyse(
        final(blame("Pod", "db-0", "shop")),
        cluster=cluster(pod_of("the-db")),
        catalog=MemoryCatalog([for_pods]),
        request=incident(resource_kind="Pod", resource_name="db-0"),
    )
    assert (Status.COMPLETED, True) == (result.status, result.approval.required)
    assert world.policy.asked[-1]["unverified"] is True


async def test_leaving_the_signal_type_out_does_not_lift_a_doubt():
    told = await analyse(final(cause(signal_type="OOMKilled")))
    silent = await analyse(final(cause(signal_type="")))
    assert [True, True] == [result.approval.required for _, result in (told, silent)]


def asked_about(world):
    return [(a["remediation_target"]["kind"], a["remediation_target"]["name"]) for a in world.policy.asked]


async def test_the_policy_judges_the_object_that_is_acted_on():
    drain = workflow("restart-v1", labels=labels(component=["Node"]), parameters=target_parameters("Node"))
    parameters = {"TARGET_RESOURCE_NAME": "worker-1", "TARGET_RESOURCE_KIND": "Node"}
    world, result = await analyse(
        final(blame("Deployment", "api", "shop", parameters)), catalog=MemoryCatalog([drain])
    )
    assert result.status is Status.COMPLETED
    assert [("Node", "worker-1")] == asked_about(world)
    assert "api" == world.policy.asked[0]["affected_resource"]["name"]


def declaring(name, **fields):
    return MemoryCatalog([workflow(parameters=(*target_parameters("Deployment"), Parameter(name)), **fields)])


def with_parameter(name, value):
    return final(chosen(parameters={**chosen()["selected_workflow"]["parameters"], name: value}))


@pytest.mark.parametrize("name", ["target_namespace", "targetNamespace", "namespace"])
async def test_the_target_cannot_be_moved_by_another_spelling(name):
    _, result = await analyse(with_parameter(name, "payments"), catalog=declaring(name))
    assert result.status is Status.NEEDS_HUMAN_REVIEW


@pytest.mark.parametrize(
    ("name", "value", "approval"),
    [
        ("NODE_NAME", "prod-master-1", True),
        ("NODE_NAME", "worker-1", False),
        ("POD_NAME", "ledger-0", True),
        ("POD_NAME", "api-7d9-x2x", False),
        ("SOURCE_NAMESPACE", "payments", True),
        ("SOURCE_NAMESPACE", "shop", False),
        ("volumeClaim", "ledger-0", True),
    ],
)
async def test_an_object_beside_the_target_was_seen_or_is_for_a_human_to_approve(name, value, approval):
    _, result = await analyse(with_parameter(name, value), catalog=declaring(name))
    assert (Status.COMPLETED, approval) == (result.status, result.approval.required)


@pytest.mark.parametrize(
    ("value", "status"), [("ledger", Status.NEEDS_HUMAN_REVIEW), ("api", Status.COMPLETED)]
)
async def test_a_deployment_beside_a_target_of_another_kind_was_seen_and_is_for_a_human_to_approve(
    value, status
):
    both = workflow(
        labels=labels(component=["StatefulSet", "Deployment"]),
        parameters=tuple(Parameter(n) for n in ("TARGET_RESOURCE_NAME", "DEPLOYMENT_NAME")),
    )
    _, result = await analyse(
        final(blame("StatefulSet", "the-db", "shop", {"DEPLOYMENT_NAME": value})),
        cluster=cluster(stateful_set("the-db", "y")),
        catalog=MemoryCatalog([both]),
        request=incident(resource_kind="StatefulSet", resource_name="the-db", error_message="see 'api'"),
    )
    assert (status, True) == (result.status, result.approval.required)


@pytest.mark.parametrize("kinds", [["Pod", "Event"], ["Pod"], ["Event"]])
async def test_a_cluster_that_shows_no_pods_and_no_events_leaves_a_doubt(kinds):
    world = World.saying(final(cause()))
    for kind in kinds:
        world.cluster.fail(ClusterReason.FORBIDDEN, kind=kind)
    result = await world.analyse()
    assert (Status.COMPLETED, True) == (result.status, result.approval.required)
    assert world.policy.asked[0]["unverified"] is True


@pytest.mark.parametrize(("namespace", "approval"), [("shop", False), ("payments", True)])
async def test_only_a_later_look_at_the_same_place_makes_up_for_what_was_not_read(namespace, approval):
    world = World()

    def script(_, number):
        if number > 1:
            return final(cause())
        world.cluster.heal()
        return calls(("list_resources", {"kind": "Pod", "namespace": namespace}))

    world.model = MemoryModel(script)
    world.cluster.fail(ClusterReason.TIMEOUT, kind="Pod")
    result = await world.analyse()
    assert (Status.COMPLETED, approval) == (result.status, result.approval.required)
