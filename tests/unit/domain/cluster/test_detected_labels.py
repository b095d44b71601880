from __future__ import annotations

import pytest

from schemas.enrichment import DETECTED_LABELS, camel_case
from tests.fakes.manifests import deployment, obj, pod, replica_set
from tests.fakes.memory_cluster import MemoryCluster
from worker.domain.cluster.detected_labels import detect_labels
from worker.domain.cluster.fields import reference
from worker.domain.cluster.owners import owner_chain
from worker.domain.values.errors import ClusterReason
from worker.domain.values.objects import ObjectRef

SHOP = obj("Namespace", "shop", namespace="")
MARKS = {
    "argocd by annotation": ({"annotations": {"argocd.argoproj.io/tracking-id": "x"}}, "argocd"),
    "argocd by label": ({"labels": {"argocd.argoproj.io/instance": "x"}}, "argocd"),
    "flux kustomization": ({"labels": {"kustomize.toolkit.fluxcd.io/name": "x"}}, "flux"),
    "flux helm release": ({"labels": {"helm.toolkit.fluxcd.io/name": "x"}}, "flux"),
    "flux operator": ({"labels": {"resourceset.fluxcd.controlplane.io/name": "x"}}, "flux"),
    "the ambiguous instance label": ({"labels": {"app.kubernetes.io/instance": "x"}}, ""),
}


async def detected(target, *others, pod=None, cluster=None):
    cluster = cluster or MemoryCluster([SHOP, target, *others])
    return await detect_labels(cluster, await owner_chain(cluster, reference(target)), pod)


def budget(selector):
    return obj("PodDisruptionBudget", "p", api_version="policy/v1", spec={"selector": selector})


def scaler(kind="Deployment", name="api", api_version="apps/v1"):
    target = {"kind": kind, "name": name, "apiVersion": api_version}
    return obj("HorizontalPodAutoscaler", "h", api_version="autoscaling/v2", spec={"scaleTargetRef": target})


async def test_nothing_is_detected_on_a_plain_deployment():
    found = await detected(deployment("api"))
    assert {} == {k: v for k, v in found.model_dump().items() if v}


@pytest.mark.parametrize(("marks", "tool"), MARKS.values(), ids=MARKS)
async def test_gitops_marks_anywhere_on_the_chain_count(marks, tool):
    api = deployment("api", **marks)
    revision = replica_set(api, "7d9", 1)
    found = await detected(pod("api-7d9-x", owner=revision), api, revision)
    assert (tool, bool(tool)) == (found.gitops_tool, found.gitops_managed)


@pytest.mark.parametrize(
    "marks",
    [
        {"labels": {"app.kubernetes.io/managed-by": "Helm"}},
        {"annotations": {"meta.helm.sh/release-name": "api"}},
        {"labels": {"helm.sh/chart": "api-1.0"}},
    ],
)
async def test_helm_is_detected(marks):
    assert (await detected(deployment("api", **marks))).helm_managed


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"app": "api"}}, True),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["api"]}]}, True),
        ({}, True),
        (None, False),
        ({"matchLabels": {"app": "other"}}, False),
    ],
)
async def test_a_disruption_budget_protects_what_it_selects(selector, expected):
    assert expected is (await detected(deployment("api"), budget(selector))).pdb_protected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (scaler(), True),
        (scaler(api_version="apps/v1beta1"), True),
        (scaler(name="other"), False),
        (scaler(api_version="argoproj.io/v1alpha1"), False),
    ],
)
async def test_an_autoscaler_of_any_member_of_the_chain_counts(target, expected):
    api = deployment("api")
    revision = replica_set(api, "7d9", 1)
    assert expected is (await detected(pod("api-7d9-x", owner=revision), api, revision, target)).hpa_enabled


@pytest.mark.parametrize(
    ("target", "label"),
    [
        (scaler(), "hpa_enabled"),
        (budget({"matchLabels": {"app": "api"}}), "pdb_protected"),
        (
            obj("NetworkPolicy", "n", api_version="networking.k8s.io/v1", spec={"podSelector": {}}),
            "network_isolated",
        ),
        (obj("StatefulSet", "db", api_version="apps/v1"), "stateful"),
    ],
)
async def test_labels_speak_of_the_target_itself_as_well(target, label):
    assert getattr(await detected(target), label)


@pytest.mark.parametrize(("namespace", "expected"), [("shop", True), ("other", False)])
async def test_any_quota_in_its_namespace_constrains_the_target(namespace, expected):
    quota = obj("ResourceQuota", "compute", namespace=namespace, spec={"hard": {"pods": "10"}})
    assert expected is (await detected(deployment("api"), quota)).resource_quota_constrained
    node = await detected(obj("Node", "worker-1", namespace=""), quota)
    assert not node.resource_quota_constrained


