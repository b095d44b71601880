"""Cluster port: one suite against the cluster in memory and the real adapter, which reads the snapshot API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.envtest import api_server, why_not
from tests.fakes.faulty_api import FaultyApi
from tests.fakes.manifests import event, pod
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.small_cluster import LOGS, OBJECTS, TOKEN, connecting, names, reason_of, small_api
from worker.adapters.kubernetes_cluster import KubernetesCluster
from worker.domain.values.errors import ClusterReason
from worker.domain.values.objects import KindInfo, Listing, ListQuery, LogQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster
from worker.sandbox.cluster_store import Snapshot


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[KubernetesCluster]:
    async with connecting(small_api(), tmp_path / "kubeconfig") as connect:
        yield await connect()


@pytest.fixture(scope="session")
def envtest_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The small cluster on a real API server, as the service account of the worker."""
    folder = tmp_path_factory.mktemp("envtest")
    with api_server(folder) as server:
        server.load(OBJECTS)
        server.account_kubeconfig(folder / "kubeconfig")
        yield folder / "kubeconfig"


@pytest.fixture
async def envtest(envtest_kubeconfig: Path) -> AsyncIterator[KubernetesCluster]:
    async with KubernetesCluster(kubeconfig=str(envtest_kubeconfig)) as cluster:
        yield cluster


REAL = pytest.param("envtest", marks=[pytest.mark.process, pytest.mark.slow])


@pytest.fixture(params=["memory", "kubernetes", *([] if why_not() else [REAL])])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """With KUBEBUILDER_ASSETS or RCA_TEST_KUBECONFIG also a real API server, on which no container has a log."""
    if request.param == "envtest" and request.cls is TestLogs:
        pytest.skip("logs need a kubelet")
    names = {"kubernetes": "real", "envtest": "envtest"}
    if request.param == "memory":
        return MemoryCluster(OBJECTS, LOGS)
    return request.getfixturevalue(names[request.param])


@pytest.fixture
async def large(tmp_path: Path) -> AsyncIterator[tuple[Cluster, Cluster]]:
    """The same 1,200 events in memory and behind the API."""
    events = [event(pod("a"), "Noise", str(i), key=f"{i:05d}") for i in range(1_200)]
    api = FaultyApi(Snapshot(events), token=TOKEN)
    async with connecting(api, tmp_path / "large") as connect:
        yield MemoryCluster(events), await connect()


class TestGet:
    async def test_object(self, cluster: Cluster) -> None:
        found = await cluster.get(ObjectRef("Deployment", "api", "shop"))
        assert (
            found["apiVersion"],
            found["kind"],
            found["metadata"]["name"],
        ) == ("apps/v1", "Deployment", "api")

    async def test_namespace_of_a_cluster_scoped_kind_is_left_out(self, cluster: Cluster) -> None:
        found = await cluster.get(ObjectRef("Node", "worker-1", "shop"))
        assert found["metadata"]["name"] == "worker-1"

    async def test_custom_object(self, cluster: Cluster) -> None:
        found = await cluster.get(ObjectRef("Rollout", "canary", "shop", "argoproj.io/v1alpha1"))
        assert found["kind"] == "Rollout"

    async def test_object_that_is_not_there(self, cluster: Cluster) -> None:
        assert await reason_of(cluster.get(ObjectRef("Pod", "gone", "shop"))) == ClusterReason.NOT_FOUND

    async def test_namespace_is_required(self, cluster: Cluster) -> None:
        assert await reason_of(cluster.get(ObjectRef("Pod", "api-0"))) == ClusterReason.BAD_REQUEST

    async def test_kind_that_is_not_served(self, cluster: Cluster) -> None:
        assert await reason_of(cluster.get(ObjectRef("Gizmo", "x", "shop"))) == ClusterReason.UNKNOWN_KIND

    @pytest.mark.parametrize("kind", ["Secret", "secrets", "SECRET"])
    async def test_secrets_are_refused(self, cluster: Cluster, kind: str) -> None:
        assert await reason_of(cluster.get(ObjectRef(kind, "db", "shop"))) == ClusterReason.FORBIDDEN
        assert await reason_of(cluster.list(ListQuery(kind, "shop"))) == ClusterReason.FORBIDDEN

    async def test_changing_the_answer_changes_nothing_else(self, cluster: Cluster) -> None:
        ref = ObjectRef("Pod", "api-0", "shop")
        (await cluster.get(ref))["spec"].clear()
        assert (await cluster.get(ref))["spec"]["nodeName"] == "worker-1"


