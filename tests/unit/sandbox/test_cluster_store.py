from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_failure import ApiFailure
from worker.sandbox.cluster_kinds import Resource
from worker.sandbox.cluster_store import ListOptions, Snapshot


def _object(name: str, namespace: str = "shop", kind: str = "ConfigMap", **fields: Any) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, **fields}


def _resource(snapshot: Snapshot, kind: str = "ConfigMap", api_version: str = "v1") -> Resource:
    return snapshot.resources.of(api_version, kind)


def _names(body: dict[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


def test_list_has_the_form_of_the_api() -> None:
    snapshot = Snapshot([_object("b", data={"k": "v"}), _object("a")])
    body = snapshot.list(_resource(snapshot), ListOptions())
    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert body["items"][1] == {"metadata": {"name": "b", "namespace": "shop"}, "data": {"k": "v"}}


def test_custom_objects_keep_their_kind_in_lists() -> None:
    fish = {"apiVersion": "example.com/v1", "kind": "Fish", "metadata": {"name": "f", "namespace": "sea"}}
    snapshot = Snapshot([fish])
    body = snapshot.list(_resource(snapshot, "Fish", "example.com/v1"), ListOptions())
    assert body["items"] == [fish]


def test_resource_version_is_the_newest_of_the_objects() -> None:
    one, two = _object("a"), _object("b")
    one["metadata"]["resourceVersion"], two["metadata"]["resourceVersion"] = "2500", "not a number"
    snapshot = Snapshot([one, two])
    assert snapshot.list(_resource(snapshot), ListOptions())["metadata"] == {"resourceVersion": "2500"}


@given(st.integers(0, 12), st.integers(1, 5))
def test_pages_together_are_the_list(count: int, limit: int) -> None:
    snapshot = Snapshot([_object(f"c-{number % 4}", f"ns-{number // 4}") for number in range(count)])
    resource = _resource(snapshot)
    whole = snapshot.list(resource, ListOptions())["items"]
    seen: list[Manifest] = []
    token = ""
    while True:
        page = snapshot.list(resource, ListOptions(limit=limit, start=token))
        seen += page["items"]
        token = page["metadata"].get("continue", "")
        assert page["metadata"].get("remainingItemCount", 0) == count - len(seen)
        if not token:
            break
    assert whole == seen


def test_remaining_count_is_unknown_with_a_selector() -> None:
    snapshot = Snapshot([_object("a"), _object("b")])
    options = ListOptions(limit=1, field_selector="metadata.namespace=shop")
    metadata = snapshot.list(_resource(snapshot), options)["metadata"]
    assert "continue" in metadata
    assert "remainingItemCount" not in metadata


@pytest.mark.parametrize("token", ["x", "e30=", "WzFd", "bnVsbA==", "ä"])
def test_token_that_cannot_be_read(token: str) -> None:
    snapshot = Snapshot([])
    with pytest.raises(ApiFailure) as caught:
        snapshot.list(_resource(snapshot), ListOptions(start=token))
    assert caught.value.code == 400


def test_the_last_of_two_objects_with_one_name_counts() -> None:
    snapshot = Snapshot([_object("a", data={"v": "1"}), _object("a", data={"v": "2"})])
    assert snapshot.get(_resource(snapshot), "shop", "a")["data"] == {"v": "2"}


def test_namespace_is_default_or_left_out_as_the_scope_asks() -> None:
    snapshot = Snapshot([_object("a", ""), _object("n", "shop", "Node")])
    assert snapshot.get(_resource(snapshot), "default", "a")["metadata"]["namespace"] == "default"
    assert snapshot.get(_resource(snapshot, "Node"), "", "n")["metadata"]["name"] == "n"


def test_missing_object() -> None:
    snapshot = Snapshot([])
    with pytest.raises(ApiFailure) as caught:
        snapshot.get(_resource(snapshot, "Deployment", "apps/v1"), "shop", "x")
    assert caught.value.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'deployments.apps "x" not found',
        "reason": "NotFound",
        "details": {"name": "x", "group": "apps", "kind": "deployments"},
        "code": 404,
    }


CORE_EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e", "namespace": "shop"},
    "involvedObject": {"kind": "Pod", "name": "p"},
    "message": "text",
    "reason": "BackOff",
    "type": "Warning",
    "count": 3,
    "firstTimestamp": "2026-05-01T10:00:00Z",
    "lastTimestamp": "2026-05-01T10:05:00Z",
    "eventTime": None,
    "reportingComponent": "kubelet",
    "source": {"component": "kubelet"},
    "series": {"count": 3, "lastObservedTime": "2026-05-01T10:05:00.000000Z"},
}
GROUPED_EVENT = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "e", "namespace": "shop"},
    "regarding": {"kind": "Pod", "name": "p"},
    "note": "text",
    "reason": "BackOff",
    "type": "Warning",
    "deprecatedCount": 3,
    "deprecatedFirstTimestamp": "2026-05-01T10:00:00Z",
    "deprecatedLastTimestamp": "2026-05-01T10:05:00Z",
    "eventTime": None,
    "reportingController": "kubelet",
    "deprecatedSource": {"component": "kubelet"},
    "series": {"count": 3, "lastObservedTime": "2026-05-01T10:05:00.000000Z"},
}


@pytest.mark.parametrize("stored", [CORE_EVENT, GROUPED_EVENT])
def test_events_are_seen_through_both_groups(stored: Manifest) -> None:
    snapshot = Snapshot([stored])
    assert snapshot.get(_resource(snapshot, "Event"), "shop", "e") == CORE_EVENT
    assert snapshot.get(_resource(snapshot, "Event", "events.k8s.io/v1"), "shop", "e") == GROUPED_EVENT


def test_lists_are_in_the_order_of_keys_in_etcd() -> None:
    snapshot = Snapshot([_object("x", "a"), _object("x", "a-b"), _object("z", "a"), _object("y", "a")])
    items = snapshot.list(_resource(snapshot), ListOptions())["items"]
    found = [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in items]
    assert found == ["a-b/x", "a/x", "a/y", "a/z"]
