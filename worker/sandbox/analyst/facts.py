"""What is known, and what would have to be asked to know more.

Rules ask this store for objects, tables, events and logs. What is not there yet is remembered as a question; when the
rules have run, the open questions become the next round of tool calls, and everything is thought through again with
the answers. A question is asked once: an error is an answer too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst import observations
from worker.sandbox.analyst.observations import Event, Log, Table
from worker.sandbox.analyst.refs import CLUSTER_SCOPED, Key, as_list, key_of, owners_of
from worker.sandbox.analyst.transcript import Call, Seen, Transcript

NOT_FOUND = re.compile(r"not ?found|does not exist|no such", re.IGNORECASE)
CATALOG_TOOLS = frozenset({"list_available_actions", "list_workflows", "get_workflow"})
MISSING_LINE = re.compile(
    r"^([A-Z]\w*) (?:([a-z0-9][\w.-]*)/)?([a-z0-9][\w.:-]*) does not exist", re.MULTILINE
)
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """An answer of the catalog (empty for an error), and the target whose labels it was filtered by."""

    call: Call
    body: Manifest
    target: ObjectRef | None


class Facts:
    """The store. `wanted` are the open questions, in the order in which rules asked them."""

    def __init__(self, transcript: Transcript) -> None:
        self.incident = transcript.incident
        self.wanted: list[Call] = []
        self.events: list[Event] = []
        self.tables: list[Table] = []
        self.logs: list[Log] = []
        self.contexts: list[tuple[ObjectRef, Manifest]] = []
        self.catalog: list[CatalogAnswer] = []
        self.changes: dict[str, tuple[str, ...]] = {}
        self._objects: dict[Key, Manifest] = {}
        self._absent: set[Key] = set()
        self._asked = {signature(call) for call in transcript.calls}
        self._tools = transcript.tools
        for seen in transcript.seen:
            self._take(seen)
        self.events = sorted(dict.fromkeys(self.events), key=lambda e: e.time)

    # ---- reading evidence

    def _take(self, seen: Seen) -> None:
        source = seen.source.lower()
        if source == "sender":
            return
        if source in CATALOG_TOOLS:
            target = self.contexts[-1][0] if self.contexts else None
            body = {} if seen.failed else observations.read_json(seen)
            self.catalog.append(CatalogAnswer(seen.call or Call(source, {}), body, target))
        elif seen.failed:
            self._take_error(seen)
        elif source == "enrichment:changes":
            match = observations.OBJECT_SCOPE.search(seen.scope)
            if match:
                self.changes[f"{match['kind']} {match['ns']}/{match['name']}"] = tuple(seen.body.splitlines())
        elif source == "get_pod_logs" or (observations.LOG_SCOPE.search(seen.scope) and "log" in source):
            self._take_log(seen)
        else:
            self._take_cluster(seen)

    def _take_error(self, seen: Seen) -> None:
        call = seen.call
        if (
            call
            and call.name == "get_resource"
            and not call.arguments.get("path")
            and NOT_FOUND.search(seen.body)
        ):
            arguments = call.arguments
            self._absent.add(
                key_of(
                    str(arguments.get("kind")),
                    str(arguments.get("name")),
                    str(arguments.get("namespace") or ""),
                )
            )
        elif call is None and NOT_FOUND.search(seen.body):
            match = observations.OBJECT_SCOPE.search(seen.scope)
            if match:
                self._absent.add(key_of(match["kind"], match["name"], match["ns"] or ""))

    def _take_log(self, seen: Seen) -> None:
        log = observations.read_log(seen)
        if log is not None:
            self.logs.append(log)

    def _take_cluster(self, seen: Seen) -> None:
        for kind, namespace, name in MISSING_LINE.findall(seen.body):
            self._absent.add(key_of(kind, name, namespace))
        events = observations.read_events(seen.body)
        if events:
            self.events.extend(events)
            return
        body = seen.body.lstrip()
        if body.startswith("{"):
            self._take_json(seen)
            return
        resource = self.incident.resource
        home = resource.name if resource.kind == "Namespace" else resource.namespace
        table = observations.read_table(seen, home)
        if table is not None:
            self.tables.append(table)

    def _take_json(self, seen: Seen) -> None:
        value = observations.read_json(seen)
        if observations.looks_like_context(value):
            arguments = seen.call.arguments if seen.call else {}
            target = ObjectRef(
                str(arguments.get("kind") or ""),
                str(arguments.get("name") or ""),
                str(arguments.get("namespace") or ""),
            )
            self.contexts.append((target, value))
            return
        if seen.call and seen.call.arguments.get("path"):
            return
        for manifest in observations.read_objects(seen):
            self._add(manifest)

    def _add(self, manifest: Manifest) -> None:
        kind = str(manifest.get("kind") or "")
        if kind.endswith("List"):
            for item in as_list(manifest.get("items")):
                if isinstance(item, dict):
                    self._add({"kind": kind.removesuffix("List"), **item})
            return
        meta = manifest.get("metadata")
        if isinstance(meta, dict) and meta.get("name"):
            self._objects[key_of(kind, str(meta["name"]), str(meta.get("namespace") or ""))] = manifest

    # ---- asking

    def want(self, tool: str, /, **arguments: Any) -> None:
        """Note a question, once. Empty arguments are left out."""
        call = Call(tool, {k: v for k, v in arguments.items() if v not in ("", None, False)})
        if tool in self._tools and signature(call) not in self._asked:
            self._asked.add(signature(call))
            self.wanted.append(call)

    def can_ask(self, name: str) -> bool:
        """Whether there is a tool of that name."""
        return name in self._tools

    def get(
        self, kind: str, name: str, namespace: str = "", api_version: str = "", *, ask: bool = True
    ) -> Manifest | None:
        """The object, None when it is absent, unreadable or not asked for yet."""
        key = key_of(kind, name, namespace)
        found = self._objects.get(key)
        if found is None and ask and name and kind and key not in self._absent and kind.lower() != "secret":
            scoped = "" if kind.lower() in CLUSTER_SCOPED else namespace
            self.want(
                "get_resource", kind=kind, name=name, namespace=scoped, api_version=_spelled(api_version)
            )
        return found

    def of(self, ref: ObjectRef, *, ask: bool = True) -> Manifest | None:
        """The object behind a reference."""
        return self.get(ref.kind, ref.name, ref.namespace, ref.api_version, ask=ask)

    def absent(self, kind: str, name: str, namespace: str = "") -> bool:
        """Whether it is known not to exist: not found, or missing from a whole listing of its kind."""
        key = key_of(kind, name, namespace)
        if key in self._absent:
            return True
        if key in self._objects:
            return False
        return any(
            t.whole and t.kind.lower() == kind.lower() and t.namespace == key[1] and all(row.get("NAME") != name for row in t.rows)
            for t in self.tables
        )  # fmt: skip

    def objects(self, kind: str, namespace: str | None = None) -> Iterator[Manifest]:
        """Every known object of a kind."""
        for (known, ns, _name), manifest in self._objects.items():
            if known == kind.lower() and namespace in (None, ns):
                yield manifest

    def rows(
        self, kind: str, namespace: str = "", *, ask: bool = True, **filters: str
    ) -> list[dict[str, str]]:
        """Rows of the listings of a kind in a namespace (all namespaces when empty), newest listing first."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        whole = False
        for table in reversed(self.tables):
            if table.kind.lower() != kind.lower():
                continue
            whole = whole or (table.whole and table.namespace in (namespace, ""))
            for row in table.rows:
                place = row.get("NAMESPACE") or table.namespace
                if not namespace or place == namespace:
                    found.setdefault((place, row.get("NAME", "")), {"NAMESPACE": place, **row})
        if ask and not whole:
            self.want("list_resources", kind=kind, namespace=namespace, **filters)
        return list(found.values())

    def listed_for(self, ref: ObjectRef, kind: str) -> bool:
        """Whether the parts of an object of a kind, such as the pods of a workload, were listed already."""
        return any(t.about == str(ref) and t.kind == kind for t in self.tables)

    def events_of(self, *refs: ObjectRef) -> list[Event]:
        """Events about any of the objects, oldest first."""
        names = {(r.kind.lower(), r.name) for r in refs}
        return [e for e in self.events if (e.kind.lower(), e.name) in names]

    def ask_events(self, namespace: str) -> None:
        """Ask for all events of a namespace (of all namespaces when empty)."""
        self.want("get_events", namespace=namespace)

    def log(
        self, namespace: str, pod: str, container: str = "", *, previous: bool, ask: bool = True
    ) -> tuple[str, ...]:
        """Lines of a container's log, empty when there are none or they were not asked for yet."""
        for log in self.logs:
            same = (log.namespace, log.pod, log.previous) == (namespace, pod, previous)
            if same and (not container or not log.container or log.container == container):
                return log.lines
        if ask:
            self.want("get_pod_logs", pod=pod, namespace=namespace, container=container, previous=previous)
        return ()

    def asked(self, tool: str, /, **arguments: Any) -> bool:
        """Whether the question was put before, answered or not."""
        return (
            signature(Call(tool, {k: v for k, v in arguments.items() if v not in ("", None, False)}))
            in self._asked
        )

    def root_of(self, manifest: Manifest, *, ask: bool = True, depth: int = 5) -> ObjectRef | None:
        """The topmost controlling owner, as far as it is known; None for an object without one."""
        owner = next(iter(owners_of(manifest)), None)
        controlled = any(
            isinstance(o, dict) and o.get("controller")
            for o in as_list((manifest.get("metadata") or {}).get("ownerReferences"))
        )
        if owner is None or not controlled or depth == 0:
            return None
        above = self.of(owner, ask=ask)
        return (self.root_of(above, ask=ask, depth=depth - 1) if above else None) or owner


def _spelled(api_version: str) -> str:
    return api_version if "." in api_version.split("/", maxsplit=1)[0] else ""


def signature(call: Call) -> str:
    """What makes two calls the same question."""
    kept = {k: v for k, v in call.arguments.items() if v not in ("", None, False)}
    return f"{call.name} {json.dumps(kept, sort_keys=True, default=str)}"


def texts(seen: Iterable[Seen]) -> Iterator[tuple[str, str]]:
    """Source and body of every piece of data, for what looks at all text."""
    for item in seen:
        yield f"{item.source} {item.scope}".strip(), item.body
