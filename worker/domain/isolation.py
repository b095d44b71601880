"""Which request may kill its process once more: a pure function of how its runs ended.

When a process dies, every run in it is a suspect. A suspect runs alone, so that of many one is found out and the others
get their results: only a death while running alone counts against a request.
"""

from __future__ import annotations

import enum

from worker.domain.journal import Counts


class Passage(enum.Enum):
    """How a request may run."""

    WITH_OTHERS = "with_others"
    ALONE = "alone"
    NEVER = "never"


def passage(counts: Counts, *, max_deaths: int, finished: bool) -> Passage:
    """How the next run goes. `finished`: its result is in the journal, and only has to be published."""
    if finished:
        return Passage.WITH_OTHERS
    if counts.deaths_alone >= max_deaths:
        return Passage.NEVER
    return Passage.ALONE if counts.suspect else Passage.WITH_OTHERS