class TestList:
    async def test_items_say_what_they_are(self, cluster: Cluster) -> None:
        listing = await cluster.list(ListQuery("Pod", "shop"))
        assert {("v1", "Pod")} == {(item["apiVersion"], item["kind"]) for item in listing.items}
        assert names(listing) == ["api-0", "api-1", "job-0"]
        assert listing.complete

    async def test_all_namespaces(self, cluster: Cluster) -> None:
        assert names(await cluster.list(ListQuery("Deployment"))) == ["web", "api"]

    async def test_cluster_scope(self, cluster: Cluster) -> None:
        assert names(await cluster.list(ListQuery("nodes", "shop"))) == ["worker-1"]

    async def test_built_in_kind_without_objects(self, cluster: Cluster) -> None:
        assert Listing(()) == await cluster.list(ListQuery("PodDisruptionBudget", "shop"))

    async def test_namespace_that_is_not_there(self, cluster: Cluster) -> None:
        assert Listing(()) == await cluster.list(ListQuery("Pod", "nowhere"))

    async def test_limit(self, cluster: Cluster) -> None:
        listing = await cluster.list(ListQuery("Pod", "shop", limit=2))
        assert names(listing) == ["api-0", "api-1"]
        assert not listing.complete

    async def test_limit_that_is_just_reached(self, cluster: Cluster) -> None:
        assert (await cluster.list(ListQuery("Pod", "shop", limit=3))).complete

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("app=api", ["api-0", "api-1"]),
            ("app!=api", ["job-0"]),
            ("app in (api, job)", ["api-0", "api-1", "job-0"]),
            ("app notin (api)", ["job-0"]),
            ("!app", []),
        ],
    )
    async def test_label_selector(self, cluster: Cluster, selector: str, expected: list[str]) -> None:
        assert expected == names(await cluster.list(ListQuery("Pod", "shop", label_selector=selector)))

    async def test_field_selector(self, cluster: Cluster) -> None:
        query = ListQuery("Event", "shop", field_selector="involvedObject.kind=Pod,involvedObject.name=api-0")
        assert names(await cluster.list(query)) == ["api-0.1"]

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("involvedObject.name=api-0", ["api-0.1"]),
            ("involvedObject.name=api-0,involvedObject.kind=Pod,type=Warning", ["api-0.1"]),
            ("involvedObject.kind=Deployment", []),
            ("type=Normal", []),
        ],
    )
    async def test_events_are_selected_in_both_apis(
        self, cluster: Cluster, selector: str, expected: list[str]
    ) -> None:
        newer = selector.replace("involvedObject", "regarding")
        assert expected == names(await cluster.list(ListQuery("Event", "shop", field_selector=selector)))
        query = ListQuery("Event", "shop", "events.k8s.io/v1", field_selector=newer)
        assert expected == names(await cluster.list(query))

    async def test_a_long_list_is_read_page_by_page_in_the_order_of_names(
        self, large: tuple[Cluster, Cluster]
    ) -> None:
        for cluster in large:
            listing = await cluster.list(ListQuery("Event", limit=1_000))
            assert (1_000, False) == (len(listing.items), listing.complete)
            assert names(listing) == sorted(names(listing))
            assert (await cluster.list(ListQuery("Event", limit=1_500))).complete

    async def test_only_what_is_kept_of_a_long_list_is_held(self, large: tuple[Cluster, Cluster]) -> None:
        def keep(found: Manifest) -> Manifest | None:
            name = found["metadata"]["name"]
            return {"metadata": {"name": name}} if name.endswith("00") else None

        for cluster in large:
            listing = await cluster.list(ListQuery("Event", limit=1_500, keep=keep))
            assert (12, True) == (len(listing.items), listing.complete)
            assert not (await cluster.list(ListQuery("Event", limit=1_100, keep=keep))).complete
            nothing = await cluster.list(ListQuery("Event", limit=1_100, keep=lambda _: None))
            assert Listing((), complete=False) == nothing

    @pytest.mark.parametrize(
        "query", [ListQuery("Pod", label_selector="a in"), ListQuery("Pod", field_selector="a=1")]
    )
    async def test_selector_that_cannot_be_read(self, cluster: Cluster, query: ListQuery) -> None:
        assert await reason_of(cluster.list(query)) == ClusterReason.BAD_REQUEST

    async def test_events_of_the_events_group(self, cluster: Cluster) -> None:
        listing = await cluster.list(ListQuery("Event", "shop", "events.k8s.io/v1"))
        assert [event["note"] for event in listing.items] == ["back-off restarting"]


