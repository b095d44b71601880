"""Rules get what they ask for, within the budget, and what cannot be read is unknown."""

import asyncio

from tests.fakes.manifests import NOW, deployment, event, pod
from tests.fakes.memory_cluster import MemoryCluster
from worker.domain.cluster.events import MAX_EVENTS
from worker.domain.diagnosis.driver import Budget, Investigator
from worker.domain.diagnosis.facts import ClusterFacts, Presence, Question
from worker.domain.diagnosis.structure import ref_to
from worker.domain.values.errors import ClusterReason
from worker.domain.values.objects import Listing, ListQuery

POD = ref_to("Pod", "api-1", "shop")


async def test_rules_run_again_until_nothing_is_open():
    def rules(facts):
        found = facts.get(POD)
        return facts.presence(ref_to("ConfigMap", "conf", "shop")) if found else None

    facts = ClusterFacts()
    assert await Investigator(MemoryCluster([pod("api-1")])).conclude(facts, rules) is Presence.ABSENT
    assert not facts.open
    assert not facts.unsettled


async def test_reads_within_one_run_happen_once():
    cluster = MemoryCluster([pod("api-1"), pod("api-2")])
    investigator, facts = Investigator(cluster), ClusterFacts()
    for _ in range(2):
        assert len((await investigator.conclude(facts, lambda f: f.list("Pod", "shop"))).items) == 2
    assert await investigator.conclude(facts, lambda f: f.get(POD)) is not None
    assert len(cluster.calls) == 1


async def test_what_is_beyond_the_budget_stays_open():
    facts = ClusterFacts()
    names = [ref_to("Pod", f"api-{n}", "shop") for n in range(5)]
    found = await Investigator(MemoryCluster(), Budget(reads=2)).conclude(
        facts, lambda f: [f.presence(n) for n in names]
    )
    assert found.count(Presence.ABSENT) == 2
    assert found.count(Presence.UNKNOWN) == 3
    assert facts.unsettled


async def test_a_slow_cluster_costs_no_more_than_the_time_that_is_allowed():
    class Slow(MemoryCluster):
        async def get(self, ref):
            if ref.name == "slow":
                await asyncio.Event().wait()
            return await super().get(ref)

    facts = ClusterFacts()
    asked = [POD, ref_to("Pod", "slow", "shop")]
    cluster = Slow([pod("api-1")])
    found = await Investigator(cluster, Budget(seconds=0.05)).conclude(
        facts, lambda f: [f.presence(r) for r in asked]
    )
    assert found == [Presence.PRESENT, Presence.UNKNOWN]


async def test_forbidden_is_unknown_and_a_kind_that_is_not_served_has_no_objects():
    cluster = MemoryCluster([pod("api-1")])
    cluster.fail(ClusterReason.FORBIDDEN, kind="Pod")
    facts = ClusterFacts()
    investigator = Investigator(cluster)
    assert await investigator.conclude(facts, lambda f: f.presence(POD)) is Presence.UNKNOWN
    assert not (await investigator.conclude(facts, lambda f: f.list("Pod", "shop"))).complete
    widgets = await investigator.conclude(facts, lambda f: f.list("Widget", "shop", api_version="x.io/v1"))
    assert widgets.complete
    assert widgets.items == ()


async def test_secrets_are_never_read():
    cluster = MemoryCluster()
    found = await Investigator(cluster).conclude(
        ClusterFacts(), lambda f: f.presence(ref_to("Secret", "s", "shop"))
    )
    assert found is Presence.UNKNOWN
    assert cluster.calls == []


async def test_pods_of_a_node_are_asked_for_by_field():
    cluster = MemoryCluster([pod("api-1")])
    found = await Investigator(cluster).conclude(ClusterFacts(), lambda f: f.list("Pod", node="node-1"))
    assert len(found.items) == 1
    assert cluster.calls[0].query == ListQuery(
        "Pod", "", "v1", field_selector="spec.nodeName=node-1", limit=500
    )


def test_an_object_missing_from_a_cut_list_is_unknown():
    facts = ClusterFacts(answers={Question("Pod", "shop", "", "v1"): Listing((), complete=False)})
    assert facts.presence(POD) is Presence.UNKNOWN
    assert facts.unsettled


def test_an_answer_of_the_wrong_form_is_unknown():
    question = Question("Pod", "shop", "api-1", "v1")
    assert ClusterFacts(answers={question: Listing(())}).presence(POD) is Presence.UNKNOWN
    assert (
        not ClusterFacts(answers={Question("Pod", "shop", "", "v1"): Presence.UNKNOWN})
        .list("Pod", "shop")
        .complete
    )


async def test_events_are_found_by_kind_and_name():
    owner = deployment("api")
    cluster = MemoryCluster([event(owner, "ScalingReplicaSet", "x"), event(pod("api"), "BackOff", "y")])
    found = await Investigator(cluster).conclude(
        ClusterFacts(NOW), lambda f: f.events("shop", ref_to("Pod", "api", "shop"))
    )
    assert [e.reason for e in found] == ["BackOff"]


def test_questions_are_told_in_words():
    assert str(Question("Pod", "shop", "a")) == "Pod shop/a"
    assert str(Question("Pod", "shop")) == "Pod objects of namespace shop"
    assert str(Question("Pod", node="w1")) == "Pod objects of node w1"
    assert str(Question("Node")) == "Node objects of the cluster"
    assert str(Question("Event", "shop", about="Pod/a")) == "events of Pod/a in namespace shop"


async def test_events_of_a_busy_namespace_are_asked_for_by_name():
    noise = [event(pod("aaa"), "Noise", str(n), key=str(n)) for n in range(MAX_EVENTS)]
    news = event(pod("zzz"), "FailedMount", "no such secret")
    cluster, facts = MemoryCluster([*noise, news]), ClusterFacts()
    wanted = ref_to("Pod", "zzz", "shop")
    found = await Investigator(cluster).conclude(facts, lambda f: f.events("shop", wanted))
    assert [item.reason for item in found] == ["FailedMount"]
    assert not facts.unsettled
    selectors = [call.query.field_selector for call in cluster.calls]
    assert selectors == ["", "involvedObject.kind=Pod,involvedObject.name=zzz"]


async def test_events_that_no_list_reaches_leave_the_facts_unsettled():
    noise = [event(pod("zzz"), "Noise", str(n), key=str(n)) for n in range(MAX_EVENTS + 1)]
    facts = ClusterFacts()
    wanted = ref_to("Pod", "zzz", "shop")
    await Investigator(MemoryCluster(noise)).conclude(facts, lambda f: f.events("shop", wanted))
    assert facts.unsettled
