from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from schemas.analysis import AnalysisResult, Approval, HumanReviewReason, Status
from schemas.evidence import CausalClaim, ClaimSupport
from schemas.failure import EXCERPT_BYTES
from schemas.incident import request_digest
from schemas.taxonomy import Severity
from tests.fakes.memory_catalog import workflow
from tests.fakes.scripted import incident, recovery
from tests.fakes.verdicts import CONFIG, DEPLOYMENT, POD, REPLICA_SET, answer, chosen
from worker.domain.investigation.prompt import PROMPT_VERSION
from worker.domain.untrusted.evidence import Evidence, EvidenceKind
from worker.domain.values.limits import Spent
from worker.domain.verdict.answers.answer import AnsweredAlternative, Problem, ProblemKind
from worker.domain.verdict.outcome import Ending, conclude
from worker.domain.verdict.result import Ingredients, build
from worker.domain.verdict.verdict import Accepted, Attempt, InvestigationOutcome, Rejected, actionable

NOW = datetime(2026, 6, 4, 15, 34, tzinfo=UTC)
SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"
PARAMETERS = {
    "TARGET_RESOURCE_NAME": "api",
    "TARGET_RESOURCE_KIND": "Deployment",
    "TARGET_RESOURCE_NAMESPACE": "shop",
}


def accepted(**fields):
    values = {
        "answer": answer(prose="The image is broken."),
        "severity": Severity.CRITICAL,
        "signal_type": "CrashLoopBackOff",
        "affected": DEPLOYMENT,
        "root_owner": DEPLOYMENT,
        "workflow": workflow(title="Restart", estimated_downtime_seconds=5),
        "target": DEPLOYMENT,
        "parameters": PARAMETERS,
        "confidence": 0.9,
    }
    return Accepted(**{**values, **fields})


def built(verdict=None, request=None, **fields):
    request = request or incident()
    ending = fields.pop("ending", Ending(verdict))
    conclusion = conclude(ending)
    values = {
        "request": request,
        "digest": request_digest(request),
        "conclusion": conclusion,
        "approval": Approval(required=conclusion.needs_human_review),
        "completed_at": NOW,
        "prompt_version": PROMPT_VERSION,
        "accepted": verdict if isinstance(verdict, Accepted) else None,
        "attempts": [Attempt(1, verdict, "raw text", "restart-v1")] if verdict else [],
    }
    return build(Ingredients(**{**values, **fields}))


def test_a_completed_result_says_what_the_catalog_knows_of_the_workflow():
    said = chosen(
        version="9.9",
        container_image="evil:latest",
        rationale="why",
        estimated_risk="low",
        estimated_downtime_seconds=99,
    )
    result = built(accepted(answer=answer(selected_workflow=said)))
    selected = result.selected_workflow
    assert (Status.COMPLETED, False, None) == (
        result.status,
        result.needs_human_review,
        result.human_review_reason,
    )
    assert (
        "restart-v1",
        "1.2.0",
        "Restart",
        "RestartWorkload",
        "registry.example.com/restart@sha256:00ff",
    ) == (
        selected.workflow_id,
        selected.version,
        selected.title,
        selected.action_type,
        selected.container_image,
    )
    assert (0.9, "why", "low", 5, PARAMETERS) == (
        selected.confidence,
        selected.rationale,
        selected.estimated_risk,
        selected.estimated_downtime_seconds,
        selected.parameters,
    )


@pytest.mark.parametrize(("catalog", "said", "expected"), [(0, 9, 0), (None, 9, 9), (None, None, None)])
def test_downtime_is_that_of_the_catalog_or_else_of_the_answer(catalog, said, expected):
    verdict = accepted(
        workflow=workflow(estimated_downtime_seconds=catalog),
        answer=answer(selected_workflow=chosen(estimated_downtime_seconds=said)),
    )
    assert expected == built(verdict).selected_workflow.estimated_downtime_seconds


def test_ids_digest_and_versions_are_those_of_the_request_and_the_code():
    request = incident(remediation_id="rr/1 ü")
    result = built(accepted(), request)
    assert ("inc-1", "rr/1 ü", "rr%2F1%20%C3%BC") == (
        result.incident_id,
        result.remediation_id,
        result.request_key,
    )
    assert (request_digest(request), PROMPT_VERSION, NOW) == (
        result.request_digest,
        result.prompt_version,
        result.completed_at,
    )


