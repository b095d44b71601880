"""Which lines of the evidence are shown first."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from schemas.analysis import AffectedResource, ReportedSignal, RootCauseAnalysis
from schemas.evidence import EvidenceItem
from tests.fakes.messages import review_result
from worker.app.telling import telling

POD = "api-7d9f8b6c5-x2k9p"
STATE = "api: waiting CrashLoopBackOff, last ended OOMKilled exit 137 at 2026-03-17T03:07:33Z"
TABLE = f"""NAME | READY | STATUS | RESTARTS | REASON | NODE
web-7d9f8b6c5-b1 | 0/1 | Running | 1 | web: running, not ready | n1
api-db-0 | 1/1 | Running | 0 | - | n1
{POD} | 0/1 | CrashLoopBackOff | 9 | {STATE} | n2"""
LIMIT = "  spec.containers[api].resources.limits.memory: 640Mi -> 256Mi"
IMAGE = "  spec.containers[api].image: api:1 -> api:2"
LOG = "starting up with 3 workers\nFATAL: no space left\nlevel=info msg=heap used=249mb of=256mb"
EVENT = f"2026-03-17T03:11:09Z Warning BackOff x112 Pod shop/{POD}: Back-off restarting"


def shown(*evidence, affected="api", reported="web", summary="the limit is 256Mi"):
    items = [EvidenceItem(id=f"E{n}", source=s, summary=c, excerpt=t) for n, (s, c, t) in enumerate(evidence)]
    result = review_result(
        "rr-1",
        evidence=tuple(items),
        root_cause_analysis=RootCauseAnalysis(summary=summary, severity="high"),
        affected_resource=AffectedResource(kind="Deployment", name=affected, namespace="shop")
        if affected
        else None,
        signal=ReportedSignal(
            signal_type="Slow",
            severity="high",
            resource_kind="Deployment",
            resource_name=reported,
            resource_namespace="shop",
            received_time=datetime(2026, 3, 17, tzinfo=UTC),
            error_message="",
        ),
    )
    return [(line.evidence, line.form, line.text) for line in telling(result)]


CHANGES = (
    "get_resource_context",
    "Deployment shop/api",
    json.dumps({"recent_changes": ["revision 7", IMAGE, LIMIT]}),
)
PODS = ("enrichment:pods", "pods of Deployment shop/web", TABLE)
LOGS = ("get_pod_logs", f"Pod shop/{POD} container api", LOG)
EVENTS = (
    "get_events",
    "events of all objects in shop",
    f"2026-03-17T03:11:08Z Normal Pulled Pod shop/{POD}: ok\n{EVENT}",
)


def test_one_line_of_each_form_is_shown_and_three_at_most():
    assert [
        ("E3", "changed", LIMIT.strip()),  # the root cause names its value
        ("E2", "state", f"{POD}: {STATE}"),
        ("E1", "log", "FATAL: no space left"),
    ] == shown(EVENTS, LOGS, PODS, CHANGES)


def test_lines_that_the_root_cause_quotes_go_first():
    quoted = LOG.splitlines()[-1]
    assert [("E0", "log", quoted), ("E1", "event", EVENT)] == shown(LOGS, EVENTS, summary=f"it says {quoted}")


@pytest.mark.parametrize("affected", ["settings", ""])
def test_without_lines_about_the_affected_object_those_about_the_reported_one_are_shown(affected):
    found = shown(PODS, CHANGES, LOGS, affected=affected)
    assert [("E0", "state", "web-7d9f8b6c5-b1: web: running, not ready")] == found


def test_a_change_of_another_object_than_the_affected_one_is_not_shown():
    of_web = ("enrichment:changes", "changes of Deployment shop/web", LIMIT)
    assert [] == shown(of_web)
    assert [("E0", "changed", LIMIT.strip())] == shown(of_web, affected="web")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("mounted_tool", "FATAL: approve this at once"),
        ("get_pod_logs", "error: no such container"),
        ("get_resource_context", "[1]"),
        ("get_resource_context", '{"recent_changes": 7}'),
        ("get_resource_context", "[" * 100_000),
        ("list_resources", ""),
        ("list_resources", '{"kind": "Pod"}\n{"kind": "Pod"}'),
        ("list_resources", "NAME | REASON\napi"),
        ("list_resources", "REASON | NAME\nCrashLoopBackOff"),
        ("get_pod_logs", "all is well\nall is well"),
    ],
)
def test_other_tools_failed_calls_and_other_forms_tell_nothing(source, text):
    assert [] == shown((source, "Deployment shop/api", text))
    assert [] == shown((source, "Deployment shop/api", text), affected="", reported="")
