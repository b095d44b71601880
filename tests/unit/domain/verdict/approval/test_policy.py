from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.analysis import Approval, RiskFactor
from schemas.enrichment import DetectedLabels
from schemas.safety import SafetyContext
from schemas.taxonomy import Severity
from tests.fakes.scripted import incident
from tests.fakes.verdicts import answer
from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.approval.factors import FactorCode, factor, sentence
from worker.domain.verdict.approval.policy import (
    PolicyFacts,
    merge_approval,
    observed,
    policy_facts,
    policy_input,
)
from worker.domain.verdict.approval.policy_answer import fail_closed
from worker.domain.verdict.verdict import Accepted

FACTS = PolicyFacts(
    affected=ObjectRef("Deployment", "api", "shop", "apps/v1"),
    target=ObjectRef("Pod", "api-0", "shop", "v1"),
    acted_on=ObjectRef("Node", "worker-1", "", "v1"),
    environment="staging",
    priority="P1",
    severity="high",
    signal_type="OOMKilled",
    action_type="RestartDeployment",
    confidence=0.93,
    confidence_threshold=0.8,
    detected_labels=DetectedLabels(),
    custom_labels={"team": ("payments",)},
)


def test_the_input_has_the_fields_of_the_contract():
    resource = {"kind": "Deployment", "name": "api", "namespace": "shop", "api_version": "apps/v1"}
    made = policy_input(
        replace(
            FACTS, estimated_downtime_seconds=5, estimated_risk="low", declared_risk="low", recovery_attempt=2
        )
    )
    assert resource == made["affected_resource"]
    assert made["remediation_target"] == {
        "kind": "Node",
        "name": "worker-1",
        "namespace": "",
        "api_version": "v1",
    }
    assert made["target_resource"] == {
        "kind": "Pod",
        "name": "api-0",
        "namespace": "shop",
        "api_version": "v1",
    }
    assert (made["priority"], made["business_priority"]) == ("P1", "P1")
    assert (made["confidence"], made["confidence_threshold"]) == (0.93, 0.8)
    assert made["action_type"] == "RestartDeployment"
    assert made["estimated_downtime_seconds"] == 5
    assert made["action"] == {
        "action": "restart_deployment",
        "risk_level": "low",
        "estimated_downtime_seconds": 5,
    }
    assert (made["is_recovery_attempt"], made["recovery_attempt_number"]) == (True, 2)
    assert made["custom_labels"] == {"team": ["payments"]}
    assert (made["injection_detected"], made["unverified"]) == (False, False)


@pytest.mark.parametrize(
    ("sent", "handed_over"),
    [
        ("unknown", "production"),
        ("", "production"),
        (" Unknown ", "production"),
        ("Staging", "staging"),
        ("production", "production"),
        ("eu-1", "eu-1"),
    ],
)
def test_an_unknown_environment_counts_as_production(sent, handed_over):
    assert handed_over == policy_input(replace(FACTS, environment=sent))["environment"]


def test_labels_come_in_both_spellings_and_unknown_ones_not_at_all():
    labels = DetectedLabels(gitops_managed=True, failed_detections=("pdbProtected",))
    made = policy_input(replace(FACTS, detected_labels=labels))
    assert True is made["detected_labels"]["gitOpsManaged"]
    assert True is made["detected_labels"]["gitops_managed"]
    assert False is made["detected_labels"]["stateful"]
    assert not {"pdbProtected", "pdb_protected"} & set(made["detected_labels"])
    assert made["failed_detections"] == ["pdbProtected"]


def test_what_nobody_knows_is_left_out_or_the_worst():
    """In Rego null is smaller than any number: `estimated_downtime_seconds <= 60` would be true."""
    made = policy_input(replace(FACTS, confidence=None))
    assert "estimated_downtime_seconds" not in made
    assert "estimated_downtime_seconds" not in made["action"]
    assert made["confidence"] == 0.0
    assert (made["is_recovery_attempt"], made["recovery_attempt_number"]) == (False, 0)


SECRET = "AKIAIOSFODNN7EXAMPLE"


def test_no_secret_is_handed_to_a_policy():
    """The policy may be evaluated by a server."""
    told = [f"the log says {SECRET}", "password=hunter2-hunter2"]
    made = policy_input(
        replace(
            FACTS,
            warnings=told,
            approval_factors=[factor(FactorCode.RESOURCE_UNVERIFIED, text) for text in told],
            custom_labels={f"key {SECRET}": told},
            estimated_risk=SECRET,
            affected=ObjectRef("Pod", SECRET, "shop"),
        )
    )
    assert "the log says [REDACTED:aws]" in made["warnings"]
    assert not [word for word in (SECRET, "hunter2") if word in json.dumps(made)]


def test_names_survive():
    made = policy_input(FACTS)
    assert ("api-0", "payments") == (made["target_resource"]["name"], made["custom_labels"]["team"][0])