@pytest.mark.parametrize(
    ("affected", "expected"),
    [(POD, DEPLOYMENT), (REPLICA_SET, DEPLOYMENT), (DEPLOYMENT, DEPLOYMENT), (CONFIG, CONFIG)],
)
def test_a_pod_stands_for_what_it_belongs_to(affected, expected):
    verdict = accepted(affected=affected, root_owner=expected)
    assert expected == actionable(verdict)
    result = built(verdict)
    assert (expected.kind, expected.name) == (result.affected_resource.kind, result.affected_resource.name)
    assert (affected != expected) is any("is named as the affected resource" in note for note in result.notes)


def test_low_confidence_moves_the_workflow_to_the_alternatives():
    other = AnsweredAlternative("other-v1", 0.3, "second best")
    result = built(accepted(confidence=0.5, alternatives=(other,)))
    assert (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.LOW_CONFIDENCE, None) == (
        result.status,
        result.human_review_reason,
        result.selected_workflow,
    )
    assert [("restart-v1", 0.5), ("other-v1", 0.3)] == [
        (a.workflow_id, a.confidence) for a in result.alternative_workflows
    ]
    assert result.approval.required is True


def test_a_result_without_an_answer_has_nothing_of_one():
    verdict = Rejected((Problem(ProblemKind.RCA, "a.b", "is missing"), Problem(ProblemKind.RCA, "", "other")))
    result = built(verdict)
    assert HumanReviewReason.RCA_INCOMPLETE is result.human_review_reason
    assert (None, None, None, "", None) == (
        result.root_cause_analysis,
        result.affected_resource,
        result.selected_workflow,
        result.analysis,
        result.context_used,
    )
    [attempt] = result.validation_attempts
    assert (1, False, ("a.b: is missing", "other"), "restart-v1") == (
        attempt.attempt,
        attempt.is_valid,
        attempt.errors,
        attempt.workflow_id,
    )


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        (Ending(expired=True), Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.DECISION_EXPIRED),
        (Ending(cancelled=True), Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.OPERATOR_ESCALATION),
        (Ending(dead_letter="boom"), Status.FAILED, HumanReviewReason.INVESTIGATION_INCONCLUSIVE),
    ],
)
@pytest.mark.parametrize("request_", [incident(), recovery()], ids=["incident", "recovery"])
def test_any_request_has_a_result_without_any_answer(ending, status, reason, request_):
    result = built(request=request_, ending=ending)
    assert (status, True, reason) == (result.status, result.needs_human_review, result.human_review_reason)
    assert result.human_review_detail
    assert result == AnalysisResult.model_validate_json(result.model_dump_json())


def test_secrets_are_removed_from_everything_free():
    verdict = accepted(
        answer=answer(
            prose=f"prose {SECRET}",
            summary=f"summary {SECRET}",
            contributing_factors=(f"factor {SECRET}",),
            selected_workflow=chosen(rationale=f"rationale {SECRET}"),
            context_used={"cluster_state": f"state {SECRET}"},
            recovery_analysis={"previous_attempt_assessment": {"failure_reason_analysis": SECRET}},
            recovery_strategy={"approach": SECRET, "why_different": SECRET},
        ),
        alternatives=(AnsweredAlternative("other-v1", 0.1, f"alternative {SECRET}"),),
        warnings=(f"warning {SECRET}",),
        notes=(f"note {SECRET}",),
    )
    for request in (incident(), recovery()):
        result = built(verdict, request, attempts=[Attempt(1, verdict, f"raw {SECRET}")], warnings=[SECRET])
        assert "FAKE" not in result.model_dump_json()
        assert "[REDACTED:" in result.analysis
    refused = Rejected((Problem(ProblemKind.FORBIDDEN, "x", f"problem {SECRET}"),))
    result = built(refused, attempts=[Attempt(1, refused, f"raw {SECRET}")])
    assert "FAKE" not in result.model_dump_json()


