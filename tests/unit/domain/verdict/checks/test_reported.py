from __future__ import annotations

import json

import pytest

from schemas.taxonomy import SignalType
from tests.fakes.tool_context import evidence_from
from worker.domain.verdict.checks.reported import SIGNS, is_reported, reported

STATUS = {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}


def seen(source, body):
    return reported([evidence_from(source, "", body, id="E1")])


@pytest.mark.parametrize(
    ("source", "body", "reason"),
    [
        (
            "get_resource",
            json.dumps({"kind": "Pod", "status": STATUS}, separators=(",", ":")),
            "crashloopbackoff",
        ),
        ("get_events", "2026-06-04T19:22:52Z Warning FailedMount x6 Pod a/b: no", "failedmount"),
        (
            "enrichment:pods",
            "NAME | STATUS | REASON\na-1 | Error | app: last ended OOMKilled exit 137",
            "oomkilled",
        ),
    ],
)
def test_what_stands_in_a_field_of_the_cluster_is_reported(source, body, reason):
    assert reason in seen(source, body)


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("get_pod_logs", "NAME | OOMKilled | x"),
        ("sender", "NAME | OOMKilled | x"),
        ("get_events", '2026-06-04T19:22:52Z Normal Pulled Pod a/b: x | OOMKilled | "reason":"OOMKilled"'),
        (
            "get_resource",
            '{"kind":"Pod","metadata":{"annotations":{"reason":"OOMKilled"}},"status":{"phase":"Running"}}',
        ),
        ("get_resource", json.dumps({"data": {"note": '"status":{"reason":"OOMKilled"}'}})),
    ],
)
def test_what_a_workload_or_a_sender_writes_is_not(source, body):
    assert "oomkilled" not in seen(source, body)


@pytest.mark.parametrize("signal_type", list(SignalType))
def test_a_reason_of_kubernetes_must_be_reported(signal_type):
    assert is_reported(signal_type, frozenset(SIGNS[signal_type][:1]))
    assert not is_reported(signal_type, frozenset({"running"}))


@pytest.mark.parametrize("signal_type", ["", "ConnectionPoolExhausted", "ErrorBudgetBurn"])
def test_nobody_can_tell_about_other_types(signal_type):
    assert is_reported(signal_type, frozenset())
