from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.hostile import OBJECTS
from tests.fakes.manifests import NOW, crashing, deployment, obj, pod, replica_set, running
from worker.domain.cluster.rendering.tables import (
    COLUMNS,
    render_lines,
    render_table,
    unhealthy,
)


def rows(kind, *items, **options):
    lines = render_table(kind, items, NOW, 4000, **options).body.split("\n")
    header = lines[0].split(" | ")
    return [dict(zip(header, line.split(" | "), strict=True)) for line in lines[1:]]


def test_objects_as_json_are_whole_and_failing_ones_come_first():
    items = [pod("a", status=running()), pod("b", status=crashing())]
    shown = render_lines(items, 4000)
    assert [json.loads(line)["metadata"]["name"] for line in shown.body.split("\n")] == ["b", "a"]
    cut = render_lines(items * 40, 1000)
    assert cut.shown < cut.total == 80
    assert all(json.loads(line)["kind"] == "Pod" for line in cut.body.split("\n"))


def test_pods_have_the_columns_of_the_format_and_failing_ones_come_first():
    api = deployment("api")
    own = replica_set(api, "7d9", 2)
    table = render_table(
        "Pod", [pod("a", status=running()), pod("b", status=crashing("OOMKilled", 137), owner=own)], NOW, 4000
    )
    assert [
        "NAME | READY | STATUS | RESTARTS | REASON | NODE | OWNER | AGE",
        (
            "b | 0/1 | CrashLoopBackOff | 5 | app: waiting CrashLoopBackOff, last ended OOMKilled exit 137 at"
            " 2026-06-04T15:29:00Z | node-1 | ReplicaSet/api-7d9 | 60m"
        ),
        "a | 1/1 | Running | 0 | - | node-1 | - | 60m",
    ] == table.body.split("\n")


def test_namespace_comes_first_where_there_are_several():
    table = render_table("Pod", [pod("a", namespace="shop")], NOW, 4000, all_namespaces=True)
    assert table.body.startswith("NAMESPACE | NAME | ")


