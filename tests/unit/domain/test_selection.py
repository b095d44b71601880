from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_catalog import labels, workflow
from worker.domain.selection import (
    action_summaries,
    concerns,
    covers_kind,
    exclusions,
    for_final_choice,
    mismatches,
    page_of,
    ranked,
    works_against_gitops,
)
from worker.domain.workflow import LABELS, SelectionContext

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


def test_a_mismatch_says_both_sides():
    (found,) = mismatches(workflow(), replace(CONTEXT, environment="staging"))
    assert str(found) == "environment is staging, the workflow is for production"


def test_the_signal_type_filters_searches_only():
    context = replace(CONTEXT, signal_type="Evicted")
    assert [m.label for m in mismatches(workflow(), context)] == ["signal_type"]
    assert mismatches(workflow(), for_final_choice(context)) == ()
    assert concerns(workflow(), context) == (
        "the workflow is made for CrashLoopBackOff, the cause is Evicted",
    )


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
    context = SelectionContext(detected_labels=known)
    assert worries == len(concerns(workflow(detected_labels=wanted), context))


def ids(workflows):
    return [w.workflow_id for w in workflows]


def test_exact_labels_come_before_wildcards_and_ids_decide_between_equals():
    exact = workflow("z-exact")
    wild = workflow("a-wild", labels={**exact.labels, "environment": ("*",)})
    also_exact = workflow("b-exact")
    assert ids(ranked([wild, exact, also_exact], CONTEXT)) == ["b-exact", "z-exact", "a-wild"]


def test_custom_labels_rank_and_never_exclude():
    careful = workflow("a-bold", custom_labels={"risk_tolerance": ("high",)})
    fitting = workflow("z-careful", custom_labels={"risk_tolerance": ("low",)})
    plain = workflow("m-plain")
    context = replace(CONTEXT, risk_tolerance="low", custom_labels={"risk_tolerance": ["high"]})
    assert ids(ranked([careful, plain, fitting], context)) == ["z-careful", "m-plain", "a-bold"]


def test_detected_labels_rank_by_fit():
    fitting = workflow("z", detected_labels={"stateful": True})
    unfit = workflow("a", detected_labels={"hpa_enabled": True})
    context = replace(CONTEXT, detected_labels={"stateful": True, "hpaEnabled": False})
    assert ids(ranked([unfit, workflow("m"), fitting], context)) == ["z", "m", "a"]


def test_on_a_gitops_managed_target_aware_workflows_come_first():
    aware = workflow("z", labels={}, custom_labels={"gitops_aware": ("true",)})
    exact = workflow("a")
    managed = replace(CONTEXT, detected_labels={"gitOpsManaged": True})
    assert ids(ranked([exact, aware], managed)) == ["z", "a"]
    assert ids(ranked([exact, aware], CONTEXT)) == ["a", "z"]
    assert (works_against_gitops(aware, managed), works_against_gitops(exact, managed)) == (False, True)


def test_exclusions_count_workflows_by_label():
    workflows = [
        workflow("a", labels=labels(environment="staging")),
        workflow("b", labels=labels(environment="staging", severity="low")),
        workflow("c"),
    ]
    assert exclusions(workflows, CONTEXT) == {"environment": 2, "severity": 1}


def test_actions_are_counted_and_those_without_a_fit_are_left_out():
    workflows = [
        workflow("a", "Scale"),
        workflow("b", "Restart"),
        workflow("c", "Restart"),
        workflow("d", "Drain", labels=labels(environment="staging")),
    ]
    found = action_summaries(workflows, {"Restart": "restarts"}, CONTEXT)
    assert [(a.action_type, a.description, a.workflow_count) for a in found] == [
        ("Restart", "restarts", 2),
        ("Scale", "", 1),
    ]


def test_pages_follow_one_another_to_the_end():
    workflows = [workflow(f"w-{n:02}") for n in range(25)]
    seen, cursor, sizes = [], "", []
    while True:
        page = page_of(workflows, CONTEXT, cursor)
        seen += ids(page.workflows)
        sizes.append(len(page.workflows))
        cursor = page.next_cursor
        if not cursor:
            break
    assert sizes == [10, 10, 5]
    assert [f"w-{n:02}" for n in range(25)] == seen


@given(st.text(max_size=60))
def test_a_cursor_nobody_issued_starts_anew(cursor):
    workflows = [workflow(f"w-{n:02}") for n in range(12)]
    assert page_of(workflows, CONTEXT, cursor).workflows[0].workflow_id == "w-00"


def test_a_page_says_what_was_left_out():
    workflows = [workflow("a"), workflow("b", labels=labels(priority="P0"))]
    assert page_of(workflows, CONTEXT).excluded == {"priority": 1}


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
