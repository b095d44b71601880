"""Where the values of parameters come from, and which of them code checks."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.analysis import ParameterOrigin
from tests.fakes.memory_cluster import MemoryCluster
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.facts import ClusterFacts, Question
from worker.domain.values.objects import Listing, ObjectRef
from worker.domain.values.workflows import Parameter, Workflow
from worker.domain.verdict.answers.answer import Answer
from worker.domain.verdict.effects import GROWTH
from worker.domain.verdict.origins import growth_of, parameter_origins
from worker.domain.verdict.verdict import Accepted

CODE, DEFAULT, MODEL = ParameterOrigin.CODE, ParameterOrigin.CATALOG_DEFAULT, ParameterOrigin.MODEL
API = ObjectRef("Deployment", "api", "shop", "apps/v1")
HPA = ObjectRef("HorizontalPodAutoscaler", "api", "shop", "autoscaling/v2")
CLAIM = ObjectRef("PersistentVolumeClaim", "data", "shop", "v1")


def container(name, memory="256Mi"):
    return {"name": name, "image": "a", "resources": {"limits": {"memory": memory, "cpu": "500m"}}}


def objects(*containers, replicas=2):
    place = {"namespace": "shop"}
    owner = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "api", "uid": "d", "controller": True}]
    killed = {"name": "app", "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    spec = {"containers": list(containers)}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "api", **place},
         "spec": {"replicas": replicas, "template": {"spec": spec}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "api-1", "ownerReferences": owner, **place},
         "spec": spec, "status": {"containerStatuses": [killed]}},
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "api", **place},
         "spec": {"maxReplicas": 5}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", **place},
         "spec": {"resources": {"requests": {"storage": "10Gi"}}}},
    ]  # fmt: skip


ONE, TWO = (container("app"),), (container("app"), container("proxy", "64Mi"))


async def origins(
    action,
    remedy,
    parameters,
    target=API,
    made=ONE,
    replicas=2,
    defaults: Any = None,
    finding=True,
    history=(),
    known: Any = None,
    **fields,
):
    names = dict.fromkeys([*parameters, *(defaults or {})])
    declared = tuple(Parameter(name, default=(defaults or {}).get(name)) for name in names)
    workflow = Workflow("w", action, parameters=declared)
    accepted = Accepted(
        Answer("It fails.", "high"),
        "high",
        "",
        target,
        target,
        workflow=workflow,
        target=target,
        parameters=parameters,
    )
    about = {"cause": Cause.OUT_OF_MEMORY, "revision": 3, **fields}
    found = Diagnosis(object=target, sentence="It fails.", remedies=frozenset({remedy}), **about)
    cluster = MemoryCluster([*objects(*made, replicas=replicas), *history])
    return await Investigator(cluster).conclude(
        ClusterFacts(answers=known or {}),
        lambda facts: parameter_origins(accepted, found if finding else None, facts),
    )


GROWING = [
    ("IncreaseMemoryLimits", Remedy.INCREASE_MEMORY, "MEMORY_LIMIT", API, {
        "512Mi": CODE, "0.5Gi": CODE, "300Mi": CODE, "256Mi": MODEL, "64Mi": MODEL, "1Gi": MODEL, "": MODEL, "lots": MODEL, "-1": MODEL}),
    ("IncreaseMemoryLimits", Remedy.INCREASE_MEMORY, "MEMORY_INCREASE_FACTOR", API, {2: CODE, 1.5: CODE, 1: MODEL, 0.1: MODEL, 4: MODEL}),
    ("IncreaseCPULimits", Remedy.INCREASE_CPU, "CPU_LIMIT", API, {"1": CODE, "750m": CODE, "500m": MODEL, "10m": MODEL, "8": MODEL}),
    ("ScaleReplicas", Remedy.SCALE_UP, "REPLICAS", API, {3: CODE, 4: CODE, 2: MODEL, 0: MODEL, 1: MODEL, 50: MODEL}),
    ("PatchHPA", Remedy.RAISE_AUTOSCALER, "NEW_MAX_REPLICAS", HPA, {6: CODE, 10: CODE, 5: MODEL, 1: MODEL, 100: MODEL}),
    ("ExpandPVC", Remedy.EXPAND_VOLUME, "NEW_SIZE", CLAIM, {"20Gi": CODE, "10Gi": MODEL, "1Gi": MODEL, "10Ti": MODEL}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("action", "remedy", "name", "target", "value", "origin"),
    [(a, r, n, t, value, origin) for a, r, n, t, values in GROWING for value, origin in values.items()],
)
async def test_a_size_grows_to_at_most_the_double(action, remedy, name, target, value, origin):
    assert await origins(action, remedy, {name: value}, target) == {name: origin}


@pytest.mark.parametrize(
    ("given", "growth"),
    [({"MEMORY_LIMIT": "768Mi"}, 3.0), ({"MEMORY_INCREASE_FACTOR": 1.5}, 1.5), ({"MEMORY_INCREASE_FACTOR": 1.5, "MEMORY_LIMIT": "768Mi"}, 3.0), ({"OTHER": "768Mi"}, GROWTH), ({}, GROWTH)],
)  # fmt: skip
async def test_the_growth_that_the_answer_asks_for(given, growth):
    workflow = Workflow("w", "IncreaseMemoryLimits", parameters=tuple(map(Parameter, given)))
    answer = Answer("It fails.", "high")
    accepted = Accepted(answer, "high", "", API, API, workflow=workflow, target=API, parameters=given)
    found = Diagnosis(Cause.OUT_OF_MEMORY, API, "It fails.", remedies=frozenset({Remedy.INCREASE_MEMORY}))
    investigator = Investigator(MemoryCluster(objects(*ONE)))
    assert await investigator.conclude(ClusterFacts(), lambda f: growth_of(accepted, found, f)) == growth


@pytest.mark.parametrize(("action", "remedy", "name", "target"), [g[:4] for g in GROWING])
async def test_nothing_is_checked_for_another_remedy_or_without_a_finding(action, remedy, name, target):
    value = next(iter(next(g[4] for g in GROWING if g[2] == name)))
    assert await origins(action, Remedy.RESTART, {name: value}, target) == {name: MODEL}
    assert await origins(action, remedy, {name: value}, target, finding=False) == {name: MODEL}


def revision(number, *containers):
    """A ReplicaSet of the Deployment."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api", "uid": "d", "controller": True}
    marks = {"deployment.kubernetes.io/revision": str(number)}
    meta = {"name": f"api-{number}", "namespace": "shop", "ownerReferences": [owner], "annotations": marks}
    spec = {"template": {"spec": {"containers": list(containers)}}}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec}


