"""Remediation history from Kubernaut's DataStorage: `GET /api/v1/remediation-history/context` (DD-HAPI-016).

DataStorage collects executions by itself and compares hashes; we only read. A malformed answer is a failure,
never an empty history: a changed contract must not look as if no remediation had been tried.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from schemas.outcome import ExecutionOutcome
from worker.adapters.datastorage.client import DataStorageClient
from worker.adapters.json_server import Exchange, RequestFailedError, ServerClient
from worker.domain.cluster.fields import dig, mapping, mappings, moment, sequence, text
from worker.domain.values.bounded import BoundedDict
from worker.domain.values.errors import HistoryUnavailable
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import Past, PastRemediation, SpecMatch, spec_drifted

PATH = "/api/v1/remediation-history/context"
WINDOWS = {"tier1Window": "24h", "tier2Window": "2160h"}
MAX_ENTRIES = 200
MAX_CACHED = 256
WORDS = {
    ExecutionOutcome.COMPLETED: ("completed", "success", "succeeded"),
    ExecutionOutcome.FAILED: ("failed", "failure", "error", "timeout", "timedout"),
    ExecutionOutcome.CANCELLED: ("cancelled", "canceled", "skipped"),
}
OUTCOMES = {word: outcome for outcome, words in WORDS.items() for word in words}


class DataStorageHistory(ServerClient):
    """Implements History. Answers are cached for `cache_seconds`: an investigation looks twice."""

    def __init__(
        self, client: DataStorageClient, *, cluster_id: str = "", cache_seconds: float = 20.0
    ) -> None:
        super().__init__(client.server)
        self._client, self._cluster_id, self._cache_seconds = client, cluster_id, cache_seconds
        self._cache = BoundedDict[tuple[str, ...], tuple[float, Past]](MAX_CACHED)  # until when, and what

    async def past(self, target: ObjectRef, spec_hash: Awaitable[str]) -> Past:
        """Past remediations of this resource with this spec. Raises HistoryUnavailable."""
        current = await spec_hash
        if not current:
            raise HistoryUnavailable(
                f"the spec of {target} could not be read, and its history is looked up by it"
            )
        key = (target.kind, target.namespace, target.name, current)
        cached, now = self._cache.get(key), self._client.monotonic()
        if cached and now < cached[0]:
            return cached[1]
        past = await self._client.call(lambda exchange: self._ask(exchange, target, current))
        self._cache[key] = self._client.monotonic() + self._cache_seconds, past
        return past

    async def remember(self, target: ObjectRef, remediation: PastRemediation) -> None:
        """Does nothing: DataStorage gets remediations from their executors."""

    async def _ask(self, exchange: Exchange, target: ObjectRef, current: str) -> Past:
        asked = {
            "targetKind": target.kind,
            "targetName": target.name,
            "targetNamespace": target.namespace,
            "currentSpecHash": current,
            **WINDOWS,
        }
        if self._cluster_id:
            asked["clusterId"] = self._cluster_id
        return _past(await exchange.get(PATH, asked))


def _past(document: Any) -> Past:
    recent, older = dig(document, "tier1", "chain"), dig(document, "tier2", "chain")
    if not isinstance(dig(document, "tier1"), dict) or not isinstance(recent, list | None):
        raise RequestFailedError("the answer is not a remediation history")
    found: dict[str, PastRemediation] = {}
    for entry in (*mappings(recent), *mappings(older)):  # a recent one is in both, with details in the first
        made = _remediation(entry)
        found.setdefault(made.id, made)
    return Past(
        tuple(found.values())[:MAX_ENTRIES], regression=mapping(document).get("regressionDetected") is True
    )


def _remediation(entry: dict[str, Any]) -> PastRemediation:
    outcome, match = text(entry.get("outcome")).strip(), text(entry.get("hashMatch"))
    return PastRemediation(
        id=text(entry.get("remediationUID")),
        at=moment(entry.get("completedAt")),
        action_type=text(entry.get("actionType")) or text(entry.get("workflowType")),
        signal_type=text(entry.get("signalType")),
        outcome=OUTCOMES.get(outcome.casefold().replace("_", ""), outcome),
        score=_score(entry.get("effectivenessScore")),
        resolved=_flag(entry.get("signalResolved")),
        drifted=spec_drifted(text(entry.get("assessmentReason"))),
        pre_hash=text(entry.get("preRemediationSpecHash")),
        post_hash=text(entry.get("postRemediationSpecHash")),
        match=SpecMatch(match) if match in set(SpecMatch) else None,
        side_effects=tuple(text(effect) for effect in sequence(entry.get("sideEffects"))[:10]),
    )


def _score(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= 1 else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
