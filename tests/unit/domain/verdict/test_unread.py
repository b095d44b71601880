"""Lists that could not be read: they confirm nothing that they might have refused."""

from datetime import UTC, datetime

import pytest

from schemas.analysis import CorroborationSource
from tests.fakes.memory_cluster import MemoryCluster
from tests.unit.domain.diagnosis.small_clusters import node
from tests.unit.domain.verdict.test_leaving import DOWN, guest
from worker.domain.cluster.fields import reference
from worker.domain.untrusted.evidence import EvidenceLog
from worker.domain.values.errors import ClusterReason
from worker.domain.values.workflows import Workflow
from worker.domain.verdict.answers.answer import Answer
from worker.domain.verdict.corroboration import Corroborator
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
