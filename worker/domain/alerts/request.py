"""An alert as a request for analysis, in the words of a producer (docs/producers.md).

The same alert about the same object always gives the same request: a re-sent notification is recognised by
its remediation id, by the server for an hour and by workers after it.

Labels say which object an alert is about (kube-state-metrics, cAdvisor, node-exporter, OpenShift). A series
of an exporter carries labels of the exporter's own pod beside those of the object. Where both have a label of
the same name, Prometheus renames the one of the object to `exported_<name>`, unless the scrape honours
labels; a label that only the exporter has (its `pod`, on a series about a Deployment) stays as it is. So what
names a workload goes before `pod`, and `exported_` goes before the plain name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from schemas.taxonomy import Priority, Severity, normalize_severity
from worker.domain.alerts.storm import Storm
from worker.domain.alerts.webhook import Alert
from worker.domain.values.objects import ObjectRef

SOURCE = "prometheus-alertmanager"
NO_INCIDENT = "none"
"""The severity of alerts that only show that alerting works, such as `Watchdog` and `InfoInhibitor`."""
PRIORITY = {Severity.CRITICAL: Priority.P1, Severity.HIGH: Priority.P1, Severity.LOW: Priority.P3}
TEXT_CHARS, NAME_CHARS, WORD_CHARS, LISTED = 8_000, 256, 128, 200
LABELS, LABEL_CHARS, MAP_CHARS = 64, 1_000, 60_000
"""How many labels and annotations a request carries, how long each is, and all together."""
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
"""In the order of precedence."""
CLUSTER_SCOPED = frozenset({"Node", "PersistentVolume", "Namespace"})
OF_SCRAPES = frozenset({"pod", "service"})
"""Labels that a scrape adds for its own target."""
EXPORTERS = ("kube-state-metrics", "node-exporter", "openshift-state-metrics", "blackbox-exporter")


def is_incident(alert: Alert) -> bool:
    """True if the alert fires, and is not one that only shows that alerting works."""
    return alert.status == "firing" and alert.labels.get("severity", "").lower() != NO_INCIDENT


def alert_id(alert: Alert) -> str:
    """The remediation id: one for each time that an alert with these labels begins to fire."""
    return f"am-{alert.mark}-{alert.began.astimezone(UTC):%Y%m%dT%H%M%S}"


def request_of(alert: Alert, target: ObjectRef, *, environment: str, cluster_name: str) -> dict[str, Any]:
    """The body of an incident request. The publisher validates it like that of any producer."""
    labels, annotations = alert.labels, alert.annotations
    severity = normalize_severity(labels.get("severity", "")) or Severity.UNKNOWN
    name = alert_id(alert)
    summary = annotations.get("summary") or annotations.get("message") or alert.name
    return {
        "incident_id": name,
        "remediation_id": name,
        "signal_type": alert.name.strip()[:NAME_CHARS] or "UnnamedAlert",
        "signal_source": SOURCE,
        "severity": severity,
        "resource_kind": target.kind,
        "resource_name": target.name,
        "resource_namespace": target.namespace,
        "resource_api_version": target.api_version,
        "error_message": summary[:TEXT_CHARS],
        "description": annotations.get("description", "")[:TEXT_CHARS],
        "environment": (labels.get("environment") or labels.get("env") or environment)[:WORD_CHARS],
        "priority": _priority(labels.get("priority", ""), severity),
        "cluster_name": (labels.get("cluster") or cluster_name)[:WORD_CHARS],
        "firing_time": alert.began.isoformat(),
        "first_seen": alert.began.isoformat(),
        "signal_labels": _bounded(labels),
        "signal_annotations": _bounded(annotations),
    }


def storm_request(body: dict[str, Any], storm: Storm, *, window: str) -> dict[str, Any]:
    """One request for a whole storm, from that of the alert that made it one."""
    objects = ["/".join(filter(None, (o.kind, o.namespace, o.name))) for o in storm.objects]
    name = f"am-storm-{body['remediation_id'].removeprefix('am-')}"
    return body | {
        "incident_id": name,
        "remediation_id": name,
        "is_storm": True,
        "storm_type": storm.type,
        "storm_window": window,
        "storm_alert_count": storm.alerts,
        "affected_resources": objects[:LISTED],
    }


def _bounded(texts: Mapping[str, str]) -> dict[str, str]:
    """The first of them, cut: a request has limits, and the analysis needs no more."""
    kept: dict[str, str] = {}
    room = MAP_CHARS
    for name, value in texts.items():
        if len(kept) == LABELS or len(name) > NAME_CHARS:
            continue
        kept[name] = value[: min(LABEL_CHARS, room)]
        room = max(0, room - len(kept[name]))
    return kept


def _priority(given: str, severity: Severity) -> str:
    word = given.upper()
    return word if word in set(Priority) else PRIORITY.get(severity, Priority.P2)


def resource_of(labels: Mapping[str, str]) -> ObjectRef | None:
    """The object, or None if the labels name none.

    A namespace without an object in it is the object itself.
    """
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
    """The host in `instance` (`10.0.0.7:9100`), for alerts about a machine; empty if there is none."""
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
