"""Answers the questions of the rules from tool results, and says which tool calls would answer the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from worker.domain.cluster.fields import mapping, name_of, reference
from worker.domain.cluster.kinds import API_VERSIONS, CLUSTER_SCOPED, is_secret
from worker.domain.diagnosis.facts import LOG, ClusterFacts, Presence, Question, ReadResult
from worker.domain.values.objects import Listing, Manifest, ObjectRef
from worker.sandbox.analyst.choose import ACTIONS
from worker.sandbox.analyst.transcript import Call, Seen, Transcript, call_to

Conclusion = TypeVar("Conclusion")
EVENT = re.compile(
    r"^(?P<last>\S+) (?P<type>\w+) (?P<reason>\S+)(?: x(?P<count>\d{1,9}))?(?: \(since (?P<first>[^)]+)\))? "
    r"(?P<kind>[A-Z]\w*) (?:(?P<namespace>[^\s/:]+)/)?(?P<name>\S+?): (?P<message>.*)$"
)
MAX_MISSING = 8
ABSENT = re.compile(r"does not exist|does not know this kind")
USUAL = ("Pod", "ReplicaSet", "Event", "Service")
"""Kinds that nearly every diagnosis asks for: they are asked for together in the first round."""


@dataclass
class Lookup:
    """Tool results as answers. `wanted` are the calls still to be made, in the order of their questions."""

    transcript: Transcript
    wanted: dict[str, Call] = field(default_factory=dict)

    def conclude(self, facts: ClusterFacts, rules: Callable[[ClusterFacts], Conclusion]) -> Conclusion:
        """The conclusion of the rules from the present results. Open questions stay in `facts`."""
        conclusion = rules(facts)
        while facts.open:
            known = {q: r for q in facts.open if (r := self._answer(q)) is not None}
            if not known:
                break
            facts.answer(known)
            facts.open.clear()
            conclusion = rules(facts)
        return conclusion

    def calls(self) -> list[Call]:
        """The calls that are wanted; in the first round also for what nearly every diagnosis needs."""
        home = self.transcript.incident.resource.home
        if self._result(ACTIONS) is None and home:
            for kind in USUAL:
                self._result(call_of(Question(kind, home, "", API_VERSIONS[kind])))
        return list(self.wanted.values())

    def evidence_of(self, ref: ObjectRef) -> tuple[str, ...]:
        """Ids of the tool results that show an object: by itself, or in a list."""
        version = ref.api_version or API_VERSIONS.get(ref.kind, "")
        calls = [call_of(Question(ref.kind, ref.namespace, name, version)) for name in (ref.name, "")]
        found = [self.transcript.result(call) for call in calls]
        shown = (seen.evidence_id for seen in found if seen and f'"{ref.name}"' in seen.body)
        return tuple(dict.fromkeys(filter(None, shown)))

    def _result(self, call: Call) -> Seen | None:
        seen = self.transcript.result(call)
        if seen is None and call.name in self.transcript.tools:
            self.wanted.setdefault(call.signature, call)
        return seen

    def _answer(self, question: Question) -> ReadResult | None:
        """The answer; None when it is not there yet."""
        call = call_of(question)
        if is_secret(question.kind) or call.name not in self.transcript.tools:
            return Presence.UNKNOWN
        seen = self._result(call)
        if seen is None:
            return None
        if question.kind == LOG:
            return () if seen.failed else tuple(seen.body.splitlines())
        if question.kind == "Event":
            return Listing(tuple(_events(seen.body.splitlines())), complete=not (seen.failed or seen.cut))
        if seen.failed:
            absent = bool(ABSENT.search(seen.body))
            nothing = Presence.ABSENT if question.name else Listing(())
            return nothing if absent else Presence.UNKNOWN
        return (
            (_object(seen.body) or Presence.UNKNOWN) if question.name else self._listing(question, call, seen)
        )

    def _listing(self, question: Question, call: Call, seen: Seen) -> Listing:
        """A list. If it was cut, the missing objects of the table of all objects are read one by one."""
        items = [item for line in seen.body.splitlines() if (item := _object(line))]
        if not seen.cut or (not question.namespace and question.kind not in CLUSTER_SCOPED):
            return Listing(tuple(items), complete=not seen.cut)
        table = self._result(Call(call.name, {k: v for k, v in call.arguments.items() if k != "output"}))
        known = {(reference(i).namespace, name_of(i)) for i in items}
        names = [n for n in _named_in(table, question.namespace) if n not in known]
        for namespace, name in names[:MAX_MISSING]:
            one = self._result(call_of(Question(question.kind, namespace, name, question.api_version)))
            found = _object(one.body) if one else None
            items += [found] if found else []
        whole = table is not None and not table.cut and len(items) == len(known) + len(names)
        return Listing(tuple(items), complete=whole)


def _named_in(table: Seen | None, home: str) -> list[tuple[str, str]]:
    """Namespace and name of each row of a table."""
    rows = [line.split(" | ") for line in table.body.splitlines()] if table else []
    if len(rows) < 2 or "NAME" not in rows[0]:
        return []
    at, place = rows[0].index("NAME"), rows[0].index("NAMESPACE") if "NAMESPACE" in rows[0] else -1
    return [(row[place] if place >= 0 else home, row[at]) for row in rows[1:] if len(row) > max(at, place)]


def call_of(question: Question) -> Call:
    """The tool call that answers a question."""
    if question.kind == LOG:
        arguments = {"pod": question.name, "container": question.container, "previous": question.previous}
        return call_to("get_pod_logs", namespace=question.namespace, **arguments)
    if question.kind == "Event":
        kind, _, name = question.about.partition("/")
        return call_to("get_events", kind=kind, name=name, namespace=question.namespace)
    version = "" if API_VERSIONS.get(question.kind) == question.api_version else question.api_version
    place = {"kind": question.kind, "namespace": question.namespace, "api_version": version}
    if question.name:
        return call_to("get_resource", name=question.name, **place)
    node = f"spec.nodeName={question.node}" if question.node else ""
    return call_to("list_resources", field_selector=node, output="json", **place)


def _object(line: str) -> Manifest | None:
    try:
        manifest = mapping(json.loads(line))
    except (ValueError, RecursionError):
        return None
    return manifest if name_of(manifest) else None


def _first(match: re.Match[str]) -> str:
    """Return when an event was first seen: a time without its date is of the same day as the last one."""
    first, last = match["first"] or match["last"], match["last"]
    return first if "T" in first else f"{last.partition('T')[0]}T{first}"


def _events(lines: Iterable[str]) -> Iterator[Manifest]:
    """Event lines as events of the API."""
    for line in lines:
        match = EVENT.match(line)
        if match:
            about = ObjectRef(match["kind"], match["name"], match["namespace"] or "")
            yield {
                "kind": "Event",
                "type": match["type"],
                "reason": match["reason"],
                "message": match["message"],
                "count": int(match["count"] or 1),
                "firstTimestamp": _first(match),
                "lastTimestamp": match["last"],
                "involvedObject": {"kind": about.kind, "name": about.name, "namespace": about.namespace},
            }