def test_a_separator_inside_a_cell_is_replaced():
    assert "a/b" == rows("ConfigMap", obj("ConfigMap", "c", data={"a|b": ""}))[0]["KEYS"]


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (
            deployment("api", annotations={"deployment.kubernetes.io/revision": "4"}),
            {"READY/DESIRED": "1/1", "IMAGES": "shop/app:1", "REVISION": "4"},
        ),
        (replica_set(deployment("api"), "7d9", 2), {"READY/DESIRED": "0/1", "REVISION": "2", "OWNER": "Deployment/api"}),
        (
            obj("StatefulSet", "db", status={"updateRevision": "db-1"}, spec={"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}),
            {"READY/DESIRED": "0/1", "REVISION": "db-1", "CLAIMS": "data"},
        ),
        (
            obj("DaemonSet", "proxy", status={"numberReady": 2, "desiredNumberScheduled": 3}),
            {"READY/DESIRED": "2/3"},
        ),
        (
            obj("Job", "j", spec={"backoffLimit": 3}, status={"failed": 4, "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}]}),
            {"STATUS": "Failed", "COMPLETIONS": "0/1", "FAILED": "4 (backoffLimit 3)", "REASON": "BackoffLimitExceeded: too often"},
        ),
        (obj("CronJob", "c", spec={"schedule": "* * * * *", "suspend": True}), {"SCHEDULE": "* * * * *", "SUSPEND": "true"}),
        (
            obj("Service", "s", spec={"selector": {"app": "api"}, "ports": [{"port": 80, "targetPort": "http"}]}),
            {"TYPE": "ClusterIP", "SELECTOR": "app=api", "PORTS": "80->http/TCP"},
        ),
        (
            obj("Endpoints", "s", subsets=[{"notReadyAddresses": [{"ip": "10.0.0.1", "targetRef": {"name": "api-0"}}], "ports": [{"port": 80}]}]),
            {"READY": "none", "NOT READY": "api-0", "PORTS": "80"},
        ),
        (
            obj("EndpointSlice", "s-1", labels={"kubernetes.io/service-name": "s"}, endpoints=[{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]),
            {"SERVICE": "s", "READY": "10.0.0.1"},
        ),
        (
            obj("PersistentVolumeClaim", "data", spec={"storageClassName": "fast", "resources": {"requests": {"storage": "2Gi"}}}, status={"phase": "Pending"}),
            {"STATUS": "Pending", "CLASS": "fast", "SIZE": "- (requested 2Gi)"},
        ),
        (
            obj("PersistentVolume", "pv", namespace="", spec={"claimRef": {"namespace": "shop", "name": "data"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}),
            {"CLAIM": "shop/data", "NODE AFFINITY": "zone In a"},
        ),
        (
            obj("StorageClass", "fast", namespace="", provisioner="p", allowVolumeExpansion=True),
            {"PROVISIONER": "p", "EXPANSION": "true", "DEFAULT": "false"},
        ),
        (
            obj("Node", "n", namespace="", labels={"kubernetes.io/arch": "arm64", "topology.kubernetes.io/zone": "a"}, spec={"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}, status={"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}], "allocatable": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"}}),
            {"STATUS": "NotReady,SchedulingDisabled", "CONDITIONS": "Ready=Unknown (NodeStatusUnknown)", "TAINTS": "k=v:NoSchedule", "CPU": "4", "GPU": "nvidia.com/gpu=2", "LABELS": "zone=a arch=arm64"},
        ),
        (
            obj("PodDisruptionBudget", "p", spec={"minAvailable": 2, "selector": {"matchLabels": {"app": "api"}}}, status={"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}),
            {"MIN AVAILABLE": "2", "ALLOWED DISRUPTIONS": "0", "HEALTHY/DESIRED": "2/2", "SELECTOR": "app=api"},
        ),
        (
            obj("HorizontalPodAutoscaler", "h", spec={"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "api"}}, status={"currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": [{"resource": {"name": "cpu", "current": {"averageUtilization": 200}}}]}),
            {"REFERENCE": "Deployment/api", "METRICS": "cpu 200%", "MAX": "3", "CURRENT": "3"},
        ),
        (obj("ResourceQuota", "q", status={"hard": {"pods": "4"}, "used": {"pods": "4"}}), {"USED/HARD": "pods 4/4"}),
        (
            obj("NetworkPolicy", "n", spec={"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "egress": [{}]}),
            {"POD SELECTOR": "(all)", "TYPES": "Ingress, Egress", "INGRESS RULES": "0", "EGRESS RULES": "1"},
        ),
        (obj("Namespace", "shop", namespace="", labels={"team": "a"}, status={"phase": "Active"}), {"STATUS": "Active", "LABELS": "team=a"}),
        (
            obj("Cluster", "pg", status={"phase": "Not enough disk space", "conditions": [{"type": "Ready", "status": "False", "reason": "NoDisk"}]}),
            {"CONDITIONS": "Not enough disk space, Ready=False (NoDisk)"},
        ),
    ],
    ids=lambda value: value.get("kind", ""),
)  # fmt: skip
def test_columns_by_kind(manifest, expected):
    found = rows(manifest["kind"], manifest)[0]
    assert expected == {column: found[column] for column in expected}


def test_what_does_not_fit_is_what_is_in_good_health():
    items = [pod(f"a-{i}") for i in range(200)] + [pod("z-bad", status=crashing())]
    table = render_table("Pod", items, NOW, 300)
    assert "z-bad" in table.body
    assert 201 == table.total
    assert len(table.body.split("\n")) - 1 == table.shown < 201


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (deployment("api"), False),
        (deployment("api", status={"replicas": 1}), True),
        (obj("DaemonSet", "d", status={"numberReady": 1, "desiredNumberScheduled": 1}), False),
        (obj("Job", "j", status={"failed": 1}), True),
        (obj("Job", "j", status={"failed": 1, "succeeded": 1}), False),
        (obj("Job", "j", status={"succeeded": 1, "conditions": [{"type": "Failed", "status": "True"}]}), True),
        (obj("HorizontalPodAutoscaler", "h", status={"conditions": [{"type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas"}]}), False),
        (obj("HorizontalPodAutoscaler", "h", status={"conditions": [{"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}]}), True),
        (obj("PersistentVolumeClaim", "p", status={"phase": "Lost"}), True),
        (obj("Endpoints", "e", subsets=[]), True),
        (obj("Node", "n", status={"conditions": [{"type": "MemoryPressure", "status": "True"}]}), True),
        (obj("Node", "n", status={"conditions": [{"type": "MemoryPressure", "status": "False"}]}), False),
        (obj("PodDisruptionBudget", "p", status={"disruptionsAllowed": 0, "expectedPods": 2}), True),
        (obj("Cluster", "c", status={"conditions": [{"type": "Ready", "status": "False"}]}), True),
        (obj("Cluster", "c", status={"conditions": [{"type": "Ready", "status": "True"}]}), False),
        (obj("ConfigMap", "c"), False),
    ],
)  # fmt: skip
def test_unhealthy_by_kind(manifest, expected):
    assert expected is unhealthy(manifest)


def test_an_empty_table_has_a_header():
    assert "NAME" == render_table("Pod", [], NOW, 100).body


@given(st.lists(OBJECTS, max_size=4), st.sampled_from([*sorted(COLUMNS), "Other"]))
def test_any_objects_make_a_table(items, kind):
    items = [{**item, "kind": kind} for item in items]
    table = render_table(kind, items, NOW, 500, all_namespaces=True)
    widths = {line.count(" | ") for line in table.body.split("\n")}
    assert 1 == len(widths)
