"""The snapshot cluster without HTTP: the answers of the API to get, list and log requests."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.domain.cluster.fields import dig, mapping
from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_admission import admitted
from worker.sandbox.cluster_failure import ApiFailure, bad_request
from worker.sandbox.cluster_files import LogKey, find_logs, read_objects
from worker.sandbox.cluster_kinds import Resource, ResourceTable
from worker.sandbox.cluster_logs import LogOptions, container_of, cut, instance_without_log, shares_log
from worker.sandbox.cluster_selectors import field_test, label_test

MAX_LOG_BYTES = 64 * 1024 * 1024
START_RESOURCE_VERSION = 1000

Key = tuple[str, str]
"""Namespace (empty for cluster scope) and name."""

# Events have two API forms, which are views of the same objects. Names of fields: in core/v1, in
# events.k8s.io/v1.
CORE, GROUPED = "v1", "events.k8s.io/v1"
RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
RENAMED_BACK = {grouped: core for core, grouped in RENAMED.items()}


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Query of a list. A limit of 0 means everything; `start` is the token of the page before."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    start: str = ""


class Snapshot:
    """Objects and logs of one moment. Answers hold the stored objects themselves: do not change them."""

    def __init__(
        self, objects: Iterable[Manifest], logs: Mapping[LogKey, Path | bytes] | None = None
    ) -> None:
        known = [to_core(o) if (o["apiVersion"], o["kind"]) == (GROUPED, "Event") else o for o in objects]
        self.resources = ResourceTable(known)
        self._objects: dict[Resource, dict[Key, Manifest]] = {}
        self._logs = dict(logs or {})
        for manifest in known:
            self._store(manifest)
        events = self._objects.get(self.resources.of(CORE, "Event"), {})
        grouped = {key: to_grouped(event) for key, event in events.items()}
        self._objects[self.resources.of(GROUPED, "Event")] = grouped
        self._version = str(max([START_RESOURCE_VERSION, *map(_resource_version, known)]))

    @classmethod
    def read(cls, directory: Path) -> Snapshot:
        """The snapshot in a directory. Raises SnapshotError."""
        return cls(admitted(read_objects(directory)), find_logs(directory))

    def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        """One object. Raises ApiFailure 404."""
        found = self._objects.get(resource, {}).get((namespace, name))
        if found is None:
            message = f'{resource.qualified} "{name}" not found'
            raise ApiFailure(404, message, name=name, group=resource.group, kind=resource.plural)
        return found

    def list(self, resource: Resource, options: ListOptions) -> dict[str, Any]:
        """One page as the API's list object, in the order of the keys in etcd.

        As in the real API, built-in items come without kind and apiVersion.

        Raises ApiFailure 400 for a selector or a token that cannot be read.
        """
        labels = label_test(options.label_selector)
        fields = field_test(
            options.field_selector,
            resource.qualified,
            namespaced=resource.namespaced,
            selectable=resource.selectable,
        )
        start = _read_token(options.start)
        found = [
            (key, manifest)
            for key, manifest in sorted(
                self._objects.get(resource, {}).items(), key=lambda item: "/".join(item[0])
            )
            if (not start or "/".join(key) > "/".join(start))
            and options.namespace in {"", key[0]}
            and labels(_labels(manifest))
            and fields(manifest)
        ]
        page = found[: options.limit] if options.limit else found
        metadata: dict[str, Any] = {"resourceVersion": self._version}
        if len(page) < len(found):
            metadata["continue"] = _token(page[-1][0])
            if not options.label_selector and not options.field_selector:
                metadata["remainingItemCount"] = len(found) - len(page)
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": [_item(resource, manifest) for _, manifest in page],
        }

    def log(self, namespace: str, pod_name: str, options: LogOptions) -> bytes:
        """The log of a container. Raises ApiFailure 404 for the pod, 400 if the container has no log."""
        pod = self.get(self.resources.of("v1", "Pod"), namespace, pod_name)
        container = container_of(pod, options.container)
        text = self._log(namespace, pod_name, container, previous=options.previous)
        if text is None and shares_log(pod, container):
            text = self._log(namespace, pod_name, container, previous=not options.previous)
        if text is None:
            if not dig(pod, "spec", "nodeName"):
                return b""
            failure = instance_without_log(pod, container, previous=options.previous)
            if failure:
                raise failure
        return cut(text or b"", options)

    def _log(self, namespace: str, pod: str, container: str, *, previous: bool) -> bytes | None:
        source = self._logs.get((namespace, pod, container, previous))
        if not isinstance(source, Path):
            return source
        with source.open("rb") as file:
            file.seek(max(0, source.stat().st_size - MAX_LOG_BYTES))
            return file.read(MAX_LOG_BYTES)

    def _store(self, manifest: Manifest) -> None:
        resource = self.resources.of(manifest["apiVersion"], manifest["kind"])
        metadata = manifest["metadata"]
        namespace = str(metadata.get("namespace") or "")
        if resource.namespaced and not namespace:
            namespace = "default"
            manifest = {**manifest, "metadata": {**metadata, "namespace": namespace}}
        key = (namespace if resource.namespaced else "", metadata["name"])
        self._objects.setdefault(resource, {})[key] = manifest


def _item(resource: Resource, manifest: Manifest) -> Manifest:
    if not resource.built_in:
        return manifest
    return {key: value for key, value in manifest.items() if key not in {"kind", "apiVersion"}}


def _labels(manifest: Manifest) -> Mapping[str, str]:
    return {key: str(value) for key, value in mapping(manifest["metadata"].get("labels")).items()}


def _resource_version(manifest: Manifest) -> int:
    text = str(manifest["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def _token(last: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps({"v": "meta.k8s.io/v1", "start": last}).encode()).decode()


def _read_token(token: str) -> Key | None:
    if not token:
        return None
    try:
        namespace, name = json.loads(base64.urlsafe_b64decode(token.encode()))["start"]
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {type(error).__name__}") from error
    return str(namespace), str(name)


def to_grouped(event: Manifest) -> Manifest:
    """A core/v1 Event as events.k8s.io/v1 shows it."""
    return {**_rename(event, RENAMED), "apiVersion": GROUPED}


def to_core(event: Manifest) -> Manifest:
    """An events.k8s.io/v1 Event as core/v1 shows it."""
    core = {**_rename(event, RENAMED_BACK), "apiVersion": CORE}
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        core.setdefault(name, None)
    core.setdefault("source", {})
    return core


def _rename(event: Manifest, names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in event.items()}
