"""The remediation history as the model sees it: a few lines, the newest last, warnings first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from schemas.outcome import ExecutionOutcome
from worker.domain.cluster.fields import stamp
from worker.domain.cluster.history import RECENT, Known, declining, failed_here, recurrences, regressions
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.remediations import GOOD, MODERATE, PastRemediation, SpecMatch

MAX_LINES = 8  # of each tier
MAX_WARNINGS = 8
WORD = 80  # characters
NONE_KNOWN = "none in the last 90 days"
SPEC = {
    SpecMatch.BEFORE: "the spec is now as it was before it",
    SpecMatch.AFTER: "the spec is still as it left it",
    SpecMatch.NONE: "the spec has changed since",
}


def describe(known: Known, now: datetime) -> dict[str, Any] | str:
    """What is known of the past of a resource; a sentence when there is nothing to list."""
    if known.problem:
        return (
            f"unknown: {one_line(known.problem, 200)}; go on without it, but do not take this for no history"
        )
    found = known.remediations
    if not found:
        return NONE_KNOWN
    recent = [item for item in found if item.at is not None and now - item.at <= RECENT]
    older = found[: len(found) - len(recent)]
    told: dict[str, Any] = {"warnings": warnings(known, recent)}
    for name, items in (("last_90_days", older), ("last_24_hours", recent)):
        told[name] = [_line(item, known.spec_hash, found) for item in items[-MAX_LINES:]]
        if len(items) > MAX_LINES:
            told[name].insert(0, f"{len(items) - MAX_LINES} earlier ones are left out")
    return {name: value for name, value in told.items() if value}


def warnings(known: Known, recent: Sequence[PastRemediation]) -> list[str]:
    """What a person would hold against doing the same again."""
    found, lines = known.remediations, list[str]()
    undone = regressions(known)
    if undone:
        what = ", ".join(dict.fromkeys(f"{_word(i.action)} of {_when(i)}" for i in undone[-3:]))
        lines.append(f"regression: the spec is again what it was before {what}")
    elif known.regression:
        lines.append("regression: the spec is again what it was before an earlier remediation")
    failed = dict.fromkeys(item.action for item in failed_here(known) if item.action)
    lines += [
        f"failed on this very spec: {_word(action)}; choosing it again needs a rationale and a person's approval"
        for action in failed
    ]
    for action, scores in declining(recent).items():
        falling = ", ".join(f"{score:.2f}" for score in scores[-5:])
        lines.append(
            f"declining: {_word(action)} worked less each time ({falling}); it may treat the symptom"
        )
    for again in recurrences(found):
        times = f"{_word(again.action)} completed {again.times} times for {_word(again.signal_type)}"
        lines.append(
            f"repeated failure: {times} and never helped; do not select it again without saying why"
            if again.futile
            else f"recurring: {times} and it came back; it may treat the symptom"
        )
    return lines[:MAX_WARNINGS]


def level(score: float) -> str:
    """The word for an effectiveness score."""
    return "good" if score >= GOOD else "moderate" if score >= MODERATE else "poor"


def summary(item: PastRemediation) -> str:
    """What was done and how it ended, in one line."""
    named = f" ({_word(item.workflow_id)})" if item.workflow_id and item.workflow_id != item.action else ""
    signal = f" for {_word(item.signal_type)}" if item.signal_type else ""
    if not item.action:
        return f"{_when(item)} no workflow chosen{signal}: {_word(item.status or item.outcome) or 'analysed'}"
    return f"{_when(item)} {_word(item.action)}{named}{signal}: {', '.join(_effects(item))}"


def _line(item: PastRemediation, spec_hash: str, found: Sequence[PastRemediation]) -> str:
    parts = [summary(item)]
    if item.drifted:
        after = [i for i in found if i is not item and item.post_hash and i.pre_hash == item.post_hash]
        led = f" and led to the one of {_when(after[0])}" if after else ""
        parts.append(f"inconclusive: the spec was changed while it was assessed{led}")
    match = item.matches(spec_hash) if item.outcome else None
    if match is not None:
        parts.append(SPEC[match])
    if item.side_effects:
        parts.append(f"side effects: {', '.join(_word(effect) for effect in item.side_effects[:3])}")
    return "; ".join(parts)


def _effects(item: PastRemediation) -> list[str]:
    said = [_word(item.outcome) or "chosen, no outcome reported"]
    if item.drifted or item.outcome == ExecutionOutcome.CANCELLED:
        return said
    if item.score is not None:
        said.append(f"effectiveness {item.score:.2f} {level(item.score)}")
    if item.resolved is not None:
        said.append("signal resolved" if item.resolved else "signal not resolved")
    return said


def _when(item: PastRemediation) -> str:
    return stamp(item.at) if item.at else "(no time)"


def _word(value: str) -> str:
    return one_line(value, WORD)
