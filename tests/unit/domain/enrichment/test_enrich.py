from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.enrichment import DETECTED_LABELS
from schemas.incident import IncidentRequest
from tests.corpus_files import CORPUS
from tests.examples import examples
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.hostile import OBJECTS
from tests.fakes.manifests import crashing, deployment, event, obj, pod, replica_set, running
from tests.fakes.memory_cluster import Call, MemoryCluster
from tests.fakes.tokens import real_tokens
from worker.domain.cluster.events import MAX_EVENTS
from worker.domain.enrichment.enrich import EVIDENCE_TOKENS, enrich
from worker.domain.untrusted.evidence import EvidenceLog, fence
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import KindInfo, Listing, ObjectRef

SHOP = obj("Namespace", "shop", namespace="")
NODE = obj("Node", "node-1", namespace="", status={"conditions": [{"type": "Ready", "status": "True"}]})
API = deployment("api", status={"replicas": 1})
REVISIONS = [replica_set(API, "a", 1, image="api:1"), replica_set(API, "b", 2, image="api:2")]
POD = pod(
    "api-b-x2x4z",
    status=crashing("OOMKilled", 137),
    owner=REVISIONS[1],
    labels={"app": "api"},
    spec={
        "nodeName": "node-1",
        "containers": [
            {"name": "app", "image": "api:2", "env": [{"name": "CONN", "value": "password=hunter2hunter2"}]}
        ],
        "volumes": [{"name": "c", "configMap": {"name": "settings"}}],
    },
)
LOGS = {
    ("shop", "api-b-x2x4z", "app", True): b"starting\ntoken=abcdef0123456789abcdef\npanic: out of memory\n",
    ("shop", "api-b-x2x4z", "app", False): b"starting\n",
}


def request(kind="Deployment", name="api", namespace="shop", **fields):
    values = {
        "incident_id": "inc-1",
        "remediation_id": "rr-1",
        "signal_type": "KubePodCrashLooping",
        "severity": "critical",
        "resource_kind": kind,
        "resource_name": name,
        "resource_namespace": namespace,
        "received_time": "2026-06-04T15:30:00Z",
    }
    return IncidentRequest.model_validate({**values, **fields})


def shop(*more, logs=LOGS):
    return MemoryCluster([SHOP, NODE, API, *REVISIONS, POD, *more], logs)


async def look(cluster, *target, **options):
    return await enrich(request(*target), cluster, FixedClock(), **options)


def bodies(found, source):
    return [item.body for item in found.evidence if item.source == f"enrichment:{source}"]


def scopes(found):
    return [item.scope for item in found.evidence]


async def test_a_crashing_workload_is_shown_with_pods_events_logs_and_what_changed():
    found = await look(shop(event(POD, "BackOff", "restarting", count=6)))
    assert "Deployment" == json.loads(bodies(found, "object")[0])["kind"]
    assert "OOMKilled exit 137" in bodies(found, "pods")[0]
    assert (
        137
        == json.loads(bodies(found, "pod")[0])["status"]["containerStatuses"][0]["lastState"]["terminated"][
            "exitCode"
        ]
    )
    assert "Warning BackOff x6" in bodies(found, "events")[0]
    assert bodies(found, "logs")[0].endswith("panic: out of memory")
    assert "spec.containers[app].image: api:1 -> api:2" in bodies(found, "changes")[0]
    assert bodies(found, "nodes")[0].split("\n")[1].startswith("node-1 | Ready")
    assert found.first_look.chain
    assert () == found.failed_sources


async def test_a_missing_config_map_is_named():
    assert ["ConfigMap shop/settings does not exist"] == bodies(await look(shop()), "configuration")


async def test_a_config_map_is_shown_by_its_keys_and_its_last_change_and_never_by_values():
    change = [
        {"manager": "kubectl-edit", "time": "2026-06-04T15:20:00Z", "fieldsV1": {"f:data": {"f:max": {}}}}
    ]
    settings_map = obj("ConfigMap", "settings", data={"max": "the-value-itself"}, managedFields=change)
    found = await look(shop(settings_map))
    assert "max | 2026-06-04T15:20:00Z by kubectl-edit" in bodies(found, "configuration")[0]
    assert "the-value-itself" not in "".join(item.body for item in found.evidence)


async def test_secrets_in_logs_and_environment_are_hidden():
    text = "".join(item.body for item in (await look(shop())).evidence)
    assert "hunter2hunter2" not in text
    assert "abcdef0123456789" not in text


