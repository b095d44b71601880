from __future__ import annotations

import pytest

from schemas.safety import RegoPolicy, SafetyConstraints, SafetyContext
from tests.fakes.memory_catalog import target_parameters, workflow
from worker.domain.values.remediations import FailedExecution
from worker.domain.values.workflows import Parameter, ParameterType, action_name
from worker.domain.verdict.answers.answer import ProblemKind
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.checks.report import CheckReport
from worker.domain.verdict.checks.workflow import check_safety, forbids, names_action, repeats


@pytest.mark.parametrize(
    ("action_type", "expected"),
    [
        ("RollbackDeployment", "rollback_deployment"),
        ("PatchHPA", "patch_hpa"),
        ("RelaxPDB", "relax_pdb"),
        ("FixStatefulSetPVC", "fix_stateful_set_pvc"),
        ("delete-pod", "delete_pod"),
        ("scale", "scale"),
    ],
)
def test_action_types_in_snake_case(action_type, expected):
    assert expected == action_name(action_type)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("scale", True),
        ("scale_replicas", True),
        ("ScaleReplicas", True),
        ("scalereplicas", True),
        ("SCALEREPLICAS", True),
        ("scale_*", True),
        ("*_replicas", True),
        ("replicas", False),
        ("scale_rep", False),
        ("delete_*", False),
        ("*", True),
        (" ", False),
    ],
)
def test_a_pattern_is_the_action_its_first_word_or_a_glob(pattern, matches):
    assert matches == names_action([pattern], "ScaleReplicas")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("delete", True),
        ("pods", True),
        ("delete_pod", True),
        ("DeletePod", True),
        ("delete_*", True),
        ("forcedeletepod", True),
        ("FORCEDELETEPOD", True),
        ("ForceDeletePods", True),
        ("force-delete-v1", True),
        ("force_delete_v1", True),
        ("scale", False),
        ("elete", False),
        ("", False),
    ],
)
def test_a_prohibition_is_read_widely(pattern, matches):
    assert matches == forbids([pattern], workflow("force-delete-v1", "ForceDeletePod"))


def check(constraints=None, *, dry_run=False, downtime=None, answered=None):
    safety = SafetyContext(
        safety_constraints=constraints or SafetyConstraints(), rego_policy=RegoPolicy(dry_run=dry_run)
    )
    declared = workflow(action_type="ScaleReplicas", estimated_downtime_seconds=downtime)
    report = CheckReport()
    check_safety(declared, safety, answered, report)
    return report


@pytest.mark.parametrize(
    ("constraints", "forbidden", "for_approval"),
    [
        (SafetyConstraints(), 0, 0),
        (SafetyConstraints(forbidden_actions=("scale",)), 1, 0),
        (SafetyConstraints(forbidden_actions=("delete_*",)), 0, 0),
        (SafetyConstraints(allowed_actions=("scale", "restart")), 0, 0),
        (SafetyConstraints(allowed_actions=("restart",)), 0, 1),
        (SafetyConstraints(allowed_actions=()), 0, 1),
        (SafetyConstraints(allowed_actions=("scale",), forbidden_actions=("scale_*",)), 1, 0),
        (SafetyConstraints(requires_approval=True), 0, 1),
    ],
)
def test_forbidden_is_an_error_and_not_allowed_needs_approval(constraints, forbidden, for_approval):
    found = check(constraints)
    assert (forbidden, for_approval) == (len(found.problems), len(found.factors))
    assert {ProblemKind.FORBIDDEN} >= {p.kind for p in found.problems}


@pytest.mark.parametrize(
    ("downtime", "answered", "forbidden", "for_approval"),
    [
        (30, None, 0, 0),
        (60, None, 0, 0),
        (61, 0, 1, 0),
        (30, 61, 0, 0),
        (None, 0, 0, 1),
        (None, 60, 0, 1),
        (None, 61, 1, 0),
        (None, None, 0, 1),
    ],
)
def test_the_models_estimate_of_the_downtime_only_tightens_a_limit(
    downtime, answered, forbidden, for_approval
):
    found = check(SafetyConstraints(max_downtime_seconds=60), downtime=downtime, answered=answered)
    assert (forbidden, for_approval) == (len(found.problems), len(found.factors))


