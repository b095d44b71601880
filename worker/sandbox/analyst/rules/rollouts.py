"""What changed last in a workload: the pod templates of two revisions, compared."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from worker.domain.cluster.quantities import seconds_between
from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.refs import as_dict, controller_of, dig
from worker.sandbox.analyst.rules.case import short
from worker.sandbox.analyst.shapes import annotations_of

REVISION = "deployment.kubernetes.io/revision"
IGNORED = frozenset({"pod-template-hash", "kubectl.kubernetes.io/restartedAt", "creationTimestamp"})
AGAINST = re.compile(
    r"revision (?P<revision>\d+) \(\w+ \S+, created (?P<at>\S*?)(?:, (?P<ready>\d+/\d+ ready|scaled to 0))?\) against "
    r"revision (?P<before>\d+) \(\w+ \S+, created (?P<before_at>\S*?)(?:, (?P<old>\d+/\d+ ready|scaled to 0))?\):"
)
CHANGED = re.compile(r"^  (?P<path>[^ ]+): (?P<old>.*?) -> (?P<new>.*)$")
SETTLED_SECONDS = 600
RECENT_SECONDS = 24 * 3600
MAX_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between the present revision and the one before.

    `parts` are (path, old, new). `healthy_before` is True when the revision before still runs or ran for long, None
    when nothing is known about it.
    """

    revision: str
    before: str
    at: str
    parts: tuple[tuple[str, str, str], ...]
    healthy_before: bool | None
    revisions: int

    def touches(self, *words: str) -> bool:
        """Whether a changed path holds one of the words."""
        return any(word.lower() in path.lower() for path, _, _ in self.parts for word in words)

    def told(self) -> str:
        """The change in words, with values."""
        shown = [f"{path} {old or 'unset'} -> {new or 'unset'}" for path, old, new in self.parts[:MAX_SHOWN]]
        return f"revision {self.revision} changed {'; '.join(shown)}" if shown else ""


def last_change(facts: Facts, workload: ObjectRef) -> Change | None:
    """How the newest revision of a workload differs from the one before; None when there is only one or none known.

    The worker's first look describes changes of the alerted workload, whatever its kind; for other Deployments the
    ReplicaSets are compared here.
    """
    told = facts.changes.get(str(workload))
    if told is not None:
        return _from_lines(facts, told)
    if workload.kind != "Deployment":
        return None
    manifest = facts.of(workload)
    if manifest is not None and annotations_of(manifest).get(REVISION, "") in {"", "1"}:
        return None
    sets = _replica_sets(facts, workload, ask=manifest is not None)
    if len(sets) < 2:
        return None
    new, old = sets[0], sets[1]
    if not _matters(facts, new, old):
        return None
    parts = tuple(_differences(_template(old), _template(new)))
    return Change(
        revision=annotations_of(new).get(REVISION, ""),
        before=annotations_of(old).get(REVISION, ""),
        at=str(dig(new, "metadata", "creationTimestamp") or ""),
        parts=parts,
        healthy_before=_was_healthy(old, new),
        revisions=len(sets),
    )


def _from_lines(facts: Facts, lines: tuple[str, ...]) -> Change | None:
    """The newest change as the worker's first look describes it."""
    head = AGAINST.match(lines[0]) if lines else None
    if head is None:
        return None
    age = seconds_between(head["at"], facts.incident.received)
    stuck = (
        (head["ready"] or "").startswith("0/")
        and bool(head["old"])
        and not (head["old"] or "").startswith(("0/", "scaled"))
    )
    if age is not None and age >= RECENT_SECONDS and not stuck:
        return None
    parts = []
    for line in lines[1:]:
        match = CHANGED.match(line)
        if match is None:
            break
        if not any(word in match["path"] for word in IGNORED):
            old, new = (v if v != "(none)" else "" for v in (match["old"], match["new"]))
            parts.append((_shortened(match["path"]), short(old, 90), short(new, 90)))
    lived = seconds_between(head["before_at"], head["at"])
    healthy = (
        True
        if (head["old"] and not head["old"].startswith(("0/", "scaled"))) or (lived or 0) >= SETTLED_SECONDS
        else None
    )
    count = 1 + sum(1 for line in lines if AGAINST.match(line))
    return Change(head["revision"], head["before"], head["at"], tuple(parts), healthy, count)