async def test_a_pod_is_followed_to_its_owners():
    found = await look(shop(), "Pod", "api-b-x2x4z")
    assert ["Pod", "ReplicaSet", "Deployment"] == [ref.kind for ref in found.first_look.chain]
    assert bodies(found, "changes")
    assert [] == bodies(found, "pod")


async def test_the_current_log_stands_in_for_a_previous_one_that_is_gone():
    only_current = {key: log for key, log in LOGS.items() if not key[3]}
    found = await look(shop(logs=only_current))
    assert ["starting"] == bodies(found, "logs")
    assert () == found.failed_sources


async def test_a_kind_is_understood_in_any_spelling():
    assert (await look(shop(), "deployments", "api")).first_look.chain


async def test_other_failing_pods_of_the_namespace_are_told_apart():
    other = pod("postgres-0", status=crashing(), labels={"app": "postgres"})
    healthy = pod("web-0", status=running(), labels={"app": "web"})
    (body,) = bodies(await look(shop(other, healthy)), "neighbours")
    assert "postgres-0" in body
    assert "web-0" not in body


async def test_what_runs_on_a_node_in_trouble_is_shown_whoever_owns_it():
    pressure = {
        "conditions": [{"type": "MemoryPressure", "status": "True", "reason": "KubeletHasInsufficientMemory"}]
    }
    node = obj("Node", "node-1", namespace="", status=pressure)
    cluster = MemoryCluster([SHOP, node, API, *REVISIONS, POD, pod("hog", namespace="lab")], LOGS)
    found = bodies(await look(cluster), "nodes")
    assert "MemoryPressure=True" in found[0]
    assert "lab | hog" in found[1]


async def test_a_pod_that_cannot_be_scheduled_brings_all_nodes_and_its_claims():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    stuck = pod(
        "db-0",
        status={"phase": "Pending", "conditions": [condition]},
        spec={
            "containers": [{"name": "db"}],
            "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    )
    claim = obj(
        "PersistentVolumeClaim",
        "data",
        spec={"storageClassName": "fast", "volumeName": "pv-1"},
        status={"phase": "Bound"},
    )
    volume = obj("PersistentVolume", "pv-1", namespace="", spec={"storageClassName": "fast"})
    found = await look(shop(stuck, claim, volume), "Pod", "db-0")
    assert "all nodes: 1" in scopes(found)
    storage = bodies(found, "storage")
    assert "data | Bound | pv-1 | fast" in storage[0]
    assert "StorageClass fast does not exist" == storage[1]
    assert storage[2].split("\n")[1].startswith("pv-1")


async def test_a_claim_is_read_once():
    pending = pod(
        "db-0",
        status={"phase": "Pending"},
        spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]},
    )
    cluster = shop(pending, obj("PersistentVolumeClaim", "data"))
    await look(cluster, "Pod", "db-0")
    claim = ObjectRef("PersistentVolumeClaim", "data", "shop")
    assert 1 == cluster.calls.count(Call("get", claim))


async def test_the_configuration_of_a_cron_job_without_pods_is_read_from_its_template():
    volumes = [{"name": "c", "configMap": {"name": "gone"}}]
    template = {"spec": {"containers": [{"name": "app"}], "volumes": volumes}}
    cron = obj(
        "CronJob", "report", api_version="batch/v1", spec={"jobTemplate": {"spec": {"template": template}}}
    )
    found = await look(shop(cron), "CronJob", "report")
    assert ["ConfigMap shop/gone does not exist"] == bodies(found, "configuration")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (obj("Service", "s", spec={"selector": {"app": "api"}}), "endpoints of Service shop/s"),
        (
            obj(
                "HorizontalPodAutoscaler", "h", api_version="autoscaling/v2",
                spec={"scaleTargetRef": {"kind": "Deployment", "name": "api", "apiVersion": "apps/v1"}},
            ),
            "what HorizontalPodAutoscaler shop/h scales",
        ),
        (
            obj("PodDisruptionBudget", "p", api_version="policy/v1", spec={"selector": {"matchLabels": {"app": "api"}}}),
            "pods of PodDisruptionBudget shop/p: 1, 1 failing",
        ),
        (obj("ConfigMap", "settings"), "pods of ConfigMap shop/settings: 1, 1 failing"),
        (obj("ResourceQuota", "q"), "pods of ResourceQuota shop/q: 1, 1 failing"),
    ],
    ids=["service", "autoscaler", "budget", "configmap", "quota"],
)  # fmt: skip
async def test_what_stands_behind_other_kinds_is_found(target, expected):
    found = await look(shop(target), target["kind"], target["metadata"]["name"])
    assert expected in scopes(found)


