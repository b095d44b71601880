"""Prunes objects of the Kubernetes API: bookkeeping and defaults of the API server are left out.

A field is left out if it is a default of the Kubernetes API reference in a built-in kind (api_types.py), or
bookkeeping (uids, versions, field ownership). Custom resources are shown as they are, except for their
metadata. Field ownership is folded into one fact, `metadata.lastChange`: who changed which fields of the
object last, and when.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from worker.domain.cluster.fields import (
    UID_IN_TEXT,
    dig,
    mapping,
    mappings,
    meta,
    reference,
    sequence,
    text,
    without_own_name,
)
from worker.domain.cluster.references import is_token_volume
from worker.domain.cluster.rendering import api_types
from worker.domain.untrusted.redaction.harmless import HIDDEN_ENV, HIDDEN_VALUE, harmless, secret_value
from worker.domain.values.objects import Manifest

MAX_DEPTH = 40
ORDER = ("apiVersion", "kind", "metadata", "spec", "data", "status")
DROPPED_META = {"uid", "resourceVersion", "selfLink", "managedFields", "generateName", "clusterName"}
DROPPED_ANNOTATIONS = {
    "kubectl.kubernetes.io/last-applied-configuration",
    "endpoints.kubernetes.io/last-change-trigger-time",
    "node.alpha.kubernetes.io/ttl",
    "volumes.kubernetes.io/controller-managed-attach-detach",
    "deprecated.daemonset.template.generation",
}
KEPT_OWNER = ("kind", "name", "controller", "apiVersion")
TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path, not a token
DEFAULT_TOLERATIONS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
SPEC_LISTS = ("initContainers", "containers", "ephemeralContainers")
STATUS_LISTS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
DIGEST = re.compile(r"sha256:[0-9a-f]{12}")
MAX_CHANGED = 5  # fields; a manager of more fields wrote the whole object
SPEAKING_REASONS = {
    "ContainersNotReady",
    "MinimumReplicasAvailable",
    "MinimumReplicasUnavailable",
    "NewReplicaSetAvailable",
}
"""Reasons of conditions whose message only repeats the reason and the rest of the status."""
EXPECTED_CONDITIONS = {"PodReadyToStartContainers", "Initialized", "PodScheduled", "ContainersReady"}
"""Conditions of a Pod that matter only if they are not True, besides Ready."""
MAX_ANNOTATION = 400  # characters


def prune(manifest: Manifest) -> Manifest:
    """A copy with the fields that a reader needs.

    Never raises, whatever the object contains; depth is bounded.

    Environment values that may be credentials and values under keys that name secrets are hidden. Values of
    Secrets are never passed on.
    """
    kind, known = text(manifest.get("kind")), api_types.type_of(manifest)
    pruned: dict[str, Any] = {}
    for key, value in manifest.items():
        if key == "metadata":
            pruned["metadata"] = _metadata(value)
        elif key in {"data", "stringData", "binaryData"}:
            pruned[key] = _data(kind, key, value)
        else:
            shown = _value(str(key), value, 1, known.child(str(key)))
            if shown is not None:
                pruned[str(key)] = shown
    if known is api_types.TYPES["Pod"]:
        _prune_pod_status(pruned)
    elif known is not api_types.UNTYPED:
        _prune_status(pruned)
    return {key: pruned[key] for key in sorted(pruned, key=_order)}


def _order(key: str) -> int:
    return ORDER.index(key) if key in ORDER else len(ORDER)


def _prune_status(pruned: dict[str, Any]) -> None:
    """Drop the generation if the controller has seen it, and messages that only repeat their reason."""
    metadata, status = mapping(pruned.get("metadata")), mapping(pruned.get("status"))
    if metadata.get("generation") is not None and metadata["generation"] == status.get("observedGeneration"):
        del metadata["generation"], status["observedGeneration"]
    _without_messages(status)


def _without_messages(status: dict[str, Any]) -> None:
    for condition in mappings(status.get("conditions")):
        if text(condition.get("reason")) in SPEAKING_REASONS:
            condition.pop("message", None)


def _prune_pod_status(pruned: dict[str, Any]) -> None:
    """Drop conditions, names and images of containers that occur elsewhere in the object, too."""
    about, status = reference(pruned), mapping(pruned.get("status"))
    if "conditions" in status:
        status["conditions"] = _telling(sequence(status["conditions"]))
        _without_messages(status)
    specs = [c for name in SPEC_LISTS for c in mappings(dig(pruned, "spec", name))]
    images = {text(spec.get("name")): spec.get("image") for spec in specs}
    moved = same_tag_differs([status])
    for container in (c for name in STATUS_LISTS for c in mappings(status.get(name))):
        if not moved:
            container.pop("imageID", None)
            if container.get("image") == images.get(text(container.get("name"))):
                container.pop("image", None)
        waiting = mapping(dig(container, "state", "waiting"))
        if isinstance(waiting.get("message"), str):
            waiting["message"] = without_own_name(waiting["message"], about)


def same_tag_differs(statuses: Iterable[Any]) -> bool:
    """True if two containers of these pods run different images under the same name: a tag that was moved."""
    digests: dict[str, set[str]] = {}
    for status in statuses:
        for container in (c for name in STATUS_LISTS for c in mappings(mapping(status).get(name))):
            if digest := image_digest(container):
                digests.setdefault(text(container.get("image")), set()).add(digest)
    return any(len(found) > 1 for found in digests.values())


def image_digest(container: Any) -> str:
    """The start of the digest in a ContainerStatus, as `sha256:0123456789ab`; empty if it has none."""
    found = DIGEST.search(text(mapping(container).get("imageID")))
    return found[0] if found else ""


def _telling(conditions: list[Any]) -> list[Any]:
    """Conditions of a Pod, without those that add nothing to Ready."""
    ready = next((c for c in mappings(conditions) if c.get("type") == "Ready"), {})
    same = ("status", "reason", "message")
    return [
        c
        for c in conditions
        if not (mapping(c).get("status") == "True" and text(mapping(c).get("type")) in EXPECTED_CONDITIONS)
        and not (
            mapping(c).get("type") == "ContainersReady"
            and all(mapping(c).get(f) == ready.get(f) for f in same)
        )
    ]


def _metadata(value: Any, depth: int = 1) -> Any:
    if not isinstance(value, dict):
        return _value("metadata", value, depth)
    kept: dict[str, Any] = {key: value[key] for key in ("name", "namespace") if value.get(key) is not None}
    for key, item in value.items():
        if key in DROPPED_META or key in kept or item is None:
            continue
        if key == "annotations" and isinstance(item, dict):
            kept[key] = {str(k): _annotation(v) for k, v in item.items() if k not in DROPPED_ANNOTATIONS}
            if not kept[key]:
                del kept[key]
        elif key == "ownerReferences" and isinstance(item, list):
            kept[key] = [{k: owner[k] for k in KEPT_OWNER if owner.get(k)} for owner in mappings(item)]
        else:
            kept[str(key)] = _value(str(key), item, depth + 1)
    if change := last_change({"metadata": value}):
        kept["lastChange"] = change
    return kept


def _annotation(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_ANNOTATION:
        return f"{value[:MAX_ANNOTATION]}…[{len(value) - MAX_ANNOTATION} characters cut]"
    return _value("", value, MAX_DEPTH - 4)


def last_change(manifest: Manifest) -> dict[str, str]:
    """Who last changed the object itself (not its status), when and where: `by`, `at`, `fields`.

    From server-side field management (Kubernetes API, ManagedFieldsEntry). Empty if unknown, or not since its
    creation.
    """
    entries = [
        entry
        for entry in mappings(mapping(manifest.get("metadata")).get("managedFields"))
        if not entry.get("subresource") and text(entry.get("time"))
    ]
    if not entries:
        return {}
    newest = max(entries, key=lambda entry: text(entry.get("time")))
    if text(newest.get("time")) == text(meta(manifest).get("creationTimestamp")):
        return {}
    names = sorted(_changed_fields(newest.get("fieldsV1"), "", 0))
    found = {
        "by": text(newest.get("manager")),
        "at": text(newest.get("time")),
        "fields": ", ".join(names) if len(names) <= MAX_CHANGED else "",
    }
    return {key: value for key, value in found.items() if value}


def _changed_fields(value: Any, prefix: str, depth: int) -> list[str]:
    children = [(str(k), v) for k, v in mapping(value).items() if str(k).startswith("f:")]
    if not children or depth >= 3:
        return [prefix] if prefix else []
    found: list[str] = []
    for key, item in children[:20]:
        found += _changed_fields(item, f"{prefix}.{key[2:]}" if prefix else key[2:], depth + 1)
    return found


def _data(kind: str, field: str, value: Any) -> Any:
    """Data of a ConfigMap; of anything that calls itself a Secret, only the names of the keys."""
    if not isinstance(value, dict):
        return None
    if kind != "ConfigMap":
        hide = kind.lower() == "secret" or field == "stringData"
        return dict.fromkeys(map(str, value), HIDDEN_VALUE) if hide else _value(field, value, 1)
    if field == "binaryData":
        return {str(key): f"[{len(text(item))} characters of base64]" for key, item in value.items()}
    return {str(key): _config_value(str(key), item) for key, item in value.items()}


def _config_value(key: str, value: Any) -> Any:
    if isinstance(value, str) and "\n" not in value and secret_value(key, value):
        return HIDDEN_VALUE
    return _value(key, value, 2)


def _value(key: str, value: Any, depth: int, known: api_types.ApiType = api_types.UNTYPED) -> Any:
    if depth > MAX_DEPTH:
        return "[nested too deeply]"
    if known is api_types.META:
        return _metadata(value, depth)
    if isinstance(value, dict):
        return _object(value, depth, known)
    if isinstance(value, list):
        return _list(key, value, depth, known)
    if isinstance(value, str):
        return UID_IN_TEXT.sub("", value)
    return value if isinstance(value, int | float | bool) or value is None else str(value)


def _object(value: dict[Any, Any], depth: int, known: api_types.ApiType) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, item in value.items():
        field = str(name)
        shown = _filtered(field, item, known) if isinstance(item, list) else item
        if shown is None or not known.shows(field, shown) or (shown == [] and item != []):
            continue
        if (
            known is api_types.POD_SPEC
            and field == "serviceAccount"
            and item == value.get("serviceAccountName")
        ):
            continue
        kept[field] = _value(field, shown, depth + 1, known.child(field))
    return kept


def _filtered(field: str, value: list[Any], known: api_types.ApiType) -> list[Any]:
    """An array without the elements that every pod gets."""
    if known is api_types.POD_SPEC and field == "tolerations":
        return [item for item in value if not _default_toleration(item)]
    if known is api_types.POD_SPEC and field == "volumes":
        return [item for item in value if not is_token_volume(item)]
    if known is api_types.CONTAINER and field == "volumeMounts":
        return [item for item in value if mapping(item).get("mountPath") != TOKEN_MOUNT]
    return value


def _list(key: str, value: list[Any], depth: int, known: api_types.ApiType) -> list[Any]:
    if key == "env":
        return [_env(item, depth) for item in value]
    return [_value("", item, depth + 1, known) for item in value]


def _env(item: Any, depth: int) -> Any:
    if not isinstance(item, dict):
        return _value("", item, depth + 1)
    shown = {k: _value(k, v, depth + 1) for k, v in item.items() if k != "value"}
    value = item.get("value")
    if value is not None:
        plain = text(value)
        shown["value"] = plain if harmless(text(item.get("name")), plain) else HIDDEN_ENV
    return shown


def _default_toleration(item: Any) -> bool:
    toleration = mapping(item)
    return text(toleration.get("key")) in DEFAULT_TOLERATIONS and toleration.get("tolerationSeconds") == 300
