"""Structured facts about objects, for a reader that must not see free text.

It contains only names, enumerated states, reasons in CamelCase, numbers and times: no message, annotation,
label value, data of a ConfigMap, value of an environment variable, image or command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from worker.domain.cluster.conditions import condition
from worker.domain.cluster.fields import dig, mapping, mappings, moment, reference, stamp, text, whole
from worker.domain.cluster.pods import Container, containers
from worker.domain.cluster.quantities import quantity
from worker.domain.diagnosis.causes import named
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.structure import changed, created, owner_of
from worker.domain.values.objects import Listing, Manifest

MAX_OBJECTS = 80
WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")
NUMBERS = (
    "replicas", "readyReplicas", "updatedReplicas", "unavailableReplicas", "currentReplicas", "desiredReplicas", "active",
    "failed", "succeeded", "disruptionsAllowed", "currentHealthy", "desiredHealthy",
)  # fmt: skip
SKIPPED = frozenset({"Event", "Namespace"})


def digest(facts: ClusterFacts) -> list[dict[str, Any]]:
    """The facts about each object that was read, unhealthy ones first, at most 80 of them."""
    found = [_object(manifest) for manifest in _manifests(facts)]
    found.sort(key=lambda o: ("conditions" not in o and "containers" not in o, str(o["name"])))
    return found[:MAX_OBJECTS]


def _manifests(facts: ClusterFacts) -> Iterable[Manifest]:
    found: dict[tuple[str, str, str], Manifest] = {}
    for answer in facts.answers.values():
        items = answer.items if isinstance(answer, Listing) else [answer] if isinstance(answer, dict) else []
        for ref, manifest in ((reference(item), item) for item in items):
            if ref.kind not in SKIPPED:
                found.setdefault(named(ref), manifest)
    return found.values()


def _object(manifest: Manifest) -> dict[str, Any]:
    ref, status = reference(manifest), mapping(manifest.get("status"))
    owner, at = owner_of(manifest), changed(manifest) or created(manifest)
    shown: dict[str, Any] = {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}
    shown |= {"owner": f"{owner.kind}/{owner.name}"} if owner else {}
    shown |= {"changed": stamp(at)} if at else {}
    shown |= {"phase": word} if (word := _word(status.get("phase"))) else {}
    shown |= {"reason": word} if (word := _word(status.get("reason"))) else {}
    wanted = dig(manifest, "spec", "replicas")
    shown |= {"wanted": wanted} if isinstance(wanted, int) else {}
    shown |= {name: status[name] for name in NUMBERS if isinstance(status.get(name), int)}
    conditions = [found for c in mappings(status.get("conditions")) if (found := _condition(manifest, c))]
    shown |= {"conditions": conditions} if conditions else {}
    bad = [_container(c) for c in containers(manifest) if c.failing or c.last] if ref.kind == "Pod" else []
    return shown | ({"containers": bad} if bad else {})


def _condition(manifest: Manifest, entry: dict[str, Any]) -> dict[str, str] | None:
    """A condition by its type, status, reason and time; None if it is malformed."""
    kind = _word(entry.get("type"))
    if not kind or condition(manifest, kind) is not entry:
        return None
    at = moment(entry.get("lastTransitionTime"))
    shown = {"type": kind, "status": _word(entry.get("status")), "reason": _word(entry.get("reason"))}
    return shown | ({"since": stamp(at)} if at else {})


def _container(container: Container) -> dict[str, Any]:
    ended = container.terminated or container.last
    limits = mapping(dig(container.spec, "resources", "limits"))
    return {
        "name": container.name,
        "ready": container.ready,
        "restarts": container.restarts,
        "waiting": _word(container.waiting.get("reason")),
        "ended": _word(ended.get("reason")),
        "exit_code": whole(ended.get("exitCode")) if ended else None,
        "limits": {name: text(value) for name, value in limits.items() if quantity(value) is not None},
    }


def _word(value: Any) -> str:
    found = text(value)
    return found if WORD.fullmatch(found) else ""
