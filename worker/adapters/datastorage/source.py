"""What the two APIs of a DataStorage catalog have in common: workflows are read as a whole, bad records are left out."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from worker.adapters.datastorage.client import Exchange, FailedError
from worker.adapters.datastorage.records import BadRecordError
from worker.domain.cluster.fields import mapping
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflows import ActionText, SelectionContext, Workflow

MAX_WORKFLOWS = 1_000
SHOWN_CHARS = 80
SHOWN_REASONS = 5

Read = TypeVar("Read")


@dataclass(slots=True)
class Found:
    """What was read. `left_out` counts bad records, `reasons` says of the first few what is wrong."""

    workflows: dict[str, Workflow] = field(default_factory=dict)
    texts: dict[str, ActionText] = field(default_factory=dict)
    left_out: int = 0
    reasons: list[str] = field(default_factory=list)

    def read(self, reader: Callable[[Any], Read], record: Any, name: str) -> Read | None:
        """What the reader makes of a record. None, and noted, for a bad one."""
        try:
            return reader(record)
        except BadRecordError as error:
            self.miss(1, f"{one_line(name, SHOWN_CHARS)}: {error}")
            return None

    def miss(self, count: int, reason: str) -> None:
        """Note records that are left out."""
        self.left_out += count
        if len(self.reasons) < SHOWN_REASONS:
            self.reasons.append(reason)

    def add(self, workflow: Workflow | None) -> None:
        """Keep it, unless there is none. Raises FailedError when there are too many."""
        if workflow is not None:
            self.workflows[workflow.workflow_id] = workflow
        if len(self.workflows) > MAX_WORKFLOWS:
            raise FailedError(f"the catalog has more than {MAX_WORKFLOWS} workflows")


def entries_of(answer: Any, name: str, path: str, most: int) -> list[Any]:
    """The list of this name in an answer; an empty one may be null. Raises FailedError."""
    entries = mapping(answer).get(name, ...)
    if entries is not None and not isinstance(entries, list):
        raise FailedError(f"the answer to {path} is no list of {name}")
    if entries is not None and len(entries) > most:
        raise FailedError(f"{path} answers more than the {most} {name} it was asked for")
    return entries or []


class NoSuchApiError(FailedError):
    """The server does not speak this API."""


class Source(Protocol):
    """One API. Methods raise FailedError, NoSuchApiError."""

    def key(self, context: SelectionContext) -> Hashable:
        """What of a context decides which workflows are read."""
        ...

    async def read(self, exchange: Exchange, context: SelectionContext) -> Found:
        """All workflows, for contexts of this key."""
        ...

    async def confirm(
        self, exchange: Exchange, workflow: Workflow, context: SelectionContext
    ) -> Workflow | None:
        """The workflow as it is now; None when the server does not offer it for this context."""
        ...
