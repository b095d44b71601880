"""What the real Cluster adapter makes of a server that misbehaves, and what it sends at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.faulty_api import AllBut, Fault, FaultPlan, FaultyApi
from tests.fakes.small_cluster import (
    OBJECTS,
    TOKEN,
    Connect,
    connecting,
    example,
    names,
    reason_of,
    small_api,
)
from worker.adapters.kubernetes_cluster import ApiLimits, KubernetesCluster
from worker.adapters.kubernetes_cluster.discovery import FAILED_SECONDS, RECHECK_SECONDS, RECHECKS
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import ListQuery, LogQuery, ObjectRef
from worker.sandbox.cluster_server import Rights, serve_api, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot


@pytest.fixture
async def api() -> FaultyApi:
    return small_api()


@pytest.fixture
async def connect(api: FaultyApi, tmp_path: Path) -> AsyncIterator[Connect]:
    async with connecting(api, tmp_path / "kubeconfig") as connect:
        yield connect


@pytest.fixture
async def real(connect: Connect) -> KubernetesCluster:
    return await connect()


POD = ObjectRef("Pod", "api-0", "shop")
POD_PATH = "/api/v1/namespaces/shop/pods/api-0"


class Pauses:
    """Stands in for sleep: notes the pauses instead of taking them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def config_maps(count: int) -> Snapshot:
    return Snapshot([example("ConfigMap", f"c-{number:04}", "shop") for number in range(count)])


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
    async def test_a_lasting_fault_has_its_reason_and_is_retried_if_it_may_pass(
        self, connect: Connect, api: FaultyApi, fault: Fault, reason: ClusterReason, retried: bool
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
    async def test_a_passing_fault_is_retried(self, connect: Connect, api: FaultyApi, fault: Fault) -> None:
        cluster = await connect(sleep=Pauses())
        api.faults = FaultPlan([fault.model_copy(update={"times": 2})])
        assert (await cluster.get(POD))["metadata"]["name"] == "api-0"
        assert len(api.requests) == 3

    async def test_what_another_host_answers_is_not_read(
        self, real: KubernetesCluster, api: FaultyApi
    ) -> None:
        other = small_api()
        async with serve_api(other) as url:
            api.faults = FaultPlan([Fault(redirect=f"{url}{POD_PATH}")])
            assert await reason_of(real.get(POD)) == ClusterReason.UNAVAILABLE
        assert [401] == [seen.status for seen in other.requests]  # it was asked without our credentials

    async def test_retry_after_is_waited_for(self, connect: Connect, api: FaultyApi) -> None:
        pauses = Pauses()
        cluster = await connect(sleep=pauses)
        api.faults = FaultPlan([Fault(status=429, retry_after_seconds=3, times=1)])
        await cluster.get(POD)
        assert pauses.seconds == [3.0]

    async def test_pauses_grow(self, connect: Connect, api: FaultyApi) -> None:
        pauses = Pauses()
        cluster = await connect(sleep=pauses, jitter=lambda: 1.0)
        api.faults = FaultPlan([Fault(status=503)])
        assert await reason_of(cluster.get(POD)) == ClusterReason.UNAVAILABLE
        assert pauses.seconds == [0.1, 0.2, 0.4, 0.8]

    async def test_retry_after_past_the_deadline_is_not_waited_for(
        self, connect: Connect, api: FaultyApi
    ) -> None:
        pauses = Pauses()
        cluster = await connect(sleep=pauses)
        api.faults = FaultPlan([Fault(status=429, retry_after_seconds=600)])
        assert await reason_of(cluster.get(POD)) == ClusterReason.UNAVAILABLE
        assert (pauses.seconds, len(api.requests)) == ([], 1)

    async def test_hanging_server(self, connect: Connect, api: FaultyApi) -> None:
        cluster = await connect(limits=ApiLimits(call_seconds=0.3, attempt_seconds=0.1))
        api.faults = FaultPlan([Fault(hang=True)])
        assert await reason_of(cluster.get(POD)) == ClusterReason.TIMEOUT
        assert await reason_of(cluster.logs(LogQuery("shop", "api-0", "app"))) == ClusterReason.TIMEOUT

    async def test_an_attempt_that_hangs_is_tried_again(self, connect: Connect, api: FaultyApi) -> None:
        cluster = await connect(limits=ApiLimits(call_seconds=60.0, attempt_seconds=1.0))
        api.faults = FaultPlan([Fault(hang=True, times=1)])
        assert (await cluster.get(POD))["kind"] == "Pod"

    async def test_a_refused_connection_is_unavailable(self, connect: Connect, tmp_path: Path) -> None:
        lonely = tmp_path / "lonely"
        write_kubeconfig(lonely, "http://127.0.0.1:9")
        cluster = await connect(kubeconfig=str(lonely), sleep=Pauses())
        assert await reason_of(cluster.get(POD)) == ClusterReason.UNAVAILABLE

    async def test_token_that_was_replaced(self, connect: Connect, api: FaultyApi, tmp_path: Path) -> None:
        kubeconfig = tmp_path / "kubeconfig"
        text = kubeconfig.read_text()
        kubeconfig.write_text(text.replace(TOKEN, "FAKE-old"))
        cluster = await connect()
        kubeconfig.write_text(text)
        assert (await cluster.get(POD))["kind"] == "Pod"
        assert [request.status for request in api.requests] == [401, 200]

    async def test_one_broken_group_hides_no_other(self, real: KubernetesCluster, api: FaultyApi) -> None:
        api.aggregated = False
        api.faults = FaultPlan([Fault(path="/apis/postgresql.cnpg.io/*", status=403)])
        assert (await real.kind("Rollout")).plural == "rollouts"

    async def test_a_group_that_does_not_answer_may_serve_it(
        self, real: KubernetesCluster, api: FaultyApi
    ) -> None:
        api.aggregated = False
        api.faults = FaultPlan([Fault(path="/apis/argoproj.io/*", status=403)])
        assert await reason_of(real.kind("Rollout")) == ClusterReason.FORBIDDEN

    async def test_later_page_that_fails_leaves_a_part(self, connect: Connect, api: FaultyApi) -> None:
        api.snapshot = config_maps(600)
        api.faults = FaultPlan([Fault(path="*/configmaps", status=403, every=2)])
        cluster = await connect()
        listing = await cluster.list(ListQuery("ConfigMap", "shop", limit=1000))
        assert (len(listing.items), listing.complete) == (500, False)

    @pytest.mark.parametrize(
        ("continuable", "times", "expected"),
        [(True, 1, (1_200, True, 4)), (False, 1, (1_200, True, 5)), (True, None, (1_000, False, 4))],
        ids=["goes on", "starts again", "gives up"],
    )
    async def test_a_list_that_expires_is_never_silently_incomplete(
        self,
        connect: Connect,
        api: FaultyApi,
        continuable: bool,
        times: int | None,
        expected: tuple[int, bool, int],
    ) -> None:
        api.snapshot = config_maps(1_200)
        expired = Fault(path="*/configmaps", status=410, every=2, times=times, continuable=continuable)
        api.faults = FaultPlan([expired])
        listing = await (await connect()).list(ListQuery("ConfigMap", "shop", limit=2_000))
        assert expected == (len(set(names(listing))), listing.complete, len(api.requests))

    @pytest.mark.parametrize(
        ("status", "reason"),
        [
            (400, ClusterReason.UNAVAILABLE),
            (403, ClusterReason.FORBIDDEN),
            (404, ClusterReason.UNAVAILABLE),
        ],
    )
    async def test_the_page_of_a_proxy_is_called_what_it_is(
        self, real: KubernetesCluster, api: FaultyApi, status: int, reason: ClusterReason
    ) -> None:
        api.faults = FaultPlan([Fault(status=status, page="<html><b>Please log in</b></html>")])
        with pytest.raises(ClusterError, match="not a Kubernetes API server: Please log in") as caught:
            await real.get(POD)
        assert reason == caught.value.reason

    async def test_a_list_is_read_page_by_page(self, connect: Connect, api: FaultyApi) -> None:
        api.snapshot = config_maps(1_200)
        cluster = await connect()
        listing = await cluster.list(ListQuery("ConfigMap", "shop", limit=1_200))
        assert (len(set(names(listing))), listing.complete, len(api.requests)) == (1_200, True, 3)

    async def test_pages_get_smaller_when_objects_are_large(self, connect: Connect, api: FaultyApi) -> None:
        data = {"text": "x" * 1000}
        api.snapshot = Snapshot([example("ConfigMap", f"c-{n:02}", "shop", data=data) for n in range(20)])
        cluster = await connect(limits=ApiLimits(body_bytes=8_000))
        listing = await cluster.list(ListQuery("ConfigMap", "shop"))
        assert (len(listing.items), listing.complete) == (20, True)

    async def test_object_that_is_too_large(self, connect: Connect, api: FaultyApi) -> None:
        api.snapshot = Snapshot([example("ConfigMap", "big", "shop", data={"text": "x" * 9000})])
        cluster = await connect(limits=ApiLimits(body_bytes=8_000))
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
        self, real: KubernetesCluster, api: FaultyApi, ref: ObjectRef
    ) -> None:
        assert await reason_of(real.get(ref)) == ClusterReason.BAD_REQUEST
        assert list(api.requests) == []

    async def test_half_a_surrogate_pair_is_replaced(self, real: KubernetesCluster, api: FaultyApi) -> None:
        odd = example("ConfigMap", "odd", "shop", data={"a": "x\ud800y \\ud800 \U0001f388 é", "k\udfff": ""})
        api.snapshot = Snapshot([example("Namespace", "shop"), odd])
        found = await real.get(ObjectRef("ConfigMap", "odd", "shop"))
        assert {"a": "x\ufffdy \\ud800 \U0001f388 é", "k\ufffd": ""} == found["data"]
        assert [found] == list((await real.list(ListQuery("ConfigMap", "shop"))).items)

    async def test_secrets_are_not_asked_for(self, real: KubernetesCluster, api: FaultyApi) -> None:
        for name in ("Secret", "secrets", "secret.v1", " Secrets "):
            assert await reason_of(real.get(ObjectRef(name, "db", "shop", "v1"))) == ClusterReason.FORBIDDEN
        assert list(api.requests) == []

    async def test_names_with_colons(self, real: KubernetesCluster, api: FaultyApi) -> None:
        api.rights = AllBut()
        api.snapshot = Snapshot([example("ClusterRole", "system:node", "", "rbac.authorization.k8s.io/v1")])
        found = await real.get(ObjectRef("ClusterRole", "system:node"))
        assert found["metadata"]["name"] == "system:node"

    async def test_well_known_kinds_need_no_discovery(self, real: KubernetesCluster, api: FaultyApi) -> None:
        await real.get(POD)
        assert [request.path for request in api.requests] == [POD_PATH]

    async def test_discovery_is_remembered_for_a_while(self, connect: Connect, api: FaultyApi) -> None:
        now = [0.0]
        cluster = await connect(monotonic=lambda: now[0], discovery_seconds=60.0)
        ref = ObjectRef("Rollout", "canary", "shop", "argoproj.io/v1alpha1")
        await asyncio.gather(*(cluster.get(ref) for _ in range(5)))
        assert [r.path for r in api.requests if "canary" not in r.path] == ["/apis/argoproj.io/v1alpha1"]
        now[0] = 61.0
        await cluster.get(ref)
        assert len([r.path for r in api.requests if "canary" not in r.path]) == 2

    @pytest.mark.parametrize("name", ["Gadget", "gadgets.e.com", "Gadget e.com/v1"])
    @pytest.mark.parametrize("aggregated", [True, False])
    async def test_a_kind_that_was_added_is_known_at_once(
        self, connect: Connect, api: FaultyApi, name: str, aggregated: bool
    ) -> None:
        api.aggregated = aggregated
        cluster, question = await connect(monotonic=lambda: 0.0), name.split()
        assert await reason_of(cluster.kind(*question)) == ClusterReason.UNKNOWN_KIND
        api.snapshot = Snapshot([example("Gadget", "g", "shop", "e.com/v1")])
        assert (await cluster.kind(*question)).api_version == "e.com/v1"

    @pytest.mark.parametrize("name", ["Gadget", "gadgets.e.com"])
    async def test_a_version_that_was_replaced_is_found_again(
        self, real: KubernetesCluster, api: FaultyApi, name: str
    ) -> None:
        api.rights = AllBut()
        for version in ("v1alpha1", "v1"):
            api.snapshot = Snapshot([example("Gadget", "g", "shop", f"e.com/{version}")])
            found = await real.get(ObjectRef(name, "g", "shop"))
            assert found["apiVersion"] == f"e.com/{version}"
        api.snapshot = Snapshot([example("Gadget", "g", "shop", "e.com/v2")])
        assert names(await real.list(ListQuery(name, "shop"))) == ["g"]
        api.snapshot = Snapshot([])
        assert await reason_of(real.get(ObjectRef(name, "g", "shop"))) == ClusterReason.UNKNOWN_KIND

    async def test_questions_about_unknown_kinds_do_not_read_discovery_each_time(
        self, connect: Connect, api: FaultyApi
    ) -> None:
        now = [0.0]
        cluster = await connect(monotonic=lambda: now[0])
        asked = []
        for _ in range(4 * RECHECKS):
            assert await reason_of(cluster.kind("Gadget")) == ClusterReason.UNKNOWN_KIND
            asked.append(len(api.requests))
        assert asked[RECHECKS] == asked[-1] == 2 * (1 + RECHECKS)
        now[0] = RECHECK_SECONDS
        api.snapshot = Snapshot([example("Gadget", "g", "shop", "e.com/v1")])
        assert (await cluster.kind("Gadget")).plural == "gadgets"

    async def test_many_questions_at_once_read_discovery_once(
        self, real: KubernetesCluster, api: FaultyApi
    ) -> None:
        questions = (reason_of(real.kind(f"Gadget{letter}")) for letter in "abcdefgh")
        assert set(await asyncio.gather(*questions)) == {ClusterReason.UNKNOWN_KIND}
        assert [request.path for request in api.requests] == ["/apis", "/api"]

    @pytest.mark.parametrize("aggregated", [True, False])
    async def test_a_dead_aggregated_api_hides_nothing_and_is_named(
        self, connect: Connect, api: FaultyApi, aggregated: bool
    ) -> None:
        api.snapshot = Snapshot([*OBJECTS, example("PodMetrics", "m", "shop", "metrics.k8s.io/v1beta1")])
        api.aggregated, api.dead = aggregated, frozenset({"metrics.k8s.io"})
        cluster = await connect(sleep=Pauses())
        assert (await cluster.kind("Rollout")).api_version == "argoproj.io/v1alpha1"
        with pytest.raises(ClusterError, match=r"metrics\.k8s\.io/v1beta1") as caught:
            await cluster.kind("Gizmo")
        assert caught.value.reason is ClusterReason.UNKNOWN_KIND
        assert await reason_of(cluster.kind("PodMetrics", "metrics.k8s.io/v1beta1")) is not None

    async def test_a_dead_api_group_is_not_asked_at_each_search(
        self, connect: Connect, api: FaultyApi
    ) -> None:
        now, pauses = [0.0], Pauses()
        api.aggregated = False
        api.faults = FaultPlan([Fault(path="/apis/argoproj.io/*", status=503)])
        cluster = await connect(monotonic=lambda: now[0], sleep=pauses)
        assert await reason_of(cluster.kind("Gadget")) == ClusterReason.UNKNOWN_KIND
        paused = len(pauses.seconds)
        assert await reason_of(cluster.kind("Widget")) == ClusterReason.UNKNOWN_KIND
        assert paused == len(pauses.seconds)
        now[0], api.faults = FAILED_SECONDS, FaultPlan()
        assert (await cluster.kind("Rollout")).api_version == "argoproj.io/v1alpha1"

    async def test_a_search_reads_two_documents(self, real: KubernetesCluster, api: FaultyApi) -> None:
        assert (await real.kind("rollouts")).kind == "Rollout"
        assert (await real.kind("rollouts.argoproj.io")).kind == "Rollout"
        assert [request.path for request in api.requests][:2] == ["/apis", "/api"]

    @pytest.mark.parametrize(
        ("name", "api_version"),
        [
            ("Deployment", "apps/v1beta1"),
            ("Deployment", "extensions/v1beta1"),
            ("hpa", "autoscaling/v2beta2"),
            ("HorizontalPodAutoscaler", "autoscaling/v1"),
            ("Ingress", "extensions/v1beta1"),
            ("pods", ""),
            ("deployments.apps", ""),
        ],
    )
    async def test_built_in_kinds_need_no_discovery(
        self, real: KubernetesCluster, api: FaultyApi, name: str, api_version: str
    ) -> None:
        assert (await real.kind(name, api_version)).namespaced
        assert list(api.requests) == []

    async def test_messages_are_one_short_line(self, real: KubernetesCluster, api: FaultyApi) -> None:
        with pytest.raises(ClusterError) as caught:
            await real.list(ListQuery("Pod", "shop", label_selector="a in \n\x1b[31m" + "b" * 900))
        assert len(caught.value.message) <= 300
        assert caught.value.message.isprintable()

    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            (Fault(path="*/pods", status=403), ClusterReason.FORBIDDEN),
            (Fault(status=401), ClusterReason.FORBIDDEN),
            (Fault(status=503), ClusterReason.UNAVAILABLE),
            (Fault(drop=True), ClusterReason.UNAVAILABLE),
        ],
        ids=label,
    )
    async def test_check_uses_a_right_that_is_needed(
        self, connect: Connect, api: FaultyApi, fault: Fault, reason: ClusterReason
    ) -> None:
        cluster = await connect(sleep=Pauses())
        for namespace in ("", "shop", None):
            await cluster.check(namespace)
        api.faults = FaultPlan([fault])
        assert await reason_of(cluster.check()) == reason

    async def test_check_without_any_right(self, connect: Connect, api: FaultyApi) -> None:
        cluster, api.rights = await connect(), Rights()
        with pytest.raises(ClusterError, match='cannot list resource "pods"'):
            await cluster.check()

    async def test_a_closed_cluster_is_unavailable(self) -> None:
        assert await reason_of(KubernetesCluster().get(POD)) == ClusterReason.UNAVAILABLE
