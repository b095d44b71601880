"""The limit of open files: raised as far as allowed, and shared so that the process never reaches it.

Without a free file descriptor nothing can be connected, accepted, started, resolved or read, and every
failure looks like one of another system. So a process with a low limit runs fewer requests at once, and it
begins none while few descriptors are left.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from worker.app.admission import Admission
from worker.domain.values.delays import FILES_LOOK_SECONDS

BASE = 40
"""Files that a worker has open in addition to its runs.

An idle worker has 13 (measured). The policy process, watched files, probes and new connections need the
others.
"""
FEWEST = 64
LOW, ENOUGH = 8, 16
"""The intake pauses below the first number of free descriptors, and resumes at the second."""
DESCRIPTORS = ("/proc/self/fd", "/dev/fd")
PLENTY = 1 << 20
FILES = "files"
"""The source of the pause of the intake."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FileBudget:
    """What a limit allows: half of the runs' share is for their models, half for connections to the cluster."""

    limit: int

    @property
    def too_low(self) -> str:
        """Why no worker can run with this limit; empty if one can."""
        if self.limit >= FEWEST:
            return ""
        return (
            f"this process may open {self.limit} files, a worker needs {FEWEST}: raise the limit (ulimit -n)"
        )

    @property
    def share(self) -> int:
        """How many requests may run at once, and over how many connections to the cluster."""
        return (self.limit - BASE) // 2

    def fit(self, slots: Mapping[str, int]) -> dict[str, int]:
        """The slots of the lanes that the limit allows: all of them, or in proportion, at least one each."""
        wanted, lanes = sum(slots.values()), len(slots)
        if wanted <= self.share:
            return dict(slots)
        return {
            lane: 1 + (count - 1) * (self.share - lanes) // (wanted - lanes) for lane, count in slots.items()
        }

    def notice(self, slots: Mapping[str, int]) -> str:
        """The notice for an operator; empty if the limit allows all slots."""
        allowed, wanted = sum(self.fit(slots).values()), sum(slots.values())
        if allowed >= wanted:
            return ""
        return (
            f"this process may open {self.limit} files, so it analyses {allowed} requests at once instead of {wanted}; "
            "raise the limit (ulimit -n)"
        )


def raise_limit() -> int:
    """Raise the limit of this process to the highest one that it may set. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # macOS says "unlimited" and allows less
            return soft
    return hard if hard != resource.RLIM_INFINITY else PLENTY


def files_left() -> int:
    """Return how many more files this process may open.

    0 if not even the list of its open files can be read.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for directory in DESCRIPTORS:
        try:
            used = sum(1 for _ in Path(directory).iterdir()) - 1  # without the descriptor of this look
        except OSError:
            continue
        return max(0, limit - used) if limit != resource.RLIM_INFINITY else PLENTY
    return 0


@dataclass(slots=True)
class FileWatch:
    """Pauses the intake while few descriptors are left.

    `problem` says so for readiness; empty if all is well.
    """

    admission: Admission
    left: Callable[[], int] = files_left
    problem: str = ""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(FILES_LOOK_SECONDS)

    def look(self) -> None:
        """Look once."""
        left = self.left()
        if left >= (ENOUGH if self.problem else LOW):
            if self.problem:
                log.info("open_files_recovered", left=left)
            self.problem = ""
        elif not self.problem:
            self.problem = f"only {left} file descriptors are left; no further request begins"
            log.error("open_files_low", left=left)
        self.admission.pause(FILES, self.problem)
