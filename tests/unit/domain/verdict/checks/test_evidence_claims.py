"""Each step of the causal chain says how it stands in the evidence that it cites."""

from __future__ import annotations

import pytest

from schemas.evidence import ClaimSupport
from tests.fakes.verdicts import DEPLOYMENT, answer, facts, resolved
from worker.domain.untrusted.evidence import Evidence, EvidenceKind
from worker.domain.verdict.answers.answer import AnsweredClaim
from worker.domain.verdict.checks.evidence import check_claims, decides, reported
from worker.domain.verdict.checks.report import CheckReport
from worker.domain.verdict.judge import judge

KILLED = 'Pod shop/api-1 {"metadata":{"name":"api-1"},"status":{"containerStatuses":[{"lastState":{"reason":"OOMKilled"}}]}}'
ITEMS = (
    Evidence("get_resource", "Pod shop/api-1", KILLED, id="E1", kind=EvidenceKind.OBJECT),
    Evidence(
        "get_resource", "ConfigMap shop/api", '{"data":{"a":"OOMKilled"}}', id="E2", kind=EvidenceKind.OBJECT
    ),
    Evidence("get_pod_logs", "Pod shop/api-1", "OOMKilled", id="E3", kind=EvidenceKind.LOG),
    Evidence("get_resource", "Node n", '{"status":{}}', cut="the rest", id="E4", kind=EvidenceKind.OBJECT),
    Evidence("query_prometheus", "memory", "1 2 3", id="E5"),
    Evidence("get_events", "Pod x", "error: forbidden", ok=False, id="E6", kind=EvidenceKind.EVENTS),
)
REPORTED = {item.id: reported(item) if decides(item) else None for item in ITEMS}


def checked(text, *ids):
    report = CheckReport()
    (claim,) = check_claims((AnsweredClaim(text, ids),), REPORTED, report)
    assert claim.claim == text
    return claim.support, claim.evidence, len(report.warnings)


@pytest.mark.parametrize(
    ("text", "ids", "support"),
    [
        ("The container was OOMKilled", ("E1",), ClaimSupport.SHOWN),
        ("The container was OOMKilled", ("E2", "E1"), ClaimSupport.SHOWN),
        ("The container was OOMKilled", (), ClaimSupport.UNCITED),
        ("The limit is 16Mi", ("E2",), ClaimSupport.CITED),
        ("The container was OOMKilled", ("E3",), ClaimSupport.CITED),
        ("The container was OOMKilled", ("E4",), ClaimSupport.CITED),
        ("The container was OOMKilled", ("E5",), ClaimSupport.CITED),
        ("The container was OOMKilled", ("E6",), ClaimSupport.CITED),
        ("The container was OOMKilled", ("E2", "E3"), ClaimSupport.CITED),
        ("The container was not OOMKilled", ("E2",), ClaimSupport.CITED),
        ("It wasn't OOMKilled", ("E2",), ClaimSupport.CITED),
        ("The OOMKilledTotal metric grew", ("E2",), ClaimSupport.CITED),
    ],
)
def test_a_step_is_marked_by_what_its_evidence_shows(text, ids, support):
    assert (support, ids, 0) == checked(text, *ids)


def test_a_state_that_the_evidence_does_not_show_is_marked_and_told():
    assert (ClaimSupport.NOT_SHOWN, ("E2",), 1) == checked("The container was OOMKilled", "E2")
    assert (ClaimSupport.NOT_SHOWN, ("E1",), 1) == checked("It was OOMKilled and then Evicted", "E1")


def test_evidence_that_does_not_exist_is_left_out_and_told():
    assert (ClaimSupport.SHOWN, ("E1",), 1) == checked("The container was OOMKilled", "E99", "E1")
    assert (ClaimSupport.UNCITED, (), 1) == checked("The container was OOMKilled", "E99")


def test_an_unsupported_chain_is_a_warning_and_does_not_reject_the_answer():
    given = answer(causal_chain=(AnsweredClaim("It was OOMKilled", ("E99",)),))
    verdict = judge(given, facts(affected=resolved(DEPLOYMENT)))
    assert ["uncited"] == [claim.support for claim in verdict.claims]
    assert any("E99" in warning for warning in verdict.warnings)
