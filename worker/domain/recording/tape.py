"""What ports are asked and answer: recorded while an analysis runs, and played when it runs again.

A tape stands between the analysis and a port. The recorder asks the port and keeps a redacted copy of the answer; the analysis
gets the answer itself. The player asks nobody: it answers with what was recorded for the same question, in the same order,
and what was not recorded is a gap.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic_core import to_jsonable_python

from worker.domain.recording.bundle import RecordedCall
from worker.domain.untrusted.redaction.redact import redact, redact_json
from worker.domain.values import errors

NOT_RECORDED = "not recorded"
NO_ANSWER = "NoAnswer"
"""In place of an error: the question was given up before there was an answer."""
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


@dataclass(frozen=True, slots=True)
class PortCall:
    """A method of a port.

    `read` makes an answer of JSON, given the arguments too; `missing` an answer or the error of the port for a question that
    was not recorded. `asked` is what tells two questions apart. `foreign`: the keys of an answer may name secrets, since
    others chose them. `ordered`: the n-th answer belongs to the n-th question, whatever was asked. `at_once`: it never waits.
    """

    name: str
    read: Callable[..., Any]
    missing: Callable[[str], Any]
    asked: Callable[..., Any] = lambda *arguments: arguments
    foreign: bool = False
    ordered: bool = False
    at_once: bool = False

    def question(self, arguments: tuple[Any, ...]) -> str:
        """What is asked, as canonical and redacted JSON."""
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
        except (ValueError, TypeError, RuntimeError):  # it cannot be written down
            return RecordedCall(call=call.name, asked="")
        self._chars += len(kept)
        return RecordedCall(
            call=call.name, asked=asked, answer=kept if self._chars <= self._max_chars else None
        )


class Player:
    """A tape that answers what was recorded. The last answer to a question is given again when it is asked more often.

    `live` are ports, or methods of ports, that are asked instead. `gaps` are the questions that were not recorded. `diverged`
    counts ordered questions that were other ones when they were recorded.
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
        """The recorded answer. Waits to be given up where the recorded analysis had given up waiting."""
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
