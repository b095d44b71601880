"""Prometheus metrics. Labels are kinds, statuses and token types: never ids, names or concrete subjects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from schemas.analysis import AnalysisResult, HumanReviewReason, Status
from schemas.failure import DeadLetterReason, ValidationCode
from schemas.taxonomy import RequestKind
from worker.app.stream_watch import StreamFill
from worker.domain.values.conversation import CallUsage
from worker.domain.verdict.approval.factors import FactorCode

SECONDS = (0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)
STAGE_SECONDS = (0.01, 0.05, 0.25, *SECONDS[:-2])
ANSWERED = "answered"
"""The outcome of an answered call of the model; any other outcome is the reason of the failure."""
REDACTED = "[REDACTED:"
REVIEWED = {
    Status.NEEDS_HUMAN_REVIEW: tuple(HumanReviewReason),
    Status.FAILED: (HumanReviewReason.INVESTIGATION_INCONCLUSIVE,),
}
ENDINGS = [(status, reason) for status in Status for reason in REVIEWED.get(status, ("none",))]
"""The status of a result, and its human review reason."""


class WorkerMetrics:
    """All metrics of the worker, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.results = counter("rca_results", "Results published", ["kind", "status", "reason"])
        self.rejected = counter(
            "rca_rejected_requests", "Rejected messages, by the kind that was expected", ["code", "message"]
        )
        self.dead_letters = counter("rca_dead_letters", "Dead letters", ["reason"])
        self.retries = counter("rca_retries", "Runs that were postponed", ["reason"])
        self.factors = counter("rca_approval_factors", "Reasons why results need approval", ["factor"])
        self.corroborated = counter(
            "rca_corroborated_results", "Results with an answer, by what confirms the answer", ["by"]
        )
        self.refused_answers = counter(
            "rca_refused_answers", "Answers of the model that failed a check", ["code"]
        )
        self.llm_calls = counter("rca_llm_calls", "Calls of models", ["model", "outcome"])
        self.tool_calls = counter("rca_tool_calls", "Tool calls of the model", ["tool", "outcome"])
        self.tokens = counter("rca_llm_tokens", "Tokens", ["model", "type"])
        self.cost = counter(
            "rca_llm_cost_usd", "Cost in US dollars, for models with a known price", ["model"]
        )
        self.redactions = counter("rca_redactions", "Secrets masked in the evidence of published results")
        self.seconds = histogram("rca_analysis_seconds", "Wall time of analyses", ["kind"], buckets=SECONDS)
        self.stage_seconds = histogram(
            "rca_stage_seconds", "Duration of one stage of an analysis", ["stage"], buckets=STAGE_SECONDS
        )
        self.catalog_problems = gauge("rca_catalog_problems", "1 while the catalog or a change is unusable")
        self.policy_problems = gauge("rca_policy_problems", "1 while the policy or a file of it is unusable")
        self.clock_skew = gauge("rca_clock_skew_seconds", "The clock of this machine minus the NATS server's")
        self.model_silent = gauge(
            "rca_llm_silent_seconds", "How long model calls have waited since the last answer"
        )
        self.running = gauge("rca_running", "Requests in flight")
        self._begin_at_zero()
        self._ask("rca_tasks", "Tasks of the event loop; steady growth is a leak", _tasks)
        self._ask("rca_threads", "Threads; steady growth is a leak", threading.active_count)
        ProcessCollector(registry=self.registry)  # memory, CPU, open files, under their usual names

    def _begin_at_zero(self) -> None:
        """Expose the counters that alerts use: they see a first increase only if they have seen a zero."""
        for reason in DeadLetterReason:
            self.dead_letters.labels(reason)
        for code in ValidationCode:
            if code.startswith("answer_"):
                self.refused_answers.labels(code)
            else:
                for message in ("request", "outcome"):
                    self.rejected.labels(code, message)
        for kind in RequestKind:
            self.seconds.labels(kind)
            for status, ending in ENDINGS:
                self.results.labels(kind, status, ending)
        self.factors.labels(FactorCode.POLICY_FAILED.code)

    def published(self, result: AnalysisResult) -> None:
        """Count one published result."""
        self.results.labels(result.kind, result.status, result.human_review_reason or "none").inc()
        if result.approval.required:
            for factor in result.approval.factors:
                self.factors.labels(factor.code).inc()
        if result.corroboration is not None:
            self.corroborated.labels(result.corroboration.by).inc()
        self.redactions.inc(sum(item.excerpt.count(REDACTED) for item in result.evidence))
        self.seconds.labels(result.kind).observe(result.usage.wall_seconds)

    def replied(self, model: str, usage: CallUsage, seconds: float) -> None:
        """Count one answer of a model, by its configured name."""
        self.llm_calls.labels(model, ANSWERED).inc()
        self.tokens.labels(model, "input").inc(usage.input_tokens)
        self.tokens.labels(model, "cached").inc(usage.cached_tokens)
        self.tokens.labels(model, "output").inc(usage.output_tokens)
        self.cost.labels(model).inc(usage.cost_usd or 0.0)
        self.stage_seconds.labels("model").observe(seconds)

    def watch_checks(self, checks: Mapping[str, Callable[[], str]]) -> None:
        """Ask at each scrape which checks of readiness fail."""

        def failing() -> Mapping[str, float]:
            return {name: bool(check()) for name, check in checks.items()}

        self._watch("rca_not_ready", "1 while this check of readiness fails", "check", failing)

    def watch_streams(
        self,
        usage: Callable[[], Mapping[str, StreamFill]],
        waiting: Callable[[], Mapping[str, int]],
        stranded: Callable[[], int],
    ) -> None:
        """Report the fill of the streams and the state of the queue at each scrape.

        This includes how many requests wait, and how many are no longer delivered.
        """

        def of_each(field: str) -> Mapping[str, float]:
            return {stream: getattr(fill, field) for stream, fill in usage().items()}

        for name, text, field in (
            ("rca_stream_bytes", "Bytes stored in a stream", "stored"),
            ("rca_stream_limit_bytes", "Byte limit of a stream, 0 for none", "limit"),
            ("rca_stream_messages", "Messages stored in a stream", "messages"),
        ):
            self._watch(name, text, "stream", partial(of_each, field))
        self._watch("rca_lane_waiting", "Requests in the queue that no worker has begun", "lane", waiting)
        text = "Requests that are no longer delivered and have no dead letter yet"
        self._ask("rca_stranded_requests", text, stranded)

    def _ask(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(value)

    def _watch(self, name: str, text: str, label: str, values: Callable[[], Mapping[str, float]]) -> None:
        self.registry.register(_Asked(name, text, label, values))

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


@dataclass(frozen=True)
class _Asked(Collector):
    """A gauge with one label whose values are asked for at each scrape."""

    name: str
    text: str
    label: str
    values: Callable[[], Mapping[str, float]]

    def collect(self) -> Iterator[Metric]:
        gauge = GaugeMetricFamily(self.name, self.text, labels=[self.label])
        for key, value in self.values().items():
            gauge.add_metric([key], value)
        yield gauge


def _tasks() -> int:
    """The number of tasks; zero without an event loop."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
