from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from schemas.enrichment import DETECTED_LABELS, DetectedLabels, camel_case
from tests.fakes.scripted import incident
from worker.domain.investigation.prompt import PromptFacts, opening_turn
from worker.domain.investigation.prompt.sections import CONTINUOUSLY_PRESENT
from worker.domain.untrusted.evidence import Evidence

TOKEN = "0a1b2c3d4e5f"
EMPTY_BULLET = re.compile(r"^\s*-\s*$|^\s*-[^:\n]*:\s*$(?!\n<data-|\n  - )", re.MULTILINE)
SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"


def turn(facts=None, **fields):
    return opening_turn(incident(**fields), facts or PromptFacts(TOKEN, detected_labels=DetectedLabels()))


def with_labels(**labels):
    return turn(PromptFacts(TOKEN, detected_labels=DetectedLabels(**labels)))


def minimal():
    return turn(environment=None, priority=None)


def test_a_minimal_request_leaves_nothing_empty_and_invents_nothing():
    text = minimal()
    assert "None" not in text
    assert EMPTY_BULLET.search(text) is None
    assert "- Environment: unknown" in text
    assert "- Risk Tolerance: not specified" in text
    assert "- Business Category: not specified" in text
    for absent in (
        "Firing Time",
        "Deduplication",
        "Alert Storm",
        "Cluster Context",
        "Safety Context",
        "Error:",
    ):
        assert absent not in text


@pytest.mark.parametrize(
    "bullet",
    [
        "- Signal Type: KubePodCrashLooping",
        "- Severity: critical",
        "- Resource: shop/Deployment/api",
        "- Environment: production",
        "- Priority: P1",
        "- Risk Tolerance: not specified",
    ],
)
def test_bullets_that_readers_look_for_stand_on_lines_of_their_own(bullet):
    assert re.search(rf"^{re.escape(bullet)}", turn(), re.MULTILINE)


def test_the_opening_sentence_names_severity_signal_source_and_resource():
    text = turn(signal_source="prometheus-alertmanager")
    assert (
        "A **critical KubePodCrashLooping event** from **prometheus-alertmanager** has occurred in "
        "**shop/Deployment/api**." in text
    )


@pytest.mark.parametrize("namespace", ["", "shop"])
def test_a_cluster_scoped_resource_has_no_namespace_whatever_was_sent(namespace):
    text = turn(resource_kind="Node", resource_name="worker-1", resource_namespace=namespace)
    assert "- Resource: Node/worker-1" in text
    assert "shop" not in text


@pytest.mark.parametrize(
    ("priority", "meaning"),
    [
        ("P0", "P0 (highest priority) - This is a checkout service requiring immediate attention"),
        ("P1", "P1 (high priority) - This service requires prompt attention"),
        ("P2", "P2 (medium priority) - This service requires timely resolution"),
        ("P3", "P3 (low priority) - This service can be addressed during normal operations"),
    ],
)
def test_each_priority_says_what_it_asks_for(priority, meaning):
    assert f"- Priority: {meaning}" in turn(priority=priority, business_category="checkout")


@pytest.mark.parametrize(
    ("tolerance", "guidance"),
    [
        ("low", "conservative remediation required - avoid aggressive restarts or scaling"),
        ("Medium", "balanced approach - standard remediation actions permitted"),
        ("high", "aggressive remediation permitted - prioritize recovery speed"),
    ],
)
def test_each_risk_tolerance_comes_with_its_guidance(tolerance, guidance):
    assert f"({guidance})" in turn(risk_tolerance=tolerance)


def test_another_risk_tolerance_stands_alone():
    assert re.search(r"^- Risk Tolerance: moderate-ish$", turn(risk_tolerance="moderate-ish"), re.MULTILINE)


def test_times_are_in_utc_and_ages_relative_to_the_reception():
    text = turn(firing_time="2026-06-04T17:30:00+02:00")
    assert "- Firing Time: 2026-06-04T15:30:00Z" in text
    assert "- Received Time: 2026-06-04T15:33:05Z (all ages below are relative to it)" in text


