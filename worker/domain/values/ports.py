"""The ports of the domain to the outside world. One test suite per port (tests/ports) covers all adapters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from worker.domain.values.delivery import MessageId

if TYPE_CHECKING:
    from schemas.analysis import AnalysisResult, Approval
    from schemas.failure import DeadLetter, ValidationFailure
    from worker.domain.values.conversation import ModelRequest, Reply
    from worker.domain.values.external_tools import ExternalAnswer, ExternalTool
    from worker.domain.values.objects import KindInfo, Listing, ListQuery, LogQuery, Manifest, ObjectRef
    from worker.domain.values.remediations import Past, PastRemediation, TrackRecord
    from worker.domain.values.workflow_search import SearchPage, SearchQuery
    from worker.domain.values.workflows import ActionSummary, SelectionContext, Workflow, WorkflowPage


class Clock(Protocol):
    """Time. `now` is aware and in UTC; `monotonic` is in seconds; only differences have a meaning.

    `has_passed` is False as long as the clock may be wrong, so that nothing expires by an unreliable clock.
    """

    def now(self) -> datetime: ...
    def has_passed(self, moment: datetime) -> bool: ...
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


class Embedder(Protocol):
    """Texts as vectors, whose dot product (all have length 1) says how alike two are in meaning.

    Raises EmbedderUnavailable. `name` is the identity of the model: vectors of different names cannot be
    compared. Each vector has `dimensions` numbers, in the order of the texts; 0 while only a server knows
    that has not been asked yet. `query`: the texts are queries, not passages.
    """

    @property
    def name(self) -> str: ...
    @property
    def dimensions(self) -> int: ...
    async def embed(self, texts: Sequence[str], *, query: bool) -> Sequence[Sequence[float]]: ...


class History(Protocol):
    """Past remediations of a resource, of the last 90 days. Both methods raise HistoryUnavailable.

    `target` is a top owner. `past` awaits `spec_hash` (which never raises, and may be empty) only if the
    store compares hashes itself. `remember` stores a result of ours, once per id; a store that gets results
    in another way ignores it.
    """

    async def past(self, target: ObjectRef, spec_hash: Awaitable[str]) -> Past: ...
    async def remember(self, target: ObjectRef, remediation: PastRemediation) -> None: ...


class TrackRecords(Protocol):
    """The track records of proposed actions, from our own results and their outcomes.

    Answers at once from memory, and never raises: None if the track record is unknown.
    """

    def of(self, action_type: str, environment: str) -> TrackRecord | None: ...


@dataclass(frozen=True, slots=True)
class Series:
    """One time series: its labels, and (Unix seconds, value) in order of time.

    Values may be NaN or infinite.
    """

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


class Metrics(Protocol):
    """Time series by PromQL. Raises MetricsError."""

    async def instant(self, query: str, at: datetime) -> Sequence[Series]: ...
    async def over_time(
        self, query: str, start: datetime, end: datetime, step_seconds: int
    ) -> Sequence[Series]: ...


class ExternalTools(Protocol):
    """Tools of other servers that operators have mounted.

    Only `call` touches a server; it raises ExternalToolError.

    `tools` are those that may be called, including those of a server that cannot be reached at the moment.
    """

    def tools(self) -> Sequence[ExternalTool]: ...
    async def call(self, server: str, name: str, arguments: Mapping[str, Any]) -> ExternalAnswer: ...


class Model(Protocol):
    """A language model. Raises Retry or GiveUp."""

    @property
    def name(self) -> str: ...
    async def ask(self, request: ModelRequest) -> Reply: ...


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A decision about approval. `policy` names the policy that made it, with its version if it has one."""

    approval: Approval
    policy: str


