"""Reads fields of JSON that may hold anything, without ever raising.

An aggregated API, a broken controller or an attacker may put a list where the Kubernetes API documents an
object. A value of the wrong type counts as absent.
"""

from __future__ import annotations

import re
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any

from worker.domain.values.objects import Manifest, ObjectRef

MAX_TEXT = 4096  # characters of one value that is going to be shown or compared
UID_IN_TEXT = re.compile(r"\([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\)")
"""How the kubelet writes the uid of a pod behind its name, which is of no use to a reader."""


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def mappings(value: Any) -> list[dict[str, Any]]:
    """The JSON objects of an array; other items are left out."""
    return [item for item in sequence(value) if isinstance(item, dict)]


def text(value: Any) -> str:
    """A scalar as text (`true`, `3`), anything else as empty text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value) if abs(value) < 1e15 else f"{value:g}" if isinstance(value, float) else ""
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def whole(value: Any) -> int:
    """An integer of a sane size, else 0. Kubernetes counts are int32 or int64."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else 0


def port_number(value: Any) -> int:
    """A port that is written as a number or as digits; 0 for a name, or for anything that is not a port."""
    return int(str(value)) if re.fullmatch(r"[0-9]{1,5}", str(value)) else 0


def dig(value: Any, *path: str) -> Any:
    """The value under nested keys; None if one is missing."""
    for key in path:
        value = mapping(value).get(key)
    return value


def meta(manifest: Any) -> dict[str, Any]:
    """The metadata of an object."""
    return mapping(dig(manifest, "metadata"))


def name_of(manifest: Any) -> str:
    """The name of an object."""
    return text(meta(manifest).get("name"))


def pod_template(manifest: Any) -> dict[str, Any]:
    """The PodTemplateSpec from which a workload makes its pods.

    A CronJob has it in its Jobs.
    """
    if dig(manifest, "kind") == "CronJob":
        manifest = dig(manifest, "spec", "jobTemplate")
    return mapping(dig(manifest, "spec", "template"))


def without_managers(manifest: Manifest) -> Manifest:
    """The object without `metadata.managedFields`, half of what a long list of pods holds."""
    head = meta(manifest)
    if "managedFields" not in head:
        return manifest
    return {**manifest, "metadata": {key: head[key] for key in head if key != "managedFields"}}


def reference(manifest: Any) -> ObjectRef:
    """The reference to an object, with empty strings for missing parts."""
    head = meta(manifest)
    return ObjectRef(
        kind=text(dig(manifest, "kind")),
        name=text(head.get("name")),
        namespace=text(head.get("namespace")),
        api_version=text(dig(manifest, "apiVersion")),
        uid=text(head.get("uid")),
    )


def without_own_name(message: str, about: ObjectRef) -> str:
    """A message of kubelet or scheduler about a pod without the name of that pod, in the forms they write it."""
    name, home = about.name, about.namespace
    for form in (f" in pod {name}_{home}", f" pod={name}_{home}", f" {home}/{name}"):
        if form in message:  # and no longer name begins with it
            message = re.sub(rf"{re.escape(form)}(?![\w.-])", "", message)
    return message


def strings(value: Any) -> dict[str, str]:
    """A map of labels or annotations, without entries that are not text."""
    return {str(key): item for key, item in mapping(value).items() if isinstance(item, str)}


def controller_of(manifest: Manifest) -> dict[str, Any]:
    """The owner reference with `controller: true`, or an empty object (Kubernetes API, OwnerReference)."""
    owners = mappings(meta(manifest).get("ownerReferences"))
    return next((owner for owner in owners if owner.get("controller") is True), {})


def owner_of(manifest: Manifest) -> dict[str, Any]:
    """The owner reference of the controller; without a controller, the first one."""
    owners = mappings(meta(manifest).get("ownerReferences"))
    return controller_of(manifest) or next(iter(owners), {})


def referred(value: Any, namespace: str) -> ObjectRef:
    """The object in the namespace that another object refers to.

    Missing parts are empty strings.
    """
    found = mapping(value)
    return ObjectRef(
        text(found.get("kind")), text(found.get("name")), namespace, text(found.get("apiVersion"))
    )


def moment(value: Any) -> datetime | None:
    """A time of the Kubernetes API (RFC 3339), aware and in UTC; None for anything else.

    The first and the last year are no times: Go writes an unset time so, and nothing can be added to them.
    """
    if not isinstance(value, str) or not 10 <= len(value) <= 40:
        return None
    try:
        parsed = datetime.fromisoformat(value)
        found = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found if MINYEAR < found.year < MAXYEAR else None


def stamp(value: datetime) -> str:
    """A time as the Kubernetes API writes it: UTC, whole seconds."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(value: Any, now: datetime) -> str:
    """The age of a time of the API, as kubectl writes it (`45s`, `12m`, `3h20m`, `6d`); empty if unknown."""
    then = value if isinstance(value, datetime) else moment(value)
    if then is None:
        return ""
    seconds = int((now - then).total_seconds())
    if seconds < 0:
        return "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 2:
        return f"{seconds}s"
    if hours < 3:
        return f"{minutes}m"
    if hours < 48:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{days}d"
