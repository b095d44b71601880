"""Services, policies and chains of dependencies: from the object of the signal to the one that is to blame."""

import pytest

from tests.fakes.manifests import crashing, event, obj, running
from tests.unit.domain.diagnosis.small_clusters import (
    claim,
    findings,
    judged,
    node,
    service,
    waiting,
    workload,
)
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.causes import Cause, Relation, Remedy
from worker.domain.diagnosis.claims import Doubt

LIMITED = {"resources": {"limits": {"memory": "64Mi"}}}
OOM = crashing("OOMKilled", 137)


def client(host="db:5432", **more):
    return workload("api", env=[{"name": "DB", "value": host}], **more)


async def first(*manifests, about):
    return (await findings(*manifests, about=about))[0]


@pytest.mark.parametrize(
    "host", ["db", "db:5432", "postgres://u:p@db:5432/x", "db.shop", "db.shop.svc.cluster.local", "db-0.db"]
)
async def test_a_dependency_that_the_spec_names(host):
    api, db = client(host), workload("db", status=OOM, **LIMITED)
    found = await first(*api, *db, service("db"), about=api[0])
    assert (found.cause, found.object) == (Cause.OUT_OF_MEMORY, reference(db[0]))
    assert [e.relation for e in found.path] == [Relation.SAME, Relation.NAMED_IN_SPEC, Relation.SELECTED]


async def test_the_victim_is_not_confirmed_and_neither_is_a_healthy_dependency():
    api, db, cache = client(), workload("db", status=OOM, **LIMITED), workload("cache", status=running())
    there = [*api, *db, *cache, service("db"), service("cache")]
    assert (await judged(*there, about=api[0], claim=claim(db[0], "IncreaseMemoryLimits"))).confirmed
    assert (await judged(*there, about=api[0], claim=claim(db[2]))).confirmed
    victim = await judged(*there, about=api[0], claim=claim(api[0], "IncreaseMemoryLimits"))
    assert victim.doubt is Doubt.EXPLAINED_ELSEWHERE
    healthy = await judged(*there, about=api[0], claim=claim(cache[0], "RestartDeployment"))
    assert healthy.doubt is Doubt.NOTHING_WRONG


async def test_a_sick_neighbour_that_nothing_ties_to_the_signal():
    api, other = workload("api", status=running()), workload("other", status=OOM, **LIMITED)
    verdict = await judged(
        *api, *other, service("other"), about=api[0], claim=claim(other[0], "IncreaseMemoryLimits")
    )
    assert verdict.doubt is Doubt.NOTHING_WRONG


async def test_a_host_in_a_config_map_ties_too_and_one_in_another_namespace():
    api = workload("api", envFrom=[{"configMapRef": {"name": "conf"}}])
    conf = obj(
        "ConfigMap", "conf", data={"URL": "http://pay.bank:80/"}, creationTimestamp="2026-05-01T00:00:00Z"
    )
    bank = [
        obj("Namespace", "bank", ""),
        *[_moved(m) for m in workload("pay", status=OOM, **LIMITED)],
        _moved(service("pay")),
    ]
    found = await first(*api, conf, *bank, about=api[0])
    assert (found.object.name, found.object.namespace) == ("pay", "bank")


def _moved(manifest):
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "bank"}}


async def test_three_steps_along_the_chain():
    web = workload("web", env=[{"name": "A", "value": "http://api"}], status=running())
    api, db = client(), workload("db", status=OOM, **LIMITED)
    found = await first(*web, *api, *db, service("api"), service("db"), about=web[0])
    assert found.object == reference(db[0])


async def test_two_that_wait_for_each_other():
    a = workload("a", env=[{"name": "B", "value": "b:80"}])
    b = workload("b", env=[{"name": "A", "value": "a:80"}])
    verdict = await judged(
        *a, *b, service("a"), service("b"), about=a[0], claim=claim(a[0], "RestartDeployment")
    )
    assert verdict.doubt is Doubt.NO_CAUSE_STATED


