"""The analyst's vocabularies: signal names, the catalog's texts, parameters, corrections."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.taxonomy import SignalType
from tests.fakes.manifests import deployment
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy
from worker.domain.diagnosis.facts import ClusterFacts, Question
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import Workflow
from worker.sandbox.analyst import advice, objections, parameters
from worker.sandbox.analyst.choose import workflow_of
from worker.sandbox.analyst.signals import choose_signal, closest
from worker.sandbox.analyst.transcript import Incident

API = ObjectRef("Deployment", "a", "n", "apps/v1")

CATALOG = [
    "HPAMaxedOut",
    "PVCExhaustion",
    "PodDisruptionBudgetAtLimit",
    "ConnectionPoolExhausted",
    "EtcdHighFragmentation",
    "CronJobSuspended",
]


@pytest.mark.parametrize(
    ("alert", "name"),
    [
        ("KubeHpaMaxedOut", "HPAMaxedOut"), ("KubePersistentVolumeFillingUp", "PVCExhaustion"),
        ("KubePodDisruptionBudgetAtLimit", "PodDisruptionBudgetAtLimit"),
        ("DatabaseConnectionPoolExhausted", "ConnectionPoolExhausted"),
        ("etcdDatabaseHighFragmentationRatio", "EtcdHighFragmentation"), ("SomethingElse", ""),
        ("KubeCronJobSuspended", "CronJobSuspended"), ("KubeCronJobTooLong", ""), ("KubePodFailed", ""),
    ],
)  # fmt: skip
def test_alert_names_are_brought_to_the_catalogs(alert: str, name: str) -> None:
    assert name == closest(alert, [*CATALOG, *map(str, SignalType)], 0.6)


def finding(cause: Cause = Cause.OUT_OF_MEMORY, **fields: Any) -> Diagnosis:
    return Diagnosis(cause, fields.pop("object", API), fields.pop("sentence", "s."), **fields)


@pytest.mark.parametrize(
    ("found", "there", "alert", "known", "name"),
    [
        (finding(Cause.VOLUME, signals=("FailedMount",)), (), "FailedMount", [], "FailedMount"),
        (finding(signals=("OOMKilled",)), (), "CrashLoopBackOff", [], "OOMKilled"),
        (
            finding(Cause.VOLUME_FULL, signals=("CrashLoopBackOff", "PVCExhaustion")),
            (), "KubePersistentVolumeFillingUp", CATALOG, "PVCExhaustion",
        ),
        (finding(Cause.NODE, signals=("MemoryPressure",)), ("FailedScheduling",), "KubePodNotReady", [], "FailedScheduling"),
        (None, (), "KubeSomethingOdd", [], ""),
    ],
)  # fmt: skip
def test_the_signal_type_is_what_was_found(
    found: Diagnosis | None, there: tuple[str, ...], alert: str, known: list[str], name: str
) -> None:
    assert choose_signal(found, there, alert, known) == name


def known_of(found: Diagnosis, labels: dict[str, object] | None = None, **incident: str) -> dict[str, bool]:
    return advice.facts_about(found, Incident(**incident), labels or {}, ClusterFacts())


CONTENT = finding(Cause.INVALID_CONFIGURATION, object=ObjectRef("ConfigMap", "c", "n", "v1"))


@pytest.mark.parametrize(
    ("when", "when_not", "found", "labels", "fits"),
    [
        ("Termination reason OOMKilled", "", finding(), {}, True),
        ("", "containers are OOMKilled", finding(), {}, False),
        ("", "containers are OOMKilled", CONTENT, {}, True),
        ("", "Helm or GitOps managed; bad image", CONTENT, {"helmManaged": True}, False),
        (
            "",
            "Helm or GitOps managed; bad image",
            CONTENT,
            {"helmManaged": False, "gitOpsManaged": False},
            True,
        ),
        ("", "Not GitOps managed", CONTENT, {"gitOpsManaged": False}, False),
        ("risk_tolerance=high and the directive is known", "", CONTENT, {}, False),
        ("SLO alert right after a new revision", "", finding(Cause.BAD_ROLLOUT), {}, False),
        ("Something else altogether", "Nothing that is known", finding(), {}, True),
    ],
)
def test_texts_of_the_catalog_are_held_against_what_is_known(
    when: str, when_not: str, found: Diagnosis, labels: dict[str, object], fits: bool
) -> None:
    workflow = Workflow("w", "A", when_to_use=when, when_not_to_use=when_not)
    known = known_of(found, labels, risk_tolerance="low", environment="production", signal_type="PodCrash")
    assert (advice.score(workflow, known) is not None) is fits


def test_the_finding_weighs_more_than_its_surroundings() -> None:
    known = known_of(CONTENT, {"gitOpsManaged": False, "helmManaged": False}, risk_tolerance="low")
    content = Workflow("a", "A", when_to_use="the content of the mounted ConfigMap is invalid")
    surroundings = Workflow("b", "B", when_to_use="risk_tolerance=low")
    assert (advice.score(content, known) or 0) > (advice.score(surroundings, known) or 0)


RECORD = {
    "workflow_id": "scale-v1",
    "action_type": "ScaleReplicas",
    "labels": {"component": ["apps/v1/Deployment"], "signal_type": ["Evicted"]},
    "gitops_aware": True,
    "parameters": [
        {"name": "TARGET_RESOURCE_NAME", "type": "string", "required": True},
        {"name": "TARGET_RESOURCE_KIND", "type": "string", "required": True, "enum": ["Deployment"]},
        {"name": "SCALE_REPLICAS", "type": "integer", "minimum": 0, "maximum": 50},
        {"name": "NEW_SIZE", "type": "string", "pattern": "^[1-9][0-9]*(Gi|Ti)$"},
        {"name": "FORCE", "type": "boolean"},
        {"name": "MODE", "type": "string", "required": True, "enum": ["slow"]},
    ],
}  # fmt: skip


def record(*more: dict[str, Any]) -> Workflow:
    found = workflow_of({**RECORD, "parameters": [*RECORD["parameters"], *more]})  # type: ignore[misc]
    assert found is not None
    return found


def known_api() -> ClusterFacts:
    made = deployment("a")
    made["spec"]["template"] = {
        "spec": {"containers": [{"name": "app", "resources": {"limits": {"memory": "64Mi"}}}]}
    }
    return ClusterFacts(answers={Question("Deployment", "n", "a", "apps/v1"): made})


def test_a_record_is_a_workflow() -> None:
    found = record()
    assert (found.action_type, found.gitops_aware) == ("ScaleReplicas", True)
    assert found.labels["component"] == ("apps/v1/Deployment",)
    assert workflow_of({}) is None


def test_parameters_are_filled_by_their_meaning() -> None:
    memory = {"name": "MEMORY_LIMIT_NEW", "type": "string"}
    container = {"name": "CONTAINER_NAME", "type": "string"}
    hog = finding(remedies=frozenset({Remedy.SCALE_DOWN}), container="app")
    assert parameters.fill(record(memory, container), hog, API, known_api()) == {
        "TARGET_RESOURCE_NAME": "a", "TARGET_RESOURCE_KIND": "Deployment", "SCALE_REPLICAS": 0, "MODE": "slow",
        "MEMORY_LIMIT_NEW": "128Mi", "CONTAINER_NAME": "app",
    }  # fmt: skip


def test_a_required_parameter_without_a_value_rules_a_workflow_out() -> None:
    more = {"name": "WINDOW", "type": "string", "required": True}
    assert parameters.fill(record(more), finding(), API, known_api()) is None


@pytest.mark.parametrize(
    ("parameter", "value", "fitted"),
    [
        ({"type": "integer", "maximum": 5}, 9, 5),
        ({"type": "integer", "minimum": 5}, 1, None),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "integer"}, "x", None),
        ({"type": "boolean"}, "Running", None),
        ({"type": "array"}, "a", None),
        ({"type": "string", "enum": ["a"]}, "b", None),
        ({"type": "string", "pattern": "("}, "b", None),
        ({"type": "string", "pattern": "^b"}, "b", "b"),
    ],
)
def test_values_keep_to_what_is_declared(parameter: dict[str, Any], value: Any, fitted: Any) -> None:
    assert parameters.fitted(value, parameters.parameter_of({"name": "P", **parameter})) == fitted


def test_a_workflow_acts_on_what_it_covers() -> None:
    secret, node = ObjectRef("Secret", "s", "n"), ObjectRef("Node", "w1")
    assert parameters.acts_on(record(), (secret, API)) == API
    assert parameters.acts_on(record(), (node,)) is None
    by_label = workflow_of({"workflow_id": "x", "labels": {"component": ["*"]}})
    assert by_label is not None
    assert parameters.acts_on(by_label, (node,)) == node


def test_objections_are_read_from_a_correction() -> None:
    text = (
        "The answer was not accepted:\n"
        "- root_cause_analysis.signal_type: X is not a signal type; use one of Evicted, OOMKilled\n"
        "- selected_workflow.parameters.NEW_SIZE: must match\n"
        "- root_cause_analysis.affectedResource: Pod n/a was not found in the cluster: name an object that exists\n"
    )
    found = objections.read([text])
    assert ("Evicted", "OOMKilled") == found.signal_types
    assert frozenset({"NEW_SIZE"}) == found.parameters
    assert (True, True, False, 1) == (found.target, found.signal_type, found.workflow, found.rounds)
