"""What ports are asked and answer: recorded while an analysis runs, and played when it runs again.

A tape stands between the analysis and a port. The recorder asks the port and keeps a redacted copy of the answer; the analysis
gets the answer itself. The player asks nobody: it answers with what was recorded for the same question, in the same order,
and raises the error of the port for a question that was not recorded.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from worker.domain.recording.bundle import Exchange
from worker.domain.untrusted.redaction.redact import redact, redact_json
from worker.domain.values.errors import (
    CatalogUnavailable,
    ClusterError,
    ClusterReason,
    ExternalToolError,
    GiveUp,
    GiveUpReason,
    HistoryUnavailable,
    MetricsError,
    Retry,
    RetryReason,
)

T = TypeVar("T")
NOT_RECORDED = "not recorded"
NO_ANSWER = "NoAnswer"
"""In place of an error: the question was given up before there was an answer."""
MAX_CHARS = 24 * 1024 * 1024
"""How much text a recording holds in memory. Answers beyond it are left out."""
ERRORS: Mapping[str, Callable[[Mapping[str, Any]], Exception]] = {
    "ClusterError": lambda e: ClusterError(ClusterReason(e["reason"]), e["message"]),
    "CatalogUnavailable": lambda e: CatalogUnavailable(e["message"]),
    "HistoryUnavailable": lambda e: HistoryUnavailable(e["message"]),
    "MetricsError": lambda e: MetricsError(e["message"], passing=e["passing"]),
    "ExternalToolError": lambda e: ExternalToolError(e["message"], passing=e["passing"]),
    "Retry": lambda e: Retry(RetryReason(e["reason"]), e["message"], e["after"], tried=e["tried"]),
    "GiveUp": lambda e: GiveUp(GiveUpReason(e["reason"]), e["message"]),
}
FIELDS = ("reason", "message", "passing", "after", "tried")
REPORTED = (
    ClusterError,
    CatalogUnavailable,
    HistoryUnavailable,
    MetricsError,
    ExternalToolError,
    Retry,
    GiveUp,
)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A method of a port: its name, the type of its answers, and its error for a question that was not recorded.

    `foreign`: the keys of an answer may name secrets, since others chose them. `ordered`: the n-th answer belongs to the
    n-th question, whatever was asked.
    """

    name: str
    answer: TypeAdapter[T]
    missing: Callable[[str], Exception]
    foreign: bool = False
    ordered: bool = False


class Tape(Protocol):
    """Stands between an analysis and its ports."""

    async def through(self, call: Call[T], asked: Any, ask: Callable[[], Awaitable[T]]) -> T: ...
    def at_once(self, call: Call[T], asked: Any, ask: Callable[[], T]) -> T: ...


def question(asked: Any) -> str:
    """What is asked, as canonical and redacted JSON."""
    return json.dumps(masked(to_jsonable_python(asked)), sort_keys=True, separators=(",", ":"))


class Recorder:
    """A tape that asks and records. Answers are copied and redacted in threads, beside the analysis."""

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._copies: list[Awaitable[Exchange] | None] = []
        self._chars = 0

    async def through(self, call: Call[T], asked: Any, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer of the port."""
        at = self._place()
        try:
            answer = await ask()
        except REPORTED as e:
            self._keep(at, call, asked, error=e)
            raise
        except asyncio.CancelledError as e:
            self._keep(at, call, asked, error=e)
            raise
        self._keep(at, call, asked, answer)
        return answer

    def at_once(self, call: Call[T], asked: Any, ask: Callable[[], T]) -> T:
        """The answer of a port that never waits."""
        at, answer = self._place(), ask()
        self._keep(at, call, asked, answer)
        return answer

    async def exchanges(self) -> tuple[Exchange, ...]:
        """Everything so far, in the order in which it was asked."""
        return tuple([await copy for copy in self._copies if copy is not None])

    def _place(self) -> int:
        self._copies.append(None)
        return len(self._copies) - 1

    def _keep(
        self,
        at: int,
        call: Call[T],
        asked: Any,
        answer: T | None = None,
        error: BaseException | None = None,
    ) -> None:
        self._copies[at] = asyncio.create_task(asyncio.to_thread(self._copy, call, asked, answer, error))

    def _copy(self, call: Call[T], asked: Any, answer: T | None, error: BaseException | None) -> Exchange:
        try:
            key = question(asked)
            if error is not None:
                return Exchange(call=call.name, asked=key, error=_fields(error))
            value = to_jsonable_python(answer)
            text = json.dumps(redact_json(value) if call.foreign else masked(value), separators=(",", ":"))
        except (ValueError, TypeError, RuntimeError):  # it cannot be written down
            return Exchange(call=call.name, asked="")
        self._chars += len(text)
        return Exchange(call=call.name, asked=key, answer=text if self._chars <= self._max_chars else None)


class Player:
    """A tape that answers what was recorded. The last answer to a question is given again when it is asked more often.

    `gaps` are the questions that were not recorded. `diverged` counts questions in an order that were different ones.
    """

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._known: dict[tuple[str, str], deque[Exchange]] = defaultdict(deque)
        self._in_order: dict[str, deque[Exchange]] = defaultdict(deque)
        for each in exchanges:
            self._known[each.call, each.asked].append(each)
            self._in_order[each.call].append(each)
        self.gaps: list[str] = []
        self.diverged = 0

    async def through(self, call: Call[T], asked: Any, ask: Callable[[], Awaitable[T]]) -> T:
        """The recorded answer. Waits for ever where the recorded analysis had given up waiting."""
        del ask
        found = self._find(call, asked)
        if found.error == {"type": NO_ANSWER}:
            await asyncio.Event().wait()
        return self._answer(call, found)

    def at_once(self, call: Call[T], asked: Any, ask: Callable[[], T]) -> T:
        """The recorded answer of a port that never waits."""
        del ask
        return self._answer(call, self._find(call, asked))

    def _find(self, call: Call[T], asked: Any) -> Exchange:
        key = question(asked)
        known = self._in_order[call.name] if call.ordered else self._known[call.name, key]
        if not known:
            return Exchange(call=call.name, asked=key)
        found = known[0] if len(known) == 1 and not call.ordered else known.popleft()
        self.diverged += call.ordered and found.asked != key
        return found

    def _answer(self, call: Call[T], found: Exchange) -> T:
        """Raises the recorded error, and that of the port for what was not recorded or cannot be read."""
        try:
            if found.error is not None:
                raise ERRORS[found.error["type"]](found.error)
            if found.answer is not None:
                return call.answer.validate_python(json.loads(found.answer))
        except (
            KeyError,
            ValueError,
            TypeError,
            RecursionError,
        ):  # it was made by hand, or is of another version
            pass
        self.gaps.append(f"{call.name} {found.asked}")
        raise call.missing(NOT_RECORDED)


def _fields(error: BaseException) -> dict[str, Any]:
    if isinstance(error, asyncio.CancelledError):
        return {"type": NO_ANSWER}
    kept = {name: getattr(error, name) for name in FIELDS if hasattr(error, name)}
    return {"type": type(error).__name__, **masked({"message": str(error), **kept})}


def masked(value: Any) -> Any:
    """A JSON value with the secrets in its texts replaced, whatever their keys are called."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(str(key)): masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, list | tuple) else value