async def test_who_depends_on_a_circle_is_not_to_blame_for_it():
    web = workload("web", env=[{"name": "A", "value": "a:80"}])
    a = workload("a", env=[{"name": "B", "value": "b:80"}])
    b = workload("b", env=[{"name": "A", "value": "a:80"}])
    found = await first(*web, *a, *b, service("a"), service("b"), about=web[0])
    assert found.object == reference(a[0])


async def test_a_rollout_that_is_scaled_to_zero():
    idle = workload("db")[0] | {"kind": "Rollout", "apiVersion": "argoproj.io/v1alpha1"}
    idle["spec"]["replicas"] = 0
    api = client()
    found = await first(*api, idle, service("db"), about=api[0])
    assert (found.cause, found.object) == (Cause.SCALED_TO_ZERO, reference(idle))


async def test_a_dependency_that_is_scaled_to_zero():
    api, db = client(), workload("db")[:2]
    db[0]["spec"]["replicas"] = 0
    found = await first(*api, *db, service("db"), about=api[0])
    assert (found.cause, found.remedies) == (Cause.SCALED_TO_ZERO, {Remedy.SCALE_UP})
    assert (
        await judged(*api, *db, service("db"), about=api[0], claim=claim(db[0], "ScaleReplicas", replicas=2))
    ).confirmed
    verdict = await judged(
        *api, *db, service("db"), about=api[0], claim=claim(db[0], "ScaleReplicas", replicas=0)
    )
    assert verdict.doubt is Doubt.ACTION_DOES_NOT_FIT


async def test_a_number_of_replicas_that_is_no_number():
    api = workload()
    api[0]["spec"]["replicas"] = "two"
    more = claim(api[0], "ScaleReplicas", replicas=2)
    assert (await judged(*api, about=api[0], claim=more)).doubt is Doubt.ACTION_DOES_NOT_FIT


