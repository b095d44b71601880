"""Which object an alert is about, by its labels (kube-state-metrics, cAdvisor, node-exporter, OpenShift).

A series of an exporter carries labels of the exporter's own pod beside those of the object. Where both have a label of the
same name, Prometheus renames the one of the object to `exported_<name>`, unless the scrape honours labels; a label that
only the exporter has (its `pod`, on a series about a Deployment) stays as it is. So what names a workload goes before
`pod`, and `exported_` goes before the plain name.
"""

from __future__ import annotations

from collections.abc import Mapping

from worker.domain.values.objects import ObjectRef

KIND_OF_LABEL: Mapping[str, str] = {
    "deployment": "Deployment",
    "statefulset": "StatefulSet",
    "daemonset": "DaemonSet",
    "cronjob": "CronJob",
    "job_name": "Job",
    "horizontalpodautoscaler": "HorizontalPodAutoscaler",
    "hpa": "HorizontalPodAutoscaler",
    "persistentvolumeclaim": "PersistentVolumeClaim",
    "poddisruptionbudget": "PodDisruptionBudget",
    "replicaset": "ReplicaSet",
    "ingress": "Ingress",
    "pod": "Pod",
    "pod_name": "Pod",
    "persistentvolume": "PersistentVolume",
    "node": "Node",
    "nodename": "Node",
    "service": "Service",
    "service_name": "Service",
}
"""In the order in which they count."""
CLUSTER_SCOPED = frozenset({"Node", "PersistentVolume", "Namespace"})
OF_SCRAPES = frozenset({"pod", "service"})
"""Labels that a scrape adds for its own target."""
EXPORTERS = ("kube-state-metrics", "node-exporter", "openshift-state-metrics", "blackbox-exporter")


def resource_of(labels: Mapping[str, str]) -> ObjectRef | None:
    """The object, None when the labels name none. A namespace without an object in it is the object itself."""
    namespace = _value(labels, "namespace")
    if operator := _cluster_operator(labels):
        return operator
    for label, kind in KIND_OF_LABEL.items():
        name = _value(labels, label)
        if not name or (label in OF_SCRAPES and _of_an_exporter(labels, label)):
            continue
        if kind in CLUSTER_SCOPED:
            return ObjectRef(kind, name)
        if namespace:
            return ObjectRef(kind, name, namespace)
    return ObjectRef("Namespace", namespace) if namespace else None


def address_of(labels: Mapping[str, str]) -> str:
    """The host in `instance` (`10.0.0.7:9100`), for alerts about a machine; empty when there is none."""
    host, colon, port = labels.get("instance", "").rpartition(":")
    return host.strip("[]") if colon and port.isdigit() else labels.get("instance", "")


def _value(labels: Mapping[str, str], name: str) -> str:
    return labels.get(f"exported_{name}", "") or labels.get(name, "")


def _of_an_exporter(labels: Mapping[str, str], label: str) -> bool:
    if labels.get(f"exported_{label}"):
        return False
    return labels.get(label, "").startswith(EXPORTERS)


def _cluster_operator(labels: Mapping[str, str]) -> ObjectRef | None:
    """`ClusterOperatorDown{name="etcd"}` and its siblings of OpenShift."""
    name = labels.get("name", "")
    if name and labels.get("alertname", "").startswith("ClusterOperator"):
        return ObjectRef("ClusterOperator", name, api_version="config.openshift.io/v1")
    return None
