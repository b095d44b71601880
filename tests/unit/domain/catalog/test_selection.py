from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_catalog import labels, workflow
from worker.domain.catalog.selection import (
    covers_kind,
    for_final_choice,
    mismatches,
    other_signal_type,
    signal_types_of,
    unmet_labels,
    works_against_gitops,
)
from worker.domain.values.workflows import LABELS, ActionSummary, SelectionContext

DEPLOYMENT = ("apps/v1", "Deployment")
CONTEXT = SelectionContext(
    environment="production",
    priority="P1",
    severity="critical",
    signal_type="CrashLoopBackOff",
    components=(("v1", "Pod"), ("apps/v1", "ReplicaSet"), DEPLOYMENT),
)


def excluded_by(declared, **context):
    found = mismatches(workflow(labels=labels(**declared)), SelectionContext(**context))
    return [m.label for m in found]


@pytest.mark.parametrize(
    ("declared", "context", "expected"),
    [
        ({"environment": "production"}, {"environment": "PRODUCTION"}, []),
        ({"environment": "production"}, {"environment": "staging"}, ["environment"]),
        ({"environment": "production"}, {"environment": "unknown"}, []),
        ({"environment": "production"}, {"environment": ""}, []),
        ({"environment": ["staging", "production"]}, {"environment": "production"}, []),
        ({"environment": ["*", "staging"]}, {"environment": "production"}, []),
        ({}, {"environment": "production"}, []),
        ({"priority": ["P0", "P1"]}, {"priority": "p1"}, []),
        ({"priority": ["P0", "P1"]}, {"priority": "P3"}, ["priority"]),
        ({"severity": "warning"}, {"severity": "medium"}, []),
        ({"severity": "info"}, {"severity": "low"}, []),
        ({"severity": "error"}, {"severity": "HIGH"}, []),
        ({"severity": ["critical", "high"]}, {"severity": "info"}, ["severity"]),
        ({"severity": "critical"}, {"severity": "unknown"}, []),
        ({"severity": "critical"}, {"severity": ""}, []),
        ({"signal_type": "OOMKilled"}, {"signal_type": "oomkilled"}, []),
        ({"signal_type": "OOMKilled"}, {"signal_type": "Evicted"}, ["signal_type"]),
        ({"risk_tolerance": "low"}, {"risk_tolerance": "high"}, ["risk_tolerance"]),
        ({"business_category": "payments"}, {"business_category": ""}, []),
        ({"cluster": "eu-1"}, {"cluster": "us-1"}, ["cluster"]),
        (
            {"environment": "staging", "priority": "P0"},
            {"environment": "production", "priority": "P2"},
            ["environment", "priority"],
        ),
    ],
)
def test_labels_exclude(declared, context, expected):
    assert expected == excluded_by(declared, **context)


@pytest.mark.parametrize(
    ("declared", "components", "fits"),
    [
        ("apps/v1/Deployment", [DEPLOYMENT], True),
        ("deployment", [DEPLOYMENT], True),
        ("apps/v1/Deployment", [("", "deployment")], True),
        ("apps/v1beta1/Deployment", [DEPLOYMENT], True),
        ("apps/Deployment", [DEPLOYMENT], True),
        ("apps/v1/Deployment", [("v1", "Pod"), ("apps/v1", "ReplicaSet"), DEPLOYMENT], True),
        ("apps/v1/Deployment", [("apps/v1", "StatefulSet")], False),
        ("v1/Node", [("v1", "Node")], True),
        ("v1/Event", [("events.k8s.io/v1", "Event")], False),
        ("autoscaling/v2/HorizontalPodAutoscaler", [("autoscaling/v1", "HorizontalPodAutoscaler")], True),
        ("networking.istio.io/v1/Gateway", [("gateway.networking.k8s.io/v1", "Gateway")], False),
        ("apps/v1/Deployment", [], True),
        ("*", [("v1", "Node")], True),
    ],
)
def test_components_match_by_group_and_kind_of_any_member_of_the_chain(declared, components, fits):
    found = excluded_by({"component": declared}, components=tuple(components))
    assert ([] if fits else ["component"]) == found


