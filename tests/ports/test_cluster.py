"""Cluster port: one suite against the cluster in memory and the real adapter, which reads the snapshot API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.memory_cluster import MemoryCluster
from worker.adapters.kubernetes_cluster import KubernetesCluster, Limits
from worker.domain.errors import ClusterError, ClusterReason
from worker.domain.objects import KindInfo, Listing, ListQuery, LogQuery, Manifest, ObjectRef
from worker.domain.ports import Cluster
from worker.sandbox.cluster_faults import Fault, FaultPlan
from worker.sandbox.cluster_server import SnapshotApi, serve_api, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot

TOKEN = "FAKE-token"
QUICK = Limits(call_seconds=5.0, attempt_seconds=2.0)


def _object(kind: str, name: str, namespace: str = "", api_version: str = "v1", **fields: Any) -> Manifest:
    labels = fields.pop("labels", {})
    metadata = {"name": name, "labels": labels, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _pod(
    name: str, app: str, *, state: dict[str, Any], last: dict[str, Any] | None = None, **spec: Any
) -> Manifest:
    status = {"name": "app", "state": state, "lastState": last or {}}
    return _object(
        "Pod",
        name,
        "shop",
        labels={"app": app},
        spec={"nodeName": "worker-1", "containers": [{"name": "app"}], **spec},
        status={"phase": "Running", "containerStatuses": [status]},
    )


RUNNING = {"running": {"startedAt": "2026-05-01T10:00:00Z"}}
ENDED = {"terminated": {"exitCode": 1, "containerID": "containerd://1"}}
OBJECTS = [
    _object("Namespace", "shop", status={"phase": "Active"}),
    _object("Node", "worker-1"),
    _object("Secret", "db", "shop", data={"password": "RkFLRQ=="}),
    _pod("api-0", "api", state=RUNNING, last=ENDED),
    _pod("api-1", "api", state={"waiting": {"reason": "ImagePullBackOff"}}),
    _pod("job-0", "job", state=RUNNING, containers=[{"name": "app"}, {"name": "proxy"}]),
    _object("Deployment", "api", "shop", "apps/v1", labels={"app": "api"}),
    _object("Deployment", "web", "blog", "apps/v1", labels={"app": "web"}),
    _object("Rollout", "canary", "shop", "argoproj.io/v1alpha1"),
    _object("Cluster", "pg", "shop", "postgresql.cnpg.io/v1"),
    _object("Cluster", "east", "shop", "cluster.x-k8s.io/v1beta1"),
    _object(
        "Event",
        "api-0.1",
        "shop",
        involvedObject={"kind": "Pod", "name": "api-0", "namespace": "shop"},
        reason="BackOff",
        message="back-off restarting",
        type="Warning",
    ),
]
LOGS = {
    ("shop", "api-0", "app", False): b"one\ntwo\nthree\n",
    ("shop", "api-0", "app", True): b"panic\xff\n",
    ("shop", "job-0", "proxy", False): b"x" * 5000 + b"\nlast line\n",
}


@pytest.fixture
async def api(tmp_path: Path) -> SnapshotApi:
    return SnapshotApi(Snapshot(OBJECTS, LOGS), token=TOKEN)


Connect = Callable[..., Any]


@pytest.fixture
async def connect(api: SnapshotApi, tmp_path: Path) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve_api(api))
        kubeconfig = tmp_path / "kubeconfig"
        write_kubeconfig(kubeconfig, url, TOKEN)

        async def connect(**settings: Any) -> KubernetesCluster:
            settings = {"limits": QUICK, "jitter": lambda: 0.0, "kubeconfig": str(kubeconfig)} | settings
            return await stack.enter_async_context(KubernetesCluster(**settings))

        yield connect


@pytest.fixture
async def real(connect: Connect) -> KubernetesCluster:
    return await connect()


@pytest.fixture(params=["memory", "kubernetes"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return MemoryCluster(OBJECTS, LOGS) if request.param == "memory" else request.getfixturevalue("real")


async def reason_of(call: Any) -> ClusterReason:
    with pytest.raises(ClusterError) as caught:
        await call
    assert 0 < len(caught.value.message) <= 300
    return caught.value.reason


def names(listing: Listing) -> list[str]:
    return [item["metadata"]["name"] for item in listing.items]


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


POD = ObjectRef("Pod", "api-0", "shop")
POD_PATH = "/api/v1/namespaces/shop/pods/api-0"


class Pauses:
    """Stands in for sleep: notes the pauses instead of taking them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def label(value: object) -> str | None:
    return value.model_dump_json(exclude_defaults=True) if isinstance(value, Fault) else None


