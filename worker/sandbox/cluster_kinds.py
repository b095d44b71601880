"""The resources that the snapshot cluster serves, and its discovery documents.

Built-in resources are served even if the snapshot has no objects of them, as in any cluster. Others come from
CustomResourceDefinition objects, or else from the objects themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from worker.domain.cluster.fields import mapping, mappings, text
from worker.domain.cluster.kinds import BUILT_IN, kinds_of
from worker.domain.values.objects import KindInfo, Manifest

VERBS = ("get", "list")
FURTHER: Mapping[str, tuple[str, ...]] = {
    "resource.k8s.io/v1": (
        "deviceclasses* DeviceClass",
        "resourceclaims ResourceClaim",
        "resourceclaimtemplates ResourceClaimTemplate",
        "resourceslices* ResourceSlice",
    ),
    "networking.k8s.io/v1": ("ipaddresses* IPAddress ip", "servicecidrs* ServiceCIDR"),
    "storage.k8s.io/v1": ("volumeattributesclasses* VolumeAttributesClass vac",),
}
"""Kinds that newer releases serve: a client finds them by discovery."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of one group version, as discovery describes it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    singular: str = ""
    built_in: bool = False
    selectable: tuple[str, ...] = ()
    """Fields of a custom resource that its definition offers to field selectors."""

    @property
    def api_version(self) -> str:
        """`v1` or `<group>/<version>`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`pods` or `replicasets.apps`, as error messages and rules name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class ResourceTable:
    """All resources that are served. Built-in ones first, each found by its path or by its kind."""

    def __init__(self, objects: Iterable[Manifest]) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        for info, short_names in (*BUILT_IN, *kinds_of(FURTHER)):
            self._add(_built_in(info, short_names))
        known = list(objects)
        for manifest in known:
            if manifest["kind"] == "CustomResourceDefinition":
                for resource in _from_definition(manifest):
                    self._add(resource)
        for manifest in known:
            self._derive(manifest)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_path.values())

    def at(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource behind `/apis/<group>/<version>/<plural>`."""
        return self._by_path.get((group, version, plural))

    def of(self, api_version: str, kind: str) -> Resource:
        """The resource of an object of the snapshot. Raises KeyError for others."""
        return self._by_kind[api_version, kind]

    def in_version(self, group: str, version: str) -> list[Resource]:
        """Resources of one group version, in the order of their names."""
        found = [r for r in self._by_path.values() if (r.group, r.version) == (group, version)]
        return sorted(found, key=lambda resource: resource.plural)

    def groups(self) -> dict[str, list[str]]:
        """Named groups and their versions, the preferred one first."""
        groups: dict[str, set[str]] = {}
        for resource in self._by_path.values():
            if resource.group:
                groups.setdefault(resource.group, set()).add(resource.version)
        return {group: sorted(versions, key=version_rank) for group, versions in groups.items()}

    def _add(self, resource: Resource) -> None:
        self._by_path.setdefault((resource.group, resource.version, resource.plural), resource)
        self._by_kind.setdefault((resource.api_version, resource.kind), resource)

    def _derive(self, manifest: Manifest) -> None:
        api_version, kind = manifest["apiVersion"], manifest["kind"]
        known = self._by_kind.get((api_version, kind))
        if known is None:
            group, _, version = api_version.rpartition("/")
            namespaced = bool(manifest["metadata"].get("namespace"))
            self._add(Resource(group, version, plural_of(kind), kind, namespaced, singular=kind.lower()))


@cache
def status_fields() -> dict[str, Any]:
    """The status fields of built-in kinds.

    `kinds`: the type of the status of each built-in kind that has one. `types`: the fields of each type, and
    their types.
    """
    found: dict[str, Any] = json.loads((files("worker") / "sandbox" / "status_fields.json").read_bytes())
    return found


