"""Which request may kill its process once more, and who may be in it then: pure functions.

When a process dies, every run in it is a suspect. A suspect runs alone, so that of many one is found out and the others
get their results: only a death while running alone counts against a request.

Alone means alone: nothing is ever started beside a suspect, the most urgent requests neither, or the suspect might take
them with it. They do not wait for the end of its run, though: the suspect steps aside before its next paid call. Its
run ends in an orderly way, is no death, and goes on from the journal when they are done.

Urgent requests may come without end. While they keep the suspects waiting, the other lanes go on beside them. When the
suspects have waited long enough, nothing else is taken; when only urgent ones still run, no further one starts; when
these are done, one suspect makes one call. Then everybody goes on as before, and the suspects wait anew. So an urgent
request waits for the runs that were there before it and for one call, however many suspects there are.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from worker.domain.investigation.models.gate import MOST_URGENT
from worker.domain.journal.steps import Counts


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


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who is in one process. An urgency is the number of a lane, 0 for the most urgent.

    `urgent`, `others`: runs that are no suspects, the most urgent and the rest. `suspects`: the urgency of each suspect,
    of the one that runs and of those that wait for their turn. `alone`: one of them runs. `waiting`: urgent requests that
    a suspect shall make way for. `due`: the suspects have waited long enough, one goes next.
    """

    urgent: int = 0
    others: int = 0
    suspects: tuple[int, ...] = ()
    alone: bool = False
    waiting: int = 0
    due: bool = False


class Turn(enum.Enum):
    """When a run may start. LATER: not here and now, the message goes back to the queue."""

    NOW = "now"
    SOON = "soon"
    LATER = "later"


def goes_first(crowd: Crowd, urgency: int) -> bool:
    """Whether a request does not wait for the suspects to be done.

    There is none, or it is more urgent than they are, or such requests keep them waiting anyway.
    """
    if not crowd.suspects:
        return True
    if min(crowd.suspects) == MOST_URGENT:
        return False
    return urgency == MOST_URGENT or (crowd.urgent > 0 and not crowd.alone and not crowd.due)


def turn(crowd: Crowd, urgency: int, *, suspect: bool) -> Turn:
    """Whether a run may start. A suspect that asks is among `crowd.suspects`."""
    if suspect:
        busy = crowd.urgent or crowd.others or crowd.alone or urgency > min(crowd.suspects)
        return Turn.SOON if busy or (steps_aside(crowd, urgency) and not crowd.due) else Turn.NOW
    if not goes_first(crowd, urgency):
        return Turn.LATER
    return Turn.SOON if crowd.alone or (crowd.due and not crowd.others) else Turn.NOW


def steps_aside(crowd: Crowd, urgency: int) -> bool:
    """Whether a suspect of this urgency lets others go first."""
    return crowd.waiting > 0 and urgency > MOST_URGENT
