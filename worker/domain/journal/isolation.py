"""Retrying suspects in isolation: which request may kill its process once more, and what may run beside it.

When a process dies, every run in it becomes a suspect. Suspects run one at a time, with nothing beside them,
so that a request that kills its process is found out and the others get their results: only a death while a
request ran alone counts against it.

A process can also be killed from outside, and an innocent request with it: when a node is lost, or a
neighbour uses up the memory. Such deaths come in waves, so a request that has died in isolation waits in the
queue for ever longer before it runs again. One that kills its process by itself kills the next one whenever
it runs.

No run ever starts beside a running suspect, not even a P0, because the suspect might take it down. A P0 does
not have to wait for the end of the suspect's run either: the suspect yields before its next paid call. Its
run ends in an orderly way, which does not count as a death, and continues from the journal when the P0 is
done.

P0 requests may arrive without end. While they keep the suspects waiting, the other lanes go on beside them.
When the suspects have waited long enough (they are due), nothing else is taken from the queue; once only P0
runs are left, no further one starts; once these are done, one suspect makes one call. Then everybody goes on
as before, and the suspects wait anew. A P0 therefore waits for the runs that were there before it and for one
call, however many suspects there are and whatever their lane.

All functions are pure. An urgency is the number of a lane, 0 for the most urgent.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from worker.domain.journal.steps import Counts
from worker.domain.values.delays import DEATH_PAUSES_SECONDS
from worker.domain.values.delivery import MOST_URGENT


class RunMode(enum.Enum):
    """How a request may run. REFUSED: no more, so it becomes a dead letter."""

    SHARED = "shared"
    ISOLATED = "isolated"
    REFUSED = "refused"


def run_mode(counts: Counts, *, max_deaths: int, finished: bool) -> RunMode:
    """The mode of the next run. `finished`: its result is in the journal and only has to be published."""
    if finished:
        return RunMode.SHARED
    if counts.deaths_alone >= max_deaths:
        return RunMode.REFUSED
    return RunMode.ISOLATED if counts.suspect else RunMode.SHARED


def pause_after_death(counts: Counts, now: datetime) -> float:
    """Seconds until a request that died in isolation may run again.

    They count from the start of its last isolated run.
    """
    if counts.died_alone_at is None:
        return 0.0
    pause = DEATH_PAUSES_SECONDS[min(counts.deaths_alone, len(DEATH_PAUSES_SECONDS)) - 1]
    return min(pause, max(0.0, pause - (now - counts.died_alone_at).total_seconds()))


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """The load of one process.

    `urgent`, `others`: running requests that are not suspects, P0 and the rest. `suspects`: the urgency of
    each suspect, running or waiting. `alone`: one of them runs. `waiting`: P0 requests, not suspects, that
    wait for it to yield. `due`: the suspects have waited long enough, one of them goes next.
    """

    urgent: int = 0
    others: int = 0
    suspects: tuple[int, ...] = ()
    alone: bool = False
    waiting: int = 0
    due: bool = False


class StartDecision(enum.Enum):
    """The decision whether a run may start.

    WAIT: keep the message, the run starts soon. RETURN: return it to the queue.
    """

    NOW = "now"
    WAIT = "wait"
    RETURN = "return"


def may_overtake(load: ProcessLoad, urgency: int) -> bool:
    """True if a request need not wait until all suspects are done."""
    if not load.suspects or urgency == MOST_URGENT:
        return True
    return load.urgent > 0 and not load.alone and not load.due


def start_decision(load: ProcessLoad, urgency: int, *, suspect: bool) -> StartDecision:
    """Decide whether a run may start. If it is a suspect, it is among `load.suspects`."""
    if suspect:
        busy = load.urgent or load.others or load.alone or urgency > min(load.suspects)
        yields = load.waiting > 0 and not load.due
        return StartDecision.WAIT if busy or yields else StartDecision.NOW
    if not may_overtake(load, urgency):
        return StartDecision.RETURN
    return StartDecision.WAIT if load.alone or (load.due and not load.others) else StartDecision.NOW


def must_yield(load: ProcessLoad, urgency: int) -> bool:
    """True if a running suspect of this urgency must end before its next call, because a P0 is waiting."""
    return load.waiting > 0 or (urgency > MOST_URGENT and min(load.suspects) == MOST_URGENT)
