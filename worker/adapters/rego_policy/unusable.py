"""Why a policy cannot be used."""

from __future__ import annotations

from worker.domain.values.errors import ReportedError


class PolicyUnusable(ReportedError):  # noqa: N818 - a state, not a fault of the caller
    """The policy cannot be read or loaded, or decides nothing. The message says where and why."""
