"""Records the questions to ports and their answers while an analysis runs, and plays them when it runs again.

A tape stands between the analysis and a port. The recorder asks the port and keeps a redacted copy of the
answer; the analysis gets the answer itself. The player asks no port: it gives the recorded answers to the
same questions, in the same order. A question without a recorded answer is a gap.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from schemas.analysis import Approval
from worker.domain.recording.bundle import RecordedCall
from worker.domain.untrusted.redaction.redact import redact, redact_json
from worker.domain.values import errors
from worker.domain.values.conversation import ModelRequest, Reply, ToolTurn, Turn
from worker.domain.values.external_tools import ExternalAnswer, ExternalTool
from worker.domain.values.objects import KindInfo, Listing, ListQuery, Manifest
from worker.domain.values.ports import Outside, PolicyDecision, Series
from worker.domain.values.remediations import Past, TrackRecord
from worker.domain.values.workflow_search import SearchPage
from worker.domain.values.workflows import ActionSummary, Workflow, WorkflowPage

NOT_RECORDED = "not recorded"
NO_ANSWER = "NoAnswer"
"""Stands for an error: the question was given up before there was an answer."""
LONGEST_WAIT_SECONDS = 120.0
"""Reads are given up within seconds, so only a bundle that was made by hand makes a replay wait so long."""
MAX_CHARS = 24 * 1024 * 1024
"""How much text a recording holds in memory. Answers beyond it are left out."""
WITH_REASON: Mapping[type[Exception], Callable[[str], Any]] = {
    errors.ClusterError: errors.ClusterReason,
    errors.Retry: errors.RetryReason,
    errors.GiveUp: errors.GiveUpReason,
}
REPORTED: tuple[type[Exception], ...] = (
    *WITH_REASON,
    errors.CatalogUnavailable,
    errors.HistoryUnavailable,
    errors.MetricsError,
    errors.ExternalToolError,
)
STOPPED: tuple[type[BaseException], ...] = (*REPORTED, asyncio.CancelledError)
ERRORS = {error.__name__: error for error in REPORTED}
DETAILS = ("after", "passing", "tried")
EPOCH, SPARE_TOKEN = datetime(1970, 1, 1, tzinfo=UTC), "0" * 12
"""Stand for a time and a random text that were not recorded."""
UNDECIDED = PolicyDecision(
    Approval(required=True, reasons=("The recording contains no policy decision for this input.",)),
    NOT_RECORDED,
)


@dataclass(frozen=True, slots=True)
class PortCall:
    """A method of a port.

    `read` makes an answer of JSON, given the arguments too; `missing` an answer or the error of the port for
    a question that was not recorded. `asked` distinguishes two questions. `foreign`: the keys of an answer
    may name secrets, since others chose them. `ordered`: the n-th answer belongs to the n-th question,
    whatever was asked. `at_once`: it never waits.
    """

    name: str
    read: Callable[..., Any]
    missing: Callable[[str], Any]
    asked: Callable[..., Any] = lambda *arguments: arguments
    foreign: bool = False
    ordered: bool = False
    at_once: bool = False

    def question(self, arguments: tuple[Any, ...]) -> str:
        """The question, as canonical and redacted JSON."""
        return question(self.asked(*arguments))


class Tape(Protocol):
    """Stands between an analysis and its ports."""

    async def through(
        self, call: PortCall, arguments: tuple[Any, ...], ask: Callable[[], Awaitable[Any]]
    ) -> Any: ...
    def at_once(self, call: PortCall, arguments: tuple[Any, ...], ask: Callable[[], Any]) -> Any: ...


def question(asked: Any) -> str:
    """Canonical and redacted JSON."""
    return json.dumps(masked(to_jsonable_python(asked)), sort_keys=True, separators=(",", ":"))


class Recorder:
    """A tape that asks and records. Answers are copied and redacted in threads, beside the analysis."""

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._copies: list[Awaitable[RecordedCall] | RecordedCall | None] = []
        self._chars, self._max_chars = 0, max_chars

    async def through(
        self, call: PortCall, arguments: tuple[Any, ...], ask: Callable[[], Awaitable[Any]]
    ) -> Any:
        """The answer of the port."""
        at, error, answer = len(self._copies), None, None
        self._copies.append(None)
        try:
            answer = await ask()
        except STOPPED as e:
            error = e
            raise
        finally:
            copying = asyncio.to_thread(self._copy, call, arguments, answer, error)
            self._copies[at] = asyncio.create_task(copying)
        return answer

    def at_once(self, call: PortCall, arguments: tuple[Any, ...], ask: Callable[[], Any]) -> Any:
        """The answer of a port that never waits."""
        answer = ask()
        self._copies.append(self._copy(call, arguments, answer, None))
        return answer

    async def exchanges(self) -> tuple[RecordedCall, ...]:
        """Everything so far, in the order in which it was asked."""
        done = [c if isinstance(c, RecordedCall) else await c for c in self._copies if c is not None]
        return tuple(done)

    def _copy(
        self, call: PortCall, arguments: tuple[Any, ...], answer: Any, error: BaseException | None
    ) -> RecordedCall:
        try:
            asked = call.question(arguments)
            if error is not None:
                return RecordedCall(call=call.name, asked=asked, error=_saved(error))
            text = isinstance(answer, bytes)
            value = answer.decode(errors="surrogateescape") if text else to_jsonable_python(answer)
            kept = json.dumps(redact_json(value) if call.foreign else masked(value), separators=(",", ":"))
        except (ValueError, TypeError, RuntimeError):  # it cannot be recorded
            return RecordedCall(call=call.name, asked="")
        self._chars += len(kept)
        return RecordedCall(
            call=call.name, asked=asked, answer=kept if self._chars <= self._max_chars else None
        )


class Player:
    """A tape that gives recorded answers.

    The last answer to a question is repeated if it is asked more often.

    `live` are ports, or methods of ports, that are asked instead. `gaps` are the questions that were not
    recorded. `diverged` counts ordered questions that differ from the recorded ones.
    """

    def __init__(
        self,
        exchanges: Iterable[RecordedCall],
        live: frozenset[str] = frozenset(),
        longest_wait: float = LONGEST_WAIT_SECONDS,
    ) -> None:
        self._known: dict[tuple[str, str], deque[RecordedCall]] = defaultdict(deque)
        self._in_order: dict[str, deque[RecordedCall]] = defaultdict(deque)
        for each in exchanges:
            self._known[each.call, each.asked].append(each)
            self._in_order[each.call].append(each)
        self._live, self._longest_wait = live, longest_wait
        self.gaps: list[str] = []
        self.diverged = 0

    async def through(
        self, call: PortCall, arguments: tuple[Any, ...], ask: Callable[[], Awaitable[Any]]
    ) -> Any:
        """The recorded answer. If the recorded analysis gave up waiting for it, waits until it is cancelled."""
        if self._is_live(call):
            return await ask()
        found = self._find(call, arguments)
        if found.error == {"type": NO_ANSWER}:
            await asyncio.sleep(self._longest_wait)
        return self._answer(call, arguments, found)

    def at_once(self, call: PortCall, arguments: tuple[Any, ...], ask: Callable[[], Any]) -> Any:
        """The recorded answer of a port that never waits."""
        return ask() if self._is_live(call) else self._answer(call, arguments, self._find(call, arguments))

    def _is_live(self, call: PortCall) -> bool:
        return not self._live.isdisjoint((call.name, call.name.partition(".")[0]))

    def _find(self, call: PortCall, arguments: tuple[Any, ...]) -> RecordedCall:
        asked = call.question(arguments)
        known = self._in_order[call.name] if call.ordered else self._known[call.name, asked]
        if not known:
            return RecordedCall(call=call.name, asked=asked)
        found = known[0] if len(known) == 1 and not call.ordered else known.popleft()
        self.diverged += call.ordered and found.asked != asked
        return found

    def _answer(self, call: PortCall, arguments: tuple[Any, ...], found: RecordedCall) -> Any:
        """Raises the recorded error, and that of the port for what was not recorded or cannot be read."""
        try:
            if found.error is not None:
                raise _error(found.error)
            if found.answer is not None:
                return call.read(json.loads(found.answer), *arguments)
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
            pass  # it was made by hand, or is of another version
        self.gaps.append(f"{call.name} {found.asked}")
        instead = call.missing(NOT_RECORDED)
        if isinstance(instead, Exception):
            raise instead
        return instead


def _saved(error: BaseException) -> dict[str, Any]:
    if isinstance(error, asyncio.CancelledError):
        return {"type": NO_ANSWER}
    kept = {name: getattr(error, name) for name in ("reason", "message", *DETAILS) if hasattr(error, name)}
    return {"type": type(error).__name__, **masked({"message": str(error), **kept})}


def _error(saved: Mapping[str, Any]) -> Exception:
    kind = ERRORS[saved["type"]]
    reason = (WITH_REASON[kind](saved["reason"]),) if kind in WITH_REASON else ()
    details: dict[str, Any] = {name: saved[name] for name in DETAILS if name in saved}
    return kind(*reason, saved["message"], **details)


def masked(value: Any) -> Any:
    """A JSON value with the secrets in its texts replaced, whatever their keys are called."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(str(key)): masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, list | tuple) else value


