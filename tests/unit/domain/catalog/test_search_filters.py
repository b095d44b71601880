from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.enrichment import DetectedLabels
from schemas.taxonomy import Severity
from worker.domain.catalog.search import narrowed, where_words
from worker.domain.catalog.selection import label_name
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflow_search import SearchQuery, Target
from worker.domain.values.workflows import BUSINESS_LABELS, SelectionContext

QUERY = SearchQuery("OOMKilled", Severity.CRITICAL)
CONTEXT = SelectionContext(
    environment="production",
    priority="P1",
    components=(("apps/v1", "Deployment"),),
    detected_labels={"gitOpsManaged": True, "gitOpsTool": "argocd", "stateful": None, "service_mesh": ""},
    custom_labels={"team": ["payments"]},
)


def applied(filters, custom=(), context=CONTEXT):
    return narrowed(context, QUERY, filters, dict(custom))


@pytest.mark.parametrize(
    ("filters", "note"),
    [
        ({"environment": "staging"}, "environment=staging is not applied: the request has production"),
        ({"label.priority": "P3"}, "priority=P3 is not applied: the request has P1"),
        ({"risk-tolerance": "high"}, "risk_tolerance=high is not applied: the request has none"),
        ({"signal_type": "Evicted"}, "signal_type=Evicted is not applied: the query has OOMKilled"),
        ({"severity": ["low"]}, "severity=low is not applied: the query has critical"),
        ({"component": "v1/Node"}, "component=v1/Node is not applied: the target decides"),
        ({"gitops_managed": False}, "gitops_managed=false is not applied: on the target it is True"),
        ({"gitOpsTool": "flux"}, "gitops_tool=flux is not applied: on the target it is argocd"),
        ({"service_mesh": "istio"}, "service_mesh=istio is not applied: on the target it is empty"),
        ({"hpa_enabled": "maybe"}, "hpa_enabled must be true or false"),
        ({"region": "eu"}, "region is not a filter"),
    ],
)
def test_what_code_knows_is_not_overridden_and_that_is_reported(filters, note):
    context, notes = applied(filters)
    assert [note] == notes
    assert replace(context, detected_labels=CONTEXT.detected_labels) == CONTEXT


@pytest.mark.parametrize(
    "filters",
    [
        {"environment": "Production", "priority": "p1", "signal-type": "oomkilled", "severity": "critical"},
        {"component": "deployment", "gitops_managed": True, "gitops_tool": "ArgoCD"},
        {"service_mesh": "", "risk_tolerance": [], "region": " "},
        {"component": "*", "environment": ["*"], "gitops_tool": " * "},
    ],
)
def test_what_agrees_or_says_nothing_needs_no_note(filters):
    context, notes = applied(filters)
    assert [] == notes
    assert replace(context, detected_labels=CONTEXT.detected_labels) == CONTEXT


def test_any_component_is_no_component():
    assert (SelectionContext(), []) == narrowed(SelectionContext(), QUERY, {"component": "*"}, {})


def test_what_nobody_knows_is_taken_from_the_filters():
    context, notes = applied(
        {
            "stateful": "true",
            "component": "apps/v1/StatefulSet",
            "helmManaged": False,
            "podSecurityLevel": "baseline",
        },
        context=replace(CONTEXT, components=()),
    )
    assert [] == notes
    assert (("apps/v1", "StatefulSet"),) == context.components
    assert (True, False, "baseline", True) == tuple(
        context.detected_labels[n]
        for n in ("stateful", "helm_managed", "pod_security_level", "gitops_managed")
    )


def test_custom_labels_of_the_request_stay():
    context, notes = applied({}, {"team": ("sales",), "tier": ("gold",)})
    assert {"team": ["payments"], "tier": ("gold",)} == context.custom_labels
    assert ["custom label team stays as the request has it"] == notes
    assert [] == applied({}, {"team": ("payments",)})[1]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("label.signal-type", "signal_type"),
        ("signalName", "signal_type"),
        ("kubernaut.io/risk-tolerance", "risk_tolerance"),
        ("gitOpsManaged", "gitops_managed"),
        (" environment ", "environment"),
    ],
)
def test_labels_are_read_in_every_spelling(name, label):
    assert label == label_name(name)


VALUES = st.one_of(st.booleans(), st.text(max_size=8), st.lists(st.text(max_size=8), max_size=2).map(tuple))


@given(
    st.dictionaries(
        st.one_of(st.sampled_from([*BUSINESS_LABELS, "component", "stateful"]), st.text(max_size=12)), VALUES
    ),
    st.dictionaries(st.text(max_size=8), st.lists(st.text(max_size=8), max_size=2).map(tuple), max_size=3),
)
def test_no_filter_changes_a_business_label(filters, custom):
    context, _ = applied(filters, custom)
    assert [getattr(CONTEXT, label) for label in BUSINESS_LABELS] == [
        getattr(context, label) for label in BUSINESS_LABELS
    ]
    assert ["payments"] == context.custom_labels["team"]


def test_names_and_business_labels_say_where_the_incident_is():
    pod, owner = ObjectRef("Pod", "api-0", "shop"), ObjectRef("Node", "n1")
    target = Target(pod, (pod, owner), DetectedLabels())
    assert frozenset({"production", "P1", "api-0", "shop", "n1"}) == where_words(CONTEXT, target)
    assert frozenset() == where_words(SelectionContext(), None)