class Policy(Protocol):
    """Approval rules. Never raises: a policy that cannot be evaluated requires approval and says why."""

    async def decide(self, policy_input: Mapping[str, Any]) -> PolicyDecision: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The ports of an analysis.

    Those that need not be configured are None by default. `jitter` returns [0, 1).

    `cluster_problem` checks whether the cluster can be read at all, and says why not.
    """

    cluster: Cluster
    catalog: Catalog
    model: Model
    policy: Policy
    clock: Clock
    jitter: Callable[[], float]
    history: History | None = None
    track_records: TrackRecords | None = None
    metrics: Metrics | None = None
    external: ExternalTools | None = None
    shadow: Model | None = None
    """The model of the second view."""
    cluster_problem: Callable[[], Awaitable[str]] | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One audit event, byte for byte as published.

    Also what its headers and the next event of the chain need.

    `body` is canonical JSON. `hash` is empty for an event of a version without chains.
    """

    event_id: str
    event_type: str
    request_key: str
    sequence: int
    body: bytes
    chain: str = ""
    hash: str = ""


class Signer(Protocol):
    """Signs texts with Ed25519: the same text has the same signature of 64 bytes.

    `key_id` names the public key.
    """

    @property
    def key_id(self) -> str: ...
    def sign(self, text: bytes) -> bytes: ...


class SignatureCheck(Protocol):
    """Verifies the signatures of a Signer with its public key."""

    @property
    def key_id(self) -> str: ...
    def good(self, text: bytes, signature: bytes) -> bool: ...


class Events(Protocol):
    """The outgoing subjects. Returns when the server has confirmed; raises Unavailable.

    `result` returns the stored result: ours, or an earlier one that stays (compare `request_digest`). With
    `replace_failed`, for a replayed dead letter, an earlier `failed` result is replaced.
    """

    async def audit(self, record: AuditRecord) -> None: ...
    async def reject(self, failure: ValidationFailure) -> None: ...
    async def result(self, result: AnalysisResult, *, replace_failed: bool = False) -> AnalysisResult: ...
    async def dead_letter(self, letter: DeadLetter, body: bytes) -> None: ...


class Results(Protocol):
    """Results that are already stored, read from the stream's leader. Raises Unavailable."""

    async def find(self, request_key: str) -> AnalysisResult | None: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One journaled step.

    `data` is the product of the step, `notes` are small facts about it, `events` its audit events.
    """

    number: int
    kind: str
    run: str
    data: bytes
    notes: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[AuditRecord] = ()


class JournalRun(Protocol):
    """One attempt at a request: the earlier steps, and the right to continue until another run begins.

    `append` raises LostClaim if another run has begun, Unavailable if it is unknown whether the step is
    stored. `finish` leaves a FINISHED step with these notes as the only one, which still fences older runs;
    it raises the same.
    """

    @property
    def past(self) -> Sequence[Step]: ...
    async def append(
        self, kind: str, data: bytes = b"", *, events: Sequence[AuditRecord] = (), **notes: Any
    ) -> None: ...
    async def finish(self, **notes: Any) -> None: ...


class Journal(Protocol):
    """Steps of all requests. `open` raises Unavailable without the broker.

    A step that is lost or cannot be decoded appears in `past` as an UNREADABLE one, whose note `why` gives
    the reason.
    """

    async def open(self, request_key: str, run: str) -> JournalRun: ...


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A message of the work queue as it is stored. `headers` are as hostile as the body."""

    subject: str
    sequence: int
    stored_at: datetime
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def message(self) -> MessageId:
        """Identity of the message in its stream."""
        return MessageId(self.sequence, self.stored_at)


class Requests(Protocol):
    """The work queue, read at its leader without taking anything from it. All methods raise Unavailable.

    `remove` deletes that very message; it is no error if the message is gone, or was replaced by another one
    in a recreated stream. `stranded` lists messages that no consumer will deliver again, oldest first, some
    at a time. `after` is the first message with a higher sequence.
    """

    async def stranded(self) -> Sequence[StoredRequest]: ...
    async def read(self, sequence: int) -> StoredRequest | None: ...
    async def after(self, sequence: int) -> StoredRequest | None: ...
    async def remove(self, message: MessageId) -> None: ...


class Cancellations(Protocol):
    """The requests that an operator has cancelled. Raises Unavailable."""

    async def cancelled(self, request_key: str) -> bool: ...
