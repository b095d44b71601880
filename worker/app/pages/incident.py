"""The content of a page about one request: the verdict first, then cause, evidence, remediation and cost.

The timeline says what happened when. What happened in the cluster is read from evidence. The lines of events,
revisions and restarts are written by worker/domain/cluster/rendering. Other lines are left out, and so are
logs and external tools, which may say anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent, LLMResponse, LLMToolCall, ResponseFailed, ValidationAttempted
from schemas.evidence import EvidenceItem
from worker.app import verdict_line
from worker.app.event_line import step_of
from worker.app.telling import FORM_OF, Telling, telling

ROWS_KEPT = 400
BEFORE = timedelta(hours=24)
"""Rows that are older than the last one by more than this are left out."""
DRAWN = timedelta(hours=2)
"""How long before the last row the scale begins. Bars of earlier rows begin at the left edge."""
SOURCES = {source for source, form in FORM_OF.items() if form != "log"}
TIME = r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
EVENT = re.compile(rf"^({TIME}) (Normal|Warning) ([^\n]+)$", re.MULTILINE)
SINCE = re.compile(r" \(since (2\d{3}-\d\d-\d\dT)?(\d\d:\d\d:\d\dZ)\)")
"""Without a date, the time is on the day of the event (`Happening.line`)."""
REVISION = re.compile(rf"(revision \d+) \(created ({TIME})(?:, (\w+ [^\s,)]+)(?=[,)]))?")
CONTAINER = re.compile(r"(?<![\w.-])([\w.-]+): ")
ENDED = re.compile(rf"([^|,]+?) at ({TIME})")


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """Everything a template needs. Texts are as hostile as their sources: templates escape them."""

    key: str
    result: AnalysisResult
    cited: Sequence[EvidenceItem]
    """Evidence that the causal chain cites; `uncited` is what else the model saw."""
    uncited: Sequence[EvidenceItem]
    telling: Sequence[Telling]
    """The lines of the evidence that matter."""
    confirming: Sequence[EvidenceItem]
    """The evidence by which rules confirm the answer."""
    cluster: Sequence[Moment]
    """The signal, and the events in the cluster as far as the evidence shows them; empty without any event."""
    timeline: Sequence[Moment]
    """The steps of the investigation."""


def incident_page(key: str, result: AnalysisResult, events: Sequence[AuditEvent] = ()) -> IncidentPage:
    """The page of a result. `events` are its audit events, oldest first; without them it has no timeline."""
    cited = _cited(result)
    confirming = set(result.corroboration.evidence) if result.corroboration else set()
    return IncidentPage(
        key=key,
        result=result,
        cited=[item for item in result.evidence if item.id in cited],
        uncited=[item for item in result.evidence if item.id not in cited | confirming],
        telling=telling(result),
        confirming=[item for item in result.evidence if item.id in confirming - cited],
        cluster=_with_signal(in_the_cluster(result.evidence), result),
        timeline=in_the_investigation(events),
    )


def _cited(result: AnalysisResult) -> set[str]:
    cause = result.root_cause_analysis
    return {id_ for claim in (cause.causal_claims if cause else ()) for id_ in claim.evidence}


@dataclass(frozen=True, slots=True)
class Moment:
    """A row. It is drawn as a bar from `at` to `until`, which are equal if it takes no time."""

    at: datetime
    until: datetime
    text: str
    tone: str = ""
    """`good`, `warn`, `bad` or `calm`; empty for what needs no attention."""
    note: str = ""
    """For a call of the model: its tokens and cost."""
    said: str = ""
    """For a call of the model: how its text begins."""
    nested: bool = False


def in_the_cluster(evidence: Iterable[EvidenceItem]) -> list[Moment]:
    """Events, revisions and restarts that the evidence reports, in the order of time."""
    found = {row for item in evidence if item.source in SOURCES for row in _reported(item)}
    last = max((row.until for row in found), default=datetime.min.replace(tzinfo=UTC))
    recent = [row for row in found if row.until + BEFORE >= last]
    return sorted(recent, key=lambda row: (row.at, row.text))[-ROWS_KEPT:]


def _with_signal(rows: list[Moment], result: AnalysisResult) -> list[Moment]:
    """Add when the sender got the signal, unless this is far from what happened in the cluster."""
    told = result.signal
    if told is None or not rows or abs(told.received_time - max(row.until for row in rows)) > BEFORE:
        return rows
    at, text = told.received_time, f"alert {told.signal_type}, {verdict_line.reported(result)}"
    return sorted([*rows, Moment(at, at, text, "bad")], key=lambda row: row.at)


def axis(moments: Sequence[Moment]) -> tuple[datetime, float]:
    """The beginning of the timeline of these rows, and its length in seconds."""
    last = max(row.until for row in moments)
    first = min(
        row.at if last - row.at <= DRAWN else row.until for row in moments if last - row.until <= DRAWN
    )
    return first, (last - first).total_seconds() or 1.0


def _reported(item: EvidenceItem) -> Iterator[Moment]:
    for at, kind, what in EVENT.findall(item.excerpt):
        since = SINCE.search(what)
        tone = "warn" if kind == "Warning" else ""
        began = min((since[1] or at[:11]) + since[2], at) if since else at
        yield from _row(began, at, SINCE.sub("", what), tone)
    for name, at, made in REVISION.findall(item.excerpt) if item.source != "list_resources" else ():
        yield from _row(at, at, f"{name} ({made})" if made else name, "calm")
    for line in item.excerpt.splitlines():
        before, _, after = line.partition("last ended ")
        pod, _, cells = before.partition(" |")
        container, ended = CONTAINER.search(cells), ENDED.match(after)
        if container and ended and " " not in pod:
            yield from _row(ended[2], ended[2], f"container {container[1]} of {pod} ended: {ended[1]}", "bad")


def _row(at: str, until: str, text: str, tone: str) -> Iterator[Moment]:
    with suppress(ValueError):  # a date that does not exist
        yield Moment(datetime.fromisoformat(at), datetime.fromisoformat(until), text, tone)


def in_the_investigation(events: Sequence[AuditEvent]) -> list[Moment]:
    """The steps of the analysis, with tokens and cost of each call of the model."""
    told = [(event, step_of(event)) for event in events]
    return [_step(event, step) for event, step in told if step][:ROWS_KEPT]


def _step(event: AuditEvent, step: str) -> Moment:
    seconds, tone, note, said = 0.0, "", "", ""
    match event.payload:
        case LLMResponse(usage=usage, duration_seconds=seconds, response_preview=said):
            cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
            tone, note = "calm", f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"
        case LLMToolCall(duration_seconds=seconds, succeeded=succeeded):
            tone = "" if succeeded else "warn"
        case ValidationAttempted(is_valid=valid):
            tone = "good" if valid else "bad"
        case ResponseFailed():
            tone = "bad"
    at = event.time
    with suppress(OverflowError):  # a forged event may say that it took longer than there are dates
        at -= timedelta(seconds=seconds)
    return Moment(at, event.time, step.strip(), tone, note, said, nested=step.startswith(" "))
