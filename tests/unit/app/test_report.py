"""What a person sees of a result."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from schemas.analysis import (
    AffectedResource,
    Approval,
    Corroboration,
    CorroborationSource,
    DiagnosedCause,
    HumanReviewReason,
    RootCauseAnalysis,
    Status,
)
from schemas.evidence import EvidenceItem
from schemas.workflow import AlternativeWorkflow, SelectedWorkflow
from tests.fakes.messages import review_result
from worker.app.cli.report import cost_line, print_result
from worker.app.verdict_line import decision_line

CHOSEN = {
    "status": Status.COMPLETED,
    "needs_human_review": False,
    "human_review_reason": None,
    "is_actionable": True,
    "selected_workflow": SelectedWorkflow(workflow_id="undo-rollout", confidence=0.92),
    "affected_resource": AffectedResource(kind="Deployment", name="api", namespace="shop"),
    "root_cause_analysis": RootCauseAnalysis(
        summary="The limit is too small. The log says: killed.",
        severity="high",
        contributing_factors=("limit 256Mi", "the log says: killed", "Limit  256Mi.", "one node is full"),
    ),
}
NOTHING = {
    "status": Status.RESOLVED,
    "needs_human_review": False,
    "human_review_reason": None,
    "approval": Approval(required=False),
}


def shown(**fields) -> str:
    out = io.StringIO()
    print_result(review_result("rr-1", **fields), console=Console(file=out, width=80, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (CHOSEN, "APPROVAL NEEDED  undo-rollout on Deployment shop/api (0.92)"),
        (
            CHOSEN | {"approval": Approval(required=False)},
            "MAY RUN  undo-rollout on Deployment shop/api (0.92)",
        ),
        (
            {"human_review_reason": HumanReviewReason.LOW_CONFIDENCE},
            "HUMAN REVIEW NEEDED  low confidence",
        ),
        (NOTHING, "NO REMEDIATION NEEDED  resolved"),
    ],
)
def test_the_verdict_comes_first_and_names_the_decision(fields, line):
    assert line == decision_line(review_result("rr-1", **fields))
    assert line == shown(**fields).splitlines()[1].strip("│ ")


def test_a_root_cause_without_its_object_is_shown():
    text = shown(root_cause_analysis=CHOSEN["root_cause_analysis"])
    assert "The limit is too small." in text
    assert "affected" not in text


def test_what_was_said_is_not_repeated_among_the_factors():
    factors = [line.strip("│ ").removeprefix("factors").strip() for line in shown(**CHOSEN).splitlines()]
    assert ["• limit 256Mi", "• one node is full"] == [line for line in factors if line.startswith("•")]


def test_no_text_speaks_to_the_terminal():
    hostile = "a\x1b[2J\u202eb"
    fields = CHOSEN | {
        "root_cause_analysis": RootCauseAnalysis(
            summary=f"{hostile}\n\nmore",
            severity="high",
            signal_type=hostile,
            contributing_factors=(hostile,),
        ),
        "affected_resource": AffectedResource(kind="Deployment", name=hostile, namespace=hostile),
        "selected_workflow": SelectedWorkflow(
            workflow_id=hostile,
            version=hostile,
            action_type=hostile,
            rationale=hostile,
            confidence=0.9,
            parameters={hostile: hostile},
        ),
        "alternative_workflows": (AlternativeWorkflow(workflow_id=hostile, confidence=0.5),),
        "evidence": (EvidenceItem(id=hostile, source=hostile, summary=hostile),),
        "approval": Approval(required=True, reasons=(hostile,)),
        "warnings": (hostile,),
        "model": hostile,
    }
    text = shown(**fields)
    assert "a\\u{1b}[2J\\u{202e}b" in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_an_evidence_line_does_not_say_twice_what_it_is():
    items = (
        EvidenceItem(id="E1", source="enrichment:changes", summary="changes of the pod template"),
        EvidenceItem(id="E2", source="enrichment:pod", summary="Pod shop/api-1"),
        EvidenceItem(id="E3", source="get_resource", summary="Pod shop/api-1"),
    )
    lines = [" ".join(line.strip("│ ").split()) for line in shown(evidence=items).splitlines()]
    told = ["E1 changes of the pod template", "E2 Pod shop/api-1", "E3 get_resource Pod shop/api-1"]
    assert told == [line for line in lines if line.startswith("E")]


@pytest.mark.parametrize(("would", "said"), [(False, True), (True, False), (None, False)])
def test_observe_mode_says_what_would_run_outside_of_it(would, said):
    approval = Approval(required=True, reasons=("observe",), would_require=would)
    assert said == ("Outside observe mode it may run" in shown(**CHOSEN | {"approval": approval}))
    assert "Outside observe mode" not in shown(**NOTHING | {"approval": approval})


def test_the_verdict_says_whether_the_cluster_confirms_the_answer():
    confirmed = Corroboration(by=CorroborationSource.RULES, reason="it was OOMKilled", evidence=("E9",))
    items = tuple(EvidenceItem(id=f"E{n}", source="get_resource", summary=f"Pod {n}") for n in range(1, 10))
    text = shown(**CHOSEN | {"corroboration": confirmed, "evidence": items})
    assert "The cluster confirms the answer: it was OOMKilled" in text
    assert "E9" in text, "what confirms the answer is shown before other evidence"
    assert "E8" not in text
    silent = Corroboration(by=CorroborationSource.NONE, reason="no rule knows it")
    assert "Not confirmed by the cluster: no rule knows it" in shown(**CHOSEN | {"corroboration": silent})


@pytest.mark.parametrize(
    ("declared", "line"), [("", "risk        not declared in the catalog"), ("medium", "risk        medium")]
)
def test_the_risk_is_what_the_catalog_declares_never_what_the_model_says(declared, line):
    """Beside "the catalog does not declare it as low risk", a risk called low by the model would contradict it."""
    workflow = SelectedWorkflow(
        workflow_id="undo-rollout", confidence=0.92, estimated_risk="low", declared_risk=declared
    )
    text = shown(**CHOSEN | {"selected_workflow": workflow})
    assert line in text
    assert "low" not in text


@pytest.mark.parametrize(("model", "lines"), [("", 1), ("gpt-5", 2)])
def test_a_model_that_was_not_called_has_no_line(model, lines):
    assert lines == len(cost_line(review_result("rr-1", model=model)).splitlines())


def test_a_reason_that_the_detail_gives_is_said_once():
    text = shown(
        human_review_detail="It is late. Hurry.",
        approval=Approval(required=True, reasons=("It is late.", "Look.")),
    )
    assert (1, 1) == (text.count("It is late."), text.count("• Look."))


def test_a_confirmation_does_not_repeat_the_root_cause():
    seen = AffectedResource(kind="Deployment", name="api", namespace="shop")
    found = Corroboration(
        by=CorroborationSource.RULES, object=seen, finding="out_of_memory", reason="The limit is too small."
    )
    text = shown(**CHOSEN, corroboration=found)
    assert (1, 1) == (text.count("The limit is too small."), text.count("out of memory, Deployment shop/api"))


@pytest.mark.parametrize(
    "cause", [None, RootCauseAnalysis(summary="The limit is too small.", severity="high")]
)
def test_the_terminal_shows_what_rules_see_with_and_without_a_root_cause(cause):
    seen = DiagnosedCause(
        cause="image", object=AffectedResource(kind="Pod", name="api"), summary="The image is missing."
    )
    text = shown(diagnosis=(seen,), root_cause_analysis=cause)
    assert text.index("What rules find") < text.index("• The image is missing.")
    assert ("The limit is too small." in text) is (cause is not None)
