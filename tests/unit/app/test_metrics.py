from __future__ import annotations

import re
import sys
import threading
from itertools import product

import pytest

from schemas.analysis import (
    Approval,
    ApprovalFactor,
    Corroboration,
    CorroborationSource,
    HumanReviewReason,
)
from schemas.evidence import EvidenceItem
from schemas.failure import DeadLetterReason
from schemas.usage import Usage
from tests.fakes.messages import review_result
from worker.app.metrics import WorkerMetrics
from worker.domain.values.conversation import CallUsage

COSTLY = CallUsage(900, 600, 70, 0.25)
MODEL = "openai-chat:m"


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


def test_a_result_is_counted_by_its_kind_and_status():
    metrics, usage = WorkerMetrics(), Usage(wall_seconds=12.5)
    metrics.published(review_result("rr-1", usage=usage))
    metrics.published(review_result("rr-2", 1, usage=usage))
    reason = "investigation_inconclusive"
    for kind in ("incident", "recovery"):
        assert value(metrics, "rca_results_total", kind=kind, status="needs_human_review", reason=reason) == 1
        assert value(metrics, "rca_analysis_seconds_sum", kind=kind) == 12.5


def test_alerts_see_the_first_of_what_they_count():
    metrics = WorkerMetrics()
    assert all(value(metrics, "rca_dead_letters_total", reason=reason) == 0 for reason in DeadLetterReason)
    for message in ("request", "outcome"):
        assert value(metrics, "rca_rejected_requests_total", code="schema", message=message) == 0
    assert value(metrics, "rca_rejected_requests_total", code="answer_rca", message="request") is None
    assert value(metrics, "rca_refused_answers_total", code="answer_rca") == 0
    assert value(metrics, "rca_approval_factors_total", factor="policy_failed") == 0
    for kind, reason in product(("incident", "recovery"), HumanReviewReason):
        labels = {"kind": kind, "status": "needs_human_review", "reason": reason}
        assert value(metrics, "rca_results_total", **labels) == 0
        assert value(metrics, "rca_analysis_seconds_count", kind=kind) == 0
    completed = {"kind": "incident", "status": "completed"}
    assert value(metrics, "rca_results_total", **completed, reason="none") == 0
    assert value(metrics, "rca_results_total", **completed, reason="low_confidence") is None


def test_an_answer_of_a_model_is_counted_with_what_it_cost():
    metrics = WorkerMetrics()
    for _ in range(2):
        metrics.replied(MODEL, COSTLY, 1.5)
    assert value(metrics, "rca_llm_calls_total", model=MODEL, outcome="answered") == 2
    assert value(metrics, "rca_llm_cost_usd_total", model=MODEL) == 0.5
    assert value(metrics, "rca_stage_seconds_sum", stage="model") == 3
    assert {"input": 1_800, "cached": 1_200, "output": 140} == {
        kind: value(metrics, "rca_llm_tokens_total", model=MODEL, type=kind)
        for kind in ("input", "cached", "output")
    }


def test_masked_secrets_of_the_evidence_are_counted():
    metrics = WorkerMetrics()
    texts = ["password=[REDACTED:password] token=[REDACTED:token]", "fine", "[REDACTED:pem]"]
    evidence = [
        EvidenceItem(id=f"E{n}", source="x", summary="x", excerpt=text) for n, text in enumerate(texts)
    ]
    metrics.published(review_result("rr-1", evidence=evidence))
    assert value(metrics, "rca_redactions_total") == 3


def test_a_result_is_counted_by_what_an_approver_has_to_know():
    metrics = WorkerMetrics()
    factors = (ApprovalFactor(code="policy_decision"), ApprovalFactor(code="low_confidence"))
    confirmed = Corroboration(by=CorroborationSource.RULES, reason="it was OOMKilled")
    approval = Approval(required=True, reasons=("x",), factors=factors)
    metrics.published(review_result("rr-1", approval=approval, corroboration=confirmed))
    assert [1, 1] == [
        value(metrics, "rca_approval_factors_total", factor=code)
        for code in ("policy_decision", "low_confidence")
    ]
    assert 1 == value(metrics, "rca_corroborated_results_total", by="rules")


def test_an_unknown_price_costs_nothing():
    metrics = WorkerMetrics()
    metrics.replied(MODEL, CallUsage(900, 600, 70), 1.5)
    assert value(metrics, "rca_llm_cost_usd_total", model=MODEL) == 0


def test_catalog_and_policy_are_asked_at_each_scrape():
    for name in ("catalog", "policy"):
        metrics, refused = WorkerMetrics(), [True]
        getattr(metrics, f"{name}_problems").set_function(lambda refused=refused: refused[0])
        assert value(metrics, f"rca_{name}_problems") == 1
        refused[0] = False
        assert value(metrics, f"rca_{name}_problems") == 0


def test_each_worker_counts_for_itself():
    one, other = WorkerMetrics(), WorkerMetrics()
    one.redactions.inc()
    assert (1, 0) == (value(one, "rca_redactions_total"), value(other, "rca_redactions_total"))


@pytest.mark.parametrize("identifier", ["rr-hostile", "inc-1", "memory-model", "shop"])
def test_no_name_of_a_request_becomes_a_label(identifier):
    metrics = WorkerMetrics()
    metrics.published(review_result("rr-hostile", model="memory-model"))
    assert identifier not in metrics.text().decode()


@pytest.mark.skipif(sys.platform != "linux", reason="the client library reads /proc")
def test_what_may_leak_is_shown():
    metrics = WorkerMetrics()
    assert value(metrics, "process_open_fds") > 2
    assert value(metrics, "process_resident_memory_bytes") > 1 << 20
    assert value(metrics, "process_cpu_seconds_total") > 0
    assert value(metrics, "rca_threads") == threading.active_count()
    assert value(metrics, "rca_tasks") == 0  # no loop runs


def test_the_exposition_names_every_metric_with_its_prefix_and_help():
    metrics = WorkerMetrics()
    metrics.published(review_result("rr-1"))
    metrics.replied(MODEL, COSTLY, 1.5)
    text = metrics.text().decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert {"rca_results_total", "rca_analysis_seconds", "rca_running", "rca_llm_tokens_total"} <= names
    assert all(name.startswith(("rca_", "process_")) for name in names)
    assert set(re.findall(r"^# HELP (\S+)", text, re.MULTILINE)) == names