def _matters(facts: Facts, new: Manifest, old: Manifest) -> bool:
    """Whether the rollout is recent enough to explain an incident, or has been stuck since."""
    age = seconds_between(dig(new, "metadata", "creationTimestamp"), facts.incident.received)
    if age is None or age < RECENT_SECONDS:
        return True
    return not dig(new, "status", "readyReplicas") and bool(dig(old, "status", "readyReplicas"))


def revisions(facts: Facts, workload: ObjectRef) -> list[Manifest]:
    """Known ReplicaSets of a Deployment, newest first; asks for nothing."""
    return _known_sets(facts, workload)


def only_revision(facts: Facts, workload: ObjectRef) -> bool:
    """Whether the workload is a Deployment that never had another revision."""
    manifest = facts.of(workload, ask=False)
    return bool(manifest) and annotations_of(manifest or {}).get(REVISION) == "1"


def _replica_sets(facts: Facts, workload: ObjectRef, *, ask: bool) -> list[Manifest]:
    rows = facts.rows("ReplicaSet", workload.namespace, ask=ask)
    named = [r for r in rows if r.get("NAME", "").rpartition("-")[0] == workload.name]
    named.sort(key=lambda r: _number(r.get("REVISION", "")), reverse=True)
    for row in named[:2] if len(named) > 1 else ():
        facts.get("ReplicaSet", row["NAME"], workload.namespace)
    return _known_sets(facts, workload)


def _known_sets(facts: Facts, workload: ObjectRef) -> list[Manifest]:
    found = []
    for manifest in facts.objects("ReplicaSet", workload.namespace):
        owner = controller_of(manifest)
        if owner and (owner.kind, owner.name) == (workload.kind, workload.name):
            found.append(manifest)
    return sorted(found, key=lambda m: _number(annotations_of(m).get(REVISION, "")), reverse=True)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _template(replica_set: Manifest) -> dict[str, Any]:
    return as_dict(dig(replica_set, "spec", "template"))


def _was_healthy(old: Manifest, new: Manifest) -> bool | None:
    ready = dig(old, "status", "readyReplicas")
    if isinstance(ready, int) and ready > 0:
        return True
    lived = seconds_between(
        dig(old, "metadata", "creationTimestamp"), dig(new, "metadata", "creationTimestamp")
    )
    return True if lived is not None and lived >= SETTLED_SECONDS else None


def _differences(old: Any, new: Any, path: str = "") -> list[tuple[str, str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted({*old, *new}):
            if key not in IGNORED:
                found += _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return found
    if isinstance(old, list) and isinstance(new, list) and _named(old) and _named(new):
        return _list_differences(old, new, path)
    return [] if old == new or _empty(old, new) else [(_shortened(path), _value(old), _value(new))]


def _empty(old: Any, new: Any) -> bool:
    return not old and not new


def _named(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(i, dict) and i.get("name") for i in items)


def _list_differences(old: list[Any], new: list[Any], path: str) -> list[tuple[str, str, str]]:
    before = {str(i["name"]): i for i in old}
    after = {str(i["name"]): i for i in new}
    found = []
    for name in sorted({*before, *after}):
        found += _differences(before.get(name), after.get(name), f"{path}[{name}]")
    return found


def _shortened(path: str) -> str:
    return path.removeprefix("spec.")


def _value(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return short(text, 90)


def changed_references(change: Change | None) -> list[str]:
    """New names of ConfigMaps and Secrets that the present revision refers to and the one before did not."""
    if change is None:
        return []
    return [new for path, old, new in change.parts if new and old and path.endswith((".name", ".secretName"))]


def replicas_wanted(manifest: Manifest) -> int | None:
    """`spec.replicas`, 1 when it is left out, None for kinds without it."""
    spec = as_dict(manifest.get("spec"))
    value = spec.get("replicas")
    if isinstance(value, int):
        return value
    return 1 if str(manifest.get("kind")) in {"Deployment", "StatefulSet", "ReplicaSet"} else None


def replicas_ready(manifest: Manifest) -> int:
    """Ready replicas as the status shows them."""
    status = as_dict(manifest.get("status"))
    for key in ("readyReplicas", "numberReady", "ready"):
        if isinstance(status.get(key), int):
            return int(status[key])
    return 0


def containers_changed(change: Change | None, field: str) -> tuple[str, str] | None:
    """Old and new value of the first changed path that ends with the field."""
    if change is None:
        return None
    return next(((old, new) for path, old, new in change.parts if path.endswith(field)), None)
