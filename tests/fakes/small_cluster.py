"""A small cluster that tests of the Cluster port share, and the way to reach it through the real adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.faulty_api import FaultyApi
from worker.adapters.kubernetes_cluster import ApiLimits, KubernetesCluster
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import Listing, Manifest
from worker.sandbox.cluster_server import serve_api, shipped_rights, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot

TOKEN = "FAKE-token"
LIMITS = ApiLimits(call_seconds=60.0, attempt_seconds=30.0)


def example(kind: str, name: str, namespace: str = "", api_version: str = "v1", **fields: Any) -> Manifest:
    labels = fields.pop("labels", {})
    metadata = {"name": name, "labels": labels, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def example_pod(
    name: str, app: str, *, state: dict[str, Any], last: dict[str, Any] | None = None, **spec: Any
) -> Manifest:
    named = {"name": "app", "image": "shop/app:1", "imageID": "", "ready": False, "restartCount": 0}
    status = {**named, "state": state, "lastState": last or {}}
    images = [{"image": "shop/app:1", **container} for container in spec.pop("containers", [{"name": "app"}])]
    return example(
        "Pod",
        name,
        "shop",
        labels={"app": app},
        spec={"nodeName": "worker-1", "containers": images, **spec},
        status={"phase": "Running", "containerStatuses": [status]},
    )


def example_deployment(name: str, namespace: str) -> Manifest:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "app", "image": "shop/app:1"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return example("Deployment", name, namespace, "apps/v1", labels=labels, spec=spec)


RUNNING = {"running": {"startedAt": "2026-05-01T10:00:00Z"}}
ENDED = {"terminated": {"exitCode": 1, "containerID": "containerd://1"}}
OBJECTS = [
    example("Namespace", "shop", status={"phase": "Active"}),
    example("Node", "worker-1"),
    example("Secret", "db", "shop", data={"password": "RkFLRQ=="}),
    example_pod("api-0", "api", state=RUNNING, last=ENDED),
    example_pod("api-1", "api", state={"waiting": {"reason": "ImagePullBackOff"}}),
    example_pod("job-0", "job", state=RUNNING, containers=[{"name": "app"}, {"name": "proxy"}]),
    example_deployment("api", "shop"),
    example_deployment("web", "blog"),
    example("Rollout", "canary", "shop", "argoproj.io/v1alpha1"),
    example("Cluster", "pg", "shop", "postgresql.cnpg.io/v1"),
    example("Cluster", "east", "shop", "cluster.x-k8s.io/v1beta1"),
    example(
        "Event",
        "api-0.1",
        "shop",
        involvedObject={"kind": "Pod", "name": "api-0", "namespace": "shop"},
        reason="BackOff",
        message="back-off restarting",
        type="Warning",
    ),
]
LOGS = {
    ("shop", "api-0", "app", False): b"one\ntwo\nthree\n",
    ("shop", "api-0", "app", True): b"panic\xff\n",
    ("shop", "job-0", "proxy", False): b"x" * 5000 + b"\nlast line\n",
}


Connect = Callable[..., Awaitable[KubernetesCluster]]


def small_api() -> FaultyApi:
    """The API over the small cluster, with the rights of the shipped deployment."""
    return FaultyApi(Snapshot(OBJECTS, LOGS), token=TOKEN, rights=shipped_rights())


@asynccontextmanager
async def connecting(api: FaultyApi, kubeconfig: Path) -> AsyncIterator[Connect]:
    """Serves the API; yields what opens adapters to it (with other settings, when some are given)."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve_api(api))
        write_kubeconfig(kubeconfig, url, TOKEN)

        async def connect(**settings: Any) -> KubernetesCluster:
            settings = {"limits": LIMITS, "jitter": lambda: 0.0, "kubeconfig": str(kubeconfig)} | settings
            return await stack.enter_async_context(KubernetesCluster(**settings))

        yield connect


async def reason_of(call: Any) -> ClusterReason:
    with pytest.raises(ClusterError) as caught:
        await call
    assert 0 < len(caught.value.message) <= 300
    return caught.value.reason


def names(listing: Listing) -> list[str]:
    return [item["metadata"]["name"] for item in listing.items]
