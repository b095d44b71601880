"""What lies outside the operator's lists is unknown: by every method, in every spelling."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.small_cluster import example, example_pod
from worker.domain.cluster.scope import Scope, ScopedCluster
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import KindInfo, ListQuery, LogQuery, ObjectRef

RUNNING = {"running": {}}
CERTIFICATES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "certificates.cert-manager.io"},
    "spec": {
        "group": "cert-manager.io",
        "scope": "Namespaced",
        "names": {"kind": "Certificate", "plural": "certificates"},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}
CLUSTER = MemoryCluster(
    [
        example_pod("api", "api", state=RUNNING),
        example("ConfigMap", "flags", "shop", data={"a": "1"}),
        example("ConfigMap", "flags", "kube-system", data={"a": "2"}),
        example("ConfigMap", "flags", "bank-eu", data={"a": "3"}),
        example("Certificate", "web", "shop", "cert-manager.io/v1"),
        example("Namespace", "shop"),
        example("Namespace", "bank-eu"),
        example("Node", "worker-1"),
        CERTIFICATES,
    ],
    {("shop", "api", "app", False): b"started\n"},
)


def within(**lists: tuple[str, ...]) -> ScopedCluster:
    return ScopedCluster(CLUSTER, Scope(**lists))


async def refused(asked) -> ClusterReason:
    with pytest.raises(ClusterError) as caught:
        await asked
    assert "scope of this worker" in caught.value.message
    return caught.value.reason


async def test_an_object_of_an_allowed_namespace_is_read():
    cluster = within(namespaces=("shop",))
    assert "flags" == (await cluster.get(ObjectRef("ConfigMap", "flags", "shop")))["metadata"]["name"]
    assert b"started\n" == await cluster.logs(LogQuery("shop", "api", "app"))


@pytest.mark.parametrize(
    "lists",
    [{"namespaces": ("shop",)}, {"denied_namespaces": ("bank-*",)}, {"namespaces": ("*",), "denied_namespaces": ("bank-eu",)}],
    ids=str,
)  # fmt: skip
async def test_other_namespaces_are_refused_by_every_method(lists):
    cluster = within(**lists)
    asked = [
        cluster.get(ObjectRef("ConfigMap", "flags", "bank-eu")),
        cluster.get(ObjectRef("Namespace", "bank-eu")),
        cluster.get(ObjectRef("ns", "bank-eu")),
        cluster.list(ListQuery("ConfigMap", "bank-eu")),
        cluster.logs(LogQuery("bank-eu", "api", "app")),
    ]
    assert {ClusterReason.FORBIDDEN} == {await refused(one) for one in asked}


async def test_a_list_of_all_namespaces_leaves_others_out_and_is_not_complete():
    listing = await within(denied_namespaces=("kube-*", "bank-eu")).list(ListQuery("ConfigMap"))
    assert (["shop"], False) == ([i["metadata"]["namespace"] for i in listing.items], listing.complete)
    names = await within(namespaces=("shop",)).list(ListQuery("Namespace"))
    assert (["shop"], False) == ([i["metadata"]["name"] for i in names.items], names.complete)


async def test_a_list_that_leaves_nothing_out_is_complete():
    assert (await within(denied_namespaces=("other",)).list(ListQuery("ConfigMap"))).complete


async def test_objects_of_cluster_scope_are_read():
    cluster = within(namespaces=("shop",))
    assert "worker-1" == (await cluster.get(ObjectRef("Node", "worker-1")))["metadata"]["name"]


@pytest.mark.parametrize("written", ["ConfigMap", "configmaps", "cm", "v1/ConfigMap"])
@pytest.mark.parametrize("asked", ["ConfigMap", "configmaps", "cm"])
async def test_a_denied_kind_is_refused_in_every_spelling(written, asked):
    cluster = within(denied_kinds=(written,))
    assert ClusterReason.FORBIDDEN == await refused(cluster.kind(asked))
    assert ClusterReason.FORBIDDEN == await refused(cluster.get(ObjectRef(asked, "flags", "shop")))
    assert ClusterReason.FORBIDDEN == await refused(cluster.list(ListQuery(asked, "shop")))


@pytest.mark.parametrize("written", ["Certificate", "certificates", "CERTIFICATE"])
@pytest.mark.parametrize("asked", ["Certificate", "certificates"])
async def test_a_denied_kind_of_a_custom_resource_is_refused_in_every_spelling(written, asked):
    cluster = within(denied_kinds=(written,))
    assert ClusterReason.FORBIDDEN == await refused(cluster.get(ObjectRef(asked, "web", "shop")))


SPELLINGS = st.builds(
    lambda name, upper, end: (
        "".join(c.upper() if up else c for c, up in zip(name, upper, strict=False)) + end
    ),
    st.sampled_from(["namespace", "namespaces", "ns", "v1/namespace", "configmap", "configmaps", "cm"]),
    st.lists(st.booleans(), min_size=12, max_size=12),
    st.sampled_from(["", ".", ".v1", " ", "/"]),
)


@given(SPELLINGS, st.sampled_from(["", "v1", "v2"]), st.sampled_from(["", "shop", "bank-eu"]))
async def test_no_spelling_of_a_kind_shows_what_lies_outside(spelling, api_version, namespace):
    cluster = within(namespaces=("shop",))
    for name in ("bank-eu", "flags"):
        with contextlib.suppress(ClusterError):
            found = await cluster.get(ObjectRef(spelling, name, namespace, api_version))
            assert "shop" == place_of(found)
    with contextlib.suppress(ClusterError):
        listing = await cluster.list(ListQuery(spelling, namespace, api_version))
        assert {"shop"} >= {place_of(item) for item in listing.items}


def place_of(item) -> str:
    """The namespace that an object stands in, or is."""
    about = item["metadata"]
    return about["name"] if item["kind"] == "Namespace" else about["namespace"]


async def test_namespaces_are_judged_by_what_discovery_makes_of_an_odd_spelling():
    cluster = within(namespaces=("shop",))
    assert ClusterReason.FORBIDDEN == await refused(cluster.get(ObjectRef("namespace.", "bank-eu", "shop")))
    assert "shop" == (await cluster.get(ObjectRef("namespace.", "shop")))["metadata"]["name"]
    listing = await cluster.list(ListQuery("namespaces."))
    assert (["shop"], False) == ([i["metadata"]["name"] for i in listing.items], listing.complete)


def test_only_the_core_kind_goes_by_its_name():
    queue = KindInfo("Namespace", "servicebus.example.com/v1", "namespaces", namespaced=True)
    assert not Scope(namespaces=("shop",)).allows(queue, "shop", "bank-eu")


async def test_logs_go_with_pods():
    assert ClusterReason.FORBIDDEN == await refused(
        within(denied_kinds=("pods",)).logs(LogQuery("shop", "api", "app"))
    )


async def test_an_unknown_kind_is_still_unknown():
    with pytest.raises(ClusterError) as caught:
        await within(denied_kinds=("Node",)).get(ObjectRef("Gadget", "x", "shop"))
    assert ClusterReason.UNKNOWN_KIND == caught.value.reason


def test_without_lists_everything_is_allowed():
    assert Scope().everything
    assert Scope().allows(KindInfo("ConfigMap", "v1", "configmaps", namespaced=True), "x", "anywhere")
    assert not Scope(denied_kinds=("Node",)).everything


def test_a_denied_kind_is_denied_in_every_namespace():
    scope = Scope(denied_kinds=("configmaps",))
    assert not scope.allows(KindInfo("ConfigMap", "v1", "configmaps", namespaced=True), "c", "shop")
