"""Reading pods and pod templates: what the API says about them, without judging it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from worker.sandbox.analyst.refs import as_dict, as_list, dig

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One container of a pod as its status shows it. Exit codes are None while it has never ended."""

    name: str
    init: bool
    ready: bool
    restarts: int
    waiting: str
    waiting_message: str
    exit_code: int | None
    exit_reason: str
    exit_message: str
    started: str
    finished: str
    running_since: str

    @property
    def finished_well(self) -> bool:
        """Whether it has ended with success and is not started again."""
        return self.exit_code == 0 and not self.waiting and not self.running_since


def container_states(pod: Manifest) -> list[ContainerState]:
    """Init containers first, as they run."""
    status = as_dict(pod.get("status"))
    found = [
        _state(c, init=True) for c in as_list(status.get("initContainerStatuses")) if isinstance(c, dict)
    ]
    return found + [
        _state(c, init=False) for c in as_list(status.get("containerStatuses")) if isinstance(c, dict)
    ]


def _state(status: Manifest, *, init: bool) -> ContainerState:
    waiting = as_dict(dig(status, "state", "waiting"))
    ended = as_dict(dig(status, "state", "terminated")) or as_dict(dig(status, "lastState", "terminated"))
    code = ended.get("exitCode")
    restarts = status.get("restartCount")
    return ContainerState(
        name=str(status.get("name") or ""),
        init=init,
        ready=bool(status.get("ready")),
        restarts=restarts if isinstance(restarts, int) else 0,
        waiting=str(waiting.get("reason") or ""),
        waiting_message=str(waiting.get("message") or ""),
        exit_code=code if isinstance(code, int) else None,
        exit_reason=str(ended.get("reason") or ""),
        exit_message=str(ended.get("message") or ""),
        started=str(ended.get("startedAt") or ""),
        finished=str(ended.get("finishedAt") or ""),
        running_since=str(dig(status, "state", "running", "startedAt") or ""),
    )


def pod_spec(workload: Manifest) -> Manifest:
    """The pod spec inside a pod, a workload or a CronJob; empty when there is none."""
    spec = as_dict(workload.get("spec"))
    if "containers" in spec:
        return spec
    template = dig(spec, "template", "spec") or dig(spec, "jobTemplate", "spec", "template", "spec")
    return as_dict(template)


def containers_of(spec: Manifest, *, init: bool = True) -> list[Manifest]:
    """Containers of a pod spec, the init ones first."""
    first = as_list(spec.get("initContainers")) if init else []
    return [c for c in [*first, *as_list(spec.get("containers"))] if isinstance(c, dict)]


def container_named(spec: Manifest, name: str) -> Manifest:
    """The container of that name; the only one when no name is given."""
    found = containers_of(spec)
    if not name and len(found) == 1:
        return found[0]
    return next((c for c in found if c.get("name") == name), {})


@dataclass(frozen=True, slots=True)
class Reference:
    """A ConfigMap, Secret or claim a pod spec names. `key` is empty when all of it is used; `how` says where."""

    kind: str
    name: str
    key: str = ""
    how: str = ""
    optional: bool = False
    mount: str = ""
    sub_path: str = ""


def references(spec: Manifest) -> list[Reference]:
    """Everything the pod spec refers to in its namespace, service account token parts left out."""
    found = list(_volume_references(spec))
    for container in containers_of(spec):
        found.extend(_env_references(container))
    found.extend(
        Reference("Secret", str(s.get("name") or ""), how="imagePullSecrets")
        for s in as_list(spec.get("imagePullSecrets"))
        if isinstance(s, dict)
    )
    return [r for r in found if r.name and r.name != "kube-root-ca.crt"]


def _volume_references(spec: Manifest) -> Iterator[Reference]:
    mounts = _mounts(spec)
    for volume in as_list(spec.get("volumes")):
        if not isinstance(volume, dict):
            continue
        name = str(volume.get("name") or "")
        for mount, sub_path in mounts.get(name) or [("", "")]:
            for reference in _sources(volume):
                yield Reference(
                    reference.kind,
                    reference.name,
                    reference.key,
                    "volume",
                    reference.optional,
                    mount,
                    sub_path,
                )


