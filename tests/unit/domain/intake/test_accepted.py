from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.scripted import FAILED, incident, recovery
from worker.domain.intake.accepted import (
    attempt_number,
    base_context,
    failed_execution,
    requested_names,
    sent_enrichment,
    signal_resource,
)
from worker.domain.investigation.prompt.sender_texts import free_texts
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import FailedExecution
from worker.domain.values.workflows import SelectionContext

MINIMAL = {"environment": None, "priority": None}


def test_what_was_not_given_constrains_nothing():
    assert SelectionContext(priority="P2") == base_context(incident(**MINIMAL))


def test_business_labels_come_from_the_request():
    request = incident(
        environment="Staging",
        priority="p0",
        risk_tolerance="low",
        business_category="checkout",
        cluster_name="east",
        enrichment_results={"customLabels": {"team": ["name=payments"]}},
    )
    assert SelectionContext(
        environment="staging",
        priority="P0",
        risk_tolerance="low",
        business_category="checkout",
        cluster="east",
        custom_labels={"team": ("name=payments",)},
    ) == base_context(request)


def test_the_signal_does_not_filter_what_the_analysis_finds():
    context = base_context(incident(signal_type="OOMKilled", severity="low"))
    assert ("", "", ()) == (context.signal_type, context.severity, context.components)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ObjectRef("Deployment", "api", "shop")),
        (
            {"resource_kind": "Node", "resource_name": "worker-1", "resource_namespace": "shop"},
            ObjectRef("Node", "worker-1"),
        ),
        (
            {
                "resource_kind": "Cluster",
                "resource_name": "pg",
                "resource_api_version": "postgresql.cnpg.io/v1",
            },
            ObjectRef("Cluster", "pg", "shop", "postgresql.cnpg.io/v1"),
        ),
    ],
)
def test_the_resource_of_the_signal(fields, expected):
    assert expected == signal_resource(incident(**fields))


def test_names_that_the_request_gives():
    request = incident(
        error_message="Pod shop/api-0 (worker) can't reach 'db', the pod is down; deployment/web payments/ledger",
        description="see node [worker-1] and statefulset cache-2",
        signal_labels={"pod": "api-1", "persistentvolumeclaim": "data-api-0", "team": "checkout"},
    )
    assert {"api-0", "db", "web", "worker-1", "cache-2", "api-1", "data-api-0"} == requested_names(request)


@given(st.text(max_size=300))
def test_names_are_found_in_any_text(text):
    assert {"api-7"} <= requested_names(incident(error_message=f"{text[:200]}\n'api-7'\n{text}"))


def test_texts_of_the_sender_are_named_by_their_field():
    texts = free_texts(
        incident(
            error_message="boom",
            description="x y " * 100_000,
            signal_labels={"alertname": "A", "team": "b"},
            signal_annotations={"note": "c"},
        )
    )
    by_field = {item.id: item.body for item in texts}
    assert {"error_message", "description", "signal_labels", "signal_annotations"} <= set(by_field)
    assert ("boom", "alertname=A\nteam=b", "note=c") == (
        by_field["error_message"],
        by_field["signal_labels"],
        by_field["signal_annotations"],
    )
    assert all(item.source == "sender" for item in texts)


def test_a_recovery_adds_the_message_of_the_failure():
    assert "previous_execution.failure.message" in {item.id for item in free_texts(recovery())}
    assert ["signal_type"] == [item.id for item in free_texts(incident())]


def test_what_only_a_recovery_has():
    assert (None, None) == (failed_execution(incident()), attempt_number(incident()))
    assert attempt_number(recovery(recovery_attempt_number=3)) == 3
    executed = FAILED["selected_workflow"]
    assert FailedExecution("restart-v1", executed["parameters"]) == failed_execution(recovery())


def test_what_the_sender_found_out():
    assert sent_enrichment(incident()) is None
    sent = sent_enrichment(incident(enrichment_results={"detectedLabels": {"stateful": True}}))
    assert sent.detected_labels.stateful is True
