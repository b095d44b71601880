"""Reading the events of an object, a namespace or the cluster from both event APIs at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from worker.domain.cluster.kinds import WORKLOADS, belongs_by_name
from worker.domain.cluster.timeline import Happening, happenings
from worker.domain.values.errors import ClusterError
from worker.domain.values.objects import Listing, ListQuery, ObjectRef
from worker.domain.values.ports import Cluster

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
    answers = await asyncio.gather(*(_listed(cluster, query) for query in queries))
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