def _sources(volume: Manifest) -> Iterator[Reference]:
    config = as_dict(volume.get("configMap"))
    secret = as_dict(volume.get("secret"))
    claim = as_dict(volume.get("persistentVolumeClaim"))
    yield from _source("ConfigMap", config, str(config.get("name") or ""))
    yield from _source("Secret", secret, str(secret.get("secretName") or secret.get("name") or ""))
    yield from _source("PersistentVolumeClaim", claim, str(claim.get("claimName") or ""))
    for source in as_list(dig(volume, "projected", "sources")):
        yield from _sources(as_dict(source))


def _source(kind: str, source: Manifest, name: str) -> Iterator[Reference]:
    if not source:
        return
    optional = bool(source.get("optional"))
    items = [str(i.get("key") or "") for i in as_list(source.get("items")) if isinstance(i, dict)]
    for key in items or [""]:
        yield Reference(kind, name, key, "volume", optional)


def _mounts(spec: Manifest) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for container in containers_of(spec):
        for mount in as_list(container.get("volumeMounts")):
            entry = as_dict(mount)
            place = (str(entry.get("mountPath") or ""), str(entry.get("subPath") or ""))
            found.setdefault(str(entry.get("name") or ""), []).append(place)
    return found


def _env_references(container: Manifest) -> Iterator[Reference]:
    for entry in as_list(container.get("env")):
        source = as_dict(dig(entry, "valueFrom"))
        for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            part = as_dict(source.get(field))
            if part:
                how = f"env {as_dict(entry).get('name')}"
                yield Reference(
                    kind,
                    str(part.get("name") or ""),
                    str(part.get("key") or ""),
                    how,
                    bool(part.get("optional")),
                )
    for entry in as_list(container.get("envFrom")):
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            part = as_dict(as_dict(entry).get(field))
            if part:
                yield Reference(kind, str(part.get("name") or ""), "", "envFrom", bool(part.get("optional")))


def env_values(spec: Manifest) -> dict[str, str]:
    """Plain environment values of all containers, redacted ones left out."""
    found: dict[str, str] = {}
    for container in containers_of(spec):
        for entry in as_list(container.get("env")):
            value = as_dict(entry).get("value")
            if isinstance(value, str) and value and not value.startswith("[REDACTED"):
                found[str(as_dict(entry).get("name") or "")] = value
    return found


def command_text(spec: Manifest) -> str:
    """Commands and arguments of all containers on one line each."""
    lines = []
    for container in containers_of(spec):
        words = [str(w) for w in [*as_list(container.get("command")), *as_list(container.get("args"))]]
        if words:
            lines.append(" ".join(words))
    return "\n".join(lines)


def condition(manifest: Manifest, kind: str) -> Manifest:
    """The status condition of that type; empty when it is not there."""
    for entry in as_list(dig(manifest, "status", "conditions")):
        if isinstance(entry, dict) and entry.get("type") == kind:
            return entry
    return {}


def labels_of(manifest: Manifest) -> dict[str, str]:
    """Labels, as text."""
    return {str(k): str(v) for k, v in as_dict(dig(manifest, "metadata", "labels")).items()}


def annotations_of(manifest: Manifest) -> dict[str, str]:
    """Annotations, as text."""
    return {str(k): str(v) for k, v in as_dict(dig(manifest, "metadata", "annotations")).items()}


def selects(selector: object, labels: dict[str, str]) -> bool:
    """Whether a label selector (`matchLabels`, `matchExpressions`; `{}` is all, None is nothing) takes the labels."""
    if not isinstance(selector, dict):
        return False
    if any(labels.get(str(k)) != str(v) for k, v in as_dict(selector.get("matchLabels")).items()):
        return False
    return all(_expression(as_dict(e), labels) for e in as_list(selector.get("matchExpressions")))


def _expression(entry: Manifest, labels: dict[str, str]) -> bool:
    value, values = labels.get(str(entry.get("key"))), [str(v) for v in as_list(entry.get("values"))]
    verdicts = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return verdicts.get(str(entry.get("operator")), False)
