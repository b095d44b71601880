"""The objects that a pod refers to by name: ConfigMaps, Secrets and claims (Kubernetes API, PodSpec)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.domain.cluster.fields import dig, mapping, mappings, text
from worker.domain.cluster.rendering.prune import is_token_volume


@dataclass(frozen=True, slots=True)
class References:
    """Names by kind, each once, in the order of the spec. `optional` holds those a pod can start without."""

    config_maps: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    optional: frozenset[str] = field(default=frozenset())


def references_of(pod_spec: Mapping[str, Any], pod: str = "") -> References:
    """All objects that a pod spec names in volumes, environment and pull secrets.

    `pod` is the name of the pod: the claims of its generic ephemeral volumes are named after it.
    """
    found: dict[str, dict[str, bool]] = {"configMap": {}, "secret": {}, "claim": {}}
    for kind, name, optional in _mentions(pod_spec, pod):
        if name:
            found[kind][name] = found[kind].get(name, True) and optional
    optional_names = {n for names in found.values() for n, optional in names.items() if optional}
    return References(
        tuple(found["configMap"]), tuple(found["secret"]), tuple(found["claim"]), frozenset(optional_names)
    )


def _mentions(pod_spec: Mapping[str, Any], pod: str) -> Iterator[tuple[str, str, bool]]:
    for volume in mappings(pod_spec.get("volumes")):
        if is_token_volume(volume):
            continue
        yield "claim", text(dig(volume, "persistentVolumeClaim", "claimName")), False
        if pod and "ephemeral" in volume:
            yield "claim", f"{pod}-{text(volume.get('name'))}", False
        sources = [volume, *mappings(dig(volume, "projected", "sources"))]
        for source in sources:
            config, secret = mapping(source.get("configMap")), mapping(source.get("secret"))
            yield "configMap", text(config.get("name")), config.get("optional") is True
            yield (
                "secret",
                text(secret.get("secretName")) or text(secret.get("name")),
                secret.get("optional") is True,
            )
    for pull in mappings(pod_spec.get("imagePullSecrets")):
        yield "secret", text(pull.get("name")), False
    for container in mappings(pod_spec.get("initContainers")) + mappings(pod_spec.get("containers")):
        yield from _environment(container)


def _environment(container: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    refs = [(mapping(e), "Ref") for e in mappings(container.get("envFrom"))]
    refs += [(mapping(e.get("valueFrom")), "KeyRef") for e in mappings(container.get("env"))]
    for holder, suffix in refs:
        for kind in ("configMap", "secret"):
            ref = mapping(holder.get(f"{kind}{suffix}"))
            yield kind, text(ref.get("name")), ref.get("optional") is True
