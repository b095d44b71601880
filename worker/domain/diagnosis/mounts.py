"""Finds the ConfigMap, Secret or claim that a path of a container comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from worker.domain.cluster.fields import dig, mapping, mappings, reference, text
from worker.domain.diagnosis.structure import container_specs, pod_spec_of, ref_to, written_in
from worker.domain.values.objects import Manifest, ObjectRef

PATH = re.compile(r"(?<![\w.-])/(?:[\w.@+-]+/)*[\w.@+-]+")


@dataclass(frozen=True, slots=True)
class Mount:
    """An object and where a pod sees it: at a path, or as environment when the path is empty."""

    source: ObjectRef
    path: str = ""
    key: str = ""

    @property
    def where(self) -> str:
        """`mounted at /etc/app`, or `used as environment`."""
        return f"mounted at {self.path}" if self.path else "used as environment"


def mounts_of(pod: Manifest, *kinds: str) -> list[Mount]:
    """Every object of the kinds that the containers of a pod use."""
    spec, namespace = pod_spec_of(pod), reference(pod).namespace
    volumes = {text(v.get("name")): list(_sources(v)) for v in mappings(spec.get("volumes"))}
    found: list[Mount] = []
    for container in container_specs(spec):
        for mount in mappings(container.get("volumeMounts")):
            for kind, name, item in volumes.get(text(mount.get("name")), ()):
                key = text(mount.get("subPath")) or item
                found.append(Mount(ref_to(kind, name, namespace), text(mount.get("mountPath")), key))
        for kind, name, key in _environment(container):
            found.append(Mount(ref_to(kind, name, namespace), "", key))
    return [m for m in dict.fromkeys(found) if m.source.kind in kinds and m.source.name]


def _sources(volume: Manifest) -> Iterator[tuple[str, str, str]]:
    config, secret = mapping(volume.get("configMap")), mapping(volume.get("secret"))
    claim = text(dig(volume, "persistentVolumeClaim", "claimName"))
    if claim:
        yield "PersistentVolumeClaim", claim, ""
    for kind, source in (("ConfigMap", config), ("Secret", secret)):
        name = text(source.get("name")) or text(source.get("secretName"))
        keys = [text(item.get("key")) for item in mappings(source.get("items"))]
        for key in keys or [""]:
            yield kind, name, key
    for part in mappings(dig(volume, "projected", "sources")):
        yield from _sources(part)


def _environment(container: Manifest) -> Iterator[tuple[str, str, str]]:
    for entry in mappings(container.get("env")):
        for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            part = mapping(dig(entry, "valueFrom", field))
            yield kind, text(part.get("name")), text(part.get("key"))
    for entry in mappings(container.get("envFrom")):
        for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
            yield kind, text(dig(entry, field, "name")), ""


def covering(mounts: Iterable[Mount], message: str) -> Mount | None:
    """The mount with the longest path that covers a path in a message."""
    paths = PATH.findall(message)
    places = [(m, at) for m in mounts if (at := m.path.rstrip("/"))]
    fitting = [m for m, at in places if any(p == at or p.startswith(f"{at}/") for p in paths)]
    return max(fitting, key=lambda m: len(m.path), default=None)


def command_line(pod: Manifest) -> str:
    """Plain settings, commands and arguments of all containers, for a search of paths."""
    return "\n".join(written_in(pod_spec_of(pod)))
