"""The rules for the fields of requests. Errors are looked at as a sender sees them, in test_decode."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.fields import ignored_fields
from schemas.incident import CLUSTER_SCOPED_KINDS, NAMESPACED_KINDS, IncidentRequest, request_digest
from schemas.recovery import PreviousExecution, RecoveryRequest
from schemas.safety import SafetyContext
from tests.fakes import samples

MINIMAL: dict[str, Any] = {
    "incident_id": "inc-1",
    "remediation_id": "rr-1",
    "signal_type": "OOMKilled",
    "severity": "critical",
    "resource_kind": "Pod",
    "resource_name": "api-0",
    "resource_namespace": "shop",
    "received_time": "2026-05-11T21:42:10Z",
}
RECOVERY: dict[str, Any] = samples.RECOVERY.model_dump(mode="json")


def incident(**changes: Any) -> IncidentRequest:
    return IncidentRequest.model_validate(MINIMAL | changes)


def refused(model: Any, data: Any) -> set[str]:
    """Paths of the fields that are refused."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data)
    return {".".join(map(str, error["loc"])) for error in caught.value.errors()}


def test_defaults():
    request = incident()
    assert (
        request.environment,
        request.priority,
        request.risk_tolerance,
        request.business_category,
    ) == ("unknown", "P2", None, None)
    assert request.occurrence_count == 1
    assert request.enrichment_results is None


@pytest.mark.parametrize("field", MINIMAL)
def test_required_fields(field):
    data = {name: value for name, value in MINIMAL.items() if name != field}
    assert {field} == refused(IncidentRequest, data)
    assert {field} == refused(IncidentRequest, data | {field: None})


@pytest.mark.parametrize(
    "field", ["priority", "environment", "signal_labels", "storm_type", "safety_context"]
)
def test_null_in_an_optional_field_is_absent(field):
    assert incident() == incident(**{field: None})


@pytest.mark.parametrize("field", ["risk_tolerance", "business_category"])
def test_a_blank_filter_is_no_filter(field):
    assert getattr(incident(**{field: " "}), field) is None
    assert getattr(incident(**{field: "gold"}), field) == "gold"


@pytest.mark.parametrize("field", ["incident_id", "remediation_id"])
@pytest.mark.parametrize(
    "value", ["", " ", "a" * 129, "ü" * 65, "a\nb", "a\x00", "a\x7f", "\x85", 7, None, ["a"]]
)
def test_ids_that_are_refused(field, value):
    assert {field} == refused(IncidentRequest, MINIMAL | {field: value})


@pytest.mark.parametrize("value", ["a", "a" * 128, "ü" * 64, "rr.*.>.x y", "../..", "🔥", "\u202eabc"])
def test_ids_that_are_taken(value):
    assert value == incident(remediation_id=value).remediation_id


@pytest.mark.parametrize("name", ["a", "0", "a.b-c.d", "a" * 253, "ip-172-31-40-111.compute.example.com"])
def test_names_that_are_taken(name):
    assert name == incident(resource_name=name).resource_name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "a_b",
        "-a",
        "a-",
        ".a",
        "a.",
        "a..b",
        "a/b",
        "../../secrets",
        "a b",
        "a\n",
        "ä",
        "a" * 254,
        "a:b",
    ],
)
def test_names_that_are_refused(name):
    assert {"resource_name"} == refused(IncidentRequest, MINIMAL | {"resource_name": name})


def test_rbac_has_its_own_rule_for_names():
    assert incident(resource_kind="ClusterRole", resource_name="system:node").resource_name == "system:node"
    assert {"resource_name"} == refused(
        IncidentRequest, MINIMAL | {"resource_kind": "ClusterRole", "resource_name": "a/../b"}
    )


@pytest.mark.parametrize("namespace", ["a.b", "A", "-a", "a_b", "a" * 64, "a/b", "a\n"])
def test_namespaces_that_are_refused(namespace):
    assert {"resource_namespace"} == refused(IncidentRequest, MINIMAL | {"resource_namespace": namespace})


