"""Approval factors: a closed list of codes, each documented and each with a sentence for an approver."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemas.analysis import ApprovalFactor, HumanReviewReason
from worker.domain.verdict.approval.factors import (
    DETAIL_CHARS,
    REVIEW_STEPS,
    FactorCode,
    Proof,
    factor,
    sentence,
    sentences,
    unsettled,
)

POLICY_PAGE = Path(__file__).parents[5] / "docs" / "policy.md"


def test_the_documentation_lists_exactly_the_codes():
    section = POLICY_PAGE.read_text(encoding="utf-8").split("## Approval factors")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `([a-z_]+)` \|", section, re.MULTILINE)
    assert [code.code for code in FactorCode] == listed


@pytest.mark.parametrize("code", FactorCode)
def test_every_factor_is_a_sentence_with_its_detail(code):
    said = sentence(factor(code, "Pod shop/api-0"))
    assert ("Pod shop/api-0" in said) is ("{detail}" in code.value)
    assert "{" not in said


def test_a_detail_is_one_short_line_without_secrets():
    made = factor(FactorCode.OWNERS_UNVERIFIED, "a\nb password=hunter2-hunter2 " + "x" * 999)
    assert made.detail.startswith("a b ")
    assert "hunter2" not in made.detail
    assert DETAIL_CHARS == len(made.detail)


def test_a_detail_with_braces_stays_as_it_is():
    assert "{detail}" in sentence(factor(FactorCode.POLICY_DECISION, "{detail}"))


def test_the_same_factor_is_said_once():
    one = factor(FactorCode.SEVERITY_UNKNOWN)
    assert (sentence(one),) == sentences([one, ApprovalFactor(code="severity_unknown")])


@pytest.mark.parametrize("code", FactorCode)
@pytest.mark.parametrize("proof", Proof)
def test_a_factor_is_settled_by_its_own_proof_and_by_no_other(code, proof):
    settles = {
        FactorCode.SIGNAL_TYPE_NOT_REPORTED: Proof.REPORTS_SIGNAL_TYPE,
        FactorCode.WORKFLOW_FOR_OTHER_SIGNAL: Proof.FITS_WORKFLOW,
    }
    found = factor(code, "Pod shop/api-0")
    kept = () if settles.get(code) is proof else (found,)
    assert unsettled([found], {proof}) == kept
    assert unsettled([found], set()) == (found,)


@pytest.mark.parametrize("reason", HumanReviewReason)
def test_a_review_says_what_to_do_and_no_code(reason):
    said = sentence(factor(FactorCode.HUMAN_REVIEW, reason))
    assert reason not in said
    assert (REVIEW_STEPS.get(reason) or FactorCode.HUMAN_REVIEW.value) == said
