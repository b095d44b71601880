"""Events of an object, a namespace or the cluster: read from both event APIs, merged into one timeline.

`v1` and `events.k8s.io/v1` are two views of the same stored objects (Kubernetes API, Event): the same uid is
one event. The fields of the times depend on the writer of the event: `lastTimestamp` and `count` (the old
recorder), `series` or only `eventTime` (the new one), `deprecated*` in the newer view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from worker.domain.cluster.fields import (
    UID_IN_TEXT,
    dig,
    mapping,
    meta,
    moment,
    reference,
    stamp,
    text,
    whole,
    without_own_name,
)
from worker.domain.cluster.kinds import MADE_NAMES, WORKLOADS, belongs_by_name
from worker.domain.cluster.owners import MAX_OWNERS
from worker.domain.cluster.pods import pod_failing
from worker.domain.cluster.references import selector_of
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ClusterError, ClusterReason, or_none
from worker.domain.values.objects import Keep, Listing, ListQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster

MAX_MESSAGE = 420  # characters
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
VARIABLE = re.compile(
    rf"{UID_IN_TEXT.pattern}|back-off \S+ |\d+(?:\.\d+)?(?:ms|s|m|h)\b|pod=\S+|\b[0-9a-f]{{12,}}\b"
)
TIMES = (
    "firstTimestamp", "deprecatedFirstTimestamp", "eventTime", "lastTimestamp", "deprecatedLastTimestamp",
)  # fmt: skip
AGO = re.compile(r"^(\d{1,6})\s*(s|m|h|d)$")
UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Happening:
    """One event, or several with the same message about the same object.

    Times are UTC; NEVER if there is none.
    """

    first: datetime
    last: datetime
    count: int
    type: str
    reason: str
    about: ObjectRef
    message: str

    @property
    def warning(self) -> bool:
        """True if its type is not Normal."""
        return self.type != "Normal"

    def line(self) -> str:
        """`2026-06-04T19:22:52Z Warning BackOff x6 (since 19:19:24Z) Pod orders/worker-57f: message`.

        The date is not repeated, and the message is shown without the name before it.
        """
        when = stamp(self.last) if self.last > NEVER else "unknown-time"
        message = without_own_name(self.message, self.about)
        times = f" x{self.count}" if self.count > 1 else ""
        first = stamp(self.first)[11 if self.first.date() == self.last.date() else 0 :]
        since = f" (since {first})" if NEVER < self.first < self.last else ""
        return f"{when} {self.type} {self.reason}{times}{since} {self.about}: {message}"


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
    given = (*(event.get(key) for key in TIMES), series.get("lastObservedTime"))
    times = [found for value in given if (found := moment(value))]
    created = moment(dig(event, "metadata", "creationTimestamp")) or NEVER
    counts = (whole(event.get("count")), whole(event.get("deprecatedCount")), whole(series.get("count")), 1)
    message = UID_IN_TEXT.sub("", text(event.get("message")) or text(event.get("note")))
    return Happening(
        first=min(times, default=created),
        last=max(times, default=created),
        count=max(counts),
        type=one_line(text(event.get("type")), 20) or "Normal",
        reason=one_line(text(event.get("reason")), 60).replace(" ", "") or "Unknown",
        about=_named(event),
        message=one_line(message, MAX_MESSAGE),
    )


def _named(event: Manifest) -> ObjectRef:
    """The object of the event."""
    about = mapping(event.get("involvedObject")) or mapping(event.get("regarding"))
    return ObjectRef(
        kind=text(about.get("kind")) or "Object",
        name=text(about.get("name")) or "unknown",
        namespace=text(about.get("namespace")) if text(about.get("kind")) != "Node" else "",
        api_version=text(about.get("apiVersion")),
        uid=text(about.get("uid")),
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
        same = (item.type, item.reason, str(item.about), VARIABLE.sub("~", item.message))
        kept = merged.get(same)
        if kept is None:
            merged[same] = item
            continue
        newer = item if item.last >= kept.last else kept
        merged[same] = replace(newer, first=min(item.first, kept.first), count=item.count + kept.count)
    return sorted(merged.values(), key=lambda h: (h.last, h.first, h.reason, str(h.about)))


def since_moment(since: str, now: datetime) -> datetime | None:
    """`30m`, `2h`, `1d` before `now`, or an absolute time; None if it is neither."""
    ago = AGO.match(since.strip().lower())
    if not ago:
        return moment(since.strip())
    seconds = int(ago[1]) * UNIT[ago[2]]
    return now - timedelta(seconds=seconds) if seconds < 1e9 else NEVER


CORE, NEWER = "v1", "events.k8s.io/v1"
MAX_EVENTS = 5_000
"""How many events one list call reads. The server lists them by namespace and name, not by time."""
MAX_OBJECTS = 16
"""For how many objects events are read by name, if a namespace has more events than that."""
AT_ONCE = 8
EVENT_HEAD = frozenset({"name", "namespace", "uid", "creationTimestamp"})
EVENT_FIELDS = frozenset(
    {
        *("apiVersion", "kind", "type", "reason", "message", "note", "involvedObject", "regarding", "series"),
        *("count", "deprecatedCount", "eventTime", "firstTimestamp", "lastTimestamp"),
        *("deprecatedFirstTimestamp", "deprecatedLastTimestamp"),
    }
)
NODE_NEWS = frozenset({"NodeNotReady", "NodeNotSchedulable", "Shutdown"})
"""Reasons of Normal events of a node that matter to pods on it."""


@dataclass(frozen=True, slots=True)
class EventsRead:
    """Folded events, oldest first. `gap` says what was not read, empty if nothing is missing.

    `error` is set if nothing could be read; then nothing is known.
    """

    items: tuple[Happening, ...]
    gap: str = ""
    error: ClusterError | None = None


@dataclass(frozen=True, slots=True)
class _Listed:
    """Events as the API returns them, with the same `gap` and `error`."""

    events: tuple[Manifest, ...] = ()
    gap: str = ""
    error: ClusterError | None = None


async def read_events(cluster: Cluster, about: ObjectRef) -> EventsRead:
    """Events of an object and of what its controllers made, by name; of a kind, a namespace or the cluster.

    An empty namespace means all namespaces. If a namespace has more events than are read, those of the object
    and of the objects made for it are read by name; without a name, warnings take precedence. Never raises
    ClusterError.
    """
    if about.name and about.kind and about.kind not in WORKLOADS:
        return _read([await _list_events(cluster, about)], [about])
    if about.name:
        return await read_events_around(cluster, about.namespace, [about], about)
    everything = await _list_events(cluster, about, _keep_about([about]))
    if everything.error or not everything.gap:
        return _read([everything], [about])
    warnings = await _list_events(cluster, about, warnings=True)
    return _read(
        [everything, warnings], [about], everything.gap if warnings.gap else f"normal {everything.gap}"
    )


async def read_events_around(
    cluster: Cluster, namespace: str, objects: Sequence[ObjectRef], workload: ObjectRef | None
) -> EventsRead:
    """Events of some objects of a namespace, the most important first.

    Events of the objects that were made for the workload are included.

    Never raises ClusterError.
    """
    everything = await _list_events(cluster, ObjectRef("", "", namespace), _keep_about(objects))
    if everything.error or not everything.gap:
        return _read([everything], objects)
    made, gap = await _made_by(cluster, workload) if workload else ([], "")
    asked = [*objects[:MAX_OWNERS], *made, *objects[MAX_OWNERS:]]
    unique = {(ref.kind, ref.name): ref for ref in reversed(asked)}
    by_name = await _events_by_name(cluster, list(reversed(unique.values())))
    return _read([everything, by_name], objects, by_name.gap or gap)


async def read_node_events(cluster: Cluster, names: Sequence[str]) -> EventsRead:
    """Warnings about these nodes: memory, clock, kernel, heartbeats.

    They come from the kubelet, controllers and the node problem detector.

    Events of nodes are in the namespace `default`; if that must not be read, the result is empty. Never
    raises ClusterError.
    """
    refs = [ObjectRef("Node", name, "default") for name in names]
    answers = await concurrently([_list_events(cluster, ref) for ref in refs], at_once=AT_ONCE)
    errors = [answer.error for answer in answers if answer.error]
    missing = [
        ref.name
        for ref, answer in zip(refs, answers, strict=True)
        if answer.gap or (answer.error and answer.error.reason is not ClusterReason.FORBIDDEN)
    ]
    found = happenings([event for answer in answers for event in answer.events])
    told = tuple(item for item in found if item.warning or item.reason in NODE_NEWS)
    return EventsRead(
        told, f"events of nodes {', '.join(missing)}" if missing else "", next(iter(errors), None)
    )


async def _events_by_name(cluster: Cluster, objects: Sequence[ObjectRef]) -> _Listed:
    """Events about the first 16 of these objects."""
    asked = objects[:MAX_OBJECTS]
    answers = await concurrently([_list_events(cluster, ref) for ref in asked], at_once=AT_ONCE)
    missing = [str(ref) for ref, answer in zip(asked, answers, strict=True) if answer.error or answer.gap]
    missing += [str(ref) for ref in objects[MAX_OBJECTS:]]
    more = f" and {len(missing) - 3} other objects" if len(missing) > 3 else ""
    gap = f"events of {', '.join(missing[:3])}{more}" if missing else ""
    return _Listed(tuple(event for answer in answers for event in answer.events), gap)


def _read(answers: Sequence[_Listed], about: Sequence[ObjectRef], gap: str | None = None) -> EventsRead:
    """The events of all answers that concern one of the objects. `gap` replaces that of the first answer."""
    found = happenings([event for answer in answers for event in answer.events])
    kept = tuple(item for item in found if any(concerns(item.about, ref) for ref in about))
    return EventsRead(kept, answers[0].gap if gap is None else gap, answers[0].error)


def event_facts(event: Manifest) -> Manifest:
    """The fields that `read_event` uses, so that a long list of events takes less memory."""
    head = {key: value for key, value in meta(event).items() if key in EVENT_HEAD}
    return {**{key: value for key, value in event.items() if key in EVENT_FIELDS}, "metadata": head}


def _keep_about(objects: Sequence[ObjectRef]) -> Callable[[Manifest], Manifest | None]:
    known: dict[ObjectRef, bool] = {}

    def keep(event: Manifest) -> Manifest | None:
        named = _named(event)
        if named not in known:
            known[named] = any(concerns(named, ref) for ref in objects)
        return event_facts(event) if known[named] else None

    return keep


async def _list_events(
    cluster: Cluster, about: ObjectRef, keep: Keep = event_facts, *, warnings: bool = False
) -> _Listed:
    """The events of an object, of a kind, or all of them, in one namespace or in all.

    Both APIs show the same events: the second one is used if the first one refuses.
    """
    errors: list[ClusterError] = []
    for version, field in ((CORE, "involvedObject"), (NEWER, "regarding")):
        terms = {
            f"{field}.name": about.name,
            f"{field}.kind": about.kind,
            "type": "Warning" if warnings else "",
        }
        selector = ",".join(f"{name}={value}" for name, value in terms.items() if value)
        query = ListQuery(
            "Event", about.namespace, version, field_selector=selector, limit=MAX_EVENTS, keep=keep
        )
        try:
            listing = await cluster.list(query)
        except ClusterError as error:
            errors.append(error)
            if error.reason is ClusterReason.TIMEOUT:
                break
            continue
        where = f"in {about.namespace}" if about.namespace else "in all namespaces"
        gap = "" if listing.complete else f"events {where} that come later by name"
        return _Listed(listing.items, gap)
    return _Listed(error=errors[0])


async def _made_by(cluster: Cluster, about: ObjectRef) -> tuple[list[ObjectRef], str]:
    """The objects that controllers made for a workload, and those that could not be listed.

    Owners of pods come first, then failing pods, then the others; newer ones before older ones.
    """
    if not about.kind:
        return [], f"events of what belongs to {about.name}"
    labels, found, gap = await selector_of(cluster, about), list[Manifest](), ""
    for kind in MADE_NAMES.get(about.kind, {}):
        read = cluster.list(ListQuery(kind, about.namespace, label_selector=labels))
        listing = await or_none(read) or Listing((), complete=False)
        found += listing.items
        if not listing.complete:
            gap = f"events of some objects of kind {kind} that belong to {about}"
    newest = sorted(found, key=lambda item: text(meta(item).get("creationTimestamp")), reverse=True)
    ranked = sorted(newest, key=lambda item: (item.get("kind") == "Pod", not pod_failing(item)))
    refs = (reference(item) for item in ranked)
    return [ref for ref in refs if belongs_by_name(about, ref)], gap


def concerns(named: ObjectRef, about: ObjectRef) -> bool:
    """True if an object is that object, or, by its name, one that a controller made for it."""
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