@pytest.mark.parametrize("kind", ["", "1Pod", "Pod/exec", "pods.apps", "Pod ", "P" * 64, "Päd", 7])
def test_kinds_that_are_refused(kind):
    assert "resource_kind" in refused(IncidentRequest, MINIMAL | {"resource_kind": kind})


@pytest.mark.parametrize("kind", ["Pod", "pod", "Deployment", "RoleBinding"])
@pytest.mark.parametrize("namespace", ["", None])
def test_built_in_namespaced_kinds_need_a_namespace(kind, namespace):
    assert {"resource_namespace"} == refused(
        IncidentRequest, MINIMAL | {"resource_kind": kind, "resource_namespace": namespace}
    )


@pytest.mark.parametrize("kind", ["Node", "node", "PersistentVolume", "CustomResourceDefinition", "NodePool"])
def test_cluster_scoped_and_custom_kinds_need_none(kind):
    assert incident(resource_kind=kind, resource_namespace=None).is_cluster_scoped


def test_a_namespace_of_a_cluster_scoped_kind_is_kept():
    request = incident(resource_kind="Namespace", resource_name="shop")
    assert (request.is_cluster_scoped, request.resource_namespace) == (True, "shop")
    assert not incident().is_cluster_scoped


def test_no_kind_is_both():
    assert not CLUSTER_SCOPED_KINDS & NAMESPACED_KINDS


@pytest.mark.parametrize("version", ["v1", "apps/v1", "argoproj.io/v1alpha1", ""])
def test_api_versions_that_are_taken(version):
    assert version == incident(resource_api_version=version).resource_api_version


@pytest.mark.parametrize("version", ["/v1", "apps/", "apps/v1/x", "../v1", "a..b/v1", "Apps/v1", "1", "v1?x"])
def test_api_versions_that_are_refused(version):
    assert {"resource_api_version"} == refused(IncidentRequest, MINIMAL | {"resource_api_version": version})