def test_what_a_policy_is_handed_is_bounded_and_it_is_told_what_is_cut():
    many = ["x" * 600] * 101
    labels = {f"k{n}": many if n == 0 else () for n in range(101)}
    made = policy_input(replace(FACTS, warnings=many, custom_labels=labels))
    assert 100 == len(made["warnings"]) == len(made["custom_labels"]) == len(made["custom_labels"]["k0"])
    assert 500 == len(made["warnings"][0])
    assert [{"code": "policy_input_cut", "detail": ""}] == made["approval_factors"]
    assert 1 == len(made["risk_factors"])


@given(st.text(max_size=40), st.lists(st.text(max_size=20), max_size=3))
def test_every_input_is_one_line_json(name, texts):
    made = policy_input(replace(FACTS, action_type=name, warnings=texts, estimated_risk=name))
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert not any("\n" in text for text in (*made["warnings"], made["action_type"]))


ABSENT = factor(FactorCode.RESOURCE_ABSENT, "Pod shop/api-0")


def test_approval_factors_are_handed_over_as_codes_and_as_sentences():
    made = policy_input(replace(FACTS, approval_factors=(ABSENT,)))
    assert [{"code": "resource_absent", "detail": "Pod shop/api-0"}] == made["approval_factors"]
    assert [sentence(ABSENT)] == made["risk_factors"]


def test_a_factor_requires_approval_and_stands_among_the_reasons():
    free = Approval(required=False, risk_factors=(RiskFactor(score=20, reason="production"),))
    assert Approval(
        required=True, reasons=(sentence(ABSENT),), factors=(ABSENT,), risk_factors=free.risk_factors
    ) == merge_approval(free, [ABSENT, ABSENT])


def test_a_reason_of_the_policy_is_a_factor_too():
    merged = merge_approval(Approval(required=True, reasons=("it is a Node", sentence(ABSENT))), [ABSENT])
    assert (factor(FactorCode.POLICY_DECISION, "it is a Node"), ABSENT) == merged.factors
    assert ("it is a Node", sentence(ABSENT)) == merged.reasons


def test_a_policy_that_failed_keeps_its_factor():
    failed = fail_closed("no answer")
    assert failed == merge_approval(failed, [])


def test_without_factors_the_decision_of_the_policy_stands():
    for policy in (Approval(required=False), Approval(required=True, reasons=("Node",))):
        merged = merge_approval(policy, [])
        assert (policy.required, policy.reasons) == (merged.required, merged.reasons)


@given(st.booleans(), st.lists(st.text(max_size=5), max_size=4), st.lists(st.sampled_from(FactorCode)))
def test_approval_only_becomes_stricter(required, reasons, codes):
    policy = Approval(required=required, reasons=tuple(reasons))
    factors = [factor(code, "x") for code in codes]
    merged = merge_approval(policy, factors)
    assert merged.required >= policy.required
    assert merged.required == (required or bool(factors))
    assert set(reasons) | set(map(sentence, factors)) == set(merged.reasons)
    assert set(factors) <= set(merged.factors)


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
    accepted = Accepted(answer(), Severity.HIGH, "", FACTS.affected, FACTS.affected)
    request = incident(environment=environment, safety_context=SafetyContext(environment=other))
    facts = policy_facts(
        request,
        accepted,
        labels=None,
        confidence_threshold=0.8,
        injection=False,
        corroboration=None,
        origins={},
    )
    assert expected == facts.environment


PASSED = Approval(required=False, risk_factors=(RiskFactor(score=10, reason="staging"),))
REQUIRED = Approval(
    required=True, reasons=("no.",), factors=(ABSENT,), risk_factors=(RiskFactor(score=90, reason="no."),)
)


@pytest.mark.parametrize("decided", [PASSED, REQUIRED])
def test_observe_mode_requires_approval_and_keeps_the_decision(decided):
    made = observed(decided)
    mode = factor(FactorCode.OBSERVE_MODE)
    assert (True, decided.required) == (made.required, made.would_require)
    assert ((sentence(mode), *decided.reasons), decided.reasons) == (made.reasons, made.would_reasons)
    assert (mode, *decided.factors) == made.factors
    assert decided.risk_factors == made.risk_factors


def test_a_decision_that_is_enforced_says_nothing_of_observe_mode():
    assert (None, ()) == (PASSED.would_require, PASSED.would_reasons)


@pytest.mark.parametrize(
    ("declared", "estimated", "level"),
    [
        ("low", "low", "low"),
        ("low", "high", "high"),
        ("medium", "low", "medium"),
        ("high", "", "high"),
        ("low", "", "low"),
        ("", "low", ""),
        ("", "medium", "medium"),
        ("", "", ""),
    ],
)
def test_the_word_of_the_model_never_lowers_the_risk(declared, estimated, level):
    asked = policy_input(replace(FACTS, declared_risk=declared, estimated_risk=estimated))
    assert (asked["action"]["risk_level"], asked["declared_risk"], asked["estimated_risk"]) == (
        level,
        declared,
        estimated,
    )
