"""What controllers state about autoscalers, budgets, jobs, deletions and custom kinds; pods that are not created."""

import pytest

from tests.fakes.manifests import crashing, deployment, event, obj, pod, replica_set, running
from tests.unit.domain.diagnosis.small_clusters import (
    blames,
    claim,
    findings,
    judged,
    node,
    pod_of,
    service,
    workload,
)
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.causes import Cause, Remedy, Strength
from worker.domain.diagnosis.messages import Refusal, refusal
from worker.domain.diagnosis.structure import ref_to

LIMITED = {"resources": {"limits": {"memory": "64Mi"}}}


async def first(*manifests, about):
    return (await findings(*manifests, about=about))[0]


def hpa(*conditions, current=3, target="api"):
    return obj("HorizontalPodAutoscaler", "api", api_version="autoscaling/v2",
               spec={"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}},
               status={"currentReplicas": current, "conditions": list(conditions)})  # fmt: skip


LIMIT = {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}
NO_METRICS = {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric"}


async def test_an_autoscaler_at_its_maximum():
    scaler = hpa(LIMIT)
    found = await first(scaler, *workload(status=running()), about=scaler)
    assert (found.object, found.remedies) == (reference(scaler), {Remedy.RAISE_AUTOSCALER})
    assert await findings(hpa(LIMIT, current=2), *workload(status=running()), about=scaler) == ()


async def test_the_ceiling_of_an_autoscaler_that_gets_no_metrics_is_an_old_one():
    scaler = hpa(LIMIT, NO_METRICS)
    api = workload(status=running(), resources={"requests": {"cpu": "1"}})
    server = obj("Deployment", "metrics-server", "kube-system", api_version="apps/v1", spec={"replicas": 0})
    found = await findings(scaler, *api, server, about=scaler)
    assert [(f.object.name, f.remedies) for f in found] == [("metrics-server", {Remedy.SCALE_UP})]


async def test_more_replicas_do_not_help_pods_that_are_sick():
    scaler, api = hpa(LIMIT), workload(status=crashing("OOMKilled", 137), **LIMITED)
    found = await findings(scaler, *api, about=scaler)
    assert [(f.object.kind, f.remedies) for f in found] == [
        ("Deployment", {Remedy.INCREASE_MEMORY}), ("HorizontalPodAutoscaler", set())]  # fmt: skip


async def test_an_autoscaler_without_a_target():
    scaler = hpa()
    found = await first(scaler, about=scaler)
    assert blames(found, ref_to("Deployment", "api", "shop"))


async def test_a_target_without_requests():
    scaler, api = hpa(NO_METRICS), workload(status=running())
    assert (await first(scaler, *api, about=scaler)).object.kind == "Deployment"


async def test_autoscalers_that_count_the_same_pods():
    said = "pods by selector app=api are controlled by multiple HPAs: [shop/api shop/second]"
    twice = {"type": "ScalingActive", "status": "False", "reason": "AmbiguousSelector", "message": said}
    scalers = [hpa(twice), hpa(twice), hpa(twice)]
    for scaler, name in zip(scalers, ("api", "second", "another"), strict=True):
        scaler["metadata"]["name"] = name
    found = await first(*scalers, *workload(status=running()), about=scalers[0])
    assert found.subjects == (reference(scalers[0]), reference(scalers[1]))
    assert not found.remedies


async def test_a_metrics_api_that_is_down():
    scaler = hpa(NO_METRICS)
    api = workload(status=running(), resources={"requests": {"cpu": "1"}})
    served = obj("APIService", "v1beta1.metrics.k8s.io", "", api_version="apiregistration.k8s.io/v1",
                 spec={"service": {"name": "metrics-server", "namespace": "kube-system"}},
                 status={"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]})  # fmt: skip
    found = await first(scaler, *api, served, about=scaler)
    assert blames(found, reference(served))


@pytest.mark.parametrize(
    ("reason", "group"),
    [
        ("FailedGetExternalMetric", "external"),
        ("FailedGetPodsMetric", "custom"),
        ("FailedGetObjectMetric", "custom"),
    ],
)
async def test_an_adapter_of_metrics_that_says_why_it_does_not_serve(reason, group):
    scaler = hpa({"type": "ScalingActive", "status": "False", "reason": reason})
    adapter = workload("adapter", status=crashing("OOMKilled", 137), **LIMITED)
    served = obj("APIService", f"v1beta1.{group}.metrics.k8s.io", "", api_version="apiregistration.k8s.io/v1",
                 spec={"service": {"name": "adapter", "namespace": "shop"}},
                 status={"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]})  # fmt: skip
    api = workload(status=running(), resources={"requests": {"cpu": "1"}})
    there = [scaler, served, *api]
    assert (await first(*there, *adapter, service("adapter"), about=scaler)).object == reference(adapter[0])
    assert (await first(*there, about=scaler)).object.name == reference(served).name


def budget(healthy=2, allowed=0, expected=2):
    status = {
        "currentHealthy": healthy,
        "desiredHealthy": 2,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
    }
    return obj(
        "PodDisruptionBudget",
        "api",
        api_version="policy/v1",
        spec={"selector": {"matchLabels": {"app": "api"}}},
        status=status,
    )


async def test_a_budget_that_blocks_a_drain():
    there = [budget(), *workload(status=running())]
    found = await first(*there, node(unschedulable=True), about=budget())
    assert found.remedies == {Remedy.RELAX_DISRUPTION_BUDGET}
    assert (await first(*there, node(), about=budget())).remedies == frozenset()
    assert await findings(*there[1:], budget(allowed=1), about=budget()) == ()


async def test_a_node_whose_drain_waits_for_a_budget():
    there = [budget(), *workload(status=running())]
    cordoned = node(unschedulable=True)
    found = await first(*there, cordoned, about=cordoned)
    assert (found.object, found.remedies) == (reference(there[0]), {Remedy.RELAX_DISRUPTION_BUDGET})
    other = budget()
    other["metadata"]["namespace"] = "bank"
    assert await findings(other, *there[1:], cordoned, about=cordoned) == ()


async def test_a_budget_that_guards_the_rest_of_a_quorum():
    there = [budget(expected=3), *workload(status=running()), node(unschedulable=True)]
    assert await findings(*there, about=there[0]) == ()


async def test_two_budgets_for_the_same_pods_let_none_be_evicted():
    there, second = [budget(allowed=1), *workload(status=running())], budget(allowed=1)
    second["metadata"]["name"] = "second"
    found = await first(*there, second, node(unschedulable=True), about=node(unschedulable=True))
    assert {ref.name for ref in found.subjects} == {there[0]["metadata"]["name"], "second"}
    assert not found.remedies
    assert await findings(*there, second, node(), about=second) == ()


async def test_a_budget_whose_pods_are_sick_is_not_to_blame():
    api = workload(status=crashing("OOMKilled", 137), **LIMITED)
    found = await first(budget(healthy=1), *api, about=budget())
    assert (found.cause, found.object) == (Cause.OUT_OF_MEMORY, reference(api[0]))


def job(name="once", **status):
    return obj("Job", name, api_version="batch/v1", spec={}, status=status)


def failed(reason):
    return {"conditions": [{"type": "Failed", "status": "True", "reason": reason}], "failed": 1}


async def test_jobs_that_failed():
    late, broken = job(**failed("DeadlineExceeded")), job(**failed("BackoffLimitExceeded"))
    worked = pod("once-x", owner=late, status=running())
    assert (await first(late, worked, about=late)).remedies == {Remedy.EXTEND_DEADLINE}
    assert (await first(late, about=late)).remedies == frozenset()
    assert (await first(broken, about=broken)).signals == ("BackoffLimitExceeded",)


async def test_a_job_that_failed_before_a_later_one_succeeded():
    nightly = obj("CronJob", "n", api_version="batch/v1", spec={})
    late = job("n-1", **failed("DeadlineExceeded"))
    done = job("n-2", conditions=[{"type": "Complete", "status": "True"}])
    for one, when in ((late, "2026-06-01T01:00:00Z"), (done, "2026-06-02T01:00:00Z")):
        one["metadata"] |= obj("Job", "n", owner=nightly)["metadata"] | {
            "name": one["metadata"]["name"],
            "creationTimestamp": when,
        }
    worked = pod("n-1-x", owner=late, status=running())
    extend = claim(late, "ExtendJobDeadline")
    assert (await judged(nightly, late, worked, about=nightly, claim=extend)).confirmed
    assert not (await judged(nightly, late, done, worked, about=nightly, claim=extend)).confirmed


@pytest.mark.parametrize(("reason", "code"), [("Error", 1), ("OOMKilled", 137)])
async def test_a_job_whose_pods_crash_needs_no_later_deadline(reason, code):
    late = job(**failed("DeadlineExceeded"))
    worked = pod("once-x", owner=late, status={**crashing(reason, code), "phase": "Failed"})
    extend = claim(late, "ExtendJobDeadline")
    assert not (await judged(late, worked, about=late, claim=extend)).confirmed


async def test_jobs_of_another_owner_than_a_cron_job_do_different_work():
    owner = obj("Workflow", "release", api_version="argoproj.io/v1alpha1")
    migrate = job("migrate", **failed("BackoffLimitExceeded"))
    seed = job("seed", conditions=[{"type": "Complete", "status": "True"}])
    for one, when in ((migrate, "2026-06-02T01:00:00Z"), (seed, "2026-06-02T01:00:05Z")):
        made = obj("Job", one["metadata"]["name"], owner=owner)["metadata"]
        one["metadata"] |= made | {"creationTimestamp": when}
    found = await first(owner, migrate, seed, about=migrate)
    assert found.strength is not Strength.SYMPTOM


@pytest.mark.parametrize(
    ("worked", "over"), [("2026-06-04T14:30:00Z", True), ("2026-06-04T10:00:00Z", False), (None, False)]
)
async def test_a_failed_job_is_a_record_once_its_cron_job_has_succeeded(worked, over):  # fmt: skip
    times = obj("CronJob", "n", api_version="batch/v1", status={"lastSuccessfulTime": worked})
    late = job("n-1", **failed("BackoffLimitExceeded"))
    late["status"]["conditions"][0]["lastTransitionTime"] = "2026-06-04T12:00:00Z"
    late["metadata"]["ownerReferences"] = [
        {"kind": "CronJob", "name": "n", "controller": True, "apiVersion": "batch/v1"}
    ]
    killed = pod("n-1-x", owner=late, status={**crashing("OOMKilled", 137), "phase": "Failed"},
                 spec={"containers": [{"name": "app", **LIMITED}]})  # fmt: skip
    found = await first(times, late, killed, about=late)
    assert (found.strength is Strength.SYMPTOM, found.remedies == frozenset()) == (over, over)


async def test_what_is_held_on_purpose():
    queued = job(active=0)
    queued["spec"] = {"suspend": True}
    found = await first(queued, about=queued)
    assert (found.cause, found.remedies) == (Cause.SUSPENDED, frozenset())
    api = workload(status=running())
    api[0]["spec"]["paused"], api[0]["status"] = True, {"updatedReplicas": 0}
    found = await first(*api, about=api[0])
    assert (found.cause, found.remedies) == (Cause.SUSPENDED, frozenset())
    api[0]["status"] = {"updatedReplicas": 1}
    assert await findings(*api, about=api[0]) == ()


async def test_what_killed_the_pods_of_a_job_says_more():
    broken = job(**failed("BackoffLimitExceeded"))
    status = {**crashing("OOMKilled", 137), "phase": "Failed"}
    killed = pod("once-x", owner=broken, status=status, spec={"containers": [{"name": "app", **LIMITED}]})
    assert (await first(broken, killed, about=broken)).remedies == {Remedy.INCREASE_MEMORY}


async def test_a_job_that_does_not_end():
    endless = job(active=1)
    status = running()
    status["containerStatuses"].append({"name": "b", "state": {"terminated": {"exitCode": 0}}})
    half = pod("once-x", owner=endless, status=status, spec={"containers": [{"name": "app"}, {"name": "b"}]})
    assert "does not complete" in (await findings(endless, half, about=endless))[0].sentence


async def test_cron_jobs():
    asleep = obj("CronJob", "n", api_version="batch/v1", spec={"suspend": True})
    assert (await first(asleep, about=asleep)).remedies == {Remedy.RESUME}
    held = obj(
        "CronJob",
        "n",
        api_version="batch/v1",
        spec={"concurrencyPolicy": "Forbid"},
        status={"active": [{"name": "n-1"}]},
    )
    assert (await first(held, about=held)).object.name == "n-1"
    hung = pod(
        "n-1-x",
        status=running(),
        owner=job("n-1", active=1) | {"kind": "CronJob", "metadata": held["metadata"]},
    )
    assert (await first(held, hung, about=hung)).object.name == "n-1"
    missed = obj("CronJob", "n", api_version="batch/v1", spec={})
    assert (await first(missed, event(missed, "TooManyMissedTimes", "x"), about=missed)).cause is Cause.JOB
    assert (
        "UnknownTimeZone"
        in (await first(missed, event(missed, "UnknownTimeZone", "x"), about=missed)).sentence
    )
    run = job("n-1", **failed("BackoffLimitExceeded"))
    run["metadata"]["ownerReferences"] = [
        {"kind": "CronJob", "name": "n", "controller": True, "apiVersion": "batch/v1"}
    ]
    assert (await first(missed, run, about=missed)).object == reference(run)


async def test_deletions_that_do_not_end():
    doomed = obj("Namespace", "old", "", spec={"finalizers": ["kubernetes"]}, status={"conditions": [
        {"type": "NamespaceFinalizersRemaining", "status": "True"}]})  # fmt: skip
    doomed["metadata"]["deletionTimestamp"] = "2026-06-04T10:00:00Z"
    assert (await first(doomed, about=doomed)).remedies == {Remedy.REMOVE_FINALIZER}
    doomed["metadata"]["deletionTimestamp"] = "2026-06-04T15:29:00Z"
    assert await findings(doomed, about=doomed) == ()


async def test_a_namespace_that_waits_for_an_api_service():
    doomed = obj(
        "Namespace",
        "old",
        "",
        status={"conditions": [{"type": "NamespaceDeletionDiscoveryFailure", "status": "True"}]},
    )
    doomed["metadata"]["deletionTimestamp"] = "2026-06-04T10:00:00Z"
    down = obj(
        "APIService",
        "v1.x",
        "",
        api_version="apiregistration.k8s.io/v1",
        status={"conditions": [{"type": "Available", "status": "False"}]},
    )
    assert (await first(doomed, down, about=doomed)).object == reference(down)


async def test_a_pod_that_does_not_go_away():
    stuck = pod("p")
    stuck["metadata"]["deletionTimestamp"] = "2026-06-04T10:00:00Z"
    found = await first(stuck, node(), about=stuck)
    assert (found.cause, found.also[0].name) == (Cause.STUCK_DELETION, "node-1")
    assert "finalizers" not in found.sentence


async def test_a_finished_pod_that_a_finalizer_keeps():
    api = workload(status=running())
    kept = pod_of(api[1], "api", "p2", status={"phase": "Succeeded"})
    kept["metadata"] |= {"deletionTimestamp": "2026-06-04T10:00:00Z", "finalizers": ["example.com/tracking"]}
    found = await first(*api, kept, about=kept)
    assert (found.cause, found.object) == (Cause.STUCK_DELETION, reference(kept))
    assert "finalizers" in found.sentence


async def test_a_finished_pod_among_healthy_ones_is_a_record():
    api = workload(status=running())
    done = pod_of(api[1], "api", "p2", status={"phase": "Succeeded"})
    found = await first(*api, done, about=done)
    assert (found.object, found.strength, found.signals) == (reference(api[0]), Strength.SYMPTOM, ())


async def test_sick_workloads_of_a_namespace():
    api = workload(status=crashing("OOMKilled", 137), **LIMITED)
    space = obj("Namespace", "shop", "")
    assert (await first(*api, space, about=space)).object == reference(api[0])


async def test_a_partition_that_holds_an_update():
    held = obj("StatefulSet", "db", api_version="apps/v1", spec={"updateStrategy": {"rollingUpdate": {"partition": 3}}},
               status={"currentRevision": "a", "updateRevision": "b"})  # fmt: skip
    assert (await first(held, about=held)).cause is Cause.BAD_ROLLOUT


async def test_kinds_with_conditions_of_their_own_controllers():
    issuer = obj(
        "ClusterIssuer",
        "ca",
        "",
        api_version="cert-manager.io/v1",
        status={"conditions": [{"type": "Ready", "status": "False"}]},
    )
    certificate = obj("Certificate", "tls", api_version="cert-manager.io/v1", spec={"issuerRef": {"kind": "ClusterIssuer", "name": "ca"}},
                      status={"conditions": [{"type": "Ready", "status": "False", "reason": "DoesNotExist"}]})  # fmt: skip
    found = await findings(certificate, issuer, about=certificate)
    assert [(f.object.kind, f.remedies) for f in found] == [("ClusterIssuer", set()), ("Certificate", set())]
    absent = await first(certificate, about=certificate)
    assert (absent.remedies, [ref.kind for ref in absent.also]) == (set(), ["ClusterIssuer"])
    issuer["status"]["conditions"][0]["status"] = "True"
    assert (await first(certificate, issuer, about=certificate)).remedies == {Remedy.RENEW_CERTIFICATE}
    waiting = obj("Challenge", "c", api_version="acme.cert-manager.io/v1")
    assert (await first(certificate, issuer, waiting, about=certificate)).remedies == frozenset()
    forged = {**certificate, "apiVersion": "evil.io/v1"}
    assert await findings(forged, about=forged) == ()


@pytest.mark.parametrize(
    ("port", "found"),
    [({"number": 80}, 0), ({"name": "http"}, 0), ({}, 0), ({"number": 8080}, 1), ({"name": "web"}, 1)],
)
async def test_an_ingress_that_names_a_port_which_its_service_lacks(port, found):
    backend = {"service": {"name": "api", "port": port}}
    spec = {"defaultBackend": backend}
    front = obj("Ingress", "web", api_version="networking.k8s.io/v1", spec=spec)
    api = obj("Service", "api", spec={"ports": [{"name": "http", "port": 80}]})
    told = [f for f in await findings(front, api, about=front) if f.cause is Cause.SERVICE]
    assert [f.object for f in told] == [reference(front)] * found


async def test_ingresses():
    front = obj("Ingress", "web", api_version="networking.k8s.io/v1", spec={
        "ingressClassName": "nginx", "rules": [{"http": {"paths": [{"backend": {"service": {"name": "api"}}}]}}]})  # fmt: skip
    assert (await first(front, about=front)).object == reference(front)
    there = obj("IngressClass", "nginx", "", api_version="networking.k8s.io/v1")
    api = workload(status=crashing("OOMKilled", 137), **LIMITED)
    assert (await first(front, there, service("api"), *api, about=front)).object == reference(api[0])


@pytest.mark.parametrize(
    ("names", "strength"), [(["web"], Strength.DIRECT), (["api", "web"], Strength.TIMED)]
)
async def test_an_ingress_without_its_service(names, strength):
    paths = [{"backend": {"service": {"name": name}}} for name in names]
    front = obj(
        "Ingress", "web", api_version="networking.k8s.io/v1", spec={"rules": [{"http": {"paths": paths}}]}
    )
    found = await first(front, service("api"), *workload(status=running()), about=front)
    assert (found.object, found.strength) == (reference(front), strength)
    assert blames(found, ref_to("Service", "web", "shop"))


async def test_a_backend_from_an_annotation_is_no_service():
    backend = {"service": {"name": "ssl-redirect", "port": {"name": "use-annotation"}}}
    front = obj("Ingress", "web", api_version="networking.k8s.io/v1",
                spec={"rules": [{"http": {"paths": [{"backend": backend}]}}]})  # fmt: skip
    assert await findings(front, about=front) == ()


async def test_an_ingress_whose_certificate_has_expired():
    front = obj(
        "Ingress", "web", api_version="networking.k8s.io/v1", spec={"tls": [{"secretName": "web-tls"}]}
    )
    expired = obj("Certificate", "web", api_version="cert-manager.io/v1", spec={"secretName": "web-tls"},
                  status={"notAfter": "2026-06-04T10:00:00Z"})  # fmt: skip
    assert (await first(front, expired, about=front)).object == reference(expired)
    expired["spec"]["secretName"] = "other"
    assert await findings(front, expired, about=front) == ()


READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-06-04T12:00:00Z"}


@pytest.mark.parametrize(
    ("ready", "failed", "renews"),
    [
        ("False", "", True),
        ("False", "2026-06-04T11:00:00Z", True),  # before its issuer became ready
        ("False", "2026-06-04T13:00:00Z", False),
        ("True", "", False),  # its controller does not run
    ],
)
async def test_an_expired_certificate_is_renewed_if_its_issuer_is_known_to_work(ready, failed, renews):
    issuer = obj("ClusterIssuer", "ca", "", api_version="cert-manager.io/v1", status={"conditions": [READY]})
    expired = obj("Certificate", "web", api_version="cert-manager.io/v1",
                  spec={"issuerRef": {"kind": "ClusterIssuer", "name": "ca"}},
                  status={"notAfter": "2026-06-04T10:00:00Z", "lastFailureTime": failed,
                          "conditions": [{"type": "Ready", "status": ready}]})  # fmt: skip
    found = await first(expired, issuer, about=expired)
    assert (Remedy.RENEW_CERTIFICATE in found.remedies) is renews


def refused(message):
    owner = deployment("api", status={"replicas": 0})
    owner["spec"]["template"]["spec"] |= {"serviceAccountName": "bot", "priorityClassName": "high"}
    revision = replica_set(owner, "aa", 1)
    return owner, [owner, revision, event(revision, "FailedCreate", message)]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3", "ResourceQuota"),
        ("failed quota: q: must specify limits.cpu", "Deployment"),
        ("maximum memory usage per Container is 1Gi", "LimitRange"),
        ('violates PodSecurity "restricted:latest"', "Deployment"),
        ('error looking up service account shop/bot: serviceaccount "bot" not found', "ServiceAccount"),
        ("no PriorityClass with name high was found", "PriorityClass"),
        ('admission webhook "x" denied the request', "Deployment"),
        ("something new", "Deployment"),
    ],
)
async def test_pods_that_are_not_created(message, kind):
    owner, there = refused(message)
    quota = obj("ResourceQuota", "q", status={"hard": {"pods": "3"}, "used": {"pods": "3"}})
    found = await first(*there, quota, obj("LimitRange", "l"), about=owner)
    assert (found.cause, found.object.kind) == (Cause.CREATION_REFUSED, kind)
    assert blames(found, reference(owner))


async def test_a_quota_with_room_is_not_to_blame():
    owner, there = refused("exceeded quota: q")
    roomy = obj("ResourceQuota", "q", status={"hard": {"pods": "9"}, "used": {"pods": "3"}})
    assert (await first(*there, roomy, about=owner)).object.kind == "Deployment"


async def test_a_webhook_whose_backend_is_down():
    owner, there = refused('failed calling webhook "v.x": connect: connection refused')
    hook = obj("ValidatingWebhookConfiguration", "v", "", api_version="admissionregistration.k8s.io/v1",
               webhooks=[{"clientConfig": {"service": {"name": "guard", "namespace": "shop"}}}, {"clientConfig": {"url": "https://x"}}])  # fmt: skip
    guard = workload("guard", status=crashing("OOMKilled", 137), **LIMITED)
    there = [*there, hook, service("guard"), *guard]
    assert (await first(*there, about=owner)).object == reference(guard[0])
    assert (await judged(*there, about=owner, claim=claim(guard[0], "IncreaseMemoryLimits"))).confirmed


async def test_a_webhook_whose_service_is_gone():
    owner, there = refused('failed calling webhook "v.x": service "guard" not found')
    hook, other = (
        obj("ValidatingWebhookConfiguration", name, "", api_version="admissionregistration.k8s.io/v1",
            webhooks=[{"name": f"{name}.x", "clientConfig": {"service": {"name": "guard", "namespace": "shop"}}}])
        for name in ("v", "w")
    )  # fmt: skip
    found = await first(*there, hook, other, about=owner)
    assert (found.object, found.strength) == (reference(hook), Strength.DIRECT)
    assert blames(found, ref_to("Service", "guard", "shop"))
    assert not blames(found, reference(other))


async def test_the_condition_of_a_controller_says_the_same_as_its_events():
    owner, there = refused("x")
    there[1]["status"]["conditions"] = [
        {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: q"}
    ]
    full = obj(
        "ResourceQuota", "q", status={"hard": {"limits.memory": "1Gi"}, "used": {"limits.memory": "2Gi"}}
    )
    assert (await first(*there[:2], full, about=owner)).object.kind == "ResourceQuota"


async def test_owners_of_a_pod_that_is_gone_are_found_by_its_name():
    api = workload(status=crashing("OOMKilled", 137), **LIMITED)
    gone = ref_to("Pod", "api-5d4f8c7b9x-abcde", "shop")
    assert (await first(*api, about=gone)).object == reference(api[0])


def test_a_refusal_of_no_known_class():
    assert refusal("x") is Refusal.UNKNOWN


def route(reason="", **backend):
    """A route of the Gateway API to Service `front`, with a condition that is False if a reason is given."""
    status, reason = ("False", reason) if reason else ("True", "ResolvedRefs")
    conditions = [
        {"type": "ResolvedRefs", "status": status, "reason": reason},
        {"type": "PartiallyInvalid", "status": "False", "reason": "AllValid"},
    ]
    return obj(
        "HTTPRoute", "web", api_version="gateway.networking.k8s.io/v1", status={"parents": [{"conditions": conditions}]},
        spec={"rules": [{"backendRefs": [{"name": "front", "port": 80, **backend}]}]},
    )  # fmt: skip


async def test_a_gateway_is_to_blame_if_its_listener_says_so():
    bad = [{"type": "ResolvedRefs", "status": "False", "reason": "InvalidCertificateRef"}]
    gateway = obj("Gateway", "edge", api_version="gateway.networking.k8s.io/v1",
                  status={"conditions": [], "listeners": [{"name": "https", "conditions": bad}]})  # fmt: skip
    assert (await first(gateway, about=gateway)).object == reference(gateway)
    gateway["status"]["listeners"][0]["conditions"][0]["status"] = "True"
    assert await findings(gateway, about=gateway) == ()


async def test_a_route_is_to_blame_if_its_gateway_says_so():
    front = obj("Service", "front", spec={"selector": {"app": "api"}, "ports": [{"port": 80}]})
    stated = await first(route("BackendNotFound"), front, about=route())
    assert (stated.cause, stated.object) == (Cause.SERVICE, reference(route()))
    made = [deployment("api"), pod("api-1", status=crashing(), labels={"app": "api"})]
    behind = await first(route(), front, *made, about=route())
    assert behind.object.kind == "Pod"
    assert await findings(route(namespace="web"), front, *made, about=route()) == ()


async def test_an_autoscaler_that_may_scale_to_zero():
    made, scaler = workload(status=running())[:1], hpa()
    made[0]["spec"]["replicas"] = 0
    assert (await first(*made, scaler, about=made[0])).remedies == {Remedy.SCALE_UP}
    scaler["spec"]["minReplicas"] = 0
    assert await findings(*made, scaler, about=made[0]) == ()


async def test_the_agent_of_a_node_whose_machine_is_switched_off():
    down = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    taints = [{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]
    assert Remedy.RESTART_NODE_AGENT in (await first(node(conditions=down), about=node())).remedies
    off = node(conditions=down, taints=taints)
    assert (await first(off, about=off)).remedies == {Remedy.DRAIN}