class TestFaults:
    """The real adapter against a server that misbehaves."""

    @pytest.mark.parametrize(
        ("fault", "reason", "retried"),
        [
            (Fault(status=400), ClusterReason.BAD_REQUEST, False),
            (Fault(status=401), ClusterReason.FORBIDDEN, False),
            (Fault(status=403), ClusterReason.FORBIDDEN, False),
            (Fault(status=404), ClusterReason.UNKNOWN_KIND, False),
            (Fault(status=410), ClusterReason.UNAVAILABLE, False),
            (Fault(status=429), ClusterReason.UNAVAILABLE, True),
            (Fault(status=500), ClusterReason.UNAVAILABLE, True),
            (Fault(status=502), ClusterReason.UNAVAILABLE, True),
            (Fault(status=503), ClusterReason.UNAVAILABLE, True),
            (Fault(status=504), ClusterReason.UNAVAILABLE, True),
            (Fault(drop=True), ClusterReason.UNAVAILABLE, True),
            (Fault(cut=True), ClusterReason.UNAVAILABLE, True),
            (Fault(garbage=True), ClusterReason.UNAVAILABLE, True),
        ],
        ids=label,
    )
    async def test_lasting(
        self, connect: Connect, api: SnapshotApi, fault: Fault, reason: ClusterReason, retried: bool
    ) -> None:
        cluster = await connect(sleep=Pauses())
        api.faults = FaultPlan([fault])
        assert reason == await reason_of(cluster.get(POD))
        assert retried == (len(api.requests) >= 5)

    @pytest.mark.parametrize(
        "fault",
        [Fault(status=429), Fault(status=500), Fault(drop=True), Fault(cut=True), Fault(garbage=True)],
        ids=label,
    )
    async def test_passing(self, connect: Connect, api: SnapshotApi, fault: Fault) -> None:
        cluster = await connect(sleep=Pauses())
        api.faults = FaultPlan([fault.model_copy(update={"times": 2})])
        assert (await cluster.get(POD))["metadata"]["name"] == "api-0"
        assert len(api.requests) == 3

    async def test_retry_after_is_waited_for(self, connect: Connect, api: SnapshotApi) -> None:
        pauses = Pauses()
        cluster = await connect(sleep=pauses)
        api.faults = FaultPlan([Fault(status=429, retry_after_seconds=3, times=1)])
        await cluster.get(POD)
        assert pauses.seconds == [3.0]

    async def test_pauses_grow(self, connect: Connect, api: SnapshotApi) -> None:
        pauses = Pauses()
        cluster = await connect(sleep=pauses, jitter=lambda: 1.0)
        api.faults = FaultPlan([Fault(status=503)])
        assert await reason_of(cluster.get(POD)) == ClusterReason.UNAVAILABLE
        assert pauses.seconds == [0.1, 0.2, 0.4, 0.8]

    async def test_retry_after_past_the_deadline_is_not_waited_for(
        self, connect: Connect, api: SnapshotApi
    ) -> None:
        pauses = Pauses()
        cluster = await connect(sleep=pauses)
        api.faults = FaultPlan([Fault(status=429, retry_after_seconds=60)])
        assert await reason_of(cluster.get(POD)) == ClusterReason.UNAVAILABLE
        assert (pauses.seconds, len(api.requests)) == ([], 1)

    async def test_hanging_server(self, connect: Connect, api: SnapshotApi) -> None:
        cluster = await connect(limits=Limits(call_seconds=0.3, attempt_seconds=0.1))
        api.faults = FaultPlan([Fault(hang=True)])
        assert await reason_of(cluster.get(POD)) == ClusterReason.TIMEOUT
        assert await reason_of(cluster.logs(LogQuery("shop", "api-0", "app"))) == ClusterReason.TIMEOUT

    async def test_an_attempt_that_hangs_is_tried_again(self, connect: Connect, api: SnapshotApi) -> None:
        cluster = await connect(limits=Limits(call_seconds=5.0, attempt_seconds=0.1))
        api.faults = FaultPlan([Fault(hang=True, times=1)])
        assert (await cluster.get(POD))["kind"] == "Pod"

    async def test_nobody_listens(self, connect: Connect, tmp_path: Path) -> None:
        lonely = tmp_path / "lonely"
        write_kubeconfig(lonely, "http://127.0.0.1:9")
        cluster = await connect(kubeconfig=str(lonely), sleep=Pauses())
        assert await reason_of(cluster.get(POD)) == ClusterReason.UNAVAILABLE

    async def test_token_that_was_replaced(self, connect: Connect, api: SnapshotApi, tmp_path: Path) -> None:
        kubeconfig = tmp_path / "kubeconfig"
        text = kubeconfig.read_text()
        kubeconfig.write_text(text.replace(TOKEN, "FAKE-old"))
        cluster = await connect()
        kubeconfig.write_text(text)
        assert (await cluster.get(POD))["kind"] == "Pod"
        assert [request.status for request in api.requests] == [401, 200]

    async def test_one_broken_group_hides_no_other(self, real: KubernetesCluster, api: SnapshotApi) -> None:
        api.faults = FaultPlan([Fault(path="/apis/postgresql.cnpg.io/*", status=403)])
        assert (await real.kind("Rollout")).plural == "rollouts"

    async def test_a_group_that_does_not_answer_may_serve_it(
        self, real: KubernetesCluster, api: SnapshotApi
    ) -> None:
        api.faults = FaultPlan([Fault(path="/apis/argoproj.io/*", status=403)])
        assert await reason_of(real.kind("Rollout")) == ClusterReason.FORBIDDEN

    async def test_later_page_that_fails_leaves_a_part(self, connect: Connect, api: SnapshotApi) -> None:
        pods = [_object("ConfigMap", f"c-{number:03}", "shop") for number in range(600)]
        api._snapshot = Snapshot(pods)
        api.faults = FaultPlan([Fault(path="*/configmaps", status=410, every=2)])
        cluster = await connect()
        listing = await cluster.list(ListQuery("ConfigMap", "shop", limit=1000))
        assert (len(listing.items), listing.complete) == (250, False)

    async def test_pages(self, connect: Connect, api: SnapshotApi) -> None:
        api._snapshot = Snapshot([_object("ConfigMap", f"c-{number:03}", "shop") for number in range(600)])
        cluster = await connect()
        listing = await cluster.list(ListQuery("ConfigMap", "shop", limit=600))
        assert (len(set(names(listing))), listing.complete, len(api.requests)) == (600, True, 3)

    async def test_pages_get_smaller_when_objects_are_large(self, connect: Connect, api: SnapshotApi) -> None:
        data = {"text": "x" * 1000}
        api._snapshot = Snapshot([_object("ConfigMap", f"c-{n:02}", "shop", data=data) for n in range(20)])
        cluster = await connect(limits=Limits(body_bytes=8_000))
        listing = await cluster.list(ListQuery("ConfigMap", "shop"))
        assert (len(listing.items), listing.complete) == (20, True)

    async def test_object_that_is_too_large(self, connect: Connect, api: SnapshotApi) -> None:
        api._snapshot = Snapshot([_object("ConfigMap", "big", "shop", data={"text": "x" * 9000})])
        cluster = await connect(limits=Limits(body_bytes=8_000))
        assert await reason_of(cluster.list(ListQuery("ConfigMap", "shop"))) == ClusterReason.UNAVAILABLE
        assert (
            await reason_of(cluster.get(ObjectRef("ConfigMap", "big", "shop"))) == ClusterReason.UNAVAILABLE
        )


