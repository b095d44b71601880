"""Remediation history on NATS: results of the workers, joined with the outcomes that executors published.

The KV bucket has one entry for each resource, with its results of the last 90 days, written by
compare-and-set. Their outcomes are read from the outcomes stream on demand: the last message of
`rca.outcome.<request key>` counts, as an executor may publish again after its assessment. So no consumer is
needed that keeps up with the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import structlog
from pydantic import TypeAdapter, ValidationError

from schemas.outcome import RemediationOutcome
from schemas.subjects import Subjects, history_key
from worker.adapters.nats.stream import FencedStream
from worker.domain.values.concurrency import concurrently
from worker.domain.values.delays import HISTORY_WRITE_SECONDS
from worker.domain.values.errors import HistoryUnavailable, Unavailable
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import Past, PastRemediation

FORMAT = 1
MAX_KEPT = 100
MAX_JOINED = 40
WRITE_ATTEMPTS = 8

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The entry of one resource, its remediations oldest first.

    The names are for humans who look into the bucket.
    """

    v: int
    kind: str
    namespace: str
    name: str
    remediations: tuple[PastRemediation, ...] = ()


ENTRY = TypeAdapter(_Entry)


class NatsHistory:
    """Implements History. `records` is the stream of the bucket."""

    def __init__(self, records: FencedStream, outcomes: FencedStream, subjects: Subjects) -> None:
        self._records, self._outcomes, self._subjects = records, outcomes, subjects
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def past(self, target: ObjectRef, spec_hash: Awaitable[str]) -> Past:
        """The last remediations of a resource. The caller compares the hashes, so `spec_hash` is not awaited.

        Raises HistoryUnavailable.
        """
        del spec_hash
        entry, _ = await self._read(target)
        newest = entry.remediations[-MAX_JOINED:]
        try:
            if newest and await self._outcomes.newest(self._subjects.outcome(">")) is None:
                return Past(newest)  # no executor publishes any
            return Past(tuple(await concurrently([self._joined(item, target) for item in newest])))
        except Unavailable as error:
            raise _unavailable(target, error) from error

    async def remember(self, target: ObjectRef, remediation: PastRemediation) -> None:
        """Store a remediation, or replace the one with its id. Raises HistoryUnavailable.

        Results of one resource are stored one after the other: many incidents of it may end at the same
        moment, and in a race for its entry each write that succeeds makes all others read and write again,
        until they give up.
        """
        writing = self._writing.setdefault(self._subject(target), asyncio.Lock())
        try:
            async with asyncio.timeout(HISTORY_WRITE_SECONDS), writing:
                await self._write(target, remediation)
        except (HistoryUnavailable, TimeoutError, Unavailable, ValueError) as error:
            log.warning("history_not_stored", resource=str(target), error=repr(error))
            raise _unavailable(target, error) from error

    async def _write(self, target: ObjectRef, remediation: PastRemediation) -> None:
        for _ in range(WRITE_ATTEMPTS):
            entry, sequence = await self._read(target)
            if remediation in entry.remediations:
                return
            others = [item for item in entry.remediations if item.id != remediation.id]
            body = ENTRY.dump_json(
                replace(entry, remediations=(*others, remediation)[-MAX_KEPT:]), exclude_defaults=True
            )
            subject = self._subject(target)
            stored = await self._records.create(
                subject, body, msg_id=f"{subject}:{remediation.id}:{sequence}", replacing=sequence
            )
            if stored.body == body:
                return
        raise HistoryUnavailable(
            f"the history of {target} could not be written: others changed it during each of {WRITE_ATTEMPTS} attempts"
        )

    def _subject(self, target: ObjectRef) -> str:
        key = history_key(target.kind, target.namespace, target.name)
        return f"$KV.{self._records.bucket}.{key}"

    async def _read(self, target: ObjectRef) -> tuple[_Entry, int]:
        try:
            stored = await self._records.newest(self._subject(target))
        except Unavailable as error:
            raise _unavailable(target, error) from error
        empty = _Entry(FORMAT, target.kind, target.namespace, target.name)
        if stored is None or not stored.body:  # deleted by a KV client
            return empty, stored.sequence if stored else 0
        try:
            entry = ENTRY.validate_json(stored.body)
        except ValidationError as error:
            raise HistoryUnavailable(f"the history of {target} cannot be read: it is not valid") from error
        if entry.v != FORMAT:
            raise HistoryUnavailable(
                f"the history of {target} has the format {entry.v}, but this version reads {FORMAT}"
            )
        return entry, stored.sequence

    async def _joined(self, item: PastRemediation, target: ObjectRef) -> PastRemediation:
        stored = await self._outcomes.newest(self._subjects.outcome(item.id))
        if stored is None:
            return item
        try:
            outcome = RemediationOutcome.model_validate_json(stored.body)
        except ValidationError as error:
            log.warning("outcome_unreadable", request=item.id, errors=error.error_count())
            return item
        return _with_outcome(item, outcome, target)


def _with_outcome(item: PastRemediation, outcome: RemediationOutcome, target: ObjectRef) -> PastRemediation:
    """Complete an entry with the executor's report.

    The report takes precedence for the workflow that ran, and for the spec of its target if that is the
    resource itself.
    """
    acted = outcome.target
    on_target = target.same_as(ObjectRef(acted.kind, acted.name, acted.namespace))
    as_chosen = outcome.workflow_id == item.workflow_id
    return replace(
        item.reported(outcome),
        action_type=outcome.action_type or (item.action_type if as_chosen else ""),
        signal_type=item.signal_type or outcome.signal_type,
        parameters_digest=item.parameters_digest if as_chosen else "",
        pre_hash=(on_target and outcome.pre_remediation_spec_hash) or item.pre_hash,
        post_hash=(on_target and outcome.post_remediation_spec_hash) or "",
        side_effects=outcome.side_effects,
    )


def _unavailable(target: ObjectRef, error: Exception) -> HistoryUnavailable:
    return HistoryUnavailable(f"the history of {target} cannot be reached ({type(error).__name__})")
