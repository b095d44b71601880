"""What the domain needs from the outside, named for the need. One suite in tests/ports runs against every one."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from schemas.analysis import AnalysisResult, Approval
    from schemas.audit import AuditEvent
    from schemas.failure import DeadLetter, ValidationFailure
    from worker.domain.conversation import ModelRequest, Reply
    from worker.domain.history import Past, PastRemediation
    from worker.domain.metric_series import Series
    from worker.domain.objects import KindInfo, Listing, ListQuery, LogQuery, Manifest, ObjectRef
    from worker.domain.search import SearchPage, SearchQuery
    from worker.domain.workflow import ActionSummary, SelectionContext, Workflow, WorkflowPage


class Clock(Protocol):
    """Time. `now` is aware and in UTC; `monotonic` is in seconds and only good for differences."""

    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class Cluster(Protocol):
    """Read-only view of one cluster. Every method raises ClusterError, never a vendor's exception."""

    async def get(self, ref: ObjectRef) -> Manifest: ...
    async def list(self, query: ListQuery) -> Listing: ...
    async def logs(self, query: LogQuery) -> bytes: ...
    async def kind(self, kind: str, api_version: str = "") -> KindInfo: ...


class Catalog(Protocol):
    """Remediation workflows that fit a context. Every method raises CatalogUnavailable.

    `get` answers None for an unknown and for an incompatible workflow alike.
    """

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]: ...
    async def workflows(
        self, action_type: str, context: SelectionContext, cursor: str = ""
    ) -> WorkflowPage: ...
    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None: ...
    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage: ...


class History(Protocol):
    """Past remediations of a resource, of the last 90 days. Both methods raise HistoryUnavailable.

    `target` is a top owner. `past` awaits `spec_hash` (which never raises, and may be empty) only if the store compares
    hashes itself. `remember` keeps a result of ours, once per id; a store that learns of results in another way ignores
    it.
    """

    async def past(self, target: ObjectRef, spec_hash: Awaitable[str]) -> Past: ...
    async def remember(self, target: ObjectRef, remediation: PastRemediation) -> None: ...


class Metrics(Protocol):
    """Time series by PromQL. Raises MetricsError."""

    async def instant(self, query: str, at: datetime) -> Sequence[Series]: ...
    async def over_time(
        self, query: str, start: datetime, end: datetime, step_seconds: int
    ) -> Sequence[Series]: ...


class Model(Protocol):
    """A language model. Raises Retry or GiveUp."""

    @property
    def name(self) -> str: ...
    async def ask(self, request: ModelRequest) -> Reply: ...


class Policy(Protocol):
    """Approval rules. Never raises: a policy that cannot be evaluated requires approval and says why."""

    @property
    def name(self) -> str: ...
    async def decide(self, policy_input: Mapping[str, Any]) -> Approval: ...


class Events(Protocol):
    """The outgoing subjects. Returns when the server has confirmed; raises Unavailable.

    `result` answers the result that is stored: ours, or an earlier one that stays (compare `request_digest`). With
    `replace_failed`, for a replayed dead letter, an earlier `failed` result is replaced.
    """

    async def audit(self, event: AuditEvent) -> None: ...
    async def reject(self, failure: ValidationFailure) -> None: ...
    async def result(self, result: AnalysisResult, *, replace_failed: bool = False) -> AnalysisResult: ...
    async def dead_letter(self, letter: DeadLetter, body: bytes) -> None: ...


class Results(Protocol):
    """Results that are already stored, read from the stream's leader. Raises Unavailable."""

    async def find(self, kind: str, request_key: str) -> AnalysisResult | None: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One journaled step. `data` is what the step produced, `notes` small facts about it."""

    number: int
    kind: str
    run: str
    data: bytes
    notes: Mapping[str, Any] = field(default_factory=dict)


class JournalRun(Protocol):
    """One attempt at a request: what was done before, and the right to go on until another run begins.

    `append` raises LostClaim when another run has begun, Unavailable when it is not known whether it is stored.
    """

    @property
    def past(self) -> Sequence[Step]: ...
    async def begin(self, *, alone: bool = False) -> None: ...
    async def append(self, kind: str, data: bytes = b"", **notes: Any) -> None: ...
    async def end(self, outcome: str, **notes: Any) -> None: ...


class Journal(Protocol):
    """Steps of all requests. `open` raises JournalGap when steps are missing, Unavailable without the broker."""

    async def open(self, request_key: str, run: str) -> JournalRun: ...
