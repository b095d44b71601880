from __future__ import annotations

import pytest

from tests.fakes.memory_catalog import target_parameters, workflow
from worker.domain.values.remediations import FailedExecution
from worker.domain.values.workflows import Parameter, ParameterType
from worker.domain.verdict.checks.repetition import repeats

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
