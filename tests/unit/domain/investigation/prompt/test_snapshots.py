"""The first turns as they are sent, to be read by people. `UPDATE_SNAPSHOTS=1 pytest <this file>` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from schemas.enrichment import DetectedLabels
from tests.fakes.scripted import incident, recovery
from worker.domain.investigation.prompt import SYSTEM_TEXT, PromptFacts, opening_turn
from worker.domain.untrusted.evidence import Evidence

SNAPSHOTS = Path(__file__).parent / "snapshots"
TOKEN = "4f2a9c01b7d3"
PODS = Evidence(
    "enrichment:pods",
    "pods of Deployment shop/api: 1, 1 failing",
    "NAME | READY | STATUS | RESTARTS | REASON | NODE | OWNER | AGE\n"
    "api-7d9-x2x | 0/1 | CrashLoopBackOff | 6 | app: last ended Error exit 1 | worker-1 | ReplicaSet/api-7d9 | 13m",
    id="E1",
)
LOGS = Evidence(
    "enrichment:logs",
    "Pod shop/api-7d9-x2x container app, previous, last 150 lines",
    "starting api 2.4.1\nError: listen address is not set",
    cut="12 older lines; tail_lines shows more",
    id="E2",
)
NODE = Evidence(
    "enrichment:events",
    "events of Node worker-1",
    "2026-06-04T15:30:00Z Warning NodeNotReady Node worker-1: x",
    id="E1",
)


def full_incident():
    request = incident(
        signal_source="prometheus-alertmanager",
        error_message="Pod shop/api-7d9-x2x (app) is waiting: CrashLoopBackOff",
        description="A pod has been restarting for 15 minutes.",
        firing_time="2026-06-04T15:31:00Z",
        risk_tolerance="low",
        business_category="checkout",
        cluster_name="east",
        is_duplicate=True,
        occurrence_count=4,
        first_seen="2026-06-04T15:20:00Z",
        last_seen="2026-06-04T15:33:00Z",
        is_storm=True,
        storm_type="pattern",
        storm_window="5m",
        storm_alert_count=12,
        affected_resources=["shop/Pod/api-7d9-x2x", "shop/Pod/api-7d9-k8s"],
        signal_labels={"alertname": "KubePodCrashLooping", "team": "payments"},
        signal_annotations={"runbook_url": "https://runbooks.example.com/crash"},
        safety_context={
            "safety_constraints": {"max_downtime_seconds": 60, "forbidden_actions": ["delete_*"]},
            "user_impact": "high",
        },
    )
    labels = DetectedLabels(
        gitops_managed=True,
        gitops_tool="argocd",
        pdb_protected=True,
        hpa_enabled=True,
        service_mesh="istio",
        failed_detections=("networkIsolated",),
    )
    return request, PromptFacts(
        TOKEN,
        evidence=[PODS, LOGS],
        detected_labels=labels,
        custom_labels={"constraint": ["cost-constrained"], "team": ["name=payments"]},
        unknown_sources=["nodes of the pods (forbidden: may not list nodes)"],
    )


def plain_recovery():
    request = recovery(recovery_attempt_number=2)
    return request, PromptFacts(TOKEN, evidence=[PODS, LOGS], detected_labels=DetectedLabels())


def minimal_node():
    request = incident(
        resource_kind="Node", resource_name="worker-1", resource_namespace="", environment=None, priority=None
    )
    return request, PromptFacts(TOKEN, evidence=[NODE])


TURNS = {"incident": full_incident, "recovery": plain_recovery, "cluster-scoped": minimal_node}


def compare(name, text):
    file = SNAPSHOTS / f"{name}.md"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(text + "\n", encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text + "\n"


@pytest.mark.parametrize("name", TURNS)
def test_a_first_turn_is_as_it_was_reviewed(name):
    compare(name, opening_turn(*TURNS[name]()))


def test_the_system_text_is_as_it_was_reviewed():
    compare("system", SYSTEM_TEXT)
