"""Every alert fires when it should and is silent when nothing is wrong, by promtool of Prometheus.

What Prometheus stores is taken from the metrics of workers, so a series begins when a worker first exposes it: the
first count of a counter that has no label values in advance is no increase.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

import schemas
from schemas.analysis import AnalysisResult, Approval, ApprovalFactor, HumanReviewReason
from schemas.failure import DeadLetterReason, ValidationCode
from schemas.usage import Usage
from tests.contract.test_monitoring import ALERTS, GROUPS
from tests.fakes.messages import review_result
from worker.app.metrics import WorkerMetrics
from worker.app.stream_watch import StreamFill
from worker.domain.values.conversation import CallUsage
from worker.domain.values.errors import RetryReason

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")

SAMPLES = Path(schemas.__file__).parent / "v1" / "samples"
SCRAPE_SECONDS = 30
PER_MINUTE = 60 // SCRAPE_SECONDS
ABSENT = "_"
NAME = re.compile(r"rca_\w+?(?=_total|_count|_bucket|\b)")
ASKED_FOR = {name for rule in ALERTS.values() for name in NAME.findall(rule["expr"])}
COMPLETED = AnalysisResult.model_validate_json((SAMPLES / "analysis-result-completed.json").read_text())


class ScrapedWorker:
    """A worker, and what a fault may change besides its counters."""

    def __init__(self, waiting: Mapping[str, int]) -> None:
        self.metrics = WorkerMetrics()
        self.troubles = dict.fromkeys(("nats", "streams", "kubernetes", "model", "files"), "")
        self.stored, self.stranded = 10, 0
        self.metrics.watch_checks({name: lambda name=name: self.troubles[name] for name in self.troubles})
        self.metrics.watch_streams(
            lambda: {"RCA_RESULTS": StreamFill(self.stored, 100), "RCA_DLQ": StreamFill(5, 0)},
            lambda: waiting,
            lambda: self.stranded,
        )

    def completes(self, seconds: float = 20.0, approval: Approval | None = None) -> None:
        changed = {"usage": Usage(wall_seconds=seconds), "approval": approval or COMPLETED.approval}
        self.metrics.published(COMPLETED.model_copy(update=changed))

    def escalates(self, reason: HumanReviewReason) -> None:
        self.metrics.published(review_result("rr-1", human_review_reason=reason))

    def pays(self, dollars: float) -> None:
        self.metrics.replied("m", CallUsage(900, 600, 70, dollars), 1.5)


@dataclass
class History:
    """What Prometheus has scraped from a few workers. A minute passes by `minutes`."""

    waiting: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("p0", "p1", "p2", "p3"), 0))
    workers: list[ScrapedWorker] = field(default_factory=list)
    scrapes: int = 0
    started: int = 0
    series: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.restart()

    @property
    def one(self) -> ScrapedWorker:
        return self.workers[0]

    def minutes(self, count: float, each: Callable[[int], None] = lambda _: None) -> None:
        """Let time pass. `each` is called every minute, before its scrapes."""
        for number in range(round(count * PER_MINUTE)):
            if number % PER_MINUTE == 0:
                each(number // PER_MINUTE)
            self._scrape()

    def restart(self) -> None:
        """All workers are replaced, as by a rollout: their series end and others begin."""
        self.started += 2
        self.workers = [ScrapedWorker(self.waiting) for _ in range(2)]

    def _scrape(self) -> None:
        for number, worker in enumerate(self.workers, self.started):
            for family in worker.metrics.registry.collect():
                for sample in family.samples if family.name in ASKED_FOR else ():
                    labels = ",".join(f'{k}="{v}"' for k, v in {**sample.labels, "instance": number}.items())
                    values = self.series[f"{sample.name}{{{labels}}}"]
                    values += [ABSENT] * (self.scrapes - len(values)) + [repr(float(sample.value))]
        self.scrapes += 1

    def input_series(self) -> list[dict[str, str]]:
        return [
            {"series": name, "values": " ".join(v + [ABSENT] * (self.scrapes - len(v)))}
            for name, v in self.series.items()
        ]


# --- What happens ---------------------------------------------------------------------------------------------------


def no_worker(h: History) -> None:
    h.minutes(5)
    h.workers.clear()
    h.minutes(12)


def not_ready(h: History) -> None:
    h.minutes(5)
    h.one.troubles["model"] = "overloaded"
    h.minutes(3)


def urgent_waits(h: History) -> None:
    h.waiting["p1"] = 1
    h.minutes(12, lambda _: h.one.completes())


def queue_grows(h: History) -> None:
    h.waiting["p3"] = 101
    h.minutes(17, lambda _: h.one.completes())


def stalled(h: History) -> None:
    h.minutes(20, lambda _: h.one.completes())
    h.one.metrics.running.set(1)
    h.minutes(31)


def dead_letter(h: History) -> None:
    h.minutes(5)
    h.one.metrics.dead_letters.labels(DeadLetterReason.PROCESS_DEATHS).inc()
    h.minutes(1)


def stranded(h: History) -> None:
    h.one.stranded = 1
    h.minutes(3)


def filling(h: History) -> None:
    h.one.stored = 71
    h.minutes(11)


def nearly_full(h: History) -> None:
    h.one.stored = 91
    h.minutes(3)


def reviews_of_many_kinds_after_a_rollout(h: History) -> None:
    """The first results of new workers, each escalated for another reason."""
    h.minutes(60)
    h.restart()
    h.minutes(1)
    for number, reason in enumerate(list(HumanReviewReason)[:6]):
        h.workers[number % 2].escalates(reason)
    h.minutes(32)


def answers_refused(h: History) -> None:
    def work(_: int) -> None:
        for _ in range(2):
            h.one.metrics.refused_answers.labels(ValidationCode.ANSWER_RCA).inc()
        h.one.completes()

    h.minutes(65, work)


def retries(h: History) -> None:
    h.minutes(30, lambda _: h.one.metrics.retries.labels(RetryReason.BROKER_UNAVAILABLE).inc(8))


def rejected(h: History) -> None:
    h.minutes(5)
    h.one.metrics.rejected.labels(ValidationCode.SCHEMA, "request").inc()
    h.minutes(1)


def policy_files(h: History) -> None:
    h.one.metrics.policy_problems.set(1)
    h.minutes(2)


def catalog(h: History) -> None:
    h.one.metrics.catalog_problems.set(1)
    h.minutes(2)


def policy_undecided(h: History) -> None:
    """The first result that the policy could not decide about."""
    h.minutes(5)
    undecided = ApprovalFactor(code="policy_failed", detail="it took longer than 50 ms")
    h.one.completes(approval=Approval(required=True, reasons=("x",), factors=(undecided,)))
    h.minutes(1)


def clock(h: History) -> None:
    h.one.metrics.clock_skew.set(-6)
    h.minutes(6)


def slow(h: History) -> None:
    h.minutes(65, lambda _: h.one.completes(seconds=200.0))


def costly(h: History) -> None:
    h.minutes(62, lambda _: h.one.pays(0.4))


FIRES = {
    no_worker: {"RcaNoWorker"},
    not_ready: {"RcaNotReady"},
    urgent_waits: {"RcaQueueWaits"},
    queue_grows: {"RcaQueueGrows"},
    stalled: {"RcaStalled"},
    dead_letter: {"RcaDeadLetters"},
    stranded: {"RcaStranded"},
    filling: {"RcaStreamFilling"},
    nearly_full: {"RcaStreamNearlyFull"},
    reviews_of_many_kinds_after_a_rollout: {"RcaMostResultsNeedReview"},
    answers_refused: {"RcaAnswersRefused"},
    retries: {"RcaRetries"},
    rejected: {"RcaRejectedRequests"},
    policy_files: {"RcaPolicyOrCatalog"},
    catalog: {"RcaPolicyOrCatalog"},
    policy_undecided: {"RcaPolicyUndecided"},
    clock: {"RcaClockSkew"},
    slow: {"RcaSlow"},
    costly: {"RcaCost"},
}


# --- What must not alarm --------------------------------------------------------------------------------------------


def quiet(h: History) -> None:
    """Nothing to do, for hours."""
    h.minutes(180)


def busy(h: History) -> None:
    """A request every few minutes, one in five escalated, an answer now and then refused, a rollout in between."""

    def work(minute: int) -> None:
        worker = h.workers[minute % 2]
        worker.metrics.running.set(minute % 2)
        h.waiting["p0"] = minute % 2
        if minute % 4 == 0:
            worker.pays(0.1)
            worker.completes() if minute % 20 else worker.escalates(HumanReviewReason.LOW_CONFIDENCE)
        if minute % 16 == 0:
            worker.metrics.refused_answers.labels(ValidationCode.ANSWER_RCA).inc()

    h.minutes(90, work)
    h.restart()
    h.minutes(90, work)


def slow_first_results(h: History) -> None:
    """New workers with much to do, each of whose analyses takes long: the first result is one, too."""
    h.minutes(5)
    h.restart()
    h.waiting["p3"] = 50
    for worker in h.workers:
        worker.metrics.running.set(1)
    h.minutes(12)
    h.one.completes(seconds=150.0)
    h.minutes(14)
    h.one.completes(seconds=150.0)
    h.minutes(10)


def one_bad_request(h: History) -> None:
    """One request whose three answers were refused, and nothing else."""
    h.minutes(30)
    h.one.metrics.refused_answers.labels(ValidationCode.ANSWER_RCA).inc(3)
    h.one.escalates(HumanReviewReason.RCA_INCOMPLETE)
    h.minutes(90)


def short_trouble(h: History) -> None:
    """A restart of NATS, a file of the policy that is being written, a disturbed clock."""
    h.minutes(10)
    h.one.troubles["nats"], h.one.stranded = "reconnecting", 1
    h.one.metrics.policy_problems.set(1)
    h.one.metrics.clock_skew.set(7)
    h.minutes(0.75)
    h.one.troubles["nats"], h.one.stranded = "", 0
    h.one.metrics.policy_problems.set(0)
    h.one.metrics.clock_skew.set(0)
    h.minutes(20)


SILENT = (quiet, busy, slow_first_results, one_bad_request, short_trouble)


# --- promtool -------------------------------------------------------------------------------------------------------


def ask(tmp_path, history: History, minutes: dict[int, set[str]]) -> subprocess.CompletedProcess[str]:
    """Let promtool compare the alerts that fire at some minutes."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": GROUPS}))
    asked = [
        {
            "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names],
        }
        for minute, names in minutes.items()
    ]
    test = {
        "interval": f"{SCRAPE_SECONDS}s",
        "input_series": history.input_series(),
        "promql_expr_test": asked,
    }
    plan = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{SCRAPE_SECONDS}s", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(plan))
    command = ["promtool", "test", "rules", "test.yaml"]
    return subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)


def last_minute(history: History) -> int:
    return (history.scrapes - 1) // PER_MINUTE


@pytest.mark.process
@needs_promtool
@pytest.mark.parametrize("happens", FIRES, ids=lambda happens: happens.__name__)
def test_an_alert_fires_alone_when_it_should(tmp_path, happens):
    history = History()
    happens(history)
    asked = ask(tmp_path, history, {last_minute(history): FIRES[happens]})
    assert 0 == asked.returncode, asked.stderr


@pytest.mark.process
@needs_promtool
@pytest.mark.parametrize("happens", SILENT, ids=lambda happens: happens.__name__)
def test_no_alert_fires_while_nothing_is_wrong(tmp_path, happens):
    history = History()
    happens(history)
    asked = ask(tmp_path, history, {minute: set() for minute in range(last_minute(history) + 1)})
    assert 0 == asked.returncode, asked.stderr


def test_every_alert_is_tried():
    assert set(ALERTS) == set().union(*FIRES.values())