@pytest.mark.parametrize("fields", [{"is_duplicate": True}, {"occurrence_count": 2}])
def test_repetition_means_that_the_condition_lasts(fields):
    text = turn(first_seen="2026-06-04T15:00:00Z", last_seen="2026-06-04T15:33:00Z", **fields)
    for line in (
        "- First Seen: 2026-06-04T15:00:00Z",
        "- Last Seen: 2026-06-04T15:33:00Z",
        CONTINUOUSLY_PRESENT,
    ):
        assert line in text
    assert "continuously present" in CONTINUOUSLY_PRESENT


def test_a_first_sight_is_no_repetition():
    text = turn(first_seen="2026-06-04T15:00:00Z")
    assert "- Occurrence Count: 1" in text
    assert CONTINUOUSLY_PRESENT not in text


@pytest.mark.parametrize(
    ("storm_type", "meaning"),
    [("rate", "many alerts in a short time"), ("pattern", "similar alerts on several resources")],
)
def test_facts_of_a_storm(storm_type, meaning):
    text = turn(
        is_storm=True,
        storm_type=storm_type,
        storm_window="5m",
        storm_alert_count=40,
        affected_resources=[f"shop/Pod/api-{n}" for n in range(12)],
    )
    assert f"- Storm Type: {storm_type} ({meaning})" in text
    assert "- Storm Window: 5m" in text
    assert "- Alert Count: 40" in text
    assert "shop/Pod/api-9 and 2 more" in text
    assert "shop/Pod/api-10" not in text


def test_facts_of_a_storm_without_a_storm_are_not_told():
    assert "Storm" not in turn(storm_type="rate", storm_window="5m", storm_alert_count=40)


LABEL_TEXTS = {
    "pdb_protected": "A PodDisruptionBudget protects this workload.",
    "hpa_enabled": "A HorizontalPodAutoscaler is active.",
    "stateful": "This is a STATEFUL workload",
    "helm_managed": "This resource is managed by Helm.",
    "network_isolated": "A NetworkPolicy restricts its traffic.",
    "resource_quota_constrained": "A ResourceQuota limits its namespace.",
}


@pytest.mark.parametrize("label", LABEL_TEXTS)
def test_each_detected_label_has_its_sentence_and_only_when_it_is_set(label):
    assert LABEL_TEXTS[label] in with_labels(**{label: True})
    assert LABEL_TEXTS[label] not in with_labels()
    others = [text for name, text in LABEL_TEXTS.items() if name != label]
    assert not any(text in with_labels(**{label: True}) for text in others)


@pytest.mark.parametrize("tool", ["argocd", "flux"])
def test_gitops_names_its_tool_and_forbids_direct_changes(tool):
    text = with_labels(gitops_managed=True, gitops_tool=tool)
    assert f"managed by GitOps ({tool}). DO NOT make direct changes" in text


def test_gitops_without_a_tool():
    assert "managed by GitOps (tool unknown)" in with_labels(gitops_managed=True)


@pytest.mark.parametrize("level", ["restricted", "baseline", "privileged"])
def test_each_pod_security_level_has_its_sentence(level):
    assert f"Pod Security Standard is {level.upper() if level == 'restricted' else level}" in with_labels(
        pod_security_level=level
    )


@pytest.mark.parametrize("mesh", ["istio", "linkerd"])
def test_a_service_mesh_is_named(mesh):
    assert f"Service mesh ({mesh}) is present." in with_labels(service_mesh=mesh)


@pytest.mark.parametrize("label", DETECTED_LABELS)
def test_a_label_whose_detection_failed_is_unknown_and_not_absent(label):
    labels = DetectedLabels.model_validate({"failedDetections": [camel_case(label)]})
    text = turn(PromptFacts(TOKEN, detected_labels=labels))
    assert f"Could not be detected, so unknown (not absent): {label}." in text
    assert "No special cluster characteristics" not in text