class TestRequests:
    """What the real adapter sends, and what it does not."""

    @pytest.mark.parametrize(
        "ref",
        [
            ObjectRef("Pod", "../../../secrets/db", "shop"),
            ObjectRef("Pod", "..", "shop"),
            ObjectRef("Pod", "%2e%2e/secrets", "shop"),
            ObjectRef("Pod", "api-0?x=1", "shop"),
            ObjectRef("Pod", "api-0#", "shop"),
            ObjectRef("Pod", "", "shop"),
            ObjectRef("Pod", "a" * 300, "shop"),
            ObjectRef("Pod", "api-0", "../shop"),
            ObjectRef("Pod", "api-0\nHost: x", "shop"),
            ObjectRef("Gizmo", "x", "shop", "../../api/v1"),
            ObjectRef("Gizmo", "x", "shop", "a/b/c"),
            ObjectRef("Pod/log", "x", "shop"),
        ],
        ids=repr,
    )
    async def test_hostile_names_are_not_sent(
        self, real: KubernetesCluster, api: SnapshotApi, ref: ObjectRef
    ) -> None:
        assert await reason_of(real.get(ref)) == ClusterReason.BAD_REQUEST
        assert list(api.requests) == []

    async def test_secrets_are_not_asked_for(self, real: KubernetesCluster, api: SnapshotApi) -> None:
        for name in ("Secret", "secrets", "secret.v1", " Secrets "):
            assert await reason_of(real.get(ObjectRef(name, "db", "shop", "v1"))) == ClusterReason.FORBIDDEN
        assert list(api.requests) == []

    async def test_names_with_colons(self, real: KubernetesCluster, api: SnapshotApi) -> None:
        api._snapshot = Snapshot([_object("ClusterRole", "system:node", "", "rbac.authorization.k8s.io/v1")])
        found = await real.get(ObjectRef("ClusterRole", "system:node"))
        assert found["metadata"]["name"] == "system:node"

    async def test_well_known_kinds_need_no_discovery(
        self, real: KubernetesCluster, api: SnapshotApi
    ) -> None:
        await real.get(POD)
        assert [request.path for request in api.requests] == [POD_PATH]

    async def test_discovery_is_remembered_for_a_while(self, connect: Connect, api: SnapshotApi) -> None:
        now = [0.0]
        cluster = await connect(monotonic=lambda: now[0], discovery_seconds=60.0)
        ref = ObjectRef("Rollout", "canary", "shop", "argoproj.io/v1alpha1")
        await asyncio.gather(*(cluster.get(ref) for _ in range(5)))
        assert [r.path for r in api.requests if "canary" not in r.path] == ["/apis/argoproj.io/v1alpha1"]
        now[0] = 61.0
        await cluster.get(ref)
        assert len([r.path for r in api.requests if "canary" not in r.path]) == 2

    async def test_messages_are_one_short_line(self, real: KubernetesCluster, api: SnapshotApi) -> None:
        with pytest.raises(ClusterError) as caught:
            await real.list(ListQuery("Pod", "shop", label_selector="a in \n\x1b[31m" + "b" * 900))
        assert len(caught.value.message) <= 300
        assert caught.value.message.isprintable()

    async def test_ping(self, real: KubernetesCluster) -> None:
        assert (await real.ping()).startswith("v1.")

    async def test_closed(self) -> None:
        assert await reason_of(KubernetesCluster().get(POD)) == ClusterReason.UNAVAILABLE
