"""Lists that could not be read, or not to their end: they confirm nothing that they would refuse."""

from datetime import UTC, datetime

import pytest

from schemas.analysis import CorroborationSource
from tests.fakes.memory_cluster import MemoryCluster
from tests.unit.domain.diagnosis.small_clusters import node, workload
from tests.unit.domain.verdict.test_leaving import DOWN, guest
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.facts import ClusterFacts, Question
from worker.domain.untrusted.evidence import EvidenceLog
from worker.domain.values.errors import ClusterReason
from worker.domain.values.objects import Listing
from worker.domain.values.workflows import Workflow
from worker.domain.verdict.answers.answer import Answer
from worker.domain.verdict.corroboration import Corroborator
from worker.domain.verdict.leaving import crowded
from worker.domain.verdict.verdict import Accepted

NOW = datetime(2026, 6, 4, 16, tzinfo=UTC)


@pytest.mark.parametrize("kind", ["", "Event", "Node", "Pod", "PodDisruptionBudget"])
@pytest.mark.parametrize("reason", [ClusterReason.FORBIDDEN, ClusterReason.TIMEOUT])
async def test_a_drain_is_not_confirmed_without_what_it_depends_on(kind, reason):
    broken = node(conditions=DOWN)
    cluster = MemoryCluster([broken, node("b"), guest(ready=False)])
    if kind:
        cluster.fail(reason, kind=kind, method="list")
    ref = reference(broken)
    answer = Answer("It does not answer.", "high")
    drain = Workflow("drain-v1", "DrainNode")
    accepted = Accepted(answer, "high", "NodeNotReady", ref, ref, workflow=drain, target=ref)
    found = await Corroborator(cluster, ref, NOW).judge(accepted, EvidenceLog())
    assert (found.corroboration.by is CorroborationSource.RULES) is (kind in {"", "Event"})


@pytest.mark.parametrize("cut", ["Node", "Pod"])
@pytest.mark.parametrize(("cpu", "kept"), [("3", True), ("9", False)])
def test_a_cut_list_shows_at_least_what_it_has(cut, cpu, kept):
    api = workload()
    api[0]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    facts, listed = ClusterFacts(), {"Node": node(allocatable={"cpu": cpu}), "Pod": guest()}
    for kind, manifest in listed.items():
        found = Listing((manifest,), complete=kind != cut)
        facts.answers[Question(kind, api_version="v1")] = found
    spec = api[0]["spec"]["template"]["spec"]
    assert crowded(facts, api[0], spec) is kept