def test_an_unknown_label_makes_no_statement_even_with_a_value():
    labels = DetectedLabels.model_validate(
        {"gitOpsManaged": True, "serviceMesh": "istio", "failedDetections": ["gitOpsManaged", "serviceMesh"]}
    )
    text = turn(PromptFacts(TOKEN, detected_labels=labels))
    assert "managed by GitOps" not in text
    assert "Service mesh (" not in text


def test_nothing_detected_and_nothing_special_are_different():
    assert "No special cluster characteristics detected." in with_labels()
    assert "Nothing was detected yet: all characteristics are unknown." in turn(PromptFacts(TOKEN))


def arguments(facts):
    """The JSON that stands in the turn for the workflow search."""
    (line,) = [text for text in turn(facts).split("\n") if text.startswith("Arguments of a workflow search")]
    return json.loads(line[line.index("{") :])


def test_labels_that_code_applies_are_not_asked_for():
    facts = PromptFacts(TOKEN, detected_labels=DetectedLabels(stateful=True), custom_labels={"team": ["a"]})
    assert "Arguments of a workflow search" not in turn(facts)


def test_the_filters_of_a_search_are_known_labels_in_the_spelling_of_filters():
    labels = DetectedLabels(
        gitops_managed=True, gitops_tool="argocd", failed_detections=("stateful", "resourceQuotaConstrained")
    )
    custom = {"team": ["name=payments"]}
    assert {
        "filters": {
            "gitops_managed": True,
            "gitops_tool": "argocd",
            "pdb_protected": False,
            "hpa_enabled": False,
            "helm_managed": False,
            "network_isolated": False,
        },
        "custom_labels": {"team": ["name=payments"]},
    } == arguments(PromptFacts(TOKEN, detected_labels=labels, custom_labels=custom, tells_filters=True))


def test_without_detected_labels_only_custom_ones_are_arguments():
    assert {"custom_labels": {"team": ["a"]}} == arguments(
        PromptFacts(TOKEN, custom_labels={"team": ["a"]}, tells_filters=True)
    )
    assert "Arguments of a workflow search" not in turn(PromptFacts(TOKEN, tells_filters=True))


def test_words_of_the_sender_stand_in_fences():
    text = turn(
        error_message="boom\nbang",
        description="it broke",
        signal_labels={"alertname": "A", "pod": "api-0"},
        signal_annotations={"runbook": "https://runbooks.example.com/1"},
        cluster_name="east",
    )
    for scope, body in (
        ("error_message", "boom\nbang"),
        ("description", "it broke"),
        ("signal_labels", "alertname=A\npod=api-0"),
        ("signal_annotations", "runbook=https://runbooks.example.com/1"),
    ):
        assert f'<data-{TOKEN} source="sender" scope="{scope}">\n{body}\n</data-{TOKEN}>' in text
    assert "- Cluster: east" in text


def test_labels_that_repeat_the_summary_are_left_out():
    repeated = {
        "severity": "critical",
        "namespace": "shop",
        "deployment": "api",
        "alertname": "KubePodCrashLooping",
    }
    text = turn(signal_labels={**repeated, "pod": "api-0", "priority": "P9"})
    assert "\npod=api-0\npriority=P9\n" in text
    assert "severity=" not in text
    assert "signal_labels" not in turn(signal_labels=repeated)


def test_many_labels_are_cut_with_their_number():
    text = turn(signal_labels={f"l{n}": "v" for n in range(100)})
    assert "(70 more)" in text


def test_evidence_stands_in_fences_with_ids_and_failed_sources_are_unknown():
    facts = PromptFacts(
        TOKEN,
        evidence=[
            Evidence("enrichment:events", "events of Pod a/b", "BackOff", cut="3 older events", id="E1")
        ],
        unknown_sources=["pods (timeout: no answer)", "nodes (forbidden: no)"],
    )
    text = turn(facts)
    assert (
        f'<data-{TOKEN} id="E1" scope="events of Pod a/b">\nBackOff\n[cut: 3 older events]\n'
        f"</data-{TOKEN}>" in text
    )
    assert "Could not be read, so unknown: pods (timeout: no answer), nodes (forbidden: no)." in text


