"""How the incident is told: what raises the alert and under which name, what logs and events there are, and when it was."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from tests.variants.content import CaseContent, Place, map_text, name_of, namespace_of, place_of
from tests.variants.surroundings import unready_client
from worker.domain.cluster.fields import moment, stamp
from worker.domain.cluster.pods import pod_failing
from worker.domain.cluster.references import selects
from worker.domain.values.objects import Manifest

WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob")
MEASURED = re.compile(
    r"high|filling|predict|throttl|burn|fragment|lag|usage|error|exhaust|space|maxed|unreachable|dbconn",
    re.IGNORECASE,
)
"""Names of alerts that state a measurement: no object shows it, so another name would be another incident."""
SERVING = {"Pod", "Deployment", "StatefulSet", "DaemonSet"}
PROMETHEUS = {
    "Pod": "KubePodNotReady", "Deployment": "KubeDeploymentReplicasMismatch", "DaemonSet": "KubeDaemonSetRolloutStuck",
    "StatefulSet": "KubeStatefulSetReplicasMismatch",
}  # fmt: skip
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")
PROSE = {
    "German": (
        "Dienst wird gestartet",
        "Verbindung zum Speicher wird aufgebaut",
        "Vorgang abgebrochen, siehe Handbuch",
        "Prozess endet",
    ),
    "Spanish": (
        "Iniciando el servicio",
        "Leyendo los datos de arranque",
        "La tarea no se ha podido completar",
        "El proceso termina",
    ),
    "Chinese": ("正在启动服务", "正在读取数据", "任务无法完成", "进程退出"),
}


def alert_on_pod(content: CaseContent) -> CaseContent | None:
    """A pod of the workload raises the alert."""
    signal = content.find(content.signal)
    if signal is None or signal["kind"] not in WORKLOADS:
        return None
    pods = content.pods_of(signal)
    return _about(content, place_of(pods[0])) if pods else None


def alert_on_owner(content: CaseContent) -> CaseContent | None:
    """The workload of the pod raises the alert."""
    top = _top(content, content.find(content.signal))
    return _about(content, place_of(top)) if top and place_of(top) != content.signal else None


def alert_on_service(content: CaseContent) -> CaseContent | None:
    """The Service that leads to the pods raises the alert; where there is none, one is made."""
    signal = content.find(content.signal)
    if signal is None or signal["kind"] not in SERVING:
        return None
    found = with_service(content, signal)
    return _about(*found) if found else None


def with_service(content: CaseContent, workload: Manifest) -> tuple[CaseContent, Place] | None:
    """The case with a Service that leads to the pods of a workload, and its place; None without pods to lead to."""
    pods = content.pods_of(workload)
    labels = (
        {k: v for k, v in (pods[0]["metadata"].get("labels") or {}).items() if "hash" not in k}
        if pods
        else {}
    )
    if not labels:
        return None
    home = namespace_of(pods[0])
    for service in content.of("Service"):
        selector = service.get("spec", {}).get("selector")
        if selector and namespace_of(service) == home and selects({"matchLabels": selector}, labels):
            return content, place_of(service)
    ports = [p for c in pods[0]["spec"]["containers"] for p in c.get("ports", ())]
    target = ports[0]["containerPort"] if ports else 8080
    found = content.copy()
    found.objects.append(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "front-door",
                "namespace": home,
                "creationTimestamp": "2024-01-01T00:00:00Z",
            },
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": target, "protocol": "TCP"}]},
        }
    )
    return found, ("Service", home, "front-door")


def alert_on_client(content: CaseContent) -> CaseContent | None:
    """Another workload suffers, whose settings name the Service of the one that is to blame, and raises the alert."""
    blamed = content.expected["affected_resource"]
    place = blamed["kind"], blamed.get("namespace") or "", blamed["name"]
    server = content.find(place)
    if server is None or server["kind"] not in SERVING or MEASURED.search(content.incident["signal_type"]):
        return None
    pods = content.pods_of(server)
    served = with_service(content, server)
    if served is None or not pod_failing(pods[0]) or pods[0]["status"].get("phase") == "Failed":
        return None  # who depends on it does not suffer
    found, (_, home, service) = served
    found = found.copy()
    client = unready_client("kiosk", home, service, found)
    found.objects.extend(client)
    found = _about(found, ("Pod", home, name_of(client[-1])))
    found.incident["signal_type"] = "KubePodNotReady"
    found.incident["error_message"] = f"Pod {home}/{name_of(client[-1])} has been in a non-ready state"
    found.expected["signal_type"] = ""
    return found


def _top(content: CaseContent, manifest: Manifest | None) -> Manifest | None:
    while manifest is not None and (owners := manifest["metadata"].get("ownerReferences")):
        above = content.find((owners[0]["kind"], namespace_of(manifest), owners[0]["name"]))
        if above is None or above["kind"] == "Node":
            break
        manifest = above
    return manifest


def _about(content: CaseContent, place: Place) -> CaseContent:
    found = content.copy()
    manifest = content.find(place)
    kind, namespace, name = place
    found.incident.update(resource_kind=kind, resource_namespace=namespace, resource_name=name)
    if manifest and "." in manifest["apiVersion"].rpartition("/")[0]:
        found.incident["resource_api_version"] = manifest["apiVersion"]
    return found


def alert_of_prometheus(content: CaseContent) -> CaseContent | None:
    """An alert of kubernetes-mixin that says only that pods are not ready."""
    return _renamed(content, PROMETHEUS.get(content.signal[0], ""))


def alert_of_event(content: CaseContent) -> CaseContent | None:
    """A warning of the cluster itself: the reason of an event about the object or its pods."""
    signal = content.find(content.signal)
    if signal is None or signal["kind"] not in PROMETHEUS:
        return None
    names = {name_of(signal), *map(name_of, content.pods_of(signal))}
    events = [
        e
        for e in content.of("Event")
        if e.get("type") == "Warning" and e["involvedObject"].get("name") in names
    ]
    return _renamed(content, events[-1]["reason"] if events else "")


def alert_in_words(content: CaseContent) -> CaseContent:
    """The name of the alert in lower-case words, as chat tools and pagers send it."""
    found = content.copy()
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", found.incident["signal_type"])
    found.incident["signal_type"] = spaced.lower()
    (found.incident.get("signal_labels") or {}).pop("alertname", None)
    return found


def _renamed(content: CaseContent, name: str) -> CaseContent | None:
    given = content.incident
    if not name or MEASURED.search(given["signal_type"]) or name == given["signal_type"]:
        return None
    found = content.copy()
    found.incident["signal_type"] = name
    found.incident["error_message"] = f"{given['resource_kind']} {given['resource_name']} is not healthy"
    found.incident.pop("description", None)
    labels = found.incident.get("signal_labels") or {}
    found.incident["signal_labels"] = {k: v for k, v in labels.items() if k not in {"alertname", "reason"}}
    # another alert may rightly go by another name
    found.expected["signal_type"] = ""
    return found


def logs_as_json(content: CaseContent) -> CaseContent | None:
    """Each line of a log as the message of a JSON object."""

    def line(number: int, said: str) -> str:
        if said.startswith("{"):
            return said
        return json.dumps(
            {"@timestamp": f"2026-05-01T10:00:{number % 60:02}Z", "logger": "main", "message": said},
            ensure_ascii=False,
        )

    return _relogged(content, line)


def logs_with_prefix(content: CaseContent) -> CaseContent | None:
    """Each line of a log behind a time, a process and a thread, as many frameworks write."""
    return _relogged(
        content, lambda n, said: f"2026-05-01 10:00:{n % 60:02},{n % 1000:03} [1] (main-{n % 4}) {said}"
    )


def _relogged(content: CaseContent, line: Any) -> CaseContent | None:
    def changed(text: bytes) -> bytes:
        lines = text.decode(errors="replace").splitlines()
        return (
            "\n".join(line(n, said) if said.strip() else said for n, said in enumerate(lines)).encode()
            + b"\n"
        )

    return (
        replace(content.copy(), logs={k: changed(v) for k, v in content.logs.items()})
        if content.logs
        else None
    )


def logs_in_language(content: CaseContent, random: Random) -> CaseContent | None:
    """Logs that say nothing that rules know, in another language: exit codes and states stay."""
    if not content.logs:
        return None
    said = PROSE[random.choice(sorted(PROSE))]
    return replace(content.copy(), logs=dict.fromkeys(content.logs, "\n".join(said).encode() + b"\n"))


def without_logs(content: CaseContent) -> CaseContent | None:
    """No container has a log."""
    return replace(content.copy(), logs={}) if content.logs else None


def without_events(content: CaseContent) -> CaseContent | None:
    """Events have expired: the API server keeps them for an hour."""
    found = content.copy()
    kept = [o for o in found.objects if o["kind"] != "Event"]
    return replace(found, objects=kept) if len(kept) < len(found.objects) else None


def shift_times(content: CaseContent, random: Random) -> CaseContent:
    """The same incident at another time."""
    by = timedelta(days=random.randrange(-400, 400), seconds=random.randrange(86_400))
    return _retimed(content, lambda at, now: at + by)


def stretch_ages(content: CaseContent, random: Random) -> CaseContent:
    """Everything happened a bit longer ago, or more recently."""
    factor = random.choice((0.7, 1.5))
    return _retimed(content, lambda at, now: now + (at - now) * factor)


def _retimed(content: CaseContent, change: Any) -> CaseContent:
    given = content.incident
    now = (
        moment(given.get("received_time"))
        or moment(given.get("firing_time"))
        or moment("2026-11-01T00:00:00Z")
    )

    def retimed(text: str) -> str:
        def new(match: re.Match[str]) -> str:
            at = moment(match[0])
            return stamp(change(at, now)) if at else match[0]

        return TIME.sub(new, text)

    found = content.copy()
    logs = {key: retimed(text.decode(errors="replace")).encode() for key, text in found.logs.items()}
    incident = map_text({"received_time": "2026-11-01T00:00:00Z", **found.incident}, retimed)
    return replace(found, incident=incident, objects=map_text(found.objects, retimed), logs=logs)
