"""Settings of recorded analyses."""

from __future__ import annotations

from pydantic import Field

from worker.app.settings.fields import Group


class RecordSettings(Group):
    """Redacted recordings of analyses, for `rca record` and `rca replay`."""

    hours: int = Field(0, ge=0, le=2160)
    """How long the recording of a request is kept on NATS. 0 records nothing.

    Run `rca provision` after a change.
    """
    mebibytes: int = Field(256, ge=8)
    """How much of `RCA_NATS__STORE_MEBIBYTES` recordings may use, in MiB.

    The oldest recordings are dropped first.
    """
