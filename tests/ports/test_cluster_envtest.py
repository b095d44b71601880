"""The Cluster port on a real API server: the suite of test_cluster.py runs there too, and these cases besides.

Skipped unless KUBEBUILDER_ASSETS or RCA_TEST_KUBECONFIG is set.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from schemas.incident import IncidentRequest
from tests.corpus_files import CORPUS
from tests.envtest import KUBECONFIG, api_server, why_not
from tests.fakes.memory_cluster import MemoryCluster
from worker.adapters.kubernetes_cluster import KubernetesCluster
from worker.app.wiring.clock import SystemClock
from worker.domain.enrichment.enrich import Enrichment, enrich
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import ListQuery, ObjectRef
from worker.domain.values.ports import Cluster
from worker.sandbox.cluster_files import read_objects

CASES = sorted((CORPUS / "cases").iterdir())
SELECTED = CASES[:1] if os.environ.get(KUBECONFIG) else CASES[:3] + CASES[13:14]
SAME = {"object", "pods", "events", "nodes", "storage", "configuration", "kind", "neighbours"}

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]


def scopes(found: Enrichment) -> set[str]:
    """What was shown, but for logs, which need a kubelet, and changes, which need times of the past."""
    return {item.scope for item in found.evidence if item.source.removeprefix("enrichment:") in SAME}


@pytest.mark.parametrize("case", SELECTED, ids=lambda case: case.name)
async def test_a_case_looks_the_same_on_a_real_server(case: Path, tmp_path: Path) -> None:
    request = IncidentRequest.model_validate_json((case / "incident.json").read_bytes())

    async def look(cluster: Cluster) -> Enrichment:
        return await enrich(request, cluster, SystemClock(), deadline_seconds=120.0)

    snapshot = await look(MemoryCluster.read(case))
    with api_server(tmp_path) as server:
        server.load(read_objects(case))
        server.account_kubeconfig(tmp_path / "kubeconfig")
        async with KubernetesCluster(kubeconfig=str(tmp_path / "kubeconfig")) as real:
            found = await look(real)
    assert [str(ref) for ref in snapshot.first_look.chain] == [str(ref) for ref in found.first_look.chain]
    assert scopes(snapshot) == scopes(found)


async def test_the_account_has_the_shipped_rights_and_no_others(tmp_path: Path) -> None:
    with api_server(tmp_path) as server:
        server.account_kubeconfig(tmp_path / "kubeconfig")
        async with KubernetesCluster(kubeconfig=str(tmp_path / "kubeconfig")) as real:
            await real.check()
            assert (await real.list(ListQuery("Node"))).complete
            with pytest.raises(ClusterError) as caught:
                await real.get(ObjectRef("ClusterRole", "rca-worker"))
    assert caught.value.reason is ClusterReason.FORBIDDEN