@pytest.mark.parametrize(
    ("downtime", "answered", "source"), [(90, 5, "the catalog"), (None, 90, "this answer")]
)
def test_a_rejection_names_who_estimated_the_downtime(downtime, answered, source):
    [problem] = check(
        SafetyConstraints(max_downtime_seconds=60), downtime=downtime, answered=answered
    ).problems
    assert f"{source} estimates 90 s" in problem.message


def test_a_dry_run_policy_needs_approval():
    assert check(dry_run=True).factors == [factor(FactorCode.SAFETY_DRY_RUN)]


def test_without_a_safety_context_nothing_is_restricted():
    report = CheckReport()
    check_safety(workflow(), None, None, report)
    assert CheckReport() == report


DECLARED = workflow(
    parameters=(
        *target_parameters("Deployment"),
        Parameter("FACTOR", ParameterType.NUMBER, default=2),
        Parameter("DRY_RUN", ParameterType.BOOLEAN),
        Parameter("TARGETS", ParameterType.ARRAY),
        Parameter("ZONE"),
    )
)


@pytest.mark.parametrize(
    ("now", "before", "same"),
    [
        ({}, {}, True),
        ({"FACTOR": 3}, {"FACTOR": "3"}, True),
        ({"FACTOR": 3}, {"FACTOR": "3.0"}, True),
        ({"FACTOR": 3}, {"FACTOR": "4"}, False),
        ({"FACTOR": 2}, {}, True),
        ({}, {"FACTOR": "2"}, True),
        ({"FACTOR": 3}, {}, False),
        ({"DRY_RUN": True}, {"DRY_RUN": "True"}, True),
        ({"DRY_RUN": True}, {}, False),
        ({"TARGETS": ["a", "b"]}, {"TARGETS": '["a", "b"]'}, True),
        ({"TARGETS": ["a", "b"]}, {"TARGETS": "a, b"}, True),
        ({"TARGETS": ["a"]}, {"TARGETS": "[" * 5000}, False),
        ({"ZONE": "eu-a"}, {"ZONE": "eu-a", "UNKNOWN": "x"}, True),
        ({"ZONE": "eu-a"}, {"ZONE": "EU-A"}, False),
        ({"TARGET_RESOURCE_NAME": "api"}, {}, True),
        ({"TARGET_RESOURCE_NAME": "api"}, {"TARGET_RESOURCE_NAME": "api"}, True),
        ({"TARGET_RESOURCE_NAME": "api"}, {"TARGET_RESOURCE_NAME": "web"}, False),
        ({"TARGET_RESOURCE_NAME": "api"}, {"target_resource_name": "web"}, False),
        ({"TARGET_RESOURCE_NAME": "api"}, {"targetResourceName": "api"}, True),
        ({"FACTOR": 3}, {"factor": "3"}, True),
        ({"FACTOR": 3}, {"factor": "2", "FACTOR": "3"}, True),
    ],
)
def test_parameters_compare_by_meaning(now, before, same):
    assert same == repeats(DECLARED, now, FailedExecution("restart-v1", before))


def test_another_workflow_never_repeats():
    assert not repeats(DECLARED, {}, FailedExecution("scale-v1"))


@pytest.mark.parametrize("name", ["target_resource_name", "targetResourceName", "TARGET-RESOURCE-NAME"])
def test_a_target_parameter_counts_only_where_both_sides_have_it_in_any_spelling(name):
    declared = workflow(parameters=(Parameter(name), Parameter("zone")))
    assert repeats(declared, {name: "api", "zone": "a"}, FailedExecution("restart-v1", {"zone": "a"}))
    for before, same in (("api", True), ("web", False)):
        failed = FailedExecution("restart-v1", {"TARGET_RESOURCE_NAME": before, "ZONE": "a"})
        assert same == repeats(declared, {name: "api", "zone": "a"}, failed)