def test_a_secret_is_not_shown_by_half_where_the_raw_answer_is_cut():
    for shift in range(len(SECRET)):
        text = "x " * ((EXCERPT_BYTES - shift) // 2) + SECRET
        raw = built(accepted(), attempts=[Attempt(1, accepted(), text)]).raw_analysis
        assert "FAKE" not in raw
        assert len(raw.encode()) <= EXCERPT_BYTES


def test_a_reader_sees_what_each_piece_of_evidence_said():
    body = f"out of memory\n{SECRET}"
    log = [Evidence("get_pod_logs", f"Pod\nshop/api {'x' * 500}", body, id="E1", seen_at=NOW)]
    [item] = built(accepted(), evidence=log).evidence
    assert ("E1", "get_pod_logs", NOW) == (item.id, item.source, item.seen_at)
    assert "\n" not in item.summary
    assert len(item.summary) <= 240
    assert item.excerpt.startswith("out of memory\n")
    assert "FAKE" not in item.excerpt


@pytest.mark.parametrize("kind", EvidenceKind)
def test_of_a_log_the_end_is_kept_and_of_anything_else_the_start(kind):
    body = f"first {'ü' * 3_000} last"
    [item] = built(accepted(), evidence=[Evidence("s", "what", body, id="E1", kind=kind)]).evidence
    assert len(item.excerpt.encode()) <= 2_048
    assert item.excerpt.endswith("last" if kind is EvidenceKind.LOG else "...")
    assert item.excerpt.startswith("..." if kind is EvidenceKind.LOG else "first")


def test_hidden_characters_of_an_excerpt_are_made_visible():
    log = [Evidence("s", "what", "a\u202eb\x1b[31m", id="E1")]
    assert r"a\u{202e}b\u{1b}[31m" == built(accepted(), evidence=log).evidence[0].excerpt


@pytest.mark.parametrize(("chars", "repeated"), [(199, "x" * 199), (200, "same text as E1"), (0, "")])
def test_a_long_text_is_not_repeated(chars, repeated):
    log = [
        Evidence(source, "what", "x" * chars, id=number)
        for source, number in (("s", "E1"), ("t", "E2"), ("s", "E3"))
    ]
    assert ["x" * chars, repeated, repeated] == [
        item.excerpt for item in built(accepted(), evidence=log).evidence
    ]


def test_much_evidence_still_fits_into_a_message():
    log = [Evidence("s", "what", f"{number:04}" * 1_000, id=f"E{number}") for number in range(1, 1_001)]
    kept = built(accepted(), evidence=log).evidence
    assert len(kept) == 1_000
    assert all(item.excerpt for item in kept)
    assert sum(len(item.excerpt) for item in kept) <= 256 * 1024


def test_the_cause_has_its_object_and_its_chain():
    claims = (
        CausalClaim(claim=f"It was killed {SECRET}", evidence=("E1",), support=ClaimSupport.CITED),
        CausalClaim(claim="So it restarts", support=ClaimSupport.UNCITED),
    )
    result = built(accepted(claims=claims))
    cause = result.root_cause_analysis
    assert cause.affected_resource == result.affected_resource
    assert ("So it restarts",) == cause.causal_chain[1:]
    assert cause.causal_chain == tuple(claim.claim for claim in cause.causal_claims)
    assert [("E1",), ()] == [claim.evidence for claim in cause.causal_claims]
    assert "FAKE" not in result.model_dump_json()


def test_an_executor_needs_nothing_beside_the_result():
    image = f"registry.example.com/restart@sha256:{'0' * 64}"
    known = workflow(
        container_image=image,
        engine="job",
        service_account="runner",
        secrets=("key",),
        config_maps=("rules",),
    )
    selected = built(accepted(workflow=known)).selected_workflow
    assert (image, image, f"sha256:{'0' * 64}") == (
        selected.container_image,
        selected.execution_bundle,
        selected.execution_bundle_digest,
    )
    assert ("job", "runner") == (selected.execution_engine, selected.service_account_name)
    assert {"secrets": [{"name": "key"}], "configMaps": [{"name": "rules"}]} == (
        selected.dependencies.model_dump(mode="json")
    )


@pytest.mark.parametrize(
    ("said", "level"),
    [("Low", "low"), ("moderate", "medium"), ("High risk", "high"), ("critical", "high"), ("who knows", "")],
)
def test_the_estimated_risk_is_one_of_a_closed_set(said, level):
    result = built(accepted(answer=answer(selected_workflow=chosen(estimated_risk=said))))
    assert level == result.selected_workflow.estimated_risk


def test_an_attempt_has_the_time_at_which_it_was_checked():
    checked = NOW - timedelta(minutes=3)
    attempts = [Attempt(1, Rejected(()), "text", at=checked), Attempt(2, accepted(), "text")]
    assert [checked, NOW] == [a.timestamp for a in built(accepted(), attempts=attempts).validation_attempts]


def test_the_confidence_of_an_answer_is_told_with_and_without_a_workflow():
    nothing = accepted(
        workflow=None,
        outcome=InvestigationOutcome.NOT_ACTIONABLE,
        answer=answer(confidence=0.8),
        confidence=0.8,
    )
    assert [0.9, 0.8, None] == [
        built(accepted()).confidence,
        built(nothing).confidence,
        built(ending=Ending(expired=True)).confidence,
    ]


def test_warnings_and_notes_are_told_once():
    result = built(accepted(warnings=("a", "b"), notes=("n",)), warnings=["b", "c"], notes=["n", "m"])
    assert ("b", "c", "a") == result.warnings
    assert ("n", "m") == result.notes


def test_what_was_spent_is_published():
    spent = Spent(3, 5, 1_000, 600, 70, 0.25, 12.34567)
    usage = built(accepted(), spent=spent).usage
    assert (3, 5, 1_000, 600, 70, 0.25, 12.346) == tuple(usage.model_dump().values())


def test_a_recovery_tells_what_became_of_the_attempt_before():
    verdict = accepted(
        workflow=workflow("other-v1"),
        answer=answer(
            recovery_analysis={
                "previous_attempt_assessment": {
                    "failure_understood": True,
                    "failure_reason_analysis": "it waited for a pod that cannot start",
                    "state_changed": False,
                    "current_signal_type": "CrashLoopBackOff",
                }
            },
            recovery_strategy={
                "approach": "roll back",
                "why_different": "another image",
                "differs_from_previous": False,
            },
        ),
    )
    result = built(verdict, recovery(recovery_attempt_number=2))
    assert (True, 2, True, 0.9, "rr-1.2") == (
        result.is_recovery_attempt,
        result.recovery_attempt_number,
        result.can_recover,
        result.analysis_confidence,
        result.request_key,
    )
    assessment = result.recovery_analysis.previous_attempt_assessment
    assert (True, "it waited for a pod that cannot start", False, "CrashLoopBackOff") == tuple(
        assessment.model_dump().values()
    )
    assert result.recovery_analysis.current_rca == result.root_cause_analysis
    assert ("roll back", True, "another image") == (
        result.recovery_strategy.approach,
        result.recovery_strategy.differs_from_previous,  # computed, whatever the model says
        result.recovery_strategy.why_different,
    )


@pytest.mark.parametrize(
    ("said", "strategy"),
    [
        (None, None),
        ({}, {}),
        ({"previous_attempt_assessment": "it failed"}, {"approach": 7, "why_different": None}),
        (
            {"previous_attempt_assessment": {"failure_understood": "yes", "state_changed": 1}},
            {"approach": ["a"]},
        ),
    ],
)
def test_a_recovery_answer_with_other_types_loses_them_and_nothing_else(said, strategy):
    verdict = accepted(answer=answer(recovery_analysis=said, recovery_strategy=strategy))
    result = built(verdict, recovery())
    assessment = result.recovery_analysis.previous_attempt_assessment
    assert (None, "", None, "") == tuple(assessment.model_dump().values())
    assert ("", "") == (result.recovery_strategy.approach, result.recovery_strategy.why_different)


@pytest.mark.parametrize(("said", "read"), [("true", True), (" False", False), (True, True), ("maybe", None)])
def test_a_flag_of_a_recovery_may_be_written_as_a_word(said, read):
    analysis = {"previous_attempt_assessment": {"failure_understood": said, "state_changed": said}}
    result = built(accepted(answer=answer(recovery_analysis=analysis)), recovery())
    assessment = result.recovery_analysis.previous_attempt_assessment
    assert (read, read) == (assessment.failure_understood, assessment.state_changed)


def test_a_recovery_without_a_workflow_cannot_recover():
    result = built(accepted(confidence=0.2), recovery())
    assert (False, 0.0, None) == (
        result.can_recover,
        result.analysis_confidence,
        result.recovery_strategy.differs_from_previous,
    )


def test_an_incident_has_no_fields_of_a_recovery():
    result = json.loads(built(accepted()).model_dump_json())
    assert [None] * 5 == [
        result[name]
        for name in (
            "recovery_attempt_number",
            "can_recover",
            "analysis_confidence",
            "recovery_analysis",
            "recovery_strategy",
        )
    ]
