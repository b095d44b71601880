"""Objects of one kind as a table: a header row, then one row an object, cells separated by ` | `.

Failing objects come first, because the end of a long table is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from worker.domain.cluster.fields import age, dig, mapping, mappings, meta, name_of, text
from worker.domain.cluster.pods import deletion, pod_failing
from worker.domain.cluster.rendering import columns as render_columns
from worker.domain.cluster.rendering import workload_columns as render_workloads
from worker.domain.cluster.rendering.compact import Excerpt, render_object
from worker.domain.cluster.rendering.prune import image_digest, same_tag_differs
from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.objects import Manifest
from worker.domain.values.tokens import estimate_tokens

MAX_CELL = 180  # characters
SEPARATOR = " | "

Row = dict[str, str]
COLUMNS: dict[str, Callable[[Manifest, datetime], Row]] = {
    **render_workloads.COLUMNS,
    **render_columns.COLUMNS,
}


def render_table(
    kind: str, items: Sequence[Manifest], now: datetime, max_tokens: int, *, all_namespaces: bool = False
) -> Excerpt:
    """The table of `items`, all of the kind `kind`. `now` is the moment ages are counted from."""
    ordered = _failing_first(items)
    rows = [_row(kind, item, now, all_namespaces=all_namespaces) for item in ordered]
    if kind == "Pod" and same_tag_differs(item.get("status") for item in ordered):
        for row, item in zip(rows, ordered, strict=True):
            found = mappings(dig(item, "status", "containerStatuses"))
            row["IMAGE IDS"] = cell(", ".join(f"{text(c.get('name'))}@{image_digest(c)}" for c in found))
    if kind != "Pod" and any(meta(item).get("deletionTimestamp") for item in ordered):
        for row, item in zip(rows, ordered, strict=True):
            row["DELETION"] = cell(deletion(item))
    header = list(rows[0]) if rows else ["NAME"]
    lines = [
        SEPARATOR.join(header),
        *(SEPARATOR.join(row.get(column, "") for column in header) for row in rows),
    ]
    kept = _that_fit(lines, max_tokens)
    return Excerpt("\n".join(kept), len(kept) - 1, len(rows))


def render_lines(items: Sequence[Manifest], max_tokens: int) -> Excerpt:
    """The objects as compact JSON, one a line.

    One that is too long by itself is shrunk as `render_object` does.
    """
    lines = [redact(render_object(item, max_tokens).body) for item in _failing_first(items)]
    kept = _that_fit(lines, max_tokens)
    return Excerpt("\n".join(kept), len(kept), len(lines))


def _failing_first(items: Iterable[Manifest]) -> list[Manifest]:
    return sorted(
        items, key=lambda item: (not unhealthy(item), text(meta(item).get("namespace")), name_of(item))
    )


def _row(kind: str, item: Manifest, now: datetime, *, all_namespaces: bool) -> Row:
    row: Row = {"NAMESPACE": text(meta(item).get("namespace"))} if all_namespaces else {}
    row["NAME"] = name_of(item)
    row |= COLUMNS.get(kind, other_columns)(item, now)
    row["AGE"] = age(meta(item).get("creationTimestamp"), now)
    return {column: cell(value) for column, value in row.items()}


def cell(value: str) -> str:
    """Text for one cell: one line, bounded, and no separator inside."""
    return one_line(value, MAX_CELL).replace("|", "/") or "-"


def _that_fit(lines: list[str], max_tokens: int) -> list[str]:
    room = max_tokens
    kept: list[str] = []
    for line in lines:
        room -= estimate_tokens(line) + 1
        if room < 0 and kept:
            break
        kept.append(line)
    return kept


def other_columns(item: Manifest, _now: datetime) -> Row:
    """Columns of other kinds: their status."""
    status = mapping(item.get("status"))
    told = [text(status.get(field)) for field in ("phase", "state") if text(status.get(field))]
    told += render_columns.conditions(status.get("conditions"))
    return {"CONDITIONS": ", ".join(told)}


def unhealthy(item: Manifest) -> bool:
    """True if the object's status reports trouble. False for kinds without such a notion."""
    kind = text(item.get("kind"))
    if kind == "Pod":
        return pod_failing(item)
    judge = render_workloads.UNHEALTHY.get(kind) or render_columns.UNHEALTHY.get(kind)
    if judge:
        return judge(item)
    return bool(render_columns.bad_conditions(item))