@pytest.mark.parametrize("count", [0, -1, 1.5, 3.0, "3", True, 2**63])
def test_counts_that_are_refused(count):
    assert {"occurrence_count"} == refused(IncidentRequest, MINIMAL | {"occurrence_count": count})


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-05-11T21:42:10Z", datetime(2026, 5, 11, 21, 42, 10, tzinfo=UTC)),
        ("2026-05-11t21:42:10z", datetime(2026, 5, 11, 21, 42, 10, tzinfo=UTC)),
        ("2026-05-11T23:42:10.123456789+02:00", datetime(2026, 5, 11, 21, 42, 10, 123456, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_times_are_rfc3339(text, moment):
    assert moment == incident(firing_time=text).firing_time


@pytest.mark.parametrize(
    "value",
    [
        "",
        "2026-05-11",
        "2026-05-11T21:42:10",
        "2026-05-11 21:42:10Z",
        "2026-13-11T21:42:10Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "1778535730",
        1778535730,
        True,
        [],
    ],
)
def test_anything_else_is_no_time(value):
    assert {"firing_time"} == refused(IncidentRequest, MINIMAL | {"firing_time": value})


def test_a_naive_time_is_refused():
    assert {"firing_time"} == refused(IncidentRequest, MINIMAL | {"firing_time": datetime(2026, 1, 1)})  # noqa: DTZ001 - what is tested


@pytest.mark.parametrize(
    "labels", [[], [["a", "b"]], {"a": 1}, {"a": None}, {"a": ["b"]}, "a=b", {"a": True}]
)
@pytest.mark.parametrize("field", ["signal_labels", "signal_annotations"])
def test_labels_are_text_to_text(field, labels):
    assert {field} == {path.partition(".")[0] for path in refused(IncidentRequest, MINIMAL | {field: labels})}


def test_long_lists_are_refused_as_a_whole():
    assert {"affected_resources"} == refused(IncidentRequest, MINIMAL | {"affected_resources": [1] * 10_001})
    assert {"signal_labels"} == refused(
        IncidentRequest, MINIMAL | {"signal_labels": {str(n): 1 for n in range(10_001)}}
    )


@pytest.mark.parametrize(
    ("field", "replacement"), [("failed_action", "previous_execution"), ("failure_context", "error_message")]
)
@pytest.mark.parametrize(("model", "data"), [(IncidentRequest, MINIMAL), (RecoveryRequest, RECOVERY)])
def test_removed_fields_name_their_replacement(model, data, field, replacement):
    with pytest.raises(ValidationError, match=replacement):
        model.model_validate(data | {field: {"type": "restart"}})


def test_a_recovery_is_no_incident():
    assert incident() == incident(is_recovery_attempt=False)
    for value in (True, "false", 0):
        assert {"is_recovery_attempt"} == refused(IncidentRequest, MINIMAL | {"is_recovery_attempt": value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("is_recovery_attempt", False),
        ("is_recovery_attempt", None),
        ("is_recovery_attempt", "true"),
        ("is_recovery_attempt", 1),
        ("recovery_attempt_number", 0),
        ("recovery_attempt_number", None),
        ("recovery_attempt_number", True),
        ("previous_execution", None),
        ("enrichment_results", None),
    ],
)
def test_what_a_recovery_needs(field, value):
    assert {field} == refused(RecoveryRequest, RECOVERY | {field: value})


def test_a_recovery_may_have_empty_enrichment():
    assert (
        RecoveryRequest.model_validate(RECOVERY | {"enrichment_results": {}}).enrichment_results is not None
    )


@pytest.mark.parametrize(
    "reason", ["", "oomKilled", "the container ran out of memory", "OOM-Killed", "A" * 129, 7]
)
def test_reasons_that_are_refused(reason):
    previous = json.loads(json.dumps(RECOVERY["previous_execution"]))
    previous["failure"]["reason"] = reason
    assert {"failure.reason"} == refused(PreviousExecution, previous)


def test_scalar_parameters_become_text():
    previous = json.loads(json.dumps(RECOVERY["previous_execution"]))
    previous["selected_workflow"]["parameters"] = {"A": 5, "B": True, "C": 1.5, "D": "x", "E": None}
    read = PreviousExecution.model_validate(previous)
    assert read.selected_workflow.parameters == {"A": "5", "B": "true", "C": "1.5", "D": "x"}
    for wrong in ({"A": []}, {"A": {}}, [], "A=5"):
        previous["selected_workflow"]["parameters"] = wrong
        (path,) = refused(PreviousExecution, previous)
        assert path.startswith("selected_workflow.parameters")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("action_constraints", {}),
        ("risk_factors", {}),
        ("rego_policy_context", {}),
        ("safety_constraints", {"max_downtime_seconds": -5}),
        ("safety_constraints", {"max_downtime_seconds": "60"}),
        ("safety_constraints", {"requires_approval": "no"}),
        ("safety_constraints", {"allowed_actions": "scale"}),
        ("safety_constraints", {"forbidden_action_types": ["delete"]}),
        ("dependencies", [{"impact": "high"}]),
        ("rego_policy", {"dry_run": 1}),
        ("rego_policy", {"dryRun": True}),
        ("safety_constraints", {"requiresApproval": True}),
        ("safety_constraints", {"require_approval": True}),
        ("safety_constraints", {"forbiddenActions": ["restart"]}),
        ("safetyConstraints", {"requires_approval": True}),
        ("requires_approval", True),
    ],
)
def test_safety_is_never_lost_silently(field, value):
    assert {field} == {path.partition(".")[0] for path in refused(SafetyContext, {field: value})}


def test_other_new_fields_of_the_safety_context_are_ignored_as_everywhere():
    assert SafetyContext() == SafetyContext.model_validate({"owner_team": "payments"})


@pytest.mark.parametrize("field", ["safetyContext", "safety_constraints", "safetyConstraints"])
def test_safety_in_another_place_is_refused(field):
    assert {field} == refused(IncidentRequest, MINIMAL | {field: {"requires_approval": True}})


def test_no_list_of_actions_is_not_an_empty_one():
    assert SafetyContext().safety_constraints.allowed_actions is None
    empty = SafetyContext.model_validate({"safety_constraints": {"allowed_actions": []}})
    assert empty.safety_constraints.allowed_actions == ()