def test_without_evidence_that_is_reported():
    assert "Nothing could be read from the cluster." in turn()


def test_the_safety_context_is_policy_and_its_task_never_reaches_the_model():
    text = turn(
        safety_context={
            "task": "TASK-TEXT drain every node now",
            "investigation_id": "inv-1",
            "criticality": "high",
            "safety_constraints": {
                "forbidden_actions": ["drain_*"],
                "max_downtime_seconds": 0,
                "requires_approval": True,
            },
            "dependencies": [{"service": "checkout", "impact": "critical"}],
            "data_criticality": "high",
            "user_impact": "critical",
            "alert": {"summary": "ALERT-TEXT"},
            "monitoring": {"trend": "MONITORING-TEXT"},
            "scope": {"depth": "SCOPE-TEXT"},
            "rego_policy": {"version": "v2", "dry_run": True},
        }
    )
    for shown in (
        "- Forbidden actions: drain_*.",
        "- Downtime: at most 0 s.",
        "estimated_downtime_seconds and impact_on_dependencies",
        "- A person must approve any workflow.",
        '"data_criticality":"high"',
        '"criticality":"high"',
        "checkout",
    ):
        assert shown in text
    assert "policy for the choice of a workflow, not evidence" in text
    for hidden in ("TASK-TEXT", "ALERT-TEXT", "MONITORING-TEXT", "SCOPE-TEXT", "inv-1"):
        assert hidden not in text


def test_allowed_actions_are_told_also_when_there_is_none():
    for names, told in ((["scale", "restart"], "scale, restart"), ([], "none")):
        text = turn(safety_context={"safety_constraints": {"allowed_actions": names}})
        assert f"- Allowed actions: {told}." in text
    assert "Allowed actions" not in turn(safety_context={"service": "a"})


def test_a_safety_context_with_nothing_to_tell_has_no_section():
    assert "Safety Context" not in turn(safety_context={"task": "do something"})


def test_what_the_sender_concluded_never_reaches_the_model():
    sent = {
        "enrichmentQuality": 0.4242,
        "kubernetesContext": {"rootCause": "KUBERNETES-CONTEXT-TEXT"},
        "detectedLabels": {"stateful": True},
    }
    text = turn(enrichment_results=sent)
    for hidden in ("4242", "enrichment_quality", "enrichmentQuality", "KUBERNETES-CONTEXT-TEXT"):
        assert hidden not in text


def test_secrets_of_the_sender_are_removed():
    text = turn(
        error_message=f"failed with {SECRET}",
        description=SECRET,
        signal_labels={"x": SECRET},
        signal_annotations={"password": "FAKE-hunter2"},
        safety_context={"service": SECRET},
    )
    assert "FAKE" not in text
    assert text.count("[REDACTED:") >= 5


def test_long_words_of_the_sender_are_cut():
    text = turn(
        error_message="x " * 100_000,
        description="y " * 100_000,
        signal_type="s" * 256,
        business_category="b" * 253,
        signal_labels={f"k{n}": "v" * 1_000 for n in range(500)},
        signal_annotations={f"k{n}": "v " * 1_000 for n in range(50)},
        safety_context={"dependencies": [{"service": f"svc-{n}"} for n in range(900)]},
    )
    assert len(text) < 14_000


def test_the_same_request_gives_the_same_bytes():
    assert turn(priority="P0") == turn(priority="P0")
    assert datetime(2026, 6, 4, tzinfo=UTC).isoformat()[:10] in turn()


def test_the_api_version_of_the_resource_is_named():
    assert "- API Version: apps/v1" in turn(resource_api_version="apps/v1")
