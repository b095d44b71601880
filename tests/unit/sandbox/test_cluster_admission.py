"""Objects that no API server would have stored are mistakes in a snapshot; fields that it does not know are dropped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.manifests import obj, pod
from tests.status_fields import PATH, text
from worker.sandbox.cluster_admission import admitted
from worker.sandbox.cluster_files import SnapshotError

SCOPED = {"group": "e.com", "scope": "Cluster", "names": {"kind": "Zone", "plural": "zones"}}
ZONES = obj(
    "CustomResourceDefinition",
    "zones.e.com",
    "",
    "apiextensions.k8s.io/v1",
    spec={**SCOPED, "versions": [{"name": "v1", "served": True}]},
)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([obj("Node", "n", "shop")], 'Node "n" is invalid: metadata.namespace: Forbidden'),
        ([ZONES, obj("Zone", "z", "shop", "e.com/v1")], "metadata.namespace: Forbidden"),
        ([pod("p", labels={"app": "x" * 64})], "must be no more than 63 characters"),
        ([pod("p", labels={"x" * 64: "y"})], "must be no more than 63 characters"),
        ([pod("p", labels={"example.com/" + "x" * 64: "y"})], "must be no more than 63 characters"),
        ([pod("p", labels={"app": "not a label"})], "alphanumeric"),
        ([pod("p", labels={"app": 1})], "not a string"),
    ],
)
def test_what_the_server_refuses(objects: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(SnapshotError, match=why):
        admitted(objects)


@pytest.mark.parametrize(
    "found",
    [
        pod("p", labels={"app": "x" * 63, f"{'a.' * 60}io/name": "", "x_Y.z-1": "1.0"}),
        obj("Zone", "z", "", "e.com/v1", status={"anything": 1}),
        pod("p", status={"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}),
        obj("Node", "n", "", status={"capacity": {"example.com/gpu": "1"}}),
        obj("Deployment", "d", "shop", "apps/v1", status="broken"),
    ],
)
def test_what_the_server_stores_as_it_is(found: dict[str, Any]) -> None:
    assert [found] == admitted([found])


def test_fields_of_a_status_that_the_kind_does_not_have_are_dropped() -> None:
    state = {"waiting": {"reason": "X", "cause": "y"}}
    found = pod(
        "p", status={"phase": "Running", "mood": "bad", "containerStatuses": [{"name": "a", "state": state}]}
    )
    [stored] = admitted([found])
    kept = {"name": "a", "state": {"waiting": {"reason": "X"}}}
    assert {"phase": "Running", "containerStatuses": [kept]} == stored["status"]


def test_the_table_of_fields_is_that_of_the_client() -> None:
    assert PATH.read_text(encoding="ascii") == text(), "run python -m tests.status_fields"