def test_fields_that_are_not_read_are_listed_with_their_place():
    data = MINIMAL | {
        "ownerChain": [],
        "signal_labels": {"any": "thing"},
        "safety_context": {"dependencies": [{"service": "a"}, {"service": "b", "owner": "c"}]},
        "enrichment_results": {
            "currentSpecHash": "x",
            "detectedLabels": {"gitOpsManaged": True, "gitops_tool": "flux", "virtualMachine": True},
            "kubernetesContext": {"any": "thing"},
        },
        "odd key": None,
    }
    assert tuple(ignored_fields(IncidentRequest, data)) == (
        "ownerChain",
        "safety_context.dependencies[1].owner",
        "enrichment_results.currentSpecHash",
        "enrichment_results.detectedLabels.virtualMachine",
        "enrichment_results.kubernetesContext",
        '["odd key"]',
    )


@pytest.mark.parametrize("model", [IncidentRequest, RecoveryRequest])
def test_signal_name_is_another_name_of_signal_type(model):
    data = RECOVERY if model is RecoveryRequest else MINIMAL
    named = {name: value for name, value in data.items() if name != "signal_type"}
    read = model.model_validate(named | {"signal_name": data["signal_type"]})
    assert read == model.model_validate(data)
    assert request_digest(read) == request_digest(model.model_validate(data))
    assert read == model.model_validate(data | {"signal_name": data["signal_type"]})
    assert () == tuple(ignored_fields(model, named | {"signal_name": "OOMKilled"}))
    assert {""} == refused(model, data | {"signal_name": "Other"})
    assert {"signal_type"} == refused(model, named)


def test_facts_of_the_sender_that_nobody_reads_are_listed():
    data = MINIMAL | {
        "safety_context": {"alert": {"a": 1}, "kubernetes": {}, "monitoring": {}, "scope": None}
    }
    listed = ("safety_context.alert", "safety_context.kubernetes", "safety_context.monitoring")
    assert listed == tuple(ignored_fields(IncidentRequest, data))


def test_the_digest_is_of_the_question():
    digest = request_digest(incident())
    assert digest == request_digest(incident(severity="CRITICAL", priority="p2", environment=None, unknown=1))
    assert digest == request_digest(incident(received_time="2026-05-11T22:00:00Z"))
    assert digest != request_digest(incident(severity="high"))
    assert digest != request_digest(incident(error_message="x"))


WORDS = st.text(max_size=30).map(str.strip)
REQUESTS = st.fixed_dictionaries(
    {
        "incident_id": st.text(
            st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=32
        ).filter(str.strip),
        "remediation_id": st.text(
            st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=32
        ).filter(str.strip),
        "signal_type": st.text(min_size=1, max_size=50).filter(str.strip),
        "severity": st.sampled_from(["critical", "Warning", "LOW", "unknown"]),
        "resource_kind": st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,20}", fullmatch=True),
        "resource_name": st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?(\.[a-z0-9]+)?", fullmatch=True),
        "resource_namespace": st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True),
        "received_time": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    },
    optional={
        "error_message": st.text(max_size=200),
        "environment": WORDS,
        "priority": st.sampled_from(["P0", "p1"]),
        "risk_tolerance": st.none() | WORDS,
        "occurrence_count": st.integers(1, 2**63 - 1),
        "signal_labels": st.dictionaries(WORDS, st.text(max_size=20), max_size=4),
        "affected_resources": st.lists(WORDS, max_size=4),
        "storm_type": st.sampled_from([None, "rate", "pattern"]),
    },
)


@given(REQUESTS)
def test_any_valid_request_survives_a_round_trip(data):
    request = IncidentRequest.model_validate(data)
    again = IncidentRequest.model_validate_json(request.model_dump_json())
    assert request == again
    assert request_digest(request) == request_digest(again)


def test_a_recovery_survives_a_round_trip():
    assert samples.RECOVERY == RecoveryRequest.model_validate_json(samples.RECOVERY.model_dump_json())
