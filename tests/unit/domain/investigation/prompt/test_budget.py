"""What the first turn costs, for the incidents of the corpus and for senders without measure."""

from __future__ import annotations

import copy
import re
from functools import cache

import pytest

from schemas.incident import IncidentRequest
from tests.corpus_files import CORPUS, corpus_path
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_model import final
from tests.fakes.scripted import FAILED, World, answer, incident, recovery
from tests.fakes.tokens import real_tokens

BUDGET = 3_500
CASES = sorted(case.name for case in (CORPUS / "cases").iterdir())
WORDS = "the quick orders-api-7d9f failed; see https://x.example.com/a/b?c=1 id=0x9f3 "


@cache
def cluster(case):
    for file in (CORPUS / "cases" / case).rglob("*"):
        corpus_path(str(file.relative_to(CORPUS)))
    return MemoryCluster.read(CORPUS / "cases" / case)


async def first_turn(request, cluster_):
    world = World.saying(final(answer()), cluster=cluster_)
    await world.analyse(request)
    return world.model.requests[0].turns[0].text


@pytest.mark.parametrize("case", CASES)
async def test_the_first_turn_of_an_incident_is_within_its_budget_and_whole(case):
    request = IncidentRequest.model_validate_json(corpus_path(f"cases/{case}/incident.json").read_bytes())
    text = await first_turn(request, cluster(case))
    assert real_tokens(text) <= BUDGET
    assert not re.search(r"\bNone\b", text)
    assert not re.search(r"^\s*-\s*$", text, re.MULTILINE)
    assert request.resource_name in text
    assert '<data-000000000001 id="E1"' in text
    assert "Nothing could be read" not in text


LONG = WORDS * 2_000
BOUNDLESS = {
    "error_message": LONG,
    "description": LONG,
    "signal_labels": {f"label-{n}": WORDS for n in range(100)},
    "signal_annotations": {f"note-{n}": LONG[:5_000] for n in range(20)},
    "safety_context": {
        "dependencies": [{"service": WORDS[:60], "impact": "critical"} for _ in range(200)],
        "safety_constraints": {"forbidden_actions": [f"act_{n}_*" for n in range(300)]},
    },
    "is_storm": True,
    "storm_type": "rate",
    "storm_window": "5m",
    "storm_alert_count": 3,
    "affected_resources": [WORDS] * 50,
    "is_duplicate": True,
    "occurrence_count": 4,
    "first_seen": "2026-06-04T15:00:00Z",
    "last_seen": "2026-06-04T15:00:00Z",
    "firing_time": "2026-06-04T15:00:00Z",
    "cluster_name": WORDS[:100],
    "business_category": WORDS[:100],
    "signal_source": WORDS[:100],
    "risk_tolerance": "low",
    "enrichment_results": {
        "customLabels": {f"team{n}": [WORDS] * 3 for n in range(40)},
        "detectedLabels": {
            "gitOpsManaged": True,
            "gitOpsTool": "argocd",
            "pdbProtected": True,
            "hpaEnabled": True,
            "stateful": True,
            "helmManaged": True,
            "networkIsolated": True,
            "podSecurityLevel": "restricted",
            "serviceMesh": "istio",
        },
    },
}
"""Everything a sender can say, and too much of it."""


def boundless_execution():
    execution = copy.deepcopy(FAILED)
    execution["original_rca"] |= {"summary": LONG, "contributing_factors": [LONG] * 20}
    execution["selected_workflow"] |= {
        "rationale": LONG,
        "parameters": {f"PARAM_{n}": WORDS * 5 for n in range(60)},
    }
    execution["failure"] |= {"message": LONG, "failed_step_name": WORDS}
    return execution


@pytest.mark.parametrize("case", [CASES[0], "038-prometheus-oom-loop-wal-replay-1mb-log"])
@pytest.mark.parametrize("repeated", [False, True], ids=["incident", "recovery"])
async def test_no_sender_breaks_the_budget(case, repeated):
    sent = IncidentRequest.model_validate_json(corpus_path(f"cases/{case}/incident.json").read_bytes())
    about = {
        name: getattr(sent, name)
        for name in ("resource_kind", "resource_name", "resource_namespace", "signal_type")
    }
    more = {"previous_execution": boundless_execution()} if repeated else {}
    make = recovery if repeated else incident
    text = await first_turn(make(**{**BOUNDLESS, **about, **more}), cluster(case))
    assert real_tokens(text) <= BUDGET
    for section in (
        "## Incident Summary",
        "## Alert Storm",
        "## Safety Context",
        "## Evidence gathered so far",
    ):
        assert section in text
    assert '<data-000000000001 id="E1"' in text