class TestLogs:
    async def test_tail(self, cluster: Cluster) -> None:
        assert await cluster.logs(LogQuery("shop", "api-0", "app", tail_lines=2)) == b"two\nthree\n"

    async def test_previous_instance_byte_for_byte(self, cluster: Cluster) -> None:
        assert await cluster.logs(LogQuery("shop", "api-0", "app", previous=True)) == b"panic\xff\n"

    async def test_the_newest_bytes_are_kept(self, cluster: Cluster) -> None:
        assert await cluster.logs(LogQuery("shop", "job-0", "proxy", limit_bytes=13)) == b"xx\nlast line\n"

    async def test_only_container_needs_no_name(self, cluster: Cluster) -> None:
        assert await cluster.logs(LogQuery("shop", "api-0", "", tail_lines=1)) == b"three\n"

    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            (LogQuery("shop", "gone", "app"), ClusterReason.NOT_FOUND),
            (LogQuery("shop", "api-1", "app"), ClusterReason.BAD_REQUEST),
            (LogQuery("shop", "api-1", "app", previous=True), ClusterReason.BAD_REQUEST),
            (LogQuery("shop", "api-0", "nope"), ClusterReason.BAD_REQUEST),
            (LogQuery("shop", "job-0", ""), ClusterReason.BAD_REQUEST),
        ],
    )
    async def test_no_log(self, cluster: Cluster, query: LogQuery, reason: ClusterReason) -> None:
        assert reason == await reason_of(cluster.logs(query))


class TestKind:
    @pytest.mark.parametrize("name", ["Deployment", "deployment", "deployments", "deploy", "DEPLOYMENTS"])
    async def test_any_name_of_a_kind(self, cluster: Cluster, name: str) -> None:
        assert KindInfo("Deployment", "apps/v1", "deployments", namespaced=True) == await cluster.kind(name)

    @pytest.mark.parametrize("name", ["Rollout", "rollouts", "rollouts.argoproj.io"])
    async def test_custom_kind(self, cluster: Cluster, name: str) -> None:
        expected = KindInfo("Rollout", "argoproj.io/v1alpha1", "rollouts", namespaced=True)
        assert expected == await cluster.kind(name)

    async def test_version_that_is_not_served_any_more(self, cluster: Cluster) -> None:
        assert (await cluster.kind("Deployment", "apps/v1beta1")).api_version == "apps/v1"
        assert (await cluster.kind("Rollout", "argoproj.io/v1")).api_version == "argoproj.io/v1alpha1"

    async def test_kind_of_several_groups(self, cluster: Cluster) -> None:
        assert await reason_of(cluster.kind("Cluster")) == ClusterReason.BAD_REQUEST
        assert (await cluster.kind("Cluster", "postgresql.cnpg.io/v1")).plural == "clusters"

    @pytest.mark.parametrize("api_version", ["", "apps/v1", "nobody.example/v1"])
    async def test_kind_that_is_not_served(self, cluster: Cluster, api_version: str) -> None:
        assert await reason_of(cluster.kind("Gizmo", api_version)) == ClusterReason.UNKNOWN_KIND

    @pytest.mark.parametrize("name", ["", "../pods", "Pod/api-0", "Ünï"])
    async def test_name_that_cannot_be_a_kind(self, cluster: Cluster, name: str) -> None:
        assert await reason_of(cluster.kind(name)) == ClusterReason.BAD_REQUEST
