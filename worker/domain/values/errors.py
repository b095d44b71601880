"""How things fail, in the domain's words. Adapters translate every vendor exception into one of these."""

from __future__ import annotations

import enum
import errno
import os
import re
from collections.abc import Awaitable, Iterator
from typing import Generic, TypeVar

from worker.domain.values.delays import LONGEST_RETRY_AFTER_SECONDS

T = TypeVar("T")
R = TypeVar("R", bound=enum.StrEnum)


class _ReasonedError(Exception, Generic[R]):
    """An error with a reason, by which code decides, and perhaps a message."""

    def __init__(self, reason: R, message: str | None = None) -> None:
        super().__init__(reason if message is None else f"{reason}: {message}")
        self.reason = reason
        self.message = message or ""


class ReportedError(Exception):
    """A failure that the user of a command can fix.

    The message says what is wrong, where, and what to do. A command prints it without a traceback and exits
    with 1.
    """


class ClusterReason(enum.StrEnum):
    """Why the cluster gave no answer. Only NOT_FOUND says something about the object itself."""

    NOT_FOUND = "not_found"
    FORBIDDEN = "forbidden"
    UNKNOWN_KIND = "unknown_kind"
    BAD_REQUEST = "bad_request"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"


class ClusterError(_ReasonedError[ClusterReason], ReportedError):
    """The cluster did not answer a read. `message` is short and safe to show to the model."""


async def or_none(read: Awaitable[T]) -> T | None:
    """The answer of a read, or None if the cluster gives none."""
    try:
        return await read
    except ClusterError:
        return None


class CatalogUnavailable(ReportedError):  # noqa: N818 - a state, not a fault of the caller
    """The workflow catalog cannot be read: no workflow may be chosen."""


class EmbedderUnavailable(Exception):  # noqa: N818 - a state, not a fault of the caller
    """Texts cannot be embedded now. The message is short and safe to show."""


class HistoryUnavailable(Exception):  # noqa: N818 - a state, not a fault of the caller
    """Past remediations cannot be read or stored. The message is short and safe to show to the model."""


class _CallError(Exception):
    """A call to a server failed. `passing`: the same call may work later."""

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class MetricsError(_CallError):
    """A query of time series failed. The message is short and says what would work."""


class ExternalToolError(_CallError):
    """A tool of a mounted server failed.

    The message may contain the server's own words, which are hostile.
    """


class RetryReason(enum.StrEnum):
    """Why a run may succeed later."""

    MODEL_UNAVAILABLE = "model_unavailable"
    MODEL_RATE_LIMITED = "model_rate_limited"
    BROKER_UNAVAILABLE = "broker_unavailable"


class GiveUpReason(enum.StrEnum):
    """Why a run cannot succeed by trying again."""

    MODEL_REFUSED_CREDENTIALS = "model_refused_credentials"
    MODEL_SPEND_CAP = "model_spend_cap"
    MODEL_NOT_FOUND = "model_not_found"
    MODEL_REJECTED_REQUEST = "model_rejected_request"
    MODEL_REJECTS_ALL = "model_rejects_all"
    MODEL_UNREACHABLE = "model_unreachable"
    MODEL_TRIES_USED_UP = "model_tries_used_up"
    CONTEXT_OVERFLOW = "context_overflow"
    BUDGET_SPENT = "budget_spent"


BLOCKING = frozenset(
    {
        GiveUpReason.MODEL_REFUSED_CREDENTIALS,
        GiveUpReason.MODEL_SPEND_CAP,
        GiveUpReason.MODEL_NOT_FOUND,
        GiveUpReason.MODEL_REJECTS_ALL,
        GiveUpReason.MODEL_UNREACHABLE,
    }
)
"""Reasons with which every call of the model fails until an outage ends or an operator changes a setting.

The setting may be a key or a limit. Meanwhile worker/app/admission.py pauses the intake.
"""


def believed(after: float) -> float:
    """The wait in seconds for a Retry-After, which may be any number."""
    if after > 0.0:
        return min(after, LONGEST_RETRY_AFTER_SECONDS)
    return 0.0 if after <= 0.0 else LONGEST_RETRY_AFTER_SECONDS  # it is not a number


class Retry(_ReasonedError[RetryReason]):
    """Try again after at least `after` seconds (None: the retry policy decides), as far as they are believed.

    `tried`: a call was made and failed. It is False if nothing was sent, as to a model whose breaker is open.
    """

    def __init__(
        self, reason: RetryReason, message: str, after: float | None = None, *, tried: bool = True
    ) -> None:
        super().__init__(reason, message)
        self.after = None if after is None else believed(after)
        self.tried = tried


class UnreadableReply(Retry):
    """The provider has answered, but the answer cannot be read. The request may be at fault."""


class GiveUp(_ReasonedError[GiveUpReason]):
    """Trying again would not help."""


class HaltReason(enum.StrEnum):
    """Why a run must not continue."""

    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Halted(_ReasonedError[HaltReason]):
    """The answer is no longer needed, so no further call is made."""


class ClusterUnreadable(Exception):  # noqa: N818 - a state, not a fault of the caller
    """Nothing can be read from the cluster: no request can be analysed now. The message says why."""


class PreemptReason(enum.StrEnum):
    """Why a run ends before its next call."""

    URGENT_REQUEST = "urgent_request"
    OPEN_FILES = "open_files"


class Preempted(_ReasonedError[PreemptReason]):
    """The run ends in an orderly way before its next call, and continues from the journal later."""


class LostClaim(Exception):  # noqa: N818 - a state, not a fault
    """Another run has taken over this request: stop without an ack, a nak or a result."""


class JournalGap(Exception):  # noqa: N818 - a state, not a fault
    """A step of the journal cannot be interpreted by this version: the run must start afresh."""


class Unavailable(ReportedError):  # noqa: N818 - a state, not a fault
    """It is not known whether the broker stored a message: the caller must not ack its own input."""


NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EAGAIN})


NUMBERED = re.compile(r"\[Errno (-?[0-9]+)\] ?")


def system_message(error: BaseException) -> str:
    """The message of an error of the operating system without its number, such as `Connection refused`."""
    said = str(error)
    found = NUMBERED.search(said)
    if found and int(found[1]) > 0:
        return os.strerror(int(found[1]))
    return NUMBERED.sub("", said) or ("no answer in time" if isinstance(error, TimeoutError) else repr(error))


def network_reason(error: BaseException) -> str:
    """Why there is no connection, as the operating system says it; empty if it has no part in the error."""
    found = next((each for each in _causes(error) if isinstance(each, OSError) and each.errno), None)
    return system_message(found) if found else ""


def is_resource_fault(error: BaseException) -> bool:
    """True if an error, or one of its causes, means that this process has run out of files, memory or processes.

    It says nothing about the request, nor about the server that could not be reached.
    """
    return any(isinstance(each, OSError) and each.errno in NO_RESOURCES for each in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, the members of a group, and what they were raised from, each once."""
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        left.extend(e for e in (each.__cause__, each.__context__, *members) if e is not None)
