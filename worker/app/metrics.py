"""Prometheus metrics. Labels are kinds, statuses and token types: never ids, names or concrete subjects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from schemas.analysis import AnalysisResult
from worker.app.stream_watch import StreamFill

SECONDS = (0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)


class WorkerMetrics:
    """Everything the worker counts, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.results = Counter(
            "rca_results", "Results published", ["kind", "status", "reason"], registry=self.registry
        )
        self.rejected = Counter(
            "rca_rejected_requests", "Messages rejected", ["code"], registry=self.registry
        )
        self.dead_letters = Counter("rca_dead_letters", "Dead letters", ["reason"], registry=self.registry)
        self.retries = Counter(
            "rca_retries", "Runs handed back for later", ["reason"], registry=self.registry
        )
        self.factors = Counter(
            "rca_approval_factors",
            "Reasons why a human must approve, of results that need approval",
            ["factor"],
            registry=self.registry,
        )
        self.corroborated = Counter(
            "rca_corroborated_results",
            "Results with an answer, by what confirms it",
            ["by"],
            registry=self.registry,
        )
        self.refused_answers = Counter(
            "rca_refused_answers", "Answers of the model that failed a check", registry=self.registry
        )
        self.llm_calls = Counter("rca_llm_calls", "Calls of the model", registry=self.registry)
        self.tool_calls = Counter("rca_tool_calls", "Tool calls of the model", registry=self.registry)
        self.tokens = Counter("rca_llm_tokens", "Tokens", ["type"], registry=self.registry)
        self.cost = Counter("rca_llm_cost_usd", "Money, where the price is known", registry=self.registry)
        self.seconds = Histogram(
            "rca_analysis_seconds",
            "Wall time of one analysis",
            ["kind"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.catalog_problems = Gauge(
            "rca_catalog_problems",
            "1 while a change of the catalog's files is refused and the last good catalog is served",
            registry=self.registry,
        )
        self.policy_problems = Gauge(
            "rca_policy_problems",
            "1 while policy files do not decide (changed ones, those of subdirectories), or the OPA server did not at the last question",
            registry=self.registry,
        )
        self.running = Gauge("rca_running", "Requests in flight", registry=self.registry)
        tasks = Gauge("rca_tasks", "Tasks of the event loop: a leak shows here", registry=self.registry)
        tasks.set_function(_tasks)
        threads = Gauge(
            "rca_threads", "Threads: some wait for work, no more than a few", registry=self.registry
        )
        threads.set_function(threading.active_count)
        ProcessCollector(registry=self.registry)  # memory, CPU, open files, under their usual names

    def published(self, result: AnalysisResult) -> None:
        """Count one published result and what it cost."""
        self.results.labels(result.kind, result.status, result.human_review_reason or "none").inc()
        if result.approval.required:
            for factor in result.approval.factors:
                self.factors.labels(factor.code).inc()
        if result.corroboration is not None:
            self.corroborated.labels(result.corroboration.by).inc()
        self.refused_answers.inc(sum(not attempt.is_valid for attempt in result.validation_attempts))
        usage = result.usage
        self.llm_calls.inc(usage.llm_calls)
        self.tool_calls.inc(usage.tool_calls)
        self.tokens.labels("input").inc(usage.input_tokens)
        self.tokens.labels("cached").inc(usage.cached_tokens)
        self.tokens.labels("output").inc(usage.output_tokens)
        self.cost.inc(usage.cost_usd or 0.0)
        self.seconds.labels(result.kind).observe(usage.wall_seconds)

    def watch_checks(self, checks: Mapping[str, Callable[[], str]]) -> None:
        """Ask at each scrape which checks of readiness complain."""
        self.registry.register(
            _Asked(
                "rca_not_ready",
                "1 while this check of readiness complains",
                "check",
                lambda: {name: float(bool(check())) for name, check in checks.items()},
            )
        )

    def watch_streams(
        self, usage: Callable[[], Mapping[str, StreamFill]], stranded: Callable[[], int]
    ) -> None:
        """Ask at each scrape how full the streams are, and how many requests are delivered no more."""
        self.registry.register(
            _Asked(
                "rca_stream_bytes",
                "Bytes stored in a stream",
                "stream",
                lambda: {name: float(each.stored) for name, each in usage().items()},
            )
        )
        self.registry.register(
            _Asked(
                "rca_stream_limit_bytes",
                "Byte limit of a stream, 0 for none",
                "stream",
                lambda: {name: float(each.limit) for name, each in usage().items()},
            )
        )
        gauge = Gauge(
            "rca_stranded_requests",
            "Requests that are delivered no more and not dead-lettered yet",
            registry=self.registry,
        )
        gauge.set_function(lambda: float(stranded()))

    def watch_lanes(self, waiting: Callable[[], Mapping[str, int]]) -> None:
        """Ask at each scrape how many requests wait in each lane."""
        self.registry.register(
            _Asked(
                "rca_lane_waiting",
                "Requests in the queue that no worker has begun",
                "lane",
                lambda: {name: float(count) for name, count in waiting().items()},
            )
        )

    def watch_clock(self, skew_seconds: Callable[[], float]) -> None:
        """Ask at each scrape how far the clock of this machine is ahead of the NATS server's."""
        gauge = Gauge(
            "rca_clock_skew_seconds",
            "How far the clock of this machine is ahead of that of the NATS server",
            registry=self.registry,
        )
        gauge.set_function(skew_seconds)

    def watch_model(self, silent_seconds: Callable[[], float]) -> None:
        """Ask at each scrape for how long calls of the model have waited while none was answered."""
        gauge = Gauge(
            "rca_llm_silent_seconds",
            "For how long calls of the model have waited while none was answered",
            registry=self.registry,
        )
        gauge.set_function(silent_seconds)

    def watch_catalog(self, refused: Callable[[], bool]) -> None:
        """Ask at each scrape whether the catalog serves something else than its files."""
        self.catalog_problems.set_function(lambda: float(refused()))

    def watch_policy(self, troubled: Callable[[], bool]) -> None:
        """Ask at each scrape whether something is wrong with the approval policy."""
        self.policy_problems.set_function(lambda: float(troubled()))

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
    """Zero where no event loop runs."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