def conversation_digest(request: ModelRequest) -> str:
    """SHA-256 of the conversation with a model, after redaction."""
    told = (request.system, request.tools, list(map(_told, request.turns)), request.tools_allowed)
    return hashlib.sha256(question(told).encode()).hexdigest()


def _told(turn: Turn) -> Any:
    """The content of a turn, without the duration of tools and the adapter's serialisation of replies."""
    if isinstance(turn, Reply):
        return turn.text, turn.tool_calls
    if isinstance(turn, ToolTurn):
        return [(each.call_id, each.content, each.ok) for each in turn.results], turn.note
    return turn.text


def _as(kind: Any) -> Callable[..., Any]:
    adapter = TypeAdapter(kind)
    return lambda value, *_: adapter.validate_python(value)


def _listing(value: Any, query: ListQuery) -> Listing:
    """The list, filtered by `keep` again, which may differ by now."""
    found: Listing = LISTING(value)
    if (keep := query.keep) is None:
        return found
    return replace(found, items=tuple(kept for item in found.items if (kept := keep(item)) is not None))


def _decision(value: Any, *_: Any) -> PolicyDecision:
    return PolicyDecision(Approval.model_validate(value["approval"]), str(value["policy"]))


LISTING = _as(Listing)
_unread = partial(errors.ClusterError, errors.ClusterReason.UNAVAILABLE)
_unsaid = partial(errors.GiveUp, errors.GiveUpReason.BUDGET_SPENT)
CALLS = {
    call.name: call
    for call in (
        PortCall("cluster.get", _as(Manifest), _unread, foreign=True),
        PortCall("cluster.list", _listing, _unread, lambda query: replace(query, keep=None), foreign=True),
        # As text: bytes that are not UTF-8 are escaped in it.
        PortCall("cluster.logs", lambda text, *_: text.encode(errors="surrogateescape"), _unread),
        PortCall("cluster.kind", _as(KindInfo), _unread),
        PortCall("catalog.actions", _as(Sequence[ActionSummary]), errors.CatalogUnavailable),
        PortCall("catalog.workflows", _as(WorkflowPage), errors.CatalogUnavailable),
        PortCall("catalog.get", _as(Workflow | None), errors.CatalogUnavailable),
        PortCall("catalog.search", _as(SearchPage), errors.CatalogUnavailable),
        PortCall("history.past", _as(Past), errors.HistoryUnavailable, lambda target, _: target),
        PortCall("track_records.of", _as(TrackRecord | None), lambda _: None, at_once=True),
        PortCall("metrics.instant", _as(Sequence[Series]), errors.MetricsError),
        PortCall("metrics.over_time", _as(Sequence[Series]), errors.MetricsError),
        PortCall("external.tools", _as(Sequence[ExternalTool]), lambda _: (), at_once=True),
        PortCall("external.call", _as(ExternalAnswer), errors.ExternalToolError, foreign=True),
        PortCall("policy.decide", _decision, lambda _: UNDECIDED),
        PortCall("model.ask", _as(Reply), _unsaid, conversation_digest, ordered=True),
        PortCall("shadow.ask", _as(Reply), _unsaid, conversation_digest, ordered=True),
        PortCall("clock.now", _as(datetime), lambda _: EPOCH, at_once=True),
        PortCall("clock.monotonic", _as(float), lambda _: 0.0, at_once=True),
        PortCall("run.new_token", _as(str), lambda _: SPARE_TOKEN, at_once=True),
    )
}
"""The recorded methods. Other attributes of a port, such as the name of a model, pass through."""
RECORDED = tuple(port for port in fields(Outside) if any(name.startswith(f"{port.name}.") for name in CALLS))
PORTS = tuple(port.name for port in RECORDED)
REQUIRED = frozenset(port.name for port in RECORDED if port.default is MISSING)


class Taped:
    """Any port with a tape in front of it."""

    def __init__(self, name: str, port: Any, tape: Tape) -> None:
        self._name, self._port, self._tape = name, port, tape

    def __getattr__(self, method: str) -> Any:
        own, call = getattr(self._port, method), CALLS.get(f"{self._name}.{method}")
        if call is None:
            return own
        passing: Callable[..., Any] = self._tape.at_once if call.at_once else self._tape.through
        return lambda *arguments: passing(call, arguments, lambda: own(*arguments))


def taped(outside: Outside, tape: Tape) -> Outside:
    """The ports, each with the tape in front of it."""
    there = {name: port for name in PORTS if (port := getattr(outside, name)) is not None}
    before: dict[str, Any] = {name: Taped(name, port, tape) for name, port in there.items()}
    return replace(outside, **before)
