from __future__ import annotations

import pytest

from tests.fakes.memory_catalog import workflow
from worker.domain.values.workflows import Parameter, Workflow


@pytest.mark.parametrize(
    ("custom", "detected", "aware"),
    [
        ({}, {}, False),
        ({"gitops_aware": ("True",)}, {}, True),
        ({"gitops_aware": ("false",)}, {}, False),
        ({}, {"gitops_managed": True}, True),
        ({}, {"gitops_managed": False}, False),
        ({}, {"gitops_managed": "argocd"}, False),
    ],
)
def test_a_workflow_is_aware_of_gitops_by_custom_or_detected_label(custom, detected, aware):
    assert aware == workflow(custom_labels=custom, detected_labels=detected).gitops_aware


def test_a_parameter_is_found_by_its_exact_name_only():
    declared = Parameter("TO_REVISION")
    found = workflow(parameters=(declared,))
    assert (declared, None) == (found.parameter("TO_REVISION"), found.parameter("to_revision"))


@pytest.mark.parametrize(
    ("declared", "risk"),
    [
        (("low",), "low"),
        (("High risk",), "high"),
        ((" Medium ",), "medium"),
        (("low", "high"), ""),
        (("perhaps",), ""),
        (("lowish",), ""),
        ((), ""),
    ],
)
def test_the_catalog_declares_the_risk(declared, risk):
    assert risk == Workflow("w", "Restart", custom_labels={"risk": declared}).risk
    assert Workflow("w", "Restart").risk == ""