BEFORE = [revision(2, container("app", "8Gi")), revision(3, container("app", "640Mi")), revision(4, *ONE)]


@pytest.mark.parametrize(
    ("name", "value", "to", "origin"),
    [
        ("MEMORY_LIMIT", "640Mi", 3, CODE),
        ("MEMORY_LIMIT", "641Mi", 3, MODEL),
        ("MEMORY_LIMIT", "640Mi", 0, MODEL),
        ("MEMORY_LIMIT", "8Gi", 2, CODE),
        ("MEMORY_LIMIT", "640Mi", 9, MODEL),
        ("MEMORY_FACTOR", 2.5, 3, MODEL),
    ],
)
async def test_a_limit_may_be_what_it_was_in_the_revision_to_roll_back_to(name, value, to, origin):
    given = await origins(
        "IncreaseMemory", Remedy.INCREASE_MEMORY, {name: value}, history=BEFORE, revision=to
    )
    assert given == {name: origin}


async def test_one_replica_is_the_first_step_from_none():
    for replicas, origin in ((1, CODE), (2, MODEL)):
        given = await origins("ScaleUp", Remedy.SCALE_UP, {"REPLICAS": replicas}, replicas=0)
        assert given == {"REPLICAS": origin}


@pytest.mark.parametrize(
    ("given", "memory", "origin"),
    [
        ({"CONTAINER_NAME": "app"}, "512Mi", {"CONTAINER_NAME": CODE, "MEMORY_LIMIT": CODE}),
        ({"CONTAINER_NAME": "proxy"}, "128Mi", {"CONTAINER_NAME": MODEL, "MEMORY_LIMIT": CODE}),
        ({"CONTAINER_NAME": "other"}, "128Mi", {"CONTAINER_NAME": MODEL, "MEMORY_LIMIT": MODEL}),
        ({}, "512Mi", {"MEMORY_LIMIT": MODEL}),
    ],
)
async def test_of_several_containers_the_one_that_failed(given, memory, origin):
    parameters = {**given, "MEMORY_LIMIT": memory}
    assert await origins("IncreaseMemory", Remedy.INCREASE_MEMORY, parameters, made=TWO) == origin


@pytest.mark.parametrize("value", [["images", "logs"], {"a": 1}, None, True])
async def test_other_values_are_the_models_unless_they_are_the_default(value):
    assert await origins("CleanupNode", Remedy.RESTART, {"TARGETS": value}) == {"TARGETS": MODEL}
    if value:
        assert await origins(
            "CleanupNode", Remedy.RESTART, {"TARGETS": value}, defaults={"TARGETS": value}
        ) == {"TARGETS": DEFAULT}


