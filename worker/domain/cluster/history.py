"""The history of a resource: past remediations and their effects (ADR-055, DD-HAPI-016).

The history of the top owner of the resource is looked up together with the hash of its present spec, and
shown to the model in a few lines. The hash serves the look-up only and is never shown.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.analysis import AnalysisResult
from schemas.outcome import ExecutionOutcome
from worker.domain.cluster.fields import stamp
from worker.domain.cluster.owners import OwnerChain
from worker.domain.cluster.spec_hash import canonical_hash, config_map_names, parameters_digest
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import HistoryUnavailable, or_none
from worker.domain.values.objects import Manifest, ObjectRef
from worker.domain.values.ports import Cluster, History
from worker.domain.values.remediations import GOOD, MODERATE, PastRemediation, SpecMatch

RECENT, WINDOW = timedelta(hours=24), timedelta(days=90)
MAX_CONFIG_MAPS = 100
EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class KnownHistory:
    """Remediations of the last 90 days, oldest first; one without a time counts as old.

    `problem` says why the history is unknown; it is empty if the store has answered.
    """

    spec_hash: str = ""
    remediations: tuple[PastRemediation, ...] = ()
    regression: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Lookback:
    """Looks up the history for one request, which was received at `now`."""

    history: History
    cluster: Cluster
    now: datetime

    async def look_up(self, chain: OwnerChain) -> KnownHistory:
        """Read the history of the top owner and hash its spec, at the same time.

        Never raises for the outside world.
        """
        hashing = asyncio.ensure_future(spec_hash_of(self.cluster, chain))
        try:
            past = await self.history.past(chain.root, hashing)
            return KnownHistory(await hashing, in_order(past.remediations, self.now), past.regression)
        except HistoryUnavailable as error:
            return KnownHistory(await hashing, problem=str(error))
        finally:
            hashing.cancel()


def in_order(remediations: Iterable[PastRemediation], now: datetime) -> tuple[PastRemediation, ...]:
    """The remediations of the last 90 days, oldest first."""
    kept = (item for item in remediations if item.at is None or now - item.at <= WINDOW)
    return tuple(sorted(kept, key=lambda item: (item.at or EARLIEST, item.id)))


async def spec_hash_of(cluster: Cluster, chain: OwnerChain) -> str:
    """The canonical hash of the top owner with the ConfigMaps its pods use; empty when it could not be read."""
    root = chain.root_manifest
    if root is None:
        return ""
    names = config_map_names(root)
    if len(names) > MAX_CONFIG_MAPS:
        return ""
    config_maps = await concurrently([_config_map(cluster, name, chain.root.namespace) for name in names])
    return canonical_hash(root, dict(zip(names, config_maps, strict=True)))


async def _config_map(cluster: Cluster, name: str, namespace: str) -> Manifest | None:
    """The ConfigMap.

    After any failure it counts as absent, as for executors: names that come and go must not look like
    changes.
    """
    return await or_none(cluster.get(ObjectRef("ConfigMap", name, namespace)))


def record_of(result: AnalysisResult, spec_hash: str) -> PastRemediation:
    """The part of a result that the history keeps.

    Parameters are compared by their digest: values may be confidential.
    """
    chosen, cause = result.selected_workflow, result.root_cause_analysis
    return PastRemediation(
        id=result.request_key,
        at=result.completed_at,
        workflow_id=chosen.workflow_id if chosen else "",
        action_type=chosen.action_type if chosen else "",
        signal_type=cause.signal_type if cause else "",
        parameters_digest=parameters_digest(chosen.parameters) if chosen else "",
        status=result.status,
        pre_hash=spec_hash,
    )


def failed_here(known: KnownHistory) -> tuple[PastRemediation, ...]:
    """Executions that did not help, although the spec was the present one, oldest first."""
    on_this = {SpecMatch.BEFORE, SpecMatch.AFTER}
    return tuple(
        item for item in known.remediations if item.unsuccessful and item.matches(known.spec_hash) in on_this
    )


def same_as_before(
    workflow_id: str, action_type: str, failed: Sequence[PastRemediation]
) -> tuple[PastRemediation, ...]:
    """The executions of this workflow, or of another workflow with the same action."""
    return tuple(
        item
        for item in failed
        if _same(item.workflow_id, workflow_id) or _same(item.action_type, action_type)
    )


def regressions(known: KnownHistory) -> list[PastRemediation]:
    """Executed remediations whose effect on the spec was reverted."""
    return [
        item
        for item in known.remediations
        if item.outcome
        and item.matches(known.spec_hash) is SpecMatch.BEFORE
        and item.post_hash != item.pre_hash
    ]


def declining(remediations: Sequence[PastRemediation]) -> dict[str, list[float]]:
    """Actions whose effectiveness falls strictly over at least three scores.

    `remediations` are oldest first.
    """
    scores: dict[str, list[float]] = {}
    for item in remediations:
        if item.action and item.score is not None and not item.drifted:
            scores.setdefault(item.action, []).append(item.score)
    return {
        action: found
        for action, found in scores.items()
        if len(found) >= 3 and all(a > b for a, b in itertools.pairwise(found))
    }


@dataclass(frozen=True, slots=True)
class Recurrence:
    """An action that completed repeatedly for the same signal.

    `futile`: it is not known to have helped at all.
    """

    action: str
    signal_type: str
    times: int
    futile: bool


def recurrences(remediations: Sequence[PastRemediation]) -> list[Recurrence]:
    """Actions that completed at least twice for the same signal type."""
    groups: dict[tuple[str, str], list[PastRemediation]] = {}
    for item in remediations:
        completed = item.outcome == ExecutionOutcome.COMPLETED and not item.drifted
        if completed and item.action and item.signal_type:
            groups.setdefault((item.action, item.signal_type), []).append(item)
    return [
        Recurrence(action, signal, len(found), all(not i.score and i.resolved is not True for i in found))
        for (action, signal), found in groups.items()
        if len(found) >= 2
    ]


def _same(one: str, other: str) -> bool:
    return bool(one) and one.strip().casefold() == other.strip().casefold()


MAX_LINES = 8  # of each tier
MAX_WARNINGS = 8
WORD = 80  # characters
NONE_KNOWN = "none in the last 90 days"
SPEC = {
    SpecMatch.BEFORE: "the spec is now as it was before it",
    SpecMatch.AFTER: "the spec is still as it left it",
    SpecMatch.NONE: "the spec has changed since",
}


def describe(known: KnownHistory, now: datetime) -> dict[str, Any] | str:
    """The history as the model sees it, warnings first, newest last; a sentence if there is nothing to list."""
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


def warnings(known: KnownHistory, recent: Sequence[PastRemediation]) -> list[str]:
    """Reasons against repeating what was done before."""
    found, lines = known.remediations, list[str]()
    undone = regressions(known)
    if undone:
        what = ", ".join(dict.fromkeys(f"{_word(i.action)} of {_when(i)}" for i in undone[-3:]))
        lines.append(f"regression: the spec is again what it was before {what}")
    elif known.regression:
        lines.append("regression: the spec is again what it was before an earlier remediation")
    failed = dict.fromkeys(item.action for item in failed_here(known) if item.action)
    lines += [
        f"failed on this very spec: {_word(action)}; choosing it again needs a rationale and human approval"
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
    """The remediation and its effect, in one line."""
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
