"""A namespace with 2,000 pods and 5,000 events: the first look stays small, and the answer stays the same."""

from __future__ import annotations

import json
from pathlib import Path

from schemas.incident import IncidentRequest
from tests.bench.busy import REQUEST, namespace
from tests.corpus_files import CORPUS
from tests.fakes.analyst_scoring import NOW, AnalystModel, analyse
from tests.fakes.faulty_api import FaultyApi
from tests.fakes.manifests import event, obj, pod
from tests.fakes.memory_cluster import MemoryCluster
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.kubernetes_cluster import KubernetesCluster
from worker.app.wiring.clock import SystemClock
from worker.domain.cluster.events import MAX_EVENTS
from worker.domain.enrichment.enrich import enrich
from worker.sandbox.cluster_files import read_objects
from worker.sandbox.cluster_server import serve_api, shipped_rights, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot

MAX_REQUESTS = 40
EVICTIONS = CORPUS / "cases" / "025-evictions-node-memory-pressure"


async def test_the_first_look_takes_few_requests_and_shows_the_pods_that_matter(tmp_path: Path) -> None:
    api = FaultyApi(Snapshot(namespace()), rights=shipped_rights())
    async with serve_api(api) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        async with KubernetesCluster(kubeconfig=str(tmp_path / "kubeconfig")) as cluster:
            found = await enrich(
                IncidentRequest.model_validate(REQUEST), cluster, SystemClock(), deadline_seconds=100.0
            )
    assert len(api.requests) <= MAX_REQUESTS
    [pods] = [item.body for item in found.evidence if item.source == "enrichment:pods"]
    assert pods.count("api-5d4f8b7cb-") == 10
    assert not [request for request in api.requests if request.status == 403]


async def test_events_of_others_do_not_change_the_answer() -> None:
    incident = json.loads((EVICTIONS / "incident.json").read_text())
    incident = {"received_time": NOW.isoformat(), **incident}
    expected = json.loads((EVICTIONS / "expected.json").read_text())["affected_resource"]
    catalog = await FileCatalog.open(CORPUS / "catalog")
    answers = []
    for others in (0, MAX_EVENTS):
        noisy = pod("aaa-noisy", namespace="aaa")
        own = incident["resource_namespace"]
        near = pod("aaa-noisy", namespace=own)
        noise = [event(about, "Noise", f"{n}", key=str(n)) for about in (noisy, near) for n in range(others)]
        objects = [*read_objects(EVICTIONS), obj("Namespace", "aaa", ""), *noise]
        result = await analyse(incident, MemoryCluster(objects), catalog, AnalystModel())
        chosen = result.selected_workflow.workflow_id if result.selected_workflow else None
        answers.append((result.affected_resource, chosen))
    assert answers[0] == answers[1]
    assert answers[0][0] is not None
    assert (answers[0][0].kind, answers[0][0].name) == (expected["kind"], expected["name"])
