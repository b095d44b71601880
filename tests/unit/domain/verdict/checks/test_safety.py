from __future__ import annotations

import pytest

from schemas.safety import RegoPolicy, SafetyConstraints, SafetyContext
from tests.fakes.memory_catalog import workflow
from worker.domain.values.workflows import action_name
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.checks.safety import (
    check_safety,
    forbids,
    names_action,
    stricter_environment,
)
from worker.domain.verdict.problems import ProblemKind


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


@pytest.mark.parametrize(
    ("environment", "other", "expected"),
    [
        ("dev", "", "dev"),
        ("dev", "Dev", "dev"),
        ("dev", "production", "production"),
        ("production", "dev", "production"),
        ("dev", "staging", "production"),
    ],
)
def test_environments_that_disagree_count_as_production(environment, other, expected):
    assert expected == stricter_environment(environment, SafetyContext(environment=other))
    assert environment == stricter_environment(environment, None)


def check(constraints=None, *, dry_run=False, downtime=None, answered=None):
    safety = SafetyContext(
        safety_constraints=constraints or SafetyConstraints(), rego_policy=RegoPolicy(dry_run=dry_run)
    )
    declared = workflow(action_type="ScaleReplicas", estimated_downtime_seconds=downtime)
    return check_safety(declared, safety, answered)


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
        (30, 61, 1, 0),
        (None, 0, 0, 1),
        (None, 30, 0, 1),
        (None, 90, 1, 0),
        (None, None, 0, 1),
    ],
)
def test_the_models_downtime_can_only_make_it_stricter(downtime, answered, forbidden, for_approval):
    found = check(SafetyConstraints(max_downtime_seconds=60), downtime=downtime, answered=answered)
    assert (forbidden, for_approval) == (len(found.problems), len(found.factors))


def test_a_dry_run_policy_needs_approval():
    assert check(dry_run=True).factors == (factor(FactorCode.SAFETY_DRY_RUN),)


def test_without_a_safety_context_nothing_is_restricted():
    assert (check_safety(workflow(), None, None).problems, check_safety(workflow(), None, None).factors) == (
        (),
        (),
    )