async def test_a_pod_with_a_claim_is_stateful():
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    assert (await detected(pod("api", spec={"containers": [], "volumes": volumes}))).stateful


async def test_a_claim_made_from_the_template_of_a_stateful_set_is_stateful():
    claim = obj("PersistentVolumeClaim", "data-db-2")
    stateful_set = obj(
        "StatefulSet",
        "db",
        api_version="apps/v1",
        spec={"volumeClaimTemplates": [{"metadata": {"name": "data"}}]},
    )
    assert (await detected(claim, stateful_set)).stateful
    assert not (await detected(obj("PersistentVolumeClaim", "data-db-x"), stateful_set)).stateful


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"pod-security.kubernetes.io/enforce": "restricted"}, "restricted"),
        ({"pod-security.kubernetes.io/warn": "restricted"}, ""),
        ({"pod-security.kubernetes.io/enforce": "made-up"}, ""),
    ],
)
async def test_the_pod_security_level_is_that_of_the_namespace(labels, expected):
    cluster = MemoryCluster([obj("Namespace", "shop", namespace="", labels=labels), deployment("api")])
    assert expected == (await detected(deployment("api"), cluster=cluster)).pod_security_level


@pytest.mark.parametrize(
    ("changes", "namespace_labels", "expected"),
    [
        ({"spec": {"containers": [{"name": "app"}, {"name": "istio-proxy"}]}}, {}, "istio"),
        ({"spec": {"containers": [], "initContainers": [{"name": "linkerd-proxy"}]}}, {}, "linkerd"),
        ({"annotations": {"sidecar.istio.io/status": "{}"}}, {}, "istio"),
        ({"annotations": {"ambient.istio.io/redirection": "enabled"}}, {}, "istio"),
        ({"annotations": {"linkerd.io/inject": "enabled"}}, {}, "linkerd"),
        ({"annotations": {"linkerd.io/proxy-version": "2"}}, {}, "linkerd"),
        ({"labels": {"sidecar.istio.io/inject": "true"}}, {}, "istio"),
        ({}, {"istio-injection": "enabled"}, "istio"),
        ({}, {"istio.io/dataplane-mode": "ambient"}, "istio"),
        ({"labels": {"sidecar.istio.io/inject": "false"}}, {"istio-injection": "enabled"}, ""),
        ({}, {}, ""),
    ],
)
async def test_a_service_mesh_is_detected_by_what_runs_or_is_wanted(changes, namespace_labels, expected):
    target = pod("api", **changes)
    cluster = MemoryCluster([obj("Namespace", "shop", namespace="", labels=namespace_labels), target])
    assert expected == (await detected(target, cluster=cluster)).service_mesh


@pytest.mark.parametrize(
    ("kind", "failed"),
    [
        ("PodDisruptionBudget", {"pdbProtected"}),
        ("HorizontalPodAutoscaler", {"hpaEnabled"}),
        ("NetworkPolicy", {"networkIsolated"}),
        ("ResourceQuota", {"resourceQuotaConstrained"}),
        ("Namespace", {"podSecurityLevel", "serviceMesh"}),
    ],
)
async def test_a_detection_that_fails_is_unknown_and_alone(kind, failed):
    cluster = MemoryCluster([SHOP, deployment("api", labels={"helm.sh/chart": "x"})])
    cluster.fail(ClusterReason.FORBIDDEN, kind=kind)
    found = await detected(deployment("api"), cluster=cluster)
    assert failed == set(found.failed_detections)
    assert found.helm_managed


async def test_a_kind_the_cluster_does_not_know_is_a_valid_no():
    cluster = MemoryCluster([SHOP, deployment("api")])
    cluster.fail(ClusterReason.UNKNOWN_KIND, kind="PodDisruptionBudget")
    found = await detected(deployment("api"), cluster=cluster)
    assert not found.pdb_protected
    assert () == found.failed_detections


async def test_everything_is_unknown_for_a_target_that_cannot_be_read():
    cluster = MemoryCluster()
    found = await detect_labels(cluster, await owner_chain(cluster, ObjectRef("Deployment", "api", "shop")))
    assert {camel_case(name) for name in DETECTED_LABELS} == set(found.failed_detections)


async def test_marks_an_unreadable_owner_may_carry_are_unknown():
    api = deployment("api")
    revision = replica_set(api, "7d9", 1)
    cluster = MemoryCluster([SHOP, api, revision])
    cluster.fail(ClusterReason.FORBIDDEN, kind="Deployment", method="get")
    found = await detected(revision, cluster=cluster)
    assert {"gitOpsManaged", "gitOpsTool", "helmManaged", "hpaEnabled", "stateful"} == set(
        found.failed_detections
    )


async def test_a_volume_holds_state():
    assert (await detected(obj("PersistentVolume", "pv-1", namespace=""))).stateful
