"""Events as lines within a budget, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from worker.domain.cluster.events import Happening
from worker.domain.cluster.rendering.compact import Excerpt
from worker.domain.values.tokens import estimate_tokens

START_REASONS = frozenset({"Pulled", "Created", "Started"})
"""Reasons of the events by which the kubelet reports the start of a container."""
ONE_START = timedelta(seconds=5)
"""Events of one start are at most this far apart."""


def timeline(items: Sequence[Happening], max_tokens: int) -> Excerpt:
    """The newest events within the budget, oldest first.

    Warnings take precedence, and of each group the newest event of each reason, kind and namespace: so that
    many similar events do not push out the only one of another kind.
    """
    total, items = len(items), joined_starts(items)
    newest = range(len(items) - 1, -1, -1)
    groups = [(item.type, item.reason, item.about.kind, item.about.namespace) for item in items]
    leading = frozenset({group: index for index, group in enumerate(groups)}.values())
    ranked = sorted(newest, key=lambda index: (not items[index].warning, index not in leading))
    room, shown = max_tokens, set[int]()
    for index in ranked:
        cost = estimate_tokens(items[index].line()) + 1
        if cost <= room:
            shown.add(index)
            room -= cost
    body = "\n".join(items[i].line() for i in sorted(shown))
    left_out = sum(items[i].reason.count("+") + 1 for i in newest if i not in shown)
    return Excerpt(body, total - left_out, total)


def joined_starts(items: Sequence[Happening]) -> list[Happening]:
    """The events, with each start of a container as one event.

    The kubelet reports a start by three (pulled, created, started).
    """
    kept: list[Happening] = []
    for item in items:
        last = kept[-1] if kept else item
        reasons, same = last.reason.split("+"), (last.about, last.count) == (item.about, item.count)
        starts = START_REASONS.issuperset([item.reason, *reasons]) and item.reason not in reasons
        if starts and same and item.last - last.last <= ONE_START:
            message = f"{last.message}; {item.message}"
            first = min(last.first, item.first)
            kept[-1] = replace(item, first=first, reason=f"{last.reason}+{item.reason}", message=message)
        else:
            kept.append(item)
    return kept
