"""Treats objects as the API server does when they are written: refused, or stored without unknown fields.

Somebody wrote the snapshot by hand; an object that no API server would have stored is a mistake in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from worker.domain.cluster.fields import mapping, meta, name_of, text
from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_files import SnapshotError
from worker.sandbox.cluster_kinds import ResourceTable, status_fields
from worker.sandbox.cluster_selectors import LABEL_VALUE

MAX_LABEL_CHARS = 63
KEY = re.compile(
    r"(?:(?P<prefix>[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)/)?(?P<name>[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)"
)


def admitted(objects: Iterable[Manifest]) -> list[Manifest]:
    """The objects as they are stored. Raises SnapshotError for those that are refused."""
    known = list(objects)
    table = ResourceTable(known)
    for manifest in known:
        kind = text(manifest.get("kind"))
        for why in _refusals(manifest, namespaced=table.of(manifest["apiVersion"], kind).namespaced):
            raise SnapshotError(f'{kind} "{name_of(manifest)}" is invalid: {why}')
    return [_stored(manifest) for manifest in known]


def _refusals(manifest: Manifest, *, namespaced: bool) -> Iterator[str]:
    if not namespaced and meta(manifest).get("namespace"):
        yield "metadata.namespace: Forbidden: not allowed on this type"
    for key, value in mapping(meta(manifest).get("labels")).items():
        name = KEY.fullmatch(key)
        if not name or len(name["name"]) > MAX_LABEL_CHARS:
            yield f'metadata.labels: Invalid value: "{key}": name part must be no more than 63 characters'
        if not isinstance(value, str):
            yield f"metadata.labels: Invalid value: {value!r}: not a string"
        elif len(value) > MAX_LABEL_CHARS:
            yield f'metadata.labels: Invalid value: "{value}": must be no more than 63 characters'
        elif not LABEL_VALUE.fullmatch(value):
            yield f'metadata.labels: Invalid value: "{value}": a valid label must consist of alphanumeric characters'


def _stored(manifest: Manifest) -> Manifest:
    """Without the fields of the status that its kind does not have."""
    known = status_fields()
    status_type = known["kinds"].get(f"{manifest['apiVersion']}/{manifest['kind']}")
    if status_type is None or "status" not in manifest:
        return manifest
    return {**manifest, "status": _known(manifest["status"], status_type, known["types"])}


def _known(value: Any, name: str, types: dict[str, dict[str, str]]) -> Any:
    if isinstance(value, list):
        return [_known(item, name, types) for item in value]
    if not name or not isinstance(value, dict):
        return value
    fields = types[name]
    return {key: _known(item, fields[key], types) for key, item in value.items() if key in fields}
