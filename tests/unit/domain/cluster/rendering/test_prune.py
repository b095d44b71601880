"""Defaults and bookkeeping are left out where they stand in a built-in kind, and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fakes.manifests import obj, pod
from worker.domain.cluster.pods import pod_reason
from worker.domain.cluster.rendering.prune import prune
from worker.domain.cluster.rendering.tables import render_table

NOW = datetime(2026, 6, 4, tzinfo=UTC)
DEFAULTS = {
    "priority": 0,
    "protocol": "TCP",
    "restartPolicy": "Always",
    "hostIP": "10.0.0.1",
    "scheme": "HTTP",
    "imageID": "x@sha256:1",
    "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
    "schedulerName": "default-scheduler",
    "tolerations": [],
    "volumes": [{"name": "kube-api-access-x", "projected": {"sources": [{}]}}],
    "containers": [{"name": "a", "ports": [{"protocol": "TCP"}], "imagePullPolicy": "IfNotPresent"}],
}


@pytest.mark.parametrize(
    ("kind", "api_version"),
    [("Zone", "example.com/v1"), ("Service", "serving.knative.dev/v1"), ("Rollout", "argoproj.io/v1alpha1")],
)
def test_a_custom_resource_has_no_defaults_of_ours(kind: str, api_version: str) -> None:
    found = prune({**obj(kind, "x", "shop", api_version), "spec": DEFAULTS, "status": DEFAULTS})
    assert (DEFAULTS, DEFAULTS) == (found["spec"], found["status"])


TEMPLATE = {
    "metadata": {"labels": {"app": "a"}, "creationTimestamp": None},
    "spec": {
        "restartPolicy": "Always",
        "initContainers": [{"name": "ship", "restartPolicy": "Always", "terminationMessagePolicy": "File"}],
        "containers": [
            {
                "name": "a",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "ports": [{"containerPort": 80, "hostIP": "10.0.0.1", "protocol": "TCP"}],
                "livenessProbe": {"httpGet": {"port": 80, "scheme": "HTTP"}, "successThreshold": 1},
            }
        ],
    },
}
SHOWN = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {
        "initContainers": [{"name": "ship", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "a",
                "ports": [{"containerPort": 80, "hostIP": "10.0.0.1"}],
                "livenessProbe": {"httpGet": {"port": 80}},
            }
        ],
    },
}


@pytest.mark.parametrize(
    ("kind", "api_version", "spec", "shown"),
    [
        ("Deployment", "apps/v1", {"template": TEMPLATE}, {"template": SHOWN}),
        ("Deployment", "apps/v1beta2", {"template": TEMPLATE}, {"template": SHOWN}),
        ("Job", "batch/v1", {"template": TEMPLATE}, {"template": SHOWN}),
        (
            "CronJob",
            "batch/v1",
            {"jobTemplate": {"spec": {"template": TEMPLATE}}},
            {"jobTemplate": {"spec": {"template": SHOWN}}},
        ),
        ("Pod", "v1", TEMPLATE["spec"], SHOWN["spec"]),
        ("Service", "v1", {"ports": [{"port": 1, "protocol": "TCP"}]}, {"ports": [{"port": 1}]}),
        ("Service", "v1", {"ports": [{"port": 1, "protocol": "UDP"}]}, None),
        ("Deployment", "apps/v1", {"priority": 0, "restartPolicy": "Always"}, None),
        ("PersistentVolume", "v1", {"priority": 0, "protocol": "TCP"}, None),
    ],
)
def test_defaults_are_left_out_where_they_stand(
    kind: str, api_version: str, spec: dict[str, Any], shown: dict[str, Any] | None
) -> None:
    found = prune({**obj(kind, "x", "shop", api_version), "spec": spec})
    assert (spec if shown is None else shown) == found["spec"]


def status_of(*digests: str, image: str = "app:latest") -> dict[str, Any]:
    names = "abcdef"
    return {
        "containerStatuses": [
            {"name": names[i], "image": image, "imageID": f"reg/app@sha256:{digest * 64}", "containerID": "c"}
            for i, digest in enumerate(digests)
        ]
    }


@pytest.mark.parametrize(("digests", "shown"), [("11", False), ("12", True), ("1", False)])
def test_image_ids_are_shown_where_a_tag_means_two_images(digests: str, *, shown: bool) -> None:
    found = prune({**obj("Pod", "x", "shop"), "status": status_of(*digests)})["status"]["containerStatuses"]
    assert {shown} == {"imageID" in container for container in found}
    assert not any("containerID" in container for container in found)


def test_pods_of_one_tag_and_two_images_show_which_is_whose() -> None:
    pods = [{**obj("Pod", f"p-{n}", "shop"), "status": status_of(n)} for n in "12"]
    table = render_table("Pod", pods, NOW, 500).body
    assert ("sha256:111111111111" in table, "sha256:222222222222" in table) == (True, True)
    assert "sha256" not in render_table("Pod", [pods[0], pods[0]], NOW, 500).body


def test_a_native_sidecar_is_called_one() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "Error"}}
    found = pod(
        "p",
        spec={"initContainers": [{"name": "ship", "restartPolicy": "Always"}]},
        status={"initContainerStatuses": [{"name": "ship", "state": ended}]},
    )
    assert pod_reason(found).startswith("ship (sidecar): ended Error exit 137")


def test_deleted_objects_of_a_table_show_what_keeps_them() -> None:
    claim = obj("PersistentVolumeClaim", "data", "shop", spec={})
    gone = {**claim, "metadata": {**claim["metadata"], "deletionTimestamp": "2026-06-04T15:00:00Z"}}
    gone["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    assert (
        "kept by finalizers kubernetes.io/pvc-protection" in render_table(gone["kind"], [gone], NOW, 500).body
    )
    assert "DELETION" not in render_table(claim["kind"], [claim], NOW, 500).body