async def test_jobs_of_a_cron_job_are_shown():
    cron = obj("CronJob", "load", api_version="batch/v1", spec={"schedule": "0 * * * *"})
    job = obj("Job", "load-29107640", api_version="batch/v1", owner=cron, status={"failed": 3})
    other = obj("Job", "other-29107640", api_version="batch/v1")
    (body,) = bodies(await look(shop(cron, job, other), "CronJob", "load"), "kind")
    assert "load-29107640" in body
    assert "other-29107640" not in body


async def test_quotas_are_shown_where_pods_are_missing():
    short = deployment("web", status={"replicas": 0})
    quota = obj("ResourceQuota", "q", status={"hard": {"pods": "1"}, "used": {"pods": "1"}})
    assert "pods 1/1" in bodies(await look(shop(short, quota), "Deployment", "web"), "kind")[0]


async def test_a_node_is_shown_with_its_pods_and_events():
    found = await look(shop(event(NODE, "NodeNotReady", "m")), "Node", "node-1", "")
    assert "Node" == json.loads(bodies(found, "object")[0])["kind"]
    assert "shop | api-b-x2x4z" in bodies(found, "pods")[0]
    assert "Warning NodeNotReady" in bodies(found, "events")[0]


async def test_a_namespace_is_shown_with_its_pods_and_events():
    found = await look(shop(event(POD, "BackOff", "m")), "Namespace", "shop", "")
    assert "api-b-x2x4z" in bodies(found, "pods")[0]
    assert "BackOff" in bodies(found, "events")[0]


async def test_conditions_of_a_custom_resource_are_shown():
    status = {"conditions": [{"type": "Ready", "status": "False", "reason": "NoDisk"}]}
    cluster = shop(obj("Cluster", "pg", api_version="postgresql.cnpg.io/v1", status=status))
    assert "NoDisk" in bodies(await look(cluster, "Cluster", "pg"), "object")[0]


async def test_a_deleted_object_is_told_from_one_that_could_not_be_read():
    gone = await look(shop(), "Pod", "gone")
    assert () == gone.first_look.chain
    assert "does not exist" in bodies(gone, "object")[0]
    cluster = shop()
    cluster.fail(ClusterReason.FORBIDDEN, kind="Pod", method="get")
    hidden = await look(cluster, "Pod", "api-b-x2x4z")
    assert () == hidden.first_look.chain
    assert [] == bodies(hidden, "object")
    assert any(name.startswith("Pod shop/api-b-x2x4z") for name in hidden.failed_sources)


async def test_events_of_a_deleted_object_are_still_found():
    found = await look(shop(event(pod("gone"), "Evicted", "low on memory")), "Pod", "gone")
    assert "Evicted" in bodies(found, "events")[0]


async def test_secrets_are_not_read():
    cluster = shop()
    found = await look(cluster, "Secret", "db")
    assert () == found.first_look.chain
    assert "Secret shop/db (Secrets are never read)" in found.failed_sources
    assert not any(call.method == "get" and call.query.kind == "Secret" for call in cluster.calls)


@pytest.mark.parametrize(
    ("kind", "method", "failed"),
    [
        ("Event", "list", "events (forbidden"),
        ("Pod", "list", "pods (forbidden"),
        ("Pod", "logs", "previous log of Pod shop/api-b-x2x4z (forbidden)"),
        ("ReplicaSet", "list", "changes (forbidden"),
        ("Node", "get", "nodes (forbidden"),
        ("ConfigMap", "get", "configuration (forbidden"),
    ],
)
async def test_a_source_that_fails_is_named_and_stops_nothing(kind, method, failed):
    cluster = shop()
    cluster.fail(ClusterReason.FORBIDDEN, kind=kind, method=method)
    found = await look(cluster)
    assert any(name.startswith(failed) for name in found.failed_sources)
    assert bodies(found, "object")


class SlowCluster(MemoryCluster):
    """A cluster whose events never arrive."""

    async def list(self, query):
        if query.kind == "Event":
            await asyncio.Event().wait()
        return await super().list(query)


async def test_what_is_late_is_unknown_and_the_rest_is_there():
    found = await look(SlowCluster([SHOP, NODE, API, *REVISIONS, POD], LOGS), deadline_seconds=2.5)
    late = ("events (no answer in time)", "node events (no answer in time)")
    assert late == found.failed_sources
    assert bodies(found, "pods")
    assert [] == bodies(found, "events")


