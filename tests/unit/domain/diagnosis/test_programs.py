"""What programs write into their logs leads to objects, and never corroborates an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes.manifests import NOW, crashing, event, obj, replica_set, running
from tests.fakes.memory_cluster import MemoryCluster
from tests.unit.domain.diagnosis.small_clusters import (
    claim,
    node,
    pod_of,
    service,
    unscheduled,
    waiting,
    workload,
)
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.causes import Basis, Cause, Diagnosis, Remedy
from worker.domain.diagnosis.claims import corroborate, diagnose
from worker.domain.diagnosis.driver import Budget, Investigator
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.statements import statements
from worker.domain.values.objects import Manifest, ObjectRef

LATE = {"claimName": "data"}


def ref(manifest: Manifest) -> ObjectRef:
    """The object as a spec refers to it: without its uid."""
    return replace(reference(manifest), uid="")


def app(
    *said: str, name: str = "api", well: bool = False, **container: Any
) -> tuple[list[Manifest], dict[Any, bytes]]:
    """A workload and the log of its pod, which crashes unless it is `well`."""
    made = workload(name, status=running() if well else crashing(), **container)
    log = "\n".join(said).encode()
    return made, {("shop", made[2]["metadata"]["name"], "app", not well): log}


async def found(
    manifests: list[Manifest], logs: dict[Any, bytes], *more: Manifest, about: Manifest | None = None
) -> tuple[Diagnosis, ...]:
    """What the rules find when they may read logs."""
    cluster = MemoryCluster([*manifests, *more], logs)
    signal = reference(about or manifests[0])
    facts = ClusterFacts(now=NOW, texts=True)
    return await Investigator(cluster, Budget(reads=40)).conclude(facts, lambda f: diagnose(f, signal))


def mounted(made: list[Manifest], path: str, volume: dict[str, Any]) -> None:
    for spec in (made[0]["spec"]["template"]["spec"], made[1]["spec"]["template"]["spec"], made[2]["spec"]):
        spec["volumes"] = [{"name": "v", **volume}]
        spec["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": path}]


def claimed(*, grows: bool) -> list[Manifest]:
    spec = {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}
    data = obj("PersistentVolumeClaim", "data", spec=spec, status={"phase": "Bound"})
    return [data, obj("StorageClass", "fast", "", "storage.k8s.io/v1", allowVolumeExpansion=grows)]


@pytest.mark.parametrize(("grows", "remedies"), [(True, {Remedy.EXPAND_VOLUME}), (False, set())])
async def test_a_full_volume_is_that_of_the_claim(grows: bool, remedies: set[Remedy]) -> None:
    made, logs = app("FATAL could not write /data/x: no space left on device")
    mounted(made, "/data", {"persistentVolumeClaim": LATE})
    first = (await found(made, logs, *claimed(grows=grows)))[0]
    assert (first.cause, first.basis, first.object.name) == (Cause.VOLUME_FULL, Basis.TEXT, "data")
    assert first.remedies == remedies


async def test_logs_are_not_read_to_corroborate() -> None:
    made, logs = app("FATAL could not write /data/x: no space left on device")
    mounted(made, "/data", {"persistentVolumeClaim": LATE})
    objects = [*made, *claimed(grows=True)]
    facts = ClusterFacts(now=NOW)
    verdict = await Investigator(MemoryCluster(objects, logs)).conclude(
        facts, lambda f: corroborate(f, reference(made[0]), claim(objects[3]))
    )
    assert not verdict.confirmed
    assert not any(question.container for question in facts.answers)


async def test_a_named_service_leads_to_what_is_behind_it() -> None:
    made, logs = app("dial tcp 10.0.0.9:80: connect: connection refused")
    cache = workload("cache", status=crashing("OOMKilled", 137), resources={"limits": {"memory": "1Mi"}})
    first = (await found([*made, *cache], logs, service("cache", clusterIP="10.0.0.9")))[0]
    assert (first.cause, first.object, first.basis) == (Cause.OUT_OF_MEMORY, reference(cache[0]), Basis.STATE)


async def test_a_wrong_address_is_a_setting() -> None:
    made, logs = app("lookup postgress: no such host", envFrom=[{"configMapRef": {"name": "settings"}}])
    settings = obj("ConfigMap", "settings", data={"URL": "http://postgress"})
    first = (await found(made, logs, settings, service("postgres")))[0]
    assert (first.cause, first.object, first.remedies) == (
        Cause.WRONG_ADDRESS, ref(settings), {Remedy.PATCH_CONFIGURATION})  # fmt: skip
    assert "postgres" in first.sentence


async def test_a_service_of_another_namespace_does_not_answer_to_its_short_name() -> None:
    made, logs = app("lookup db: no such host", env=[{"name": "DB", "value": "db"}])
    far = service("db")
    far["metadata"]["namespace"] = "data"
    first = (await found(made, logs, far))[0]
    assert (first.cause, first.object) == (Cause.WRONG_ADDRESS, reference(made[0]))
    assert "Service data/db" in first.sentence


async def test_a_workload_without_its_service() -> None:
    made, logs = app("lookup db: no such host")
    first = (await found([*made, *workload("db", status=running())], logs))[0]
    assert (first.cause, first.object.kind, first.object.name) == (Cause.SERVICE, "Service", "db")


async def test_content_of_a_config_map_that_the_program_refuses() -> None:
    made, logs = app("panic: failed to parse /etc/app/app.yaml: unknown field colour")
    mounted(made, "/etc/app", {"configMap": {"name": "conf"}})
    conf = obj("ConfigMap", "conf", data={"app.yaml": "a: 1\ncolour: red"})
    first = (await found(made, logs, conf))[0]
    assert (first.cause, first.object) == (Cause.INVALID_CONFIGURATION, ref(conf))
    by_word, logs = app('error: invalid option "colour_x" in configuration')
    mounted(by_word, "/opt", {"configMap": {"name": "conf"}})
    conf["data"]["app.yaml"] = "colour_x: red"
    assert (await found(by_word, logs, conf))[0].object == ref(conf)


async def test_a_setting_that_the_config_map_lacks() -> None:
    made, logs = app(
        "environment variable ISSUER_URL is not set", envFrom=[{"configMapRef": {"name": "env"}}]
    )
    conf = obj("ConfigMap", "env", data={"OTHER": "x"})
    assert (await found(made, logs, conf))[0].object == ref(conf)


async def test_a_file_that_the_mounted_config_map_lacks() -> None:
    made, logs = app("open /etc/app/rules.txt: no such file or directory")
    mounted(made, "/etc/app", {"configMap": {"name": "conf"}})
    first = (await found(made, logs, obj("ConfigMap", "conf", data={})))[0]
    assert first.object.name == "conf"
    assert Remedy.RESTORE_CONFIGURATION in first.remedies


SECRET = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "p"}}}


async def test_credentials_are_stale_where_they_worked_before() -> None:
    made, logs = app("ERROR password authentication failed for user x", well=True, env=[SECRET])
    first = (await found(made, logs))[0]
    assert (first.cause, first.object, first.remedies) == (
        Cause.STALE_CREDENTIALS, reference(made[0]), {Remedy.RESTART})  # fmt: skip


async def test_credentials_are_wrong_where_they_never_worked() -> None:
    made, logs = app("ERROR password authentication failed for user x", env=[SECRET])
    first = (await found(made, logs))[0]
    assert (first.cause, first.object.kind, first.remedies) == (
        Cause.CREDENTIALS, "Secret", {Remedy.ROTATE_CREDENTIALS})  # fmt: skip


async def test_credentials_that_a_rollout_changed_are_told_by_the_rollout() -> None:
    made, logs = app("ERROR password authentication failed for user x", env=[SECRET])
    before = replica_set(made[0], "zz", 1, env=[])
    made[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    assert all(f.basis is Basis.STATE for f in await found(made, logs, before))


async def test_an_expired_certificate_is_where_it_is_mounted() -> None:
    made, logs = app("fatal: /etc/tls/tls.crt: certificate has expired")
    mounted(made, "/etc/tls", {"secret": {"secretName": "tls"}})
    assert (await found(made, logs))[0].object.kind == "Secret"
    issued = obj("Certificate", "api", api_version="cert-manager.io/v1", spec={"secretName": "tls"})
    first = (await found(made, logs, issued))[0]
    assert (first.cause, first.object) == (Cause.CERTIFICATE, reference(issued))


async def test_the_certificate_of_a_server_leads_to_the_server() -> None:
    made, logs = app('Post "https://auth:443/": x509: certificate has expired')
    auth = workload("auth", status=crashing("OOMKilled", 137), resources={"limits": {"memory": "1Mi"}})
    assert (await found([*made, *auth], logs, service("auth", 443)))[0].object == reference(auth[0])


async def test_a_role_that_does_not_allow() -> None:
    line = 'configmaps is forbidden: User "system:serviceaccount:shop:bot" cannot list resource "configmaps"'
    made, logs = app(line)
    assert (await found(made, logs))[0].object.kind == "ServiceAccount"
    binding = obj(
        "RoleBinding",
        "b",
        api_version="rbac.authorization.k8s.io/v1",
        subjects=[{"name": "bot"}],
        roleRef={"kind": "Role", "name": "r"},
    )
    first = (await found(made, logs, binding))[0]
    assert (first.cause, first.object.kind, first.object.name) == (Cause.PERMISSION, "Role", "r")


async def test_a_policy_of_the_mesh() -> None:
    made, logs = app("ERROR GET http://pay:80/: 403 RBAC: access denied", well=True)
    policy = obj("AuthorizationPolicy", "deny", api_version="security.istio.io/v1", spec={"action": "DENY"})
    first = (await found(made, logs, policy, service("pay")))[0]
    assert (first.cause, first.object) == (Cause.MESH_POLICY, reference(policy))


async def test_a_server_that_refuses() -> None:
    made, logs = app("OOM command not allowed when used memory > 'maxmemory' at redis:80", well=True)
    redis = workload("redis", status=running(), image="redis:7")
    first = (await found([*made, *redis], logs, service("redis")))[0]
    assert (first.cause, first.object) == (Cause.SERVER_REFUSES, reference(redis[0]))


async def test_who_holds_the_connections() -> None:
    made, logs = app("FATAL: sorry, too many clients already at pg", well=True)
    db = workload("pg", status=running())
    alone = (await found([*made, *db], logs, service("pg")))[0]
    assert (alone.object, alone.remedies) == (reference(db[0]), {Remedy.RAISE_CONNECTIONS})
    hog, more = app("opened 14 connections, keeping them", name="hog", well=True)
    first = (await found([*made, *db, *hog], logs | more, service("pg")))[0]
    assert (first.cause, first.object) == (Cause.CONNECTIONS, reference(hog[0]))


async def test_a_program_for_another_processor() -> None:
    made, logs = app("exec /app: exec format error")
    first = (await found(made, logs, node(labels={"kubernetes.io/arch": "arm64"})))[0]
    assert (first.cause, first.basis) == (Cause.DEFECTIVE_START, Basis.TEXT)
    assert "arm64" in first.sentence


async def test_workloads_of_a_namespace_are_asked_when_none_fails() -> None:
    made, logs = app("ERROR password authentication failed for user x", well=True, env=[SECRET])
    home = obj("Namespace", "shop", "", status={"phase": "Active"})
    assert (await found(made, logs, home, about=home))[0].object == reference(made[0])


async def test_what_is_said_about_a_finding() -> None:
    heap = [{"name": "JAVA_OPTS", "value": "-Xmx64m"}]
    made, logs = app("java.lang.OutOfMemoryError: Java heap space", env=heap)
    cluster, signal = MemoryCluster(made, logs), reference(made[0])
    facts = ClusterFacts(now=NOW, texts=True)
    said = await Investigator(cluster, Budget(reads=40)).conclude(
        facts, lambda f: statements(f, diagnose(f, signal)[0]) if diagnose(f, signal) else ()
    )
    assert any("Java heap space" in s for s in said)
    assert any("-Xmx64m" in s for s in said)


async def test_a_finished_sidecar_container_is_not_asked() -> None:
    made, logs = app("no space left on device")
    other = pod_of(made[1], "api", "p2", status=running())
    assert all(f.cause is not Cause.VOLUME_FULL for f in await found([*made, other], logs))


async def said(manifests: list[Manifest], logs: dict[Any, bytes], *more: Manifest) -> tuple[str, ...]:
    """What is said about the first finding."""
    signal = reference(manifests[0])
    facts = ClusterFacts(now=NOW, texts=True)

    def rules(known: ClusterFacts) -> tuple[str, ...]:
        stand = diagnose(known, signal)
        return statements(known, stand[0]) if stand else ()

    cluster = MemoryCluster([*manifests, *more], logs)
    return await Investigator(cluster, Budget(reads=40)).conclude(facts, rules)


async def test_what_a_program_was_doing_when_its_memory_ended() -> None:
    made = workload(status=crashing("OOMKilled", 137), resources={"limits": {"memory": "64Mi"}})
    made[2]["spec"]["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    key = ("shop", made[2]["metadata"]["name"], "app", True)
    told = await said(made, {key: b"loading the index\nnothing more"})
    assert any("tmpfs" in line for line in told)
    assert any("loading the index" in line for line in told)


async def test_how_a_pod_waits_is_quoted() -> None:
    made = workload(status=waiting("ErrImagePull", "manifest unknown"), image="shop/app:9.9")
    told = await said(made, {}, event(made[2], "Failed", "Failed to pull: manifest unknown"))
    assert any("manifest unknown" in line for line in told)
    assert any("shop/app:9.9" in line for line in told)
    assert any(line.startswith("Failed of Pod") for line in told)


async def test_why_a_pod_is_not_scheduled_is_quoted() -> None:
    made = workload(status=unscheduled("0/1 nodes are available: 1 node(s) didn't match"))
    for spec in (made[2]["spec"],):
        spec.pop("nodeName")
        spec["nodeSelector"] = {"disk": "ssd"}
    told = await said(made, {}, node())
    assert any("didn't match" in line for line in told)
    assert any("disk=ssd" in line for line in told)


async def test_what_a_probe_asks_for_is_told() -> None:
    status = running()
    status["conditions"][0]["status"] = "False"
    status["containerStatuses"][0]["ready"] = False
    probe = {"httpGet": {"path": "/ready", "port": 8080}}
    made = workload(status=status, readinessProbe=probe, ports=[{"containerPort": 80}])
    assert any("/ready at port 8080" in line and "[80]" in line for line in await said(made, {}))


async def test_pods_that_a_job_made_are_told_of() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}
    job = obj("Job", "pack", api_version="batch/v1", spec={}, status={"failed": 1, "conditions": [failed]})
    gone = obj("Pod", "pack-x")
    told = await said(
        [job],
        {},
        event(job, "SuccessfulCreate", "Created pod: pack-x"),
        event(gone, "Failed", "image is gone"),
    )
    assert any("image is gone" in line for line in told)
    assert any("too long" in line for line in told)


async def test_the_certificate_of_a_webhook_is_in_the_secret_of_its_server() -> None:
    made = workload()[:2]
    refusal = 'failed calling webhook "i.example.com": x509: certificate has expired'
    made[0]["spec"]["replicas"] = 1
    server = workload("hook", status=running())
    server[2]["spec"]["volumes"] = [{"name": "t", "secret": {"secretName": "hook-tls"}}]
    server[2]["spec"]["containers"][0]["volumeMounts"] = [{"name": "t", "mountPath": "/tls"}]
    hooks = obj(
        "MutatingWebhookConfiguration",
        "hooks",
        "",
        "admissionregistration.k8s.io/v1",
        webhooks=[{"name": "i", "clientConfig": {"service": {"name": "hook", "namespace": "shop"}}}],
    )
    first = (await found(made, {}, event(made[1], "FailedCreate", refusal), hooks, *server, service("hook")))[
        0
    ]
    assert (first.cause, first.object.kind, first.object.name) == (
        Cause.CREATION_REFUSED,
        "Secret",
        "hook-tls",
    )
    assert ref(server[0]) in [replace(r, uid="") for r in first.also]


async def test_a_misspelt_config_map_is_the_fault_of_who_names_it() -> None:
    made = workload(status=waiting("ContainerCreating"), envFrom=[{"configMapRef": {"name": "app-conf"}}])
    made[0]["status"] = {}
    near = obj("ConfigMap", "app-config", data={})
    first = (await found(made, {}, near))[0]
    assert (first.cause, first.object) == (Cause.MISSING_CONFIGURATION, reference(made[0]))


async def test_a_pod_that_was_evicted_and_is_gone() -> None:
    gone = obj("Pod", "old")
    told = event(
        gone, "Evicted", "The node was low on resource: memory. Container a was using 9Gi, request is 0"
    )
    pressed = node(
        conditions=[{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "True"}]
    )
    assert (await found([gone], {}, about=gone))[:1] == ()
    first = (await found([], {}, told, pressed, about=gone))[0]
    assert (first.cause, first.object.name) == (Cause.NODE, "node-1")


async def test_nodes_that_run_as_many_pods_as_they_may() -> None:
    made = workload(status=unscheduled("0/1 nodes are available: 1 Too many pods."))
    made[2]["spec"].pop("nodeName")
    first = (await found(made, {}, node()))[0]
    assert (first.cause, first.remedies) == (Cause.NOT_SCHEDULABLE, {Remedy.ADD_CAPACITY})


async def test_two_that_wait_for_each_other_are_told_from_the_nearest() -> None:
    a = workload("a", env=[{"name": "B", "value": "b:80"}])
    b = workload("b", env=[{"name": "A", "value": "a:80"}])
    assert (await found([*a, *b], {}, service("a"), service("b"), about=a[0]))[0].object == reference(a[0])
