"""The known facts about the cluster, and the reads that would tell more.

Rules ask this store and continue with what it has. A fact that is not known yet becomes an open question and
counts as unknown. When the rules have run, a driver reads the open questions, and the rules run again, until
no question is open or the budget is spent. So rules are pure functions, and conclusions can be repeated.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from worker.domain.cluster import kinds
from worker.domain.cluster.events import Happening, happenings
from worker.domain.cluster.fields import dig, name_of
from worker.domain.values.objects import Listing, Manifest, ObjectRef

API_VERSIONS = {**kinds.API_VERSIONS, "Certificate": "cert-manager.io/v1"}
CLUSTER_SCOPED = kinds.CLUSTER_SCOPED | {"ClusterIssuer"}
DEPENDED_ON = frozenset(
    ("Pod", "Service", "ConfigMap", "Namespace", "NetworkPolicy", "Node", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
)  # fmt: skip
"""Kinds whose state can explain the state of a workload that uses them."""


@dataclass(frozen=True, slots=True)
class Question:
    """One read. Without a name it is about all objects of the kind in the namespace (empty: in all of them).

    `node` asks for the pods on it, `about` (`Pod/api-0`) for the events of one object. The kind LOG asks for
    the end of a container's log; `name` is the pod.
    """

    kind: str
    namespace: str = ""
    name: str = ""
    api_version: str = ""
    node: str = ""
    about: str = ""
    container: str = ""
    previous: bool = False

    def __str__(self) -> str:
        """`Pod shop/api-0`, `Pods of namespace shop`, `Pods of node w1`, `log of Pod a/b container c`."""
        if self.kind == LOG:
            run = "previous " if self.previous else ""
            return f"{run}log of Pod {self.namespace}/{self.name} container {self.container}"
        if self.name:
            return str(ObjectRef(self.kind, self.name, self.namespace))
        if self.about:
            return f"events of {self.about} in namespace {self.namespace}"
        home = f"namespace {self.namespace}" if self.namespace else "the cluster"
        place = f"node {self.node}" if self.node else home
        return f"{self.kind} objects of {place}"


class Presence(enum.StrEnum):
    """The existence of an object. UNKNOWN: not read yet, forbidden, timed out, or cut from a list."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


LOG = "Log"
ReadResult = Listing | Manifest | tuple[str, ...] | Presence
"""The result of a read: objects, one object, lines of a log, or only that it is absent or unknown."""


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects of one kind. `complete`: there are no others. False if that is unknown."""

    items: tuple[Manifest, ...] = ()
    complete: bool = False


@dataclass
class ClusterFacts:
    """The store. `now` is the time of the incident; `open` are the unanswered questions of the rules.

    `answers` may be filled with what was read earlier in a run. `texts` tells whether logs may be read: what
    programs write leads to objects and causes that never corroborate an answer.
    """

    now: datetime | None = None
    texts: bool = False
    answers: dict[Question, ReadResult] = field(default_factory=dict)
    open: dict[Question, None] = field(default_factory=dict)
    _events: dict[str, tuple[Happening, ...]] = field(default_factory=dict)

    def presence(self, ref: ObjectRef) -> Presence:
        """Whether the object exists."""
        found = self._find(ref)
        return found if isinstance(found, Presence) else Presence.PRESENT

    def get(self, ref: ObjectRef) -> Manifest | None:
        """The object; None when it is absent or unknown (`presence` tells which)."""
        found = self._find(ref)
        return None if isinstance(found, Presence) else found

    def list(self, kind: str, namespace: str = "", *, node: str = "", api_version: str = "") -> Objects:
        """Objects of a kind in a namespace, or all pods of a node."""
        question = Question(kind, namespace, "", api_version or API_VERSIONS.get(kind, ""), node)
        whole = self.answers.get(replace(question, node="")) if node else None
        if isinstance(whole, Listing) and whole.complete:
            return Objects(tuple(p for p in whole.items if dig(p, "spec", "nodeName") == node), complete=True)
        answer = self._ask(question)
        if isinstance(answer, Listing):
            return Objects(answer.items, answer.complete)
        return Objects(complete=answer is Presence.ABSENT)

    def events(self, namespace: str, *refs: ObjectRef) -> tuple[Happening, ...]:
        """Events about any of the objects, oldest first; in a busy namespace they are queried by name."""
        wanted = {(ref.kind, ref.name) for ref in refs}
        known = tuple(e for e in self.events_in(namespace) if (e.about.kind, e.about.name) in wanted)
        listed = self.list("Event", namespace)
        if listed.complete or not listed.items:
            return known
        answers = [self._ask(_events_of(namespace, ref)) for ref in refs]
        items = [item for answer in answers if isinstance(answer, Listing) for item in answer.items]
        return tuple(happenings(items)) or known

    def events_in(self, namespace: str) -> tuple[Happening, ...]:
        """Events of a namespace, oldest first: all of them, or as many as are read at once."""
        listed = self.list("Event", namespace)
        found = self._events.get(namespace)
        if found is None:
            found = tuple(happenings(listed.items))
            if listed.items or listed.complete:
                self._events[namespace] = found
        return found

    def log(self, pod: ObjectRef, container: str, *, previous: bool) -> tuple[str, ...]:
        """The end of a container's log; empty if there is none, it is unknown, or logs may not be read."""
        if not self.texts:
            return ()
        answer = self._ask(Question(LOG, pod.namespace, pod.name, container=container, previous=previous))
        return answer if isinstance(answer, tuple) else ()

    @property
    def unsettled(self) -> bool:
        """True if a dependency is unknown: not read in the budget, forbidden, timed out or cut."""
        asked = {**dict.fromkeys(self.open, Presence.UNKNOWN), **self.answers}
        found = [a for question, a in asked.items() if question.kind in DEPENDED_ON or question.about]
        return any(a is Presence.UNKNOWN or (isinstance(a, Listing) and not a.complete) for a in found)

    def unread(self, kinds: Collection[str]) -> str:
        """Return which list of objects of these kinds was asked for in vain, else ""."""
        unknown = (q for q, found in self.answers.items() if found is Presence.UNKNOWN)
        return next((f"the {q} could not be read" for q in unknown if q.kind in kinds and not q.name), "")

    def answer(self, answers: Mapping[Question, ReadResult]) -> None:
        """Add the results of reads. Their questions are no longer open."""
        self.answers.update(answers)
        for question in answers:
            self.open.pop(question, None)

    def _find(self, ref: ObjectRef) -> Manifest | Presence:
        namespace = "" if ref.kind in CLUSTER_SCOPED else ref.namespace
        version = ref.api_version or API_VERSIONS.get(ref.kind, "")
        question = Question(ref.kind, namespace, ref.name, version)
        if question in self.answers:
            found = self.answers[question]
            return found if isinstance(found, dict | Presence) else Presence.UNKNOWN
        listed = self.answers.get(Question(ref.kind, namespace, "", version))
        if isinstance(listed, Listing):
            item = next((i for i in listed.items if name_of(i) == ref.name), None)
            if item is not None:
                return item
            if listed.complete:
                return Presence.ABSENT
        answer = self._ask(question)
        return answer if isinstance(answer, dict | Presence) else Presence.UNKNOWN

    def _ask(self, question: Question) -> ReadResult:
        if question in self.answers:
            return self.answers[question]
        self.open[question] = None
        return Presence.UNKNOWN


def _events_of(namespace: str, ref: ObjectRef) -> Question:
    return Question("Event", namespace, "", API_VERSIONS["Event"], about=f"{ref.kind}/{ref.name}")
