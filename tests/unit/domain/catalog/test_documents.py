from __future__ import annotations

import pytest

from worker.domain.catalog.documents import DESCRIPTION, Flaw, WorkflowDocument, build_workflow
from worker.domain.values.workflows import Parameter, ParameterType


def built(**document):
    written = WorkflowDocument.model_validate({"action_type": "Restart", **document})
    return build_workflow(written, "an-id", "a title")


def test_names_labels_and_images_come_in_one_spelling():
    workflow, flaws = built(
        labels={"signalName": " OOMKilled ", "app.example.com/tier": ["gold"]},
        detectedLabels={"gitOpsManaged": "true", "gitOpsTool": "argocd"},
        customLabels={"team": "payments"},
        description={"what": "Restarts\nall pods.", "whenToUse": "Now."},
        execution={"bundle": "registry.example.com/restart", "bundleDigest": "sha256:00ff"},
    )
    assert [] == flaws
    assert ("an-id", "a title") == (workflow.workflow_id, workflow.title)
    assert {"signal_type": ("OOMKilled",)} == workflow.labels
    assert {"app.example.com/tier": ("gold",), "team": ("payments",)} == workflow.custom_labels
    assert {"gitops_managed": True, "gitops_tool": "argocd"} == workflow.detected_labels
    assert ("Restarts all pods.", "Now.") == (workflow.description, workflow.when_to_use)
    assert "registry.example.com/restart@sha256:00ff" == workflow.container_image


def test_its_own_id_and_title_go_first():
    workflow, _ = built(workflowId="restart-v1", name="restart")
    assert ("restart-v1", "restart") == (workflow.workflow_id, workflow.title)


def test_values_are_what_their_type_says():
    workflow, flaws = built(parameters=[{"name": "WAIT", "type": "int", "enum": ["5", 10], "default": "5"}])
    assert [] == flaws
    assert (Parameter("WAIT", ParameterType.INTEGER, default=5, enum=(5, 10)),) == workflow.parameters


@pytest.mark.parametrize(
    ("parameters", "flaw"),
    [
        ([{"name": "A"}, {"name": "A"}], Flaw(("parameters", 1, "name"), "A is declared twice")),
        ([{}], Flaw(("parameters", 0), "a parameter requires a name")),
        ([{"name": "A", "dependsOn": ["B"]}], Flaw(("parameters", 0, "depends_on"), "B is not declared")),
        (
            [{"name": "A", "type": "int", "minimum": 2, "maximum": 1}],
            Flaw(("parameters", 0), "the minimum is greater than the maximum"),
        ),
        (
            [{"name": "A", "items": {}}],
            Flaw(("parameters", 0, "items"), "only a parameter of type array has items"),
        ),
    ],
    ids=["twice", "no name", "dependency", "bounds", "items"],
)
def test_what_a_type_cannot_say_is_a_flaw_with_its_place(parameters, flaw):
    assert [flaw] == built(parameters=parameters)[1]


@pytest.mark.parametrize(("name", "value"), [("enum", ["x"]), ("default", "x"), ("pattern", "(?=x)")])
def test_what_does_not_fit_its_own_declaration_is_a_flaw(name, value):
    kind = "string" if name == "pattern" else "integer"
    [flaw] = built(parameters=[{"name": "A", "type": kind, name: value}])[1]
    assert ("parameters", 0, name) == flaw.at[:3]


def test_descriptions_say_signal_type_and_severity_first():
    match = DESCRIPTION.match("OOMKilled critical: Raises the limit.")
    assert {"signal": "OOMKilled", "severity": "critical"} == match.groupdict()
    assert None is DESCRIPTION.match("Raises the limit: now.")