@pytest.mark.parametrize(
    ("wanted", "known", "expected"),
    [
        ({"gitops_tool": "argocd"}, {"gitOpsTool": "ArgoCD"}, []),
        ({"gitops_tool": "argocd"}, {"gitOpsTool": "flux"}, ["detected label gitops_tool"]),
        ({"gitops_tool": "argocd"}, {"gitops_tool": "flux"}, ["detected label gitops_tool"]),
        ({"gitops_tool": "*"}, {"gitOpsTool": "flux"}, []),
        ({"gitops_tool": "argocd"}, {"gitOpsTool": None}, []),
        ({"gitops_tool": "argocd"}, {"gitOpsTool": ""}, []),
        ({"gitops_tool": "argocd"}, {}, []),
        ({"stateful": True}, {"stateful": False}, []),
    ],
)
def test_detected_labels_exclude_only_as_texts_that_differ(wanted, known, expected):
    found = mismatches(workflow(labels={}, detected_labels=wanted), SelectionContext(detected_labels=known))
    assert expected == [m.label for m in found]


def test_a_text_in_place_of_a_flag_does_not_exclude():
    declared_so = workflow(labels={}, detected_labels={"stateful": "often"})
    assert mismatches(declared_so, SelectionContext(detected_labels={"stateful": True})) == ()


def test_works_against_gitops_needs_a_target_that_is_known_to_be_managed():
    aware = workflow(custom_labels={"gitops_aware": ("true",)})
    managed = replace(CONTEXT, detected_labels={"gitOpsManaged": True})
    unknown = replace(CONTEXT, detected_labels={"gitOpsManaged": None})
    found = [works_against_gitops(w, c) for w in (workflow(), aware) for c in (managed, unknown)]
    assert [True, False, False, False] == found


def test_a_mismatch_says_both_sides():
    (found,) = mismatches(workflow(), replace(CONTEXT, environment="staging"))
    assert str(found) == "environment is staging, the workflow is for production"


def test_the_signal_type_filters_searches_only():
    context = replace(CONTEXT, signal_type="Evicted")
    assert [m.label for m in mismatches(workflow(), context)] == ["signal_type"]
    assert mismatches(workflow(), for_final_choice(context)) == ()
    assert "CrashLoopBackOff, not Evicted" == other_signal_type(workflow(), context)


def test_a_cause_without_a_signal_type_is_a_concern_like_another_one():
    context = replace(CONTEXT, signal_type="")
    assert "CrashLoopBackOff, not an unknown one" == other_signal_type(workflow(), context)
    assert "" == other_signal_type(workflow(labels={"signal_type": ("*",)}), context)
    assert "" == other_signal_type(workflow(labels={}), context)


@pytest.mark.parametrize(
    ("wanted", "known", "worries"),
    [
        ({"stateful": True}, {"stateful": False}, 1),
        ({"stateful": True}, {"stateful": True}, 0),
        ({"stateful": True}, {"stateful": None}, 0),
        ({"stateful": True}, {}, 0),
        ({"hpa_enabled": False}, {"hpaEnabled": True}, 1),
    ],
)
def test_a_flag_known_to_differ_is_a_concern(wanted, known, worries):
    context = SelectionContext(signal_type="CrashLoopBackOff", detected_labels=known)
    assert worries == len(unmet_labels(workflow(detected_labels=wanted), context))


@given(st.sampled_from(LABELS), st.text(max_size=20), st.text(max_size=20))
def test_an_undeclared_or_unknown_label_constrains_nothing(label, value, declared):
    if label == "component":
        context = SelectionContext(components=(("", value),))
    else:
        context = SelectionContext(**{label: value})
    assert mismatches(workflow(labels={}), context) == ()
    assert mismatches(workflow(labels={label: (declared,)}), SelectionContext()) == ()


def test_a_kind_is_covered_by_a_wildcard():
    assert [covers_kind(d, "Job", "batch/v1") for d in (["v1/Node", "*"], ["v1/Node"])] == [True, False]


def test_signal_types_are_gathered_from_the_actions():
    actions = [
        ActionSummary("A", signal_types=("Evicted", "OOMKilled")),
        ActionSummary("B", signal_types=("Evicted",)),
    ]
    assert frozenset({"Evicted", "OOMKilled"}) == signal_types_of(actions)
