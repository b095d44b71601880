from __future__ import annotations

from typing import Any

import pytest

from worker.domain.cluster.kinds import API_RESOURCES
from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_kinds import (
    Resource,
    ResourceTable,
    discovery_document,
    plural_of,
    version_rank,
)


def _object(kind: str, api_version: str, namespace: str = "", **fields: Any) -> Manifest:
    metadata = {"name": "x", **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _definition(**spec: Any) -> Manifest:
    defaults = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Fish", "plural": "fishes", "singular": "fish", "shortNames": ["fi"]},
        "versions": [
            {"name": "v1alpha1", "served": True},
            {"name": "v1", "served": True, "selectableFields": [{"jsonPath": ".spec.size"}]},
            {"name": "v0", "served": False},
        ],
    }
    return _object("CustomResourceDefinition", "apiextensions.k8s.io/v1", spec=defaults | spec)


def test_built_in_resources_are_always_there() -> None:
    table = ResourceTable([])
    assert {*API_RESOURCES, "resource.k8s.io/v1"} == {resource.api_version for resource in table}
    assert table.of("networking.k8s.io/v1", "ServiceCIDR").plural == "servicecidrs"
    assert not table.of("networking.k8s.io/v1", "IPAddress").namespaced
    assert table.groups()["autoscaling"] == ["v2", "v1"]
    assert table.of("v1", "Pod").subresources == ("log", "status")
    assert not table.of("v1", "Node").namespaced


def test_custom_resource_from_its_objects() -> None:
    table = ResourceTable([_object("Policy", "example.com/v1", "shop"), _object("Zone", "example.com/v1")])
    expected = Resource("example.com", "v1", "policies", "Policy", namespaced=True, singular="policy")
    assert expected == table.at("example.com", "v1", "policies")
    assert not table.of("example.com/v1", "Zone").namespaced


def test_custom_resource_from_its_definition() -> None:
    table = ResourceTable([_object("Fish", "example.com/v1", "shop"), _definition()])
    found = table.at("example.com", "v1", "fishes")
    assert found
    assert (found.short_names, found.singular, found.namespaced) == (("fi",), "fish", True)
    assert table.groups()["example.com"] == ["v1", "v1alpha1"]
    assert found.selectable == ("spec.size",)


def test_definition_of_cluster_scope() -> None:
    assert not ResourceTable([_definition(scope="Cluster")]).of("example.com/v1", "Fish").namespaced


@pytest.mark.parametrize("spec", [{"names": None}, {"group": ""}, {"versions": ["v1"]}, {"versions": None}])
def test_broken_definition_defines_nothing(spec: dict[str, Any]) -> None:
    assert "example.com" not in ResourceTable([_definition(**spec)]).groups()


def test_versions_are_ranked_as_the_documentation_says() -> None:
    ranked = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    shuffled = ranked[5:] + ranked[:5]
    assert ranked == sorted(shuffled, key=version_rank)


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Cluster", "clusters"),
        ("Gateway", "gateways"),
        ("Policy", "policies"),
        ("Ingress", "ingresses"),
        ("Mesh", "meshes"),
    ],
)
def test_plurals(kind: str, plural: str) -> None:
    assert plural == plural_of(kind)


@pytest.mark.parametrize(
    "path", ["apis/nobody.example", "apis/apps/v9", "api/v2", "openapi", "apis/apps/v1/pods"]
)
def test_discovery_of_what_is_not_served(path: str) -> None:
    assert discovery_document(ResourceTable([]), path.split("/")) is None


def test_every_group_of_the_list_has_its_documents() -> None:
    table = ResourceTable([_definition()])
    groups = discovery_document(table, ["apis"])
    assert groups
    for group in groups["groups"]:
        assert discovery_document(table, ["apis", group["name"]])
        for version in group["versions"]:
            assert discovery_document(table, ["apis", *version["groupVersion"].split("/")])


def test_resource_entries() -> None:
    document = discovery_document(ResourceTable([]), ["api", "v1"])
    assert document
    entries = {entry["name"]: entry for entry in document["resources"]}
    assert {"pods", "pods/log", "pods/status"} < set(entries)
    assert entries["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["get", "list"],
        "shortNames": ["po"],
    }