# -- namespaces with more objects than are read

CROWD = [pod(f"aaa-{i:03d}", status=running()) for i in range(500)]


async def test_events_of_a_busy_namespace_are_those_of_the_incident():
    told = [event(API, "ScalingReplicaSet", "up", type="Normal"), event(POD, "BackOff", "restarting")]
    noise = [event(NODE, "Noise", f"{i}", key=str(i)) for i in range(MAX_EVENTS)]
    for item in noise:
        item["metadata"] |= {"name": f"aaa.{item['metadata']['name']}", "namespace": "shop"}
    quiet, busy = await look(shop(*told)), await look(shop(*told, *noise), deadline_seconds=60.0)
    assert bodies(quiet, "events") == bodies(busy, "events")
    assert () == busy.failed_sources


async def test_events_that_were_not_read_are_unknown():
    warnings = [event(POD, "Failed", f"{i}", key=str(i)) for i in range(MAX_EVENTS + 1)]
    found = await look(shop(*warnings), "Namespace", "shop", "", deadline_seconds=60.0)
    assert ("events (not read: events in shop that come later by name)",) == found.failed_sources


async def test_pods_of_a_workload_are_found_behind_any_number_of_others():
    found = await look(shop(*CROWD, pod("zzz-pending", status={"phase": "Pending"})))
    assert "zzz-pending" in bodies(found, "neighbours")[0]
    assert "pods of Deployment shop/api: 1, 1 failing" in scopes(found)
    assert ("other pods (shop has more than were read)",) == found.failed_sources


async def test_a_pod_that_no_list_shows_is_still_its_own():
    alone = pod("zzz", status=crashing())
    found = await look(shop(*CROWD, alone), "Pod", "zzz")
    assert "pods of Pod shop/zzz: 1, 1 failing, more than were read" in scopes(found)
    assert ("pods (there are more than were read)",) == found.failed_sources


class HalfReadable(MemoryCluster):
    """One ConfigMap is forbidden, the other one never arrives."""

    async def get(self, ref):
        if ref.name == "forbidden":
            raise ClusterError(ClusterReason.FORBIDDEN, "no")
        if ref.name == "never":
            await asyncio.Event().wait()
        return await super().get(ref)


async def test_a_source_that_fails_leaves_no_call_behind():
    names = ("never", "forbidden")
    volumes = [{"name": name, "configMap": {"name": name}} for name in names]
    broken = pod("api-b-broken", status=crashing("Error", 1), spec={"volumes": volumes})
    found = await look(HalfReadable([SHOP, NODE, broken]), "Pod", "api-b-broken")
    assert ("configuration (forbidden: no)",) == found.failed_sources
    assert {asyncio.current_task()} == asyncio.all_tasks()


class StuckCluster(MemoryCluster):
    """A cluster that never answers one kind of call."""

    stuck = ("get", "Deployment")

    async def get(self, ref):
        if self.stuck == ("get", ref.kind):
            await asyncio.Event().wait()
        return await super().get(ref)

    async def list(self, query):
        if self.stuck == ("list", query.kind):
            await asyncio.Event().wait()
        return await super().list(query)


@pytest.mark.parametrize("stuck", [("get", "Deployment"), ("list", "Pod")])
async def test_what_there_was_no_time_for_is_unknown_too(stuck):
    cluster = StuckCluster([SHOP, NODE, API, *REVISIONS, POD], LOGS)
    cluster.stuck = stuck
    found = await look(cluster, deadline_seconds=2.5)
    unknown = " ".join(found.failed_sources)
    for source in ("events", "changes", "nodes", "detected labels"):
        assert f"{source} (no time left to read it)" in unknown
    assert bool(stuck[1] == "Pod") == bool(bodies(found, "object"))
    assert found.detected_labels.is_unknown("pdb_protected")


async def test_nothing_at_all_is_known_of_a_cluster_that_does_not_answer():
    cluster = shop()
    cluster.fail(ClusterReason.UNAVAILABLE)
    found = await look(cluster)
    assert () == found.first_look.chain
    assert len(DETECTED_LABELS) == len(found.detected_labels.failed_detections)
    assert found.failed_sources


def cases():
    return sorted((CORPUS / "cases").iterdir())


