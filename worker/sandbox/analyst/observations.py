"""The bodies of evidence, read: objects, tables, events, logs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from worker.sandbox.analyst.refs import as_dict
from worker.sandbox.analyst.salvage import read_object
from worker.sandbox.analyst.transcript import Seen

EVENT = re.compile(
    r"^(?P<time>\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)|-) (?P<type>Normal|Warning|\w+) (?P<reason>\S+)"
    r"(?: x(?P<count>\d+))?(?: \(since (?P<since>[^)]+)\))? (?P<kind>[A-Z]\w*) (?P<object>[^\s:]+(?::[^\s:]+)*): (?P<message>.*)$"
)
LOG_SCOPE = re.compile(
    r"Pod (?P<ns>[^/\s]+)/(?P<pod>\S+?)(?: container (?P<container>[^,\s]+))?(?=,|\s|$)(?P<rest>.*)"
)
OBJECT_SCOPE = re.compile(r"(?P<kind>[A-Z]\w*) (?:(?P<ns>[a-z0-9][\w.-]*)/)?(?P<name>[a-z0-9][\w.:-]*)")
WHOLE_SCOPE = re.compile(r"^all |^quotas of |^pods of Namespace ")
UNPLACED = frozenset({"Node", "PersistentVolume", "StorageClass", "Namespace"})
COLUMNS_OF: tuple[tuple[str, frozenset[str]], ...] = (
    ("Pod", frozenset({"RESTARTS", "STATUS", "OWNER"})),
    ("Node", frozenset({"TAINTS"})),
    ("ConfigMap", frozenset({"KEYS"})),
    ("PersistentVolumeClaim", frozenset({"MODES", "VOLUME"})),
    ("PersistentVolume", frozenset({"CLAIM", "NODE AFFINITY"})),
    ("StorageClass", frozenset({"PROVISIONER"})),
    ("ResourceQuota", frozenset({"USED/HARD"})),
    ("Job", frozenset({"COMPLETIONS"})),
    ("Service", frozenset({"SELECTOR", "PORTS", "TYPE"})),
    ("Endpoints", frozenset({"READY", "NOT READY"})),
    ("StatefulSet", frozenset({"READY/DESIRED", "CLAIMS"})),
    ("ReplicaSet", frozenset({"READY/DESIRED", "OWNER"})),
    ("Deployment", frozenset({"READY/DESIRED", "UPDATED", "CONDITIONS"})),
)


@dataclass(frozen=True, slots=True)
class Event:
    """One event line. Times are RFC 3339 texts; `since` is empty for an event that was seen once."""

    time: str
    type: str
    reason: str
    count: int
    since: str
    kind: str
    name: str
    namespace: str
    message: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a listing by column name. `kind` and `namespace` are empty when they are not known.

    `about` is the object whose parts are listed, such as the workload of the pods.
    """

    kind: str
    namespace: str
    rows: tuple[dict[str, str], ...]
    whole: bool
    about: str = ""


@dataclass(frozen=True, slots=True)
class Log:
    """Lines of one container's log."""

    namespace: str
    pod: str
    container: str
    previous: bool
    lines: tuple[str, ...]


def read_events(body: str) -> list[Event]:
    """Every event line of a body; other lines are left out."""
    return [event for line in body.splitlines() if (event := _event(line.strip()))]


def _event(line: str) -> Event | None:
    match = EVENT.match(line)
    if match is None:
        return None
    namespace, _, name = match["object"].rpartition("/")
    return Event(
        time="" if match["time"] == "-" else match["time"],
        type=match["type"],
        reason=match["reason"],
        count=int(match["count"] or 1),
        since=match["since"] or "",
        kind=match["kind"],
        name=name,
        namespace=namespace,
        message=match["message"],
    )


def read_table(seen: Seen, home: str = "") -> Table | None:
    """A listing, None when the body has no header row. `home` is the namespace of the signal's resource."""
    lines = [line for line in seen.body.splitlines() if line.strip()]
    header = next((i for i, line in enumerate(lines) if _is_header(line)), None)
    if header is None and (seen.source != "list_resources" or seen.failed):
        return None
    columns = [] if header is None else [c.strip() for c in lines[header].split(" | ")]
    rows = [] if header is None else _rows(columns, lines[header + 1 :])
    if seen.call is not None:
        arguments = seen.call.arguments
        filtered = any(arguments.get(k) for k in ("label_selector", "field_selector", "only_unhealthy"))
        kind, namespace = str(arguments.get("kind") or ""), str(arguments.get("namespace") or "")
        return Table(kind, namespace, tuple(rows), whole=not (filtered or seen.cut))
    kind = _kind_of(columns)
    about = OBJECT_SCOPE.search(seen.scope)
    place = (
        (about["name"].rstrip(":") if about["kind"] == "Namespace" else about["ns"] or home)
        if about
        else home
    )
    whole = not seen.cut and bool(WHOLE_SCOPE.search(seen.scope))
    return Table(kind, "" if kind in UNPLACED else place, tuple(rows), whole, _about(about))


def _rows(columns: list[str], lines: list[str]) -> list[dict[str, str]]:
    found = []
    for line in lines:
        cells = [c.strip() for c in line.split(" | ")]
        if len(cells) >= 2 or len(columns) == 1:
            found.append({k: "" if v == "-" else v for k, v in zip(columns, cells, strict=False)})
    return found


def _is_header(line: str) -> bool:
    first = line.split(" | ", maxsplit=1)[0].strip()
    return first in {"NAME", "NAMESPACE"}


def _kind_of(columns: list[str]) -> str:
    """The kind whose columns these are: what the first look gathers does not say it in a form of its own."""
    there = set(columns)
    return next((kind for kind, needed in COLUMNS_OF if needed <= there), "")


def _about(match: re.Match[str] | None) -> str:
    if match is None:
        return ""
    name = match["name"].rstrip(":")
    return f"{match['kind']} {match['ns']}/{name}" if match["ns"] else f"{match['kind']} {name}"


def read_objects(seen: Seen) -> list[dict[str, Any]]:
    """Manifests of a body: one JSON object, or one on each line."""
    found = []
    value, whole = read_object(seen.body)
    if value and whole and seen.body.strip().count("\n{") == 0:
        return [value] if "kind" in value else []
    for line in seen.body.splitlines():
        part, _ = read_object(line)
        if part and "kind" in part:
            found.append(part)
    if not found and value and "kind" in value:
        found.append(value)
    return found


def read_log(seen: Seen) -> Log | None:
    """A log; where it is from stands in the scope, or in the arguments of the call."""
    arguments = seen.call.arguments if seen.call else {}
    match = LOG_SCOPE.search(seen.scope)
    if match is None and not arguments.get("pod"):
        return None
    previous = bool(arguments.get("previous"))
    if match is not None and "previous" in match["rest"]:
        previous = True
    return Log(
        namespace=match["ns"] if match else str(arguments.get("namespace") or ""),
        pod=match["pod"] if match else str(arguments.get("pod")),
        container=(match["container"] or "") if match else str(arguments.get("container") or ""),
        previous=previous,
        lines=tuple(seen.body.splitlines()),
    )


def looks_like_context(value: dict[str, Any]) -> bool:
    """Whether a JSON object is an answer of get_resource_context."""
    return "owner_chain" in value or "root_owner" in value


def read_json(seen: Seen) -> dict[str, Any]:
    """The JSON object of a body, empty when there is none."""
    value, _ = read_object(seen.body)
    return as_dict(value)
