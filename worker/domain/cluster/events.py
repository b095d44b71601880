"""Events of an object, a namespace or the cluster: read from both event APIs, merged into one timeline.

`v1` and `events.k8s.io/v1` are two views of the same stored objects (Kubernetes API, Event): the same uid is one event.
Times stand in different fields depending on who wrote the event: `lastTimestamp` and `count` (the old recorder),
`series` or only `eventTime` (the new one), `deprecated*` in the newer view.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from worker.domain.cluster.fields import dig, mapping, meta, moment, stamp, text, whole
from worker.domain.cluster.kinds import WORKLOADS, belongs_by_name
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.errors import ClusterError
from worker.domain.values.objects import Listing, ListQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster
from worker.domain.values.together import together
from worker.domain.values.tokens import estimate_tokens

MAX_MESSAGE = 420  # characters
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
VARIABLE = re.compile(
    r"\([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\)|back-off \S+ |\d+(?:\.\d+)?(?:ms|s|m|h)\b|pod=\S+|\b[0-9a-f]{12,}\b"
)
UID_IN_TEXT = re.compile(r"\([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\)")
AGO = re.compile(r"^(\d{1,6})\s*(s|m|h|d)$")
UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Happening:
    """One event, or several with the same message about the same object. Times are UTC; NEVER if there is none."""

    first: datetime
    last: datetime
    count: int
    type: str
    reason: str
    about: ObjectRef
    message: str

    @property
    def warning(self) -> bool:
        """Whether its type is not Normal."""
        return self.type != "Normal"

    def line(self) -> str:
        """`2026-06-04T19:22:52Z Warning BackOff x6 (since 2026-06-04T19:19:24Z) Pod orders/worker-57f: message`."""
        when = stamp(self.last) if self.last > NEVER else "unknown-time"
        times = f" x{self.count}" if self.count > 1 else ""
        since = f" (since {stamp(self.first)})" if NEVER < self.first < self.last else ""
        return f"{when} {self.type} {self.reason}{times}{since} {self.about}: {self.message}"


def happenings(events: Iterable[Manifest]) -> list[Happening]:
    """Events of both APIs, oldest first: each stored event once, repeats folded."""
    unique: dict[str, Happening] = {}
    for number, event in enumerate(events):
        head = meta(event)
        key = text(head.get("uid")) or f"{text(head.get('namespace'))}/{text(head.get('name')) or number}"
        found = read_event(event)
        kept = unique.get(key)
        unique[key] = found if kept is None else _same_event(kept, found)
    return fold(unique.values())


def read_event(event: Manifest) -> Happening:
    """One event of either API. Missing parts become empty; its type defaults to Normal."""
    series = mapping(event.get("series"))
    about = mapping(event.get("involvedObject")) or mapping(event.get("regarding"))
    times = [
        found
        for value in (
            event.get("firstTimestamp"),
            event.get("deprecatedFirstTimestamp"),
            event.get("eventTime"),
            event.get("lastTimestamp"),
            event.get("deprecatedLastTimestamp"),
            series.get("lastObservedTime"),
        )
        if (found := moment(value))
    ]
    created = moment(dig(event, "metadata", "creationTimestamp")) or NEVER
    counts = (whole(event.get("count")), whole(event.get("deprecatedCount")), whole(series.get("count")), 1)
    message = UID_IN_TEXT.sub("", text(event.get("message")) or text(event.get("note")))
    return Happening(
        first=min(times, default=created),
        last=max(times, default=created),
        count=max(counts),
        type=one_line(text(event.get("type")), 20) or "Normal",
        reason=one_line(text(event.get("reason")), 60).replace(" ", "") or "Unknown",
        about=ObjectRef(
            kind=text(about.get("kind")) or "Object",
            name=text(about.get("name")) or "unknown",
            namespace=text(about.get("namespace")) if text(about.get("kind")) != "Node" else "",
            api_version=text(about.get("apiVersion")),
            uid=text(about.get("uid")),
        ),
        message=one_line(message, MAX_MESSAGE),
    )


def _same_event(one: Happening, other: Happening) -> Happening:
    newer, older = (one, other) if one.last >= other.last else (other, one)
    return replace(
        newer,
        first=min(one.first, other.first, key=lambda t: t if t > NEVER else newer.last),
        count=max(one.count, other.count),
        message=newer.message or older.message,
    )


def fold(items: Iterable[Happening]) -> list[Happening]:
    """Merge events of one object whose messages differ only in durations and hashes. Oldest first."""
    merged: dict[tuple[str, ...], Happening] = {}
    for item in items:
        about = item.about
        same = (
            item.type,
            item.reason,
            about.kind,
            about.namespace,
            about.name,
            VARIABLE.sub("~", item.message),
        )
        kept = merged.get(same)
        if kept is None:
            merged[same] = item
            continue
        newer = item if item.last >= kept.last else kept
        merged[same] = replace(newer, first=min(item.first, kept.first), count=item.count + kept.count)
    return sorted(merged.values(), key=lambda h: (h.last, h.first, h.reason, str(h.about)))


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lines of a timeline that fit the budget, newest last, and how many events were left out."""

    lines: tuple[str, ...]
    left_out: int = 0

    @property
    def body(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def timeline(items: Sequence[Happening], max_tokens: int) -> Timeline:
    """The newest events within the budget. Warnings take precedence: normal events get the room that is left."""
    room, shown = max_tokens, set[int]()
    by_worth = sorted(range(len(items)), key=lambda i: (not items[i].warning, -i))
    for index in by_worth:
        cost = estimate_tokens(items[index].line()) + 1
        if cost <= room:
            shown.add(index)
            room -= cost
    return Timeline(tuple(items[i].line() for i in sorted(shown)), len(items) - len(shown))


def since_moment(since: str, now: datetime) -> datetime | None:
    """`30m`, `2h`, `1d` before `now`, or a time of its own; None when it is neither."""
    ago = AGO.match(since.strip().lower())
    if ago:
        return (
            now - timedelta(seconds=int(ago[1]) * UNIT[ago[2]]) if int(ago[1]) * UNIT[ago[2]] < 1e9 else NEVER
        )
    return moment(since.strip())


CORE, NEWER = "v1", "events.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class EventsRead:
    """Folded events, oldest first. `error` is set when neither API answered; then nothing is known."""

    items: tuple[Happening, ...]
    complete: bool = True
    error: ClusterError | None = None


async def read_events(cluster: Cluster, about: ObjectRef) -> EventsRead:
    """Events of an object and of what its controllers made, by name; of a kind or of everything without a name.

    An empty namespace means all namespaces. Never raises ClusterError.
    """
    widened = about.kind in WORKLOADS or not about.kind
    selectors = ("", "") if widened or not about.name else _selectors(about)
    queries = [
        ListQuery("Event", about.namespace, version, field_selector=selector)
        for version, selector in zip((CORE, NEWER), selectors, strict=True)
    ]
    answers = await together([_listed(cluster, query) for query in queries])
    listings = [answer for answer in answers if isinstance(answer, Listing)]
    if not listings:
        return EventsRead((), error=next(a for a in answers if isinstance(a, ClusterError)))
    items = happenings([event for listing in listings for event in listing.items])
    kept = [h for h in items if concerns(h, about)]
    return EventsRead(tuple(kept), all(listing.complete for listing in listings))


async def _listed(cluster: Cluster, query: ListQuery) -> Listing | ClusterError:
    try:
        return await cluster.list(query)
    except ClusterError as error:
        return error


def _selectors(about: ObjectRef) -> Sequence[str]:
    core = f"involvedObject.name={about.name},involvedObject.kind={about.kind}"
    newer = f"regarding.name={about.name},regarding.kind={about.kind}"
    return core, newer


def concerns(happening: Happening, about: ObjectRef) -> bool:
    """Whether an event is about the object, or about what a controller made for it, by name."""
    named = happening.about
    if about.kind and not about.name:
        return named.kind == about.kind
    if not about.name:
        return True
    if named.name == about.name:
        return not about.kind or named.kind == about.kind
    if not about.kind:
        return any(_made_for(about, kind, named) for kind in WORKLOADS)
    return _made_for(about, about.kind, named)


def _made_for(about: ObjectRef, kind: str, named: ObjectRef) -> bool:
    return belongs_by_name(ObjectRef(kind, about.name, about.namespace or named.namespace), named)
