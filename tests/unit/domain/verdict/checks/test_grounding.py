from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.tool_context import evidence_from
from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.checks.grounding import seen_in, stands_in

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
