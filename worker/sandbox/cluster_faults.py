"""Faults that the snapshot cluster injects on request: which answers go wrong, how, and how often."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict, Field


class Fault(BaseModel):
    """One rule. `path` is a glob over the request path, as in `/api/v1/namespaces/*/pods*`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = "*"
    every: int = Field(default=1, ge=1)
    """Goes wrong for each n-th matching request."""
    times: int | None = Field(default=None, ge=0)
    """How often at most; None is always."""
    delay_seconds: float = Field(default=0.0, ge=0)
    status: int | None = Field(default=None, ge=400, le=599)
    retry_after_seconds: int | None = Field(default=None, ge=0)
    redirect: str = ""
    """Answers with a redirect to this address."""
    hang: bool = False
    """Never answers."""
    drop: bool = False
    """Closes the connection without an answer."""
    cut: bool = False
    """Closes the connection in the middle of the answer."""
    garbage: bool = False
    """Answers 200 with a body that is not JSON."""
    page: str = ""
    """The body of the answer with `status`, as a proxy sends it, in place of a Status object."""
    continuable: bool = True
    """Whether a 410 offers a token to go on with."""


class FaultPlan:
    """The rules in force, and how often each has been used."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._entries = [_Entry(fault) for fault in faults]

    def take(self, path: str) -> Fault | None:
        """The fault of this request, if it has one: the first rule that fires."""
        return next((entry.fault for entry in self._entries if entry.fires(path)), None)


class _Entry:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._seen = 0
        self._fired = 0

    def fires(self, path: str) -> bool:
        if not fnmatchcase(path, self.fault.path):
            return False
        self._seen += 1
        spent = self.fault.times is not None and self._fired >= self.fault.times
        if spent or self._seen % self.fault.every:
            return False
        self._fired += 1
        return True
