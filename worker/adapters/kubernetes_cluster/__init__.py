"""The Cluster port on the Kubernetes REST API: reads raw JSON through `kubernetes.aio`, and never writes."""

from __future__ import annotations

from worker.adapters.kubernetes_cluster import asynchronous_half  # noqa: F401 - before the others
from worker.adapters.kubernetes_cluster.api import ApiLimits
from worker.adapters.kubernetes_cluster.cluster import KubernetesCluster

__all__ = ["ApiLimits", "KubernetesCluster"]