async def test_a_dependency_that_was_scaled_to_zero_long_ago_supports_no_action():
    api, db = client(), workload("db")[:2]
    db[0]["spec"]["replicas"] = 0
    db[0]["metadata"]["managedFields"] = [{"subresource": "scale", "time": "2026-06-04T15:00:00Z"}]
    db[0]["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    up = claim(db[0], "ScaleReplicas", replicas=2)
    assert (await judged(*api, *db, service("db"), about=api[0], claim=up)).confirmed
    db[0]["metadata"]["managedFields"][0]["time"] = "2026-04-01T00:00:00Z"
    assert not (await judged(*api, *db, service("db"), about=api[0], claim=up)).confirmed


async def test_a_selector_that_matches_nothing():
    db = workload("db", status=running())
    lost = service("db", selector={"app": "dbb"})
    found = await first(*db, lost, about=lost)
    assert (found.cause, found.remedies) == (Cause.SERVICE, {Remedy.FIX_SELECTOR})
    external = service("db")
    del external["spec"]["selector"]
    assert await findings(external, about=external) == ()


async def test_a_selector_that_the_controller_of_a_rollout_sets():
    lost = service("db-active", selector={"app": "db", "rollouts-pod-template-hash": "old"})
    ways = {"blueGreen": {"activeService": "db-active"}, "canary": {"stableService": "db-active"}}
    for name, way in ways.items():
        spec = {"strategy": {name: way}}
        keeper = obj("Rollout", "db", api_version="argoproj.io/v1alpha1", spec=spec)
        found = await first(*workload("db", status=running()), lost, keeper, about=lost)
        assert (found.object, found.remedies) == (reference(lost), set())


@pytest.mark.parametrize("controls", [True, False, None])
async def test_what_a_custom_resource_owns_is_not_edited(controls):
    api = workload(
        status=crashing("OOMKilled", 137),
        resources={"limits": {"memory": "64Mi"}, "requests": {"memory": "1Mi"}},
    )
    grow = claim(api[0], "IncreaseMemoryLimits")
    assert (await judged(*api, about=api[0], claim=grow)).confirmed
    owner = {"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": "v1"}
    api[0]["metadata"]["ownerReferences"] = [owner if controls is None else {**owner, "controller": controls}]
    assert (await judged(*api, about=api[0], claim=grow)).doubt is Doubt.ACTION_DOES_NOT_FIT


async def test_a_budget_that_a_custom_resource_owns_is_not_relaxed_by_its_workload_either():
    api = workload(status=running())
    budget = obj("PodDisruptionBudget", "keep", api_version="policy/v1",
                 spec={"selector": {"matchLabels": {"app": "api"}}, "minAvailable": 1},
                 status={"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1})  # fmt: skip
    known = (*api, budget, node(unschedulable=True), node("b"))
    relax = claim(api[0], "RelaxPDB")
    assert (await judged(*known, about=budget, claim=relax)).confirmed
    budget["metadata"]["ownerReferences"] = [
        {"apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka", "name": "k"}
    ]
    assert (await judged(*known, about=budget, claim=relax)).doubt is Doubt.ACTION_DOES_NOT_FIT


async def test_a_target_port_that_no_pod_declares():
    db = workload("db", status=running(), ports=[{"containerPort": 5432, "name": "pg"}])
    assert (await first(*db, service("db", target=5433), about=service("db"))).cause is Cause.SERVICE
    assert await findings(*db, service("db", target="pg"), about=service("db")) == ()


async def test_a_target_port_need_not_be_declared():
    api, web = workload("web", status=running(), ports=[{"containerPort": 8080}]), service("web", 80, 9090)
    assert (await first(*api, web, about=web)).remedies == {Remedy.FIX_PORT}
    web["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert await findings(*api, web, about=web) == ()
    web["spec"]["ports"][0]["targetPort"] = "http"
    assert (await first(*api, web, about=web)).remedies == {Remedy.FIX_PORT}


async def test_a_load_balancer_that_is_refused():
    public = service("web", type="LoadBalancer")
    refused = event(public, "SyncLoadBalancerFailed", "x")
    assert not (await first(public, refused, about=public)).remedies


def policy(name="deny", *, born="2026-06-04T15:00:00Z", **spec):
    return obj("NetworkPolicy", name, api_version="networking.k8s.io/v1", creationTimestamp=born, spec=spec)


def talking():
    api, db = client(), workload("db", status=running(), ports=[{"containerPort": 5432}])
    return [*api, *db, service("db", 5432, 5432)]


@pytest.mark.parametrize(
    "spec",
    [
        {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"]},
        {"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}]},
        {"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "x"}}}]}]},
        {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]},
        {"podSelector": {}, "ingress": [{"ports": [{"port": "²", "endPort": 6000}]}]},
        {"podSelector": {"matchLabels": {"app": "api"}}, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]},
    ],
)  # fmt: skip
async def test_a_policy_between_client_and_server(spec):
    found = await first(*talking(), policy(**spec), about=talking()[0])
    assert (found.cause, found.object.name, found.remedies) == (
        Cause.NETWORK_POLICY,
        "deny",
        {Remedy.FIX_NETWORK_POLICY},
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"podSelector": {}, "ingress": [{}]},
        {"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "api"}}}], "ports": [{"port": 5000, "endPort": 6000}]}]},
        {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
        {"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}]}]},
        {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]},
        {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"], "born": "2026-01-01T00:00:00Z"},
    ],
)  # fmt: skip
async def test_policies_that_admit_it_or_that_were_there_before(spec):
    found = await findings(*talking(), policy(**spec), about=talking()[0])
    assert {f.cause for f in found} == {Cause.CRASH_ON_START}


DENY = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
TO_DNS = {
    "podSelector": {},
    "policyTypes": ["Egress"],
    "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}],
}
TO_DB = {
    "podSelector": {},
    "policyTypes": ["Egress"],
    "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "db"}}}]}],
}
FROM_API = {"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "api"}}}]}]}


async def test_what_one_of_several_policies_admits_is_admitted():
    policies = [policy(f"p{n}", **spec) for n, spec in enumerate((DENY, TO_DNS, TO_DB, FROM_API))]
    found = await findings(*talking(), *policies, about=talking()[0])
    assert {f.cause for f in found} == {Cause.CRASH_ON_START}
    found = await findings(*talking(), *policies[:3], about=talking()[0])
    assert {f.object.name for f in found if f.cause is Cause.NETWORK_POLICY} == {"p0"}


async def test_a_policy_under_which_the_workload_was_available_for_long():
    api = talking()
    down = {"type": "Available", "status": "False", "lastTransitionTime": "2026-06-04T15:20:00Z"}
    api[0]["status"]["conditions"] = [down]
    shut = policy(podSelector={}, policyTypes=["Ingress"], born="2026-06-01T16:00:00Z")
    found = await findings(*api, shut, about=api[0])
    assert {f.cause for f in found} == {Cause.CRASH_ON_START}


async def test_beside_an_older_policy_only_its_own_change_closes_the_way():
    old = policy("old", podSelector={}, policyTypes=["Ingress"], born="2026-01-01T00:00:00Z")
    new = policy("new", podSelector={}, policyTypes=["Ingress"])
    found = await findings(*talking(), old, new, about=talking()[0])
    assert {f.cause for f in found} == {Cause.CRASH_ON_START}
    old["metadata"]["managedFields"] = [{"manager": "kubectl", "time": "2026-06-04T15:00:00Z"}]
    found = await findings(*talking(), old, new, about=talking()[0])
    assert {f.object.name for f in found if f.cause is Cause.NETWORK_POLICY} == {"old"}


async def test_a_policy_that_leaves_no_way_to_the_dns():
    api = workload()
    shut = policy(podSelector={}, policyTypes=["Egress"], egress=[{"ports": [{"port": 443}]}])
    assert (await first(*api, shut, about=api[0])).cause is Cause.NETWORK_POLICY


async def test_the_dns_of_the_cluster_is_looked_at_when_nothing_else_explains_a_crash():
    api = workload()
    dns = [_system(m) for m in workload("coredns", status=OOM, **LIMITED)]
    found = await first(*api, *dns, about=api[0])
    assert (found.object.name, found.path[-1].relation) == ("coredns", Relation.DNS)


def _system(manifest):
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "kube-system"}}


async def test_a_timed_cause_is_ambiguous_while_a_dependency_suffers_too():
    api = client()
    api[0]["status"] = {"conditions": [{"type": "Progressing", "status": "False", "reason": "x"}, {
        "type": "Available", "status": "False", "lastTransitionTime": "2026-06-01T10:05:00Z"}]}  # fmt: skip
    api[1]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "2"
    from tests.fakes.manifests import replica_set

    old = replica_set(api[0], "zz", 1, image="shop/app:0")
    db = workload("db")
    there = [*api, old, *db, service("db")]
    verdict = await judged(*there, about=api[0], claim=claim(api[0], "RollbackDeployment"))
    assert verdict.doubt is Doubt.AMBIGUOUS


async def test_certificates_that_the_pods_mount():
    api = workload()
    api[2]["spec"]["volumes"] = [{"name": "tls", "secret": {"secretName": "tls"}}]
    expired = obj("Certificate", "tls", api_version="cert-manager.io/v1", spec={"secretName": "tls"}, status={
        "notAfter": "2026-06-01T00:00:00Z", "conditions": [{"type": "Ready", "status": "True"}]})  # fmt: skip
    found = await first(*api, expired, about=api[0])
    assert (found.object, found.remedies) == (reference(expired), {Remedy.RENEW_CERTIFICATE})


async def test_a_service_of_waiting_pods_leads_to_them():
    db = workload("db", status=waiting("ErrImagePull", "not found"))
    found = await first(*db, service("db"), about=service("db"))
    assert (found.cause, found.object) == (Cause.IMAGE, reference(db[0]))
