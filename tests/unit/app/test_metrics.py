from __future__ import annotations

import re
import sys
import threading

import pytest

from schemas.analysis import (
    Approval,
    ApprovalFactor,
    Corroboration,
    CorroborationSource,
    ValidationAttempt,
)
from schemas.usage import Usage
from tests.fakes.messages import review_result
from worker.app.metrics import WorkerMetrics

COSTLY = Usage(
    llm_calls=3,
    tool_calls=5,
    input_tokens=900,
    cached_tokens=600,
    output_tokens=70,
    cost_usd=0.25,
    wall_seconds=12.5,
)


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


def test_a_result_is_counted_with_what_it_cost():
    metrics = WorkerMetrics()
    metrics.published(review_result("rr-1", usage=COSTLY))
    metrics.published(review_result("rr-2", 1, usage=COSTLY))
    reason = "investigation_inconclusive"
    for kind in ("incident", "recovery"):
        assert value(metrics, "rca_results_total", kind=kind, status="needs_human_review", reason=reason) == 1
        assert value(metrics, "rca_analysis_seconds_sum", kind=kind) == 12.5
    assert [6, 10, 0.5] == [
        value(metrics, f"rca_{name}_total") for name in ("llm_calls", "tool_calls", "llm_cost_usd")
    ]
    assert {"input": 1_800, "cached": 1_200, "output": 140} == {
        kind: value(metrics, "rca_llm_tokens_total", type=kind) for kind in ("input", "cached", "output")
    }


def test_a_result_is_counted_by_what_an_approver_has_to_know():
    metrics = WorkerMetrics()
    factors = (ApprovalFactor(code="policy_decision"), ApprovalFactor(code="low_confidence"))
    confirmed = Corroboration(by=CorroborationSource.RULES, reason="it was OOMKilled")
    attempts = [
        ValidationAttempt(attempt=n, is_valid=n == 3, timestamp="2026-06-04T10:00:00Z") for n in (1, 2, 3)
    ]
    fields = {"corroboration": confirmed, "validation_attempts": attempts}
    metrics.published(
        review_result("rr-1", approval=Approval(required=True, reasons=("x",), factors=factors), **fields)
    )
    assert [1, 1] == [
        value(metrics, "rca_approval_factors_total", factor=code)
        for code in ("policy_decision", "low_confidence")
    ]
    assert 1 == value(metrics, "rca_corroborated_results_total", by="rules")
    assert 2 == value(metrics, "rca_refused_answers_total")


def test_an_unknown_price_costs_nothing():
    metrics = WorkerMetrics()
    metrics.published(review_result("rr-1"))
    assert value(metrics, "rca_llm_cost_usd_total") == 0


def test_catalog_and_policy_are_asked_at_each_scrape():
    for name in ("catalog", "policy"):
        metrics, refused = WorkerMetrics(), [True]
        getattr(metrics, f"watch_{name}")(lambda refused=refused: refused[0])
        assert value(metrics, f"rca_{name}_problems") == 1
        refused[0] = False
        assert value(metrics, f"rca_{name}_problems") == 0


def test_each_worker_counts_for_itself():
    one, other = WorkerMetrics(), WorkerMetrics()
    one.llm_calls.inc()
    assert (1, 0) == (value(one, "rca_llm_calls_total"), value(other, "rca_llm_calls_total"))


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
    metrics.published(review_result("rr-1", usage=COSTLY))
    text = metrics.text().decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert {"rca_results_total", "rca_analysis_seconds", "rca_running", "rca_llm_tokens_total"} <= names
    assert all(name.startswith(("rca_", "process_")) for name in names)
    assert set(re.findall(r"^# HELP (\S+)", text, re.MULTILINE)) == names