def has_status(api_version: str, kind: str) -> bool:
    """True if the kind is built in, and its status is a subresource."""
    return f"{api_version}/{kind}" in status_fields()["kinds"]


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Sort key that puts the preferred version first: v2, v1, v1beta1, v1alpha1 ("CRD versioning")."""
    found = re.fullmatch(r"v(\d{1,9})(?:(alpha|beta)(\d{1,9}))?", version)
    if not found:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), version)


def plural_of(kind: str) -> str:
    """The plural a custom kind most likely has; only a CustomResourceDefinition knows for sure."""
    name = kind.lower()
    if re.search(r"[^aeiou]y$", name):
        return name[:-1] + "ies"
    return name + ("es" if re.search(r"(?:s|x|ch|sh)$", name) else "s")


def discovery_document(table: ResourceTable, parts: Sequence[str]) -> dict[str, Any] | None:
    """The discovery answer at `/api`, `/apis` and below; None if the path is not served."""
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in table.groups().items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name]:
            versions = table.groups().get(name)
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None
        case ["api", version]:
            return _resource_list(table.in_version("", version))
        case ["apis", group, version]:
            return _resource_list(table.in_version(group, version))
    return None


def aggregated_document(table: ResourceTable, *, core: bool) -> dict[str, Any]:
    """Aggregated discovery (apidiscovery.k8s.io/v2) of `/api` (`core`) or of `/apis`."""
    groups = {"": ["v1"]} if core else table.groups()
    items = [
        {
            "metadata": {"name": name, "creationTimestamp": None} if name else {"creationTimestamp": None},
            "versions": [
                {
                    "version": version,
                    "resources": [_aggregated(resource) for resource in table.in_version(name, version)],
                    "freshness": "Current",
                }
                for version in versions
            ],
        }
        for name, versions in groups.items()
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _aggregated(resource: Resource) -> dict[str, Any]:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    below = [{"subresource": name, "responseKind": kind, "verbs": ["get"]} for name in resource.subresources]
    return {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(VERBS),
        **({"shortNames": list(resource.short_names)} if resource.short_names else {}),
        **({"subresources": below} if below else {}),
    }


def _resource_list(resources: Sequence[Resource]) -> dict[str, Any] | None:
    if not resources:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": resources[0].api_version,
        "resources": [entry for resource in resources for entry in _entries(resource)],
    }


def _group(name: str, versions: Sequence[str]) -> dict[str, Any]:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _entries(resource: Resource) -> Iterable[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(VERBS),
    }
    yield {**entry, "shortNames": list(resource.short_names)} if resource.short_names else entry
    for name in resource.subresources:
        yield {**entry, "name": f"{resource.plural}/{name}", "singularName": "", "verbs": ["get"]}


def _built_in(info: KindInfo, short_names: tuple[str, ...]) -> Resource:
    group, _, version = info.api_version.rpartition("/")
    logs = ("log",) if info.kind == "Pod" else ()
    return Resource(
        group,
        version,
        info.plural,
        info.kind,
        info.namespaced,
        short_names,
        subresources=(*logs, "status") if has_status(info.api_version, info.kind) else (),
        singular=info.kind.lower(),
        built_in=True,
    )


def _from_definition(definition: Manifest) -> Iterable[Resource]:
    """The served versions of a CustomResourceDefinition (apiextensions.k8s.io/v1).

    A broken definition defines nothing.
    """
    spec = mapping(definition.get("spec"))
    names = mapping(spec.get("names"))
    group, plural, kind = text(spec.get("group")), text(names.get("plural")), text(names.get("kind"))
    if not (group and plural and kind):
        return
    for version in mappings(spec.get("versions")):
        if version.get("name") and version.get("served", True):
            yield Resource(
                group,
                str(version["name"]),
                plural,
                kind,
                namespaced=spec.get("scope") != "Cluster",
                short_names=tuple(str(name) for name in names.get("shortNames") or ()),
                singular=str(names.get("singular") or kind.lower()),
                selectable=tuple(
                    str(found.get("jsonPath")).removeprefix(".")
                    for found in mappings(version.get("selectableFields"))
                ),
            )
