"""Vocabularies of requests, answers and catalog labels, closed and open, and all their aliases."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from schemas.fields import WORD_CHARS, Word


class RequestKind(enum.StrEnum):
    """The kind of a request: an incident, or the recovery after a failed remediation."""

    INCIDENT = "incident"
    RECOVERY = "recovery"


class Severity(enum.StrEnum):
    """The severity of an incident (DD-LLM-001). `unknown` does not restrict the choice of workflows."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    UNKNOWN = "unknown"


SEVERITY_ALIASES: Final = MappingProxyType(
    {"warning": Severity.MEDIUM, "info": Severity.LOW, "error": Severity.HIGH}
)
"""Words that alerting systems use for these levels, in lower case."""


_LEVELS: Final = MappingProxyType({level.value: level for level in Severity} | dict(SEVERITY_ALIASES))


def normalize_severity(text: str) -> Severity | None:
    """The severity that a text means, in any case; None if it means none.

    Requests, answers and labels all use it.
    """
    return _LEVELS.get(text.strip().lower())


Risk = Literal["", "low", "medium", "high"]
_RISKS: Final[Mapping[Risk, frozenset[str]]] = MappingProxyType(
    {
        "low": frozenset({"low", "very low", "minimal", "negligible", "none", "safe"}),
        "medium": frozenset({"medium", "moderate"}),
        "high": frozenset({"high", "very high", "critical", "severe"}),
    }
)


def normalize_risk(text: str) -> Risk:
    """The level of risk that a text means, in any case; empty when it means none."""
    word = " ".join(text.lower().split()).removesuffix(" risk")
    return next((risk for risk, words in _RISKS.items() if word in words), "")


EstimatedRisk = Annotated[
    Risk, BeforeValidator(lambda value: normalize_risk(value) if isinstance(value, str) else value)
]
"""How risky a remediation is: a closed set. Other words, which results of earlier versions may have, are
read as their level."""


class SignalType(enum.StrEnum):
    """The core signal types of an answer (DD-LLM-001, ADR-041 and the recovery handoff).

    A catalog, a setting and the reasons that a cluster reports add more. `signal_type` in a request is free
    text.
    """

    OOM_KILLED = "OOMKilled"
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    EVICTED = "Evicted"
    NODE_PRESSURE = "NodePressure"
    NODE_NOT_READY = "NodeNotReady"
    POD_PENDING = "PodPending"
    FAILED_SCHEDULING = "FailedScheduling"
    INSUFFICIENT_CPU = "InsufficientCPU"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    FAILED_MOUNT = "FailedMount"


class ReasonCode(enum.StrEnum):
    """Reasons of a failed execution that have their own guidance (DD-RECOVERY-003). Others are legal too."""

    OOM_KILLED = "OOMKilled"
    INSUFFICIENT_CPU = "InsufficientCPU"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    EVICTED = "Evicted"
    FAILED_SCHEDULING = "FailedScheduling"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    ERR_IMAGE_PULL = "ErrImagePull"
    INVALID_IMAGE_NAME = "InvalidImageName"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    ERROR = "Error"
    UNAUTHORIZED = "Unauthorized"
    FORBIDDEN = "Forbidden"
    FAILED_MOUNT = "FailedMount"
    FAILED_ATTACH_VOLUME = "FailedAttachVolume"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNREACHABLE = "NodeUnreachable"
    NETWORK_NOT_READY = "NetworkNotReady"


class Priority(enum.StrEnum):
    """Business priority (DD-LLM-001), P0 the highest. Not the lane: that comes from the subject."""

    P0 = "P0"
    P1 = "P1"
    P2 = "P2"
    P3 = "P3"


class StormType(enum.StrEnum):
    """How a storm of alerts was recognised: by frequency, or by similar alerts."""

    RATE = "rate"
    PATTERN = "pattern"


UNKNOWN_ENVIRONMENT: Final = "unknown"


def _severity(value: Any) -> Severity:
    level = normalize_severity(value) if isinstance(value, str) else None
    if level is None:
        raise PydanticCustomError("severity", "one of {allowed}", {"allowed": ", ".join(_LEVELS)})
    return level


def _priority(value: Any) -> Priority:
    try:
        return Priority(value.upper())
    except (AttributeError, ValueError):
        raise PydanticCustomError("priority", "one of {allowed}", {"allowed": ", ".join(Priority)}) from None


def _environment(value: str) -> str:
    lowered = value.lower()
    if len(lowered) > WORD_CHARS:  # a capital letter may become two small ones
        raise PydanticCustomError("environment", "at most {limit} characters", {"limit": WORD_CHARS})
    return lowered or UNKNOWN_ENVIRONMENT


def _any_case(words: tuple[str, ...]) -> WithJsonSchema:
    """A JSON Schema that takes the words in any case, as the validators do."""
    pattern = "|".join(
        "".join(f"[{c.upper()}{c.lower()}]" if c.isalpha() else c for c in word) for word in words
    )
    return WithJsonSchema({"type": "string", "pattern": f"^({pattern})$", "examples": list(words)})


SeverityWord = Annotated[Severity, BeforeValidator(_severity), _any_case(tuple(_LEVELS))]
"""A severity of a request, in any case, aliases allowed."""

PriorityWord = Annotated[Priority, BeforeValidator(_priority), _any_case(tuple(Priority))]
"""A priority, in any case."""

Environment = Annotated[Word, AfterValidator(_environment)]
"""An environment: an open value in lower case, such as `production`; `unknown` if absent."""

RiskTolerance = Word
"""How careful remediation must be: an open value, usually `low`, `medium` or `high`."""