@pytest.mark.parametrize(
    ("value", "origin"), [(3, CODE), ("3", CODE), ("0", CODE), ("2", MODEL), ("03", MODEL)]
)
async def test_a_revision_may_be_written_as_text(value, origin):
    """0 means the one before the newest: an answer with it is confirmed only if that one is right."""
    given = await origins("RollbackDeployment", Remedy.ROLL_BACK, {"REVISION": value})
    assert given == {"REVISION": origin}


async def test_revisions_and_targets_are_checked():
    given = {"TARGET_RESOURCE_NAME": "api", "TO_REVISION": 3}
    assert set((await origins("RollbackDeployment", Remedy.ROLL_BACK, given)).values()) == {CODE}
    assert await origins("RollbackDeployment", Remedy.ROLL_BACK, {"TO_REVISION": 9}) == {"TO_REVISION": MODEL}


@pytest.mark.parametrize(
    ("default", "origin"),
    [
        ({"MEMORY_LIMIT": "128Mi"}, {"MEMORY_LIMIT": MODEL}),
        ({"MEMORY_LIMIT": "256Mi"}, {"MEMORY_LIMIT": MODEL}),
        ({"MEMORY_LIMIT": "4Gi"}, {}),
        ({"MEMORY_LIMIT_MI": 128}, {}),
        ({"MEMORY_FACTOR": 0.5}, {"MEMORY_FACTOR": MODEL}),
        ({"MEMORY_FACTOR": 2}, {}),
        ({"CONTAINER": "proxy"}, {"CONTAINER": MODEL}),
        ({"CONTAINER": "app"}, {}),
        ({"WAIT_SECONDS": 5}, {}),
    ],
)
async def test_a_default_that_fixes_nothing_here_is_the_choice_of_the_model(default, origin):
    """Left out or written down, the workflow would run with it."""
    assert await origins("IncreaseMemory", Remedy.INCREASE_MEMORY, {}, defaults=default) == origin
    given = await origins("IncreaseMemory", Remedy.INCREASE_MEMORY, default, defaults=default)
    assert (MODEL in given.values()) == bool(origin)


async def test_an_autoscaler_is_not_lowered_by_a_default():
    given = await origins("PatchHPA", Remedy.RAISE_AUTOSCALER, {}, HPA, defaults={"MAX_REPLICAS": 5})
    assert given == {"MAX_REPLICAS": MODEL}


async def test_the_container_is_the_one_that_the_finding_is_about():
    for name, origin in (("proxy", CODE), ("app", MODEL)):
        given = await origins(
            "IncreaseMemory", Remedy.INCREASE_MEMORY, {"CONTAINER_NAME": name}, made=TWO, container="proxy"
        )
        assert given == {"CONTAINER_NAME": origin}


@pytest.mark.parametrize(("value", "origin"), [("team", CODE), ("pool", MODEL)])
async def test_code_knows_the_taint_that_keeps_pods_away(value, origin):
    found = await origins("RemoveTaint", Remedy.REMOVE_TAINT, {"TAINT_KEY": value}, taint="team")
    assert found == {"TAINT_KEY": origin}


@pytest.mark.parametrize(
    ("name", "value", "futile"),
    [("TARGET_PVC", "other", True), ("TARGET_PVC", "data", False), ("CLAIM_PVC_SIZE", "20Gi", False)],
)
async def test_another_object_than_the_one_in_question_fixes_nothing(name, value, futile):
    found = await origins("FixStatefulSetPVC", Remedy.RECREATE_CLAIM, {}, CLAIM, defaults={name: value})
    assert found == ({name: MODEL} if futile else {})


@pytest.mark.parametrize(("value", "futile"), [("a", True), ("b", False), (["a"], False)])
async def test_the_present_image_fixes_nothing(value, futile):
    defaults = {"NEW_IMAGE": value}
    found = await origins("FixImage", Remedy.FIX_IMAGE, {}, cause=Cause.IMAGE, defaults=defaults)
    assert found == ({"NEW_IMAGE": MODEL} if futile else {})


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "w1", "labels": {"topology.kubernetes.io/zone": "eu-1a"}},
}


@pytest.mark.parametrize(
    ("value", "origin"), [("eu-1a", DEFAULT), ("us-9z", MODEL)], ids=["zone of a node", "zone without nodes"]
)
async def test_a_zone_without_nodes_mends_nothing(value, origin):
    found = await origins(
        "ProvisionNode", Remedy.ADD_CAPACITY, {"ZONE": value}, defaults={"ZONE": value}, history=[NODE]
    )
    assert found == {"ZONE": origin}


async def test_a_zone_may_have_nodes_that_were_cut_from_the_list():
    known = {Question("Node", api_version="v1"): Listing((NODE,), complete=False)}
    given = {"ZONE": "us-9z"}
    found = await origins("ProvisionNode", Remedy.ADD_CAPACITY, given, defaults=given, known=known)
    assert found == {"ZONE": DEFAULT}
