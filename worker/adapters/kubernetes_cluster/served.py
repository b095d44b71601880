"""Reads the served resources from both forms of discovery documents: one per group version, and aggregated.

Shapes follow APIResourceList and APIGroupList (meta/v1), and APIGroupDiscoveryList (apidiscovery.k8s.io/v2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from worker.adapters.kubernetes_cluster.paths import GROUP, LABEL
from worker.domain.cluster.fields import dig, mappings, name_of, sequence
from worker.domain.values.objects import KindInfo, Manifest

JSON = "application/json"
AGGREGATED = ",".join(
    f"{JSON};g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")
)
"""Media types of aggregated discovery, in `Accept` with plain JSON behind them: servers before 1.26 lack it.
"""
KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
MAX_GROUPS = 256


@dataclass(frozen=True, slots=True)
class Served:
    """One resource that can be read, and its names in lower case."""

    info: KindInfo
    names: frozenset[str]
    short_names: frozenset[str]


@dataclass(frozen=True, slots=True)
class ServedGroup:
    """Resources of one API group by version, the preferred version first.

    `silent` versions did not list theirs.
    """

    versions: tuple[tuple[Served, ...], ...]
    silent: tuple[str, ...] = ()


def group_versions(group: Manifest) -> list[str]:
    """Group versions that an APIGroup lists, the preferred one first."""
    entries: list[Any] = [group.get("preferredVersion"), *mappings(group.get("versions"))]
    names = (entry.get("groupVersion") for entry in entries if isinstance(entry, dict))
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def resource_list(document: Manifest, api_version: str) -> tuple[Served, ...]:
    """The resources of an APIResourceList that can be read."""
    entries = [_served(resource, api_version) for resource in mappings(document.get("resources"))]
    return tuple(entry for entry in entries if entry)


def aggregated_groups(document: Manifest) -> list[ServedGroup] | None:
    """The groups of an APIGroupDiscoveryList; None for a document of another form.

    A `Stale` version belongs to an aggregated API that does not answer; its last known resources are listed.
    """
    if document.get("kind") != "APIGroupDiscoveryList":
        return None
    return [_group(item) for item in mappings(document.get("items"))[:MAX_GROUPS]]


def _group(item: Manifest) -> ServedGroup:
    name = name_of(item)
    versions: list[tuple[Served, ...]] = []
    silent: list[str] = []
    for version in mappings(item.get("versions")):
        label = str(version.get("version"))
        if not LABEL.fullmatch(label) or (name and not GROUP.fullmatch(name)):
            continue
        api_version = f"{name}/{label}" if name else label
        resources = [_aggregated(entry, api_version) for entry in mappings(version.get("resources"))]
        versions.append(tuple(entry for entry in resources if entry))
        if version.get("freshness") == "Stale":
            silent.append(api_version)
    return ServedGroup(tuple(versions), tuple(silent))


def _aggregated(entry: Manifest, api_version: str) -> Served | None:
    """An APIResourceDiscovery, read as the APIResource it stands for."""
    resource = {
        **entry,
        "name": entry.get("resource"),
        "kind": dig(entry, "responseKind", "kind"),
        "namespaced": entry.get("scope") == "Namespaced",
        "singularName": entry.get("singularResource"),
    }
    return _served(resource, api_version)


def _served(resource: Manifest, api_version: str) -> Served | None:
    """An APIResource that can be read; subresources are left out."""
    plural, kind = str(resource.get("name")), str(resource.get("kind"))
    if not (LABEL.fullmatch(plural) and KIND.fullmatch(kind)):
        return None
    if not {"get", "list"} & set(_texts(resource.get("verbs"))):
        return None
    info = KindInfo(kind, api_version, plural, namespaced=resource.get("namespaced") is True)
    return Served(
        info,
        names=frozenset({kind.lower(), plural, str(resource.get("singularName"))}),
        short_names=frozenset(_texts(resource.get("shortNames"))),
    )


def matching(wanted: str, served: Iterable[Served]) -> list[KindInfo]:
    """The matching kinds.

    Full names take precedence over short ones, and the first version of a group over the others.
    """
    entries = list(served)
    found = [entry.info for entry in entries if wanted in entry.names]
    found = found or [entry.info for entry in entries if wanted in entry.short_names]
    by_group = {info.api_version.rpartition("/")[0]: info for info in reversed(found)}
    return list(by_group.values())


def _texts(value: Any) -> Iterator[str]:
    return (item for item in sequence(value) if isinstance(item, str))
