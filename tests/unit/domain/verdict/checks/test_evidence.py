from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.taxonomy import SignalType
from tests.fakes.tool_context import evidence_from
from worker.domain.untrusted.evidence import Evidence, EvidenceKind
from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.checks.evidence import (
    SIGNS,
    is_reported,
    reported,
    said_absent,
    seen_in,
    signal_reasons,
    stands_in,
)

DEPLOYMENT = ObjectRef("Deployment", "api", "shop")
DASHED = ObjectRef("Deployment", "the-api", "shop")
ELSEWHERE = ObjectRef("Deployment", "api", "payments")
NODE = ObjectRef("Node", "worker-1")


def seen(ref, body, source="get_events", scope="", home="shop"):
    return bool(seen_in(ref, [evidence_from(source, scope, body, id="E1")], home))


@pytest.mark.parametrize(
    ("ref", "body", "expected"),
    [
        (DEPLOYMENT, "Deployment api has no pods", True),
        (DEPLOYMENT, 'deployments.apps "api" is forbidden', True),
        (DEPLOYMENT, "Warning Failed Deployment shop/api: no", True),
        (DEPLOYMENT, '{"metadata":{"name":"api"}}', True),
        (DEPLOYMENT, "NAME | READY\napi | 0/1 | x", True),
        (DEPLOYMENT, "dial api.shop.svc: refused", True),
        (DEPLOYMENT, "the api is down", False),
        (DEPLOYMENT, "registry.example.com/shop/api:2.4.1", False),
        (DEPLOYMENT, "Deployment apis", False),
        (DASHED, "the-api is down", True),
        (DASHED, "the-api.example.com", False),
        (DASHED, "not-the-api", False),
        (ELSEWHERE, "Deployment api has no pods", False),
        (ELSEWHERE, "Deployment payments/api: no pods", True),
        (ELSEWHERE, "Pod payments/api: no pods", False),
        (ELSEWHERE, "registry.example.com/payments/api:2.4.1", False),
        (ELSEWHERE, "payments/api:2.4.1", False),
        (ELSEWHERE, "dial api.payments.svc: refused", True),
        (ELSEWHERE, '{"kind":"Deployment","name":"api","namespace":"payments"}', True),
        (ELSEWHERE, '{"kind":"Pod","name":"api","namespace":"payments"}', False),
        (NODE, "assigned shop/api-0 to worker-1", True),
        (NODE, "assigned shop/api-0 to worker-11", False),
        (ObjectRef("Node", "alpha"), "api-0 | 1/1 | alpha | 3d", True),
        (ObjectRef("Node", "alpha"), "an alpha release", False),
    ],
)
def test_where_an_object_is_seen(ref, body, expected):
    assert expected is seen(ref, body)


@pytest.mark.parametrize(
    ("source", "scope", "body", "expected"),
    [
        ("get_resource", "Deployment payments/api", "{}", True),
        ("get_resource", "Deployment payments/api, part spec", "1", True),
        ("get_resource", "Deployment payments/api-2", "{}", False),
        ("get_resource_context", "Deployment payments/api", "{}", True),
        ("get_events", "events of Deployment payments/api and what belongs to it: 0 found", "none", False),
        ("list_resources", "Deployment in payments: 1 found", "NAME | READY\napi | 1/1", True),
        ("list_resources", "Deployment in shop: 1 found", "NAME | READY\napi | 1/1", False),
        ("list_resources", "Service in payments: 1 found", "NAME | TYPE\napi | x", False),
        ("list_resources", "Deployment in all namespaces: 1", "NAMESPACE | NAME\npayments | api | 1", True),
        ("list_resources", "Service in all namespaces: 1", "NAMESPACE | NAME\npayments | api | 1", False),
        ("query_prometheus", "x", "Deployment payments/api", False),
        ("list_workflows", "x", "Deployment payments/api", False),
    ],
)
def test_where_an_object_of_another_namespace_is_seen(source, scope, body, expected):
    assert expected is seen(ELSEWHERE, body, source, scope)


def test_an_object_that_could_not_be_read_is_not_seen_in_its_own_context():
    body = '{"owner_chain":[{"kind":"Deployment","name":"api"}],"note":"owner chain may go on: Deployment shop/api: 403"}'
    assert not seen(DEPLOYMENT, body, "get_resource_context", "Deployment shop/api")
    assert not seen(DEPLOYMENT, "does not exist (any more)", "enrichment:object", "Deployment shop/api")


def test_what_failed_shows_nothing():
    items = [evidence_from("get_resource", "Deployment shop/the-api", "error: no the-api", ok=False)]
    assert () == seen_in(DASHED, items, "shop")
    assert not stands_in("the-api", items)


@given(st.builds(ObjectRef, *[st.text(max_size=30)] * 3), st.text(max_size=200), st.text(max_size=20))
def test_any_object_can_be_looked_for_in_any_text(ref, body, home):
    assert seen(ref, body, home=home) in {True, False}
    assert stands_in(ref.name, [evidence_from("get_events", "", body)]) in {True, False}


@given(st.text(max_size=80), st.text(max_size=400))
def test_any_name_can_be_looked_for_in_any_text(name, text):
    assert said_absent(ObjectRef("Pod", name), text) in {True, False}
    assert said_absent(ObjectRef("Pod", "web-0"), f"{text}\nPod shop/web-0 was deleted\n{text}") is True


STATUS = {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}


def reasons(source, body):
    return reported(evidence_from(source, "", body, id="E1"))


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
    assert reason in reasons(source, body)


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
    assert "oomkilled" not in reasons(source, body)


@pytest.mark.parametrize(
    ("source", "kind", "body", "expected"),
    [
        (
            "get_events",
            EvidenceKind.EVENTS,
            "2026-06-04T15:30:00Z Warning FailedCreate ReplicaSet a: x",
            {"FailedCreate"},
        ),
        ("get_events", EvidenceKind.EVENTS, "2026-06-04T15:30:00Z Normal Scheduled Pod a: x", set()),
        ("get_events", EvidenceKind.EVENTS, "no 2026-06-04T15:30:00Z Warning Planted Pod a: x", set()),
        (
            "get_resource",
            EvidenceKind.OBJECT,
            '{"spec":{"reason":"No"},"status":{"reason":"StartError"}}',
            {"StartError"},
        ),
        ("get_resource", EvidenceKind.OBJECT, '{"status":{"message":"\\"reason\\":\\"No\\""}}', set()),
        ("get_pod_logs", EvidenceKind.LOG, '"status":{"reason":"No"}', set()),
        ("list_resources", EvidenceKind.TABLE, "NAME | STATUS\na | ImagePullBackOff", set()),
    ],
)
def test_which_reasons_may_be_signal_types(source, kind, body, expected):
    item = Evidence(source, "x", body, kind=kind)
    assert expected == signal_reasons(item)
    assert not signal_reasons(replace(item, ok=False))


@pytest.mark.parametrize("signal_type", list(SignalType))
def test_a_reason_of_kubernetes_must_be_reported(signal_type):
    assert is_reported(signal_type, frozenset(SIGNS[signal_type][:1]))
    assert not is_reported(signal_type, frozenset({"running"}))


@pytest.mark.parametrize("signal_type", ["", "ConnectionPoolExhausted", "ErrorBudgetBurn"])
def test_a_type_without_known_reasons_counts_as_reported(signal_type):
    assert is_reported(signal_type, frozenset())