@pytest.mark.parametrize("case", cases(), ids=lambda path: path.name[:3])
async def test_real_incidents_stay_within_the_budget_and_are_read_in_full(case):
    asked = IncidentRequest.model_validate_json((case / "incident.json").read_bytes())
    found = await enrich(asked, MemoryCluster.read(case), FixedClock())
    log = EvidenceLog()
    sent = [fence(log.add(item), "4f2a9c01b7d3") for item in found.evidence]
    assert sum(map(real_tokens, sent)) <= EVIDENCE_TOKENS
    assert () == found.failed_sources
    assert found.first_look.chain
    assert () == found.detected_labels.failed_detections
    for item in found.evidence:
        if item.source in {"enrichment:object", "enrichment:pod"}:
            assert isinstance(json.loads(item.body), dict)


class HostileCluster:
    """A cluster that answers everything with the same object."""

    def __init__(self, manifest):
        self.manifest = manifest

    async def get(self, ref):
        return self.manifest

    async def list(self, query):
        return Listing((self.manifest,), complete=False)

    async def logs(self, query):
        return b"\xff\x00"

    async def kind(self, kind, api_version=""):
        return KindInfo(kind, "v1", kind.lower(), namespaced=True)


@examples(80)
@given(
    OBJECTS, st.sampled_from(("Pod", "Deployment", "Node", "Service", "HorizontalPodAutoscaler", "Widget"))
)
async def test_whatever_the_api_answers_the_first_look_succeeds(manifest, kind):
    namespace = "" if kind == "Node" else "shop"
    found = await enrich(request(kind, "x", namespace), HostileCluster(manifest), FixedClock())
    assert found.evidence


async def test_what_speaks_against_nothing_to_do_is_kept_apart():
    found = await enrich(request(), shop(), FixedClock())
    assert any("api-b-x2x4z" in item for item in found.first_look.trouble)
    assert found.first_look.unread == ()
    assert ["Deployment"] == [ref.kind for ref in found.first_look.chain]


@pytest.mark.parametrize(("kind", "unread"), [("Pod", "pods"), ("Event", "events")])
async def test_a_first_look_that_could_not_read_says_so(kind, unread):
    cluster = shop()
    cluster.fail(ClusterReason.FORBIDDEN, kind=kind, method="list")
    found = await enrich(request(), cluster, FixedClock())
    assert unread in found.first_look.unread


async def test_a_target_that_could_not_be_read_is_no_quiet_one():
    cluster = shop()
    cluster.fail(ClusterReason.FORBIDDEN, kind="Deployment", method="get")
    found = await enrich(request(), cluster, FixedClock())
    assert found.first_look.chain == ()
    assert found.first_look.unread[:1] == ("Deployment shop/api",)


async def test_the_claim_of_an_ephemeral_volume_leads_to_its_pod_and_back():
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    waiting = pod("api-0", status={"phase": "Pending"}, spec={"volumes": volumes})
    claim = obj("PersistentVolumeClaim", "api-0-scratch", status={"phase": "Pending"})
    refused = event(claim, "ProvisioningFailed", "no such class")
    from_pod = await look(shop(waiting, claim, refused), "Pod", "api-0")
    assert "api-0-scratch | Pending" in bodies(from_pod, "storage")[0]
    assert "ProvisioningFailed" in bodies(from_pod, "events")[0]
    from_claim = await look(shop(waiting, claim, refused), "PersistentVolumeClaim", "api-0-scratch")
    assert "api-0 | " in bodies(from_claim, "pods")[0]


async def test_owners_that_could_not_be_read_are_named():
    cluster = shop()
    cluster.fail(ClusterReason.FORBIDDEN, kind="Deployment", method="get")
    found = await look(cluster, "Pod", POD["metadata"]["name"])
    assert any(source.startswith("further owners (Deployment shop/api") for source in found.failed_sources)


async def test_an_autoscaler_of_nothing_has_no_workload():
    scaler = obj("HorizontalPodAutoscaler", "h", api_version="autoscaling/v2", spec={})
    found = await look(shop(scaler), "HorizontalPodAutoscaler", "h")
    assert [] == bodies(found, "changes")


async def test_an_object_of_cluster_scope_has_no_pods():
    found = await look(shop(obj("PersistentVolume", "pv", namespace="")), "PersistentVolume", "pv", "")
    assert [] == bodies(found, "pods")


async def test_claims_of_a_healthy_pod_bring_no_storage_classes():
    claim = obj("PersistentVolumeClaim", "data", spec={"storageClassName": "fast"}, status={"phase": "Bound"})
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    healthy = pod("db-0", status=running(), spec={"volumes": volumes})
    found = await look(shop(claim, healthy), "Pod", "db-0")
    assert not any("storage classes" in scope for scope in scopes(found))
    assert bodies(found, "storage")
