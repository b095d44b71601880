"""The snapshot cluster API over HTTP: the documented protocol, seen by a plain client and by the official one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kubernetes.aio import client as official
from kubernetes.aio import config as official_config

from tests.fakes.faulty_api import AllBut, Fault, FaultPlan, FaultyApi
from worker.sandbox.cluster_files import SnapshotError
from worker.sandbox.cluster_server import serve, serve_api, shipped_rights, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot

CASES = Path(__file__).parent.parent / "corpus" / "cases"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "api-0", "namespace": "shop", "labels": {"app": "api"}},
    "spec": {"nodeName": "worker-1", "containers": [{"name": "app"}]},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "app",
                "image": "example.com/api:1",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-05-01T10:00:00Z"}},
            }
        ],
    },
}
ROLLOUT = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Rollout",
    "metadata": {"name": "canary", "namespace": "shop"},
}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop"}}
LOGS = {("shop", "api-0", "app", False): b"one\ntwo \xff\n"}


@pytest.fixture
async def api() -> FaultyApi:
    return FaultyApi(Snapshot([POD, ROLLOUT, SECRET], LOGS))


@pytest.fixture
async def url(api: FaultyApi) -> AsyncIterator[str]:
    async with serve_api(api) as url:
        yield url


@pytest.fixture
async def http(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(url) as session:
        yield session


async def fetch(http: aiohttp.ClientSession, path: str, method: str = "GET") -> tuple[int, Any]:
    async with http.request(method, path) as response:
        body = await response.read()
        is_json = response.content_type == "application/json"
        return response.status, json.loads(body) if is_json else body


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/apis/apps", "APIGroup"),
        ("/api/v1", "APIResourceList"),
        ("/apis/argoproj.io/v1alpha1", "APIResourceList"),
        ("/api/v1/pods", "PodList"),
        ("/api/v1/namespaces/shop/pods", "PodList"),
        (
            "/api/v1/namespaces/shop/pods?labelSelector=app%20in%20(api)&fieldSelector=status.phase%3DRunning",
            "PodList",
        ),
        ("/api/v1/namespaces/shop/pods/api-0", "Pod"),
        ("/api/v1/namespaces/shop/pods/api-0/status", "Pod"),
        ("/api/v1/nodes", "NodeList"),
        ("/apis/policy/v1/poddisruptionbudgets", "PodDisruptionBudgetList"),
        ("/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/canary", "Rollout"),
        ("/apis/events.k8s.io/v1/events", "EventList"),
    ],
)
async def test_documents(http: aiohttp.ClientSession, path: str, kind: str) -> None:
    status, document = await fetch(http, path)
    assert (status, document["kind"]) == (200, kind)


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        ("/api/v1/namespaces/shop/pods/gone", 404, "NotFound"),
        ("/api/v1/namespaces/shop/gizmos", 404, "NotFound"),
        ("/api/v1/pods/api-0", 404, "NotFound"),
        ("/api/v1/namespaces/shop/nodes", 404, "NotFound"),
        ("/api/v1/namespaces/shop/pods/api-0/exec", 404, "NotFound"),
        ("/api/v1/namespaces/shop/secrets", 403, "Forbidden"),
        ("/api/v1/namespaces/shop/secrets/db", 403, "Forbidden"),
        ("/api/v1/pods?labelSelector=a%20in", 400, "BadRequest"),
        ("/api/v1/pods?fieldSelector=spec.nope%3D1", 400, "BadRequest"),
        ("/api/v1/pods?limit=many", 400, "BadRequest"),
        ("/api/v1/pods?limit=1&continue=x", 400, "BadRequest"),
        ("/api/v1/pods?watch=true", 405, "MethodNotAllowed"),
        ("/api/v1/namespaces/shop/pods/api-0/log?container=nope", 400, "BadRequest"),
        ("/api/v1/namespaces/shop/pods/api-0/log?previous=true", 400, "BadRequest"),
        ("/api/v1/namespaces/shop/pods/gone/log", 404, "NotFound"),
    ],
)
async def test_failures_are_status_objects(
    http: aiohttp.ClientSession, path: str, code: int, reason: str
) -> None:
    status, document = await fetch(http, path)
    assert (document["kind"], document["status"]) == ("Status", "Failure")
    assert (status, document["code"], document["reason"]) == (code, code, reason)


@pytest.mark.parametrize(
    "path", ["/", "/apis/nobody.example/v1", "/apis/nobody.example/v1/gizmos", "/api/v2/pods"]
)
async def test_group_that_is_not_served_is_plain_text(http: aiohttp.ClientSession, path: str) -> None:
    assert await fetch(http, path) == (404, b"404 page not found\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_changed(http: aiohttp.ClientSession, method: str) -> None:
    status, document = await fetch(http, "/api/v1/namespaces/shop/pods/api-0", method)
    assert (status, document["reason"]) == (405, "MethodNotAllowed")


async def test_logs(http: aiohttp.ClientSession) -> None:
    path = "/api/v1/namespaces/shop/pods/api-0/log"
    assert await fetch(http, path) == (200, b"one\ntwo \xff\n")
    assert await fetch(http, f"{path}?tailLines=1") == (200, b"two \xff\n")
    assert await fetch(http, f"{path}?tailLines=1&limitBytes=3&container=app") == (200, b"two")


async def test_secrets_may_be_allowed() -> None:
    api = FaultyApi(Snapshot([SECRET]), AllBut(forbidden=()))
    async with serve_api(api) as url, aiohttp.ClientSession(url) as http:
        assert (await fetch(http, "/api/v1/namespaces/shop/secrets/db"))[0] == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/pods", 200),
        ("/api/v1/namespaces/shop/pods/api-0/log", 200),
        ("/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/canary", 200),
        ("/apis", 200),
        ("/apis/nobody.example/v1", 404),
    ],
)
async def test_the_shipped_rights_allow(path: str, status: int) -> None:
    api = FaultyApi(Snapshot([POD, ROLLOUT], LOGS), rights=shipped_rights())
    async with serve_api(api) as url, aiohttp.ClientSession(url) as http:
        assert (await fetch(http, path))[0] == status


@pytest.mark.parametrize(
    ("method", "path", "subject", "tried"),
    [
        (
            "GET",
            "/api/v1/namespaces/shop/secrets/db",
            'secrets "db"',
            'get resource "secrets" in API group "" in the namespace "shop"',
        ),
        (
            "GET",
            "/apis/argoproj.io/v1alpha1/analysisruns",
            "analysisruns.argoproj.io",
            'list resource "analysisruns" in API group "argoproj.io" at the cluster scope',
        ),
        (
            "GET",
            "/apis/nobody.example/v1/namespaces/shop/gizmos/x",
            'gizmos.nobody.example "x"',
            'get resource "gizmos" in API group "nobody.example" in the namespace "shop"',
        ),
        (
            "DELETE",
            "/api/v1/namespaces/shop/pods/api-0",
            'pods "api-0"',
            'delete resource "pods" in API group "" in the namespace "shop"',
        ),
    ],
)
async def test_the_shipped_rights_refuse_in_the_words_of_the_server(
    method: str, path: str, subject: str, tried: str
) -> None:
    api = FaultyApi(Snapshot([POD, ROLLOUT, SECRET]), rights=shipped_rights())
    async with serve_api(api) as url, aiohttp.ClientSession(url) as http:
        status, document = await fetch(http, path, method)
    assert (status, document["reason"]) == (403, "Forbidden")
    user = "system:serviceaccount:rca:rca-worker"
    assert document["message"] == f'{subject} is forbidden: User "{user}" cannot {tried}'


async def test_other_resources_may_be_forbidden() -> None:
    api = FaultyApi(Snapshot([ROLLOUT]), AllBut(forbidden=("rollouts.argoproj.io",)))
    async with serve_api(api) as url, aiohttp.ClientSession(url) as http:
        status, document = await fetch(http, "/apis/argoproj.io/v1alpha1/rollouts")
    assert status == 403
    assert document["message"].startswith("rollouts.argoproj.io is forbidden: User ")


@pytest.mark.parametrize("header", ["", "Bearer FAKE-wrong", "Basic FAKE-token", "Bearer"])
async def test_token_is_checked(header: str) -> None:
    api = FaultyApi(Snapshot([POD]), token="FAKE-token")
    async with serve_api(api) as url, aiohttp.ClientSession(url, headers={"Authorization": header}) as http:
        status, document = await fetch(http, "/api/v1/pods")
    assert (status, document["reason"]) == (401, "Unauthorized")


async def test_requests_are_noted(http: aiohttp.ClientSession, api: FaultyApi) -> None:
    await fetch(http, "/api/v1/pods?limit=1")
    await fetch(http, "/api/v1/secrets")
    seen = [(request.method, request.path, request.query, request.status) for request in api.requests]
    assert seen == [("GET", "/api/v1/pods", "limit=1", 200), ("GET", "/api/v1/secrets", "", 403)]


async def test_fault_with_a_status(http: aiohttp.ClientSession, api: FaultyApi) -> None:
    api.faults = FaultPlan([Fault(path="/api/v1/pods", status=429, retry_after_seconds=7, times=1)])
    async with http.get("/api/v1/pods") as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        assert (await response.json())["reason"] == "TooManyRequests"
    assert (await fetch(http, "/api/v1/pods"))[0] == 200


@pytest.mark.parametrize("fault", [Fault(drop=True), Fault(cut=True)])
async def test_fault_of_the_connection(http: aiohttp.ClientSession, api: FaultyApi, fault: Fault) -> None:
    api.faults = FaultPlan([fault])
    with pytest.raises(aiohttp.ClientError):
        await fetch(http, "/api/v1/pods")


async def test_fault_in_the_body(http: aiohttp.ClientSession, api: FaultyApi) -> None:
    api.faults = FaultPlan([Fault(garbage=True)])
    with pytest.raises(ValueError, match="decode"):
        await fetch(http, "/api/v1/pods")


async def test_server_ends_while_an_answer_hangs() -> None:
    api = FaultyApi(Snapshot([POD]), faults=[Fault(hang=True)])
    async with serve_api(api) as url, aiohttp.ClientSession(url) as http:
        with pytest.raises(TimeoutError):
            await http.get("/api/v1/pods", timeout=aiohttp.ClientTimeout(total=0.05))


async def test_delay_is_only_a_delay(http: aiohttp.ClientSession, api: FaultyApi) -> None:
    api.faults = FaultPlan([Fault(delay_seconds=0.01)])
    assert (await fetch(http, "/api/v1/pods"))[0] == 200


async def test_official_client(url: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, url, "FAKE-token")
    configuration = official.Configuration()
    await official_config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with official.ApiClient(configuration) as connection:
        core = official.CoreV1Api(connection)
        pods = await core.list_pod_for_all_namespaces(limit=1, label_selector="app=api")
        assert [pod.metadata.name for pod in pods.items] == ["api-0"]
        assert pods.items[0].status.container_statuses[0].state.running.started_at.year == 2026
        assert await core.read_namespaced_pod_log("api-0", "shop", limit_bytes=3, container="app") == "one"
        rollouts = await official.CustomObjectsApi(connection).list_namespaced_custom_object(
            "argoproj.io", "v1alpha1", "shop", "rollouts"
        )
        assert rollouts["items"][0]["kind"] == "Rollout"
        with pytest.raises(official.ApiException) as caught:
            await core.read_namespaced_pod("gone", "shop")
    assert caught.value.status == 404


def test_kubeconfig_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    write_kubeconfig(path, "http://127.0.0.1:1", "FAKE-token")
    assert path.stat().st_mode & 0o777 == 0o600


async def test_directory_that_is_not_a_snapshot(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError):
        async with serve(tmp_path):
            pass


@pytest.mark.parametrize("case", sorted(CASES.iterdir()), ids=lambda case: case.name)
async def test_every_object_and_log_of_a_case_is_served(case: Path) -> None:
    api = FaultyApi(Snapshot.read(case))
    async with serve_api(api) as url, aiohttp.ClientSession(url) as http:
        _, groups = await fetch(http, "/apis")
        versions = [
            "/api/v1",
            *(f"/apis/{v['groupVersion']}" for g in groups["groups"] for v in g["versions"]),
        ]
        counts: dict[str, int] = {}
        for version in versions:
            _, resources = await fetch(http, version)
            for resource in resources["resources"]:
                if "list" in resource["verbs"] and resource["name"] != "secrets":
                    status, listing = await fetch(http, f"{version}/{resource['name']}")
                    assert status == 200
                    counts[listing["kind"]] = len(listing["items"])
        text = "\n".join(file.read_text() for file in (case / "cluster").glob("*.yaml"))
        assert text.count("\nkind: Pod\n") == counts["PodList"]
        for log in (case / "logs").glob("*.log"):
            namespace, pod, container = log.name.removesuffix(".log").removesuffix(".previous").split("_")
            previous = "true" if ".previous." in log.name else "false"
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&previous={previous}"
            assert await fetch(http, path) == (200, log.read_bytes())
