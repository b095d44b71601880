"""Reads from the evidence which objects and states the cluster reports.

It tells which objects were seen, and which are said to be absent.

Only what the cluster said counts, never what was asked of it. An object in the namespace of the signal, or of
cluster scope, is seen where its name stands as a whole word; a name that could be any word of a text must
stand where names stand (behind its kind or namespace, in a name field, first in a table row). In any other
namespace the object itself must have been read, or stand with its namespace.

Of the causal chain only what can be decided from structure is decided: whether the cited evidence exists, and
whether the cluster reports in it the state that a step names, such as OOMKilled. Everything else is for
humans to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from schemas.evidence import CausalClaim, ClaimSupport
from schemas.taxonomy import SignalType
from worker.domain.cluster.kinds import KINDS, canonical_kind
from worker.domain.untrusted.evidence import Evidence, EvidenceKind, one_line
from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.answers.answer import AnsweredClaim
from worker.domain.verdict.checks.report import CheckReport

BEFORE = r"(?<![a-zA-Z0-9.-])"
AFTER = r"(?![a-zA-Z0-9-]|\.[a-zA-Z0-9])"
NOT_IN_PATH = r"(?<![a-zA-Z0-9./-])"
NOT_AN_IMAGE = rf"{AFTER}(?![:@][a-zA-Z0-9])"
NOT_READ = ("Secrets are never read", "owner chain may go on: ")
GONE = "does not exist"
NEAR_CHARS = 200
ABSENCE = re.compile(
    r"not[ _-]?found|does(?:n't| not) exist|no such|missing|unable to retrieve|(?:could|can)(?:n't| not) find|cannot find"
    r"|deleted|removed|killing|terminat|replaced|no longer|not exist|absent|evicted",
    re.IGNORECASE,
)
"""How Kubernetes components (kubelet, controllers, API server) say that an object does not exist."""
STATED = frozenset({EvidenceKind.OBJECT, EvidenceKind.TABLE, EvidenceKind.EVENTS})
"""Kinds of evidence in which `reported` finds every reason."""
STATUS = '"status":{'
IN_DOCUMENT = re.compile(r'(?<!\\)"(?:reason|type|phase)":\s*"([A-Za-z]+)"')
IN_EVENT = re.compile(r"^\S+Z (?:Normal|Warning) ([A-Za-z]+)", re.MULTILINE)
IN_REASON = re.compile(r'(?<!\\)"reason":\s*"([A-Z][A-Za-z]+)"')
IN_WARNING = re.compile(r"^\S+Z Warning ([A-Z][A-Za-z]+)", re.MULTILINE)
CELL = " | "
WORD = re.compile(r"(?<![\w-])[A-Z][A-Za-z]+(?![\w-])")
SIGNS: Mapping[str, tuple[str, ...]] = {
    SignalType.OOM_KILLED: ("oomkilled", "oomkilling", "systemoom"),
    SignalType.CRASH_LOOP_BACK_OFF: ("crashloopbackoff", "backoff"),
    SignalType.IMAGE_PULL_BACK_OFF: (
        "imagepullbackoff",
        "errimagepull",
        "invalidimagename",
        "errimageneverpull",
    ),
    SignalType.EVICTED: ("evicted", "evictionthresholdmet"),
    SignalType.NODE_PRESSURE: (
        "memorypressure",
        "diskpressure",
        "pidpressure",
        "nodehasdiskpressure",
        "nodehasinsufficientmemory",
        "nodehasinsufficientpid",
        "evictionthresholdmet",
        "evicted",
    ),
    SignalType.NODE_NOT_READY: ("nodenotready", "notready", "nodestatusunknown", "kubeletnotready"),
    SignalType.POD_PENDING: (
        "podpending",
        "pending",
        "containercreating",
        "podinitializing",
        "failedscheduling",
    ),
    SignalType.FAILED_SCHEDULING: ("failedscheduling", "unschedulable"),
    SignalType.INSUFFICIENT_CPU: ("failedscheduling", "unschedulable", "outofcpu"),
    SignalType.INSUFFICIENT_MEMORY: ("failedscheduling", "unschedulable", "outofmemory"),
    SignalType.BACKOFF_LIMIT_EXCEEDED: ("backofflimitexceeded",),
    SignalType.DEADLINE_EXCEEDED: ("deadlineexceeded", "progressdeadlineexceeded"),
    SignalType.FAILED_MOUNT: ("failedmount", "failedattachvolume", "containercreating"),
}
"""The reasons by which Kubernetes reports each of the core signal types."""
SHOWN_CHARS: Final = 120
NAMED: Final = {name: re.compile(rf"(?<![\w-]){name}(?![\w-])") for name in SignalType}
DENIED: Final = re.compile(
    r"\b(?:not?|never|without|neither|nor|instead of|rather than|\w+n['’]t)\b", re.IGNORECASE
)
"""Words with which a sentence may say that a state is absent."""


def from_cluster(items: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """The items that are answers of the cluster."""
    return tuple(item for item in items if item.ok and item.kind is not EvidenceKind.OTHER)


def seen_in(ref: ObjectRef, items: Iterable[Evidence], home: str) -> tuple[Evidence, ...]:
    """The items that show the object. `home` is the namespace of the signal, empty for cluster scope."""
    if not ref.name:
        return ()
    near = not ref.namespace or ref.namespace == home
    stands = _named(ref) if near else None
    return tuple(
        item
        for item in from_cluster(items)
        if not _unread(ref, item)
        and (
            _was_read(ref, item)
            or (stands.search(item.body) is not None if stands else False)
            or _located(ref, item)
        )
    )


def stands_in(word: str, items: Iterable[Evidence]) -> bool:
    """True if the word occurs as a whole word in anything the cluster said."""
    whole = re.compile(rf"(?<![a-zA-Z0-9-]){re.escape(word)}(?![a-zA-Z0-9-])")
    return bool(word) and any(whole.search(item.body) for item in from_cluster(items))


def said_absent(ref: ObjectRef, text: str) -> bool:
    """True if the text says, near the name and kind of the object, that it does not exist."""
    named = re.compile(rf"(?<![a-zA-Z0-9-]){re.escape(ref.name)}(?![a-zA-Z0-9-])")
    for match in named.finditer(text):
        start = max(text.rfind("\n", 0, match.start()), match.start() - NEAR_CHARS)
        end = text.find("\n", match.end())
        near = text[start + 1 : min(end if end >= 0 else len(text), match.end() + NEAR_CHARS)]
        if ref.kind.lower() in near.lower().replace(" ", "") and ABSENCE.search(near):
            return True
    return False


def reported(item: Evidence) -> frozenset[str]:
    """The reasons of Kubernetes in one answer of the cluster, in lower case.

    They are read from status fields, events and tables, where no workload writes free text. Logs report
    nothing.
    """
    found: set[str] = set()
    if item.kind is EvidenceKind.EVENTS:
        found.update(IN_EVENT.findall(item.body))
    elif item.kind is not EvidenceKind.LOG:
        _, _, status = item.body.rpartition(STATUS)
        found.update(IN_DOCUMENT.findall(status))
        rows = (line for line in item.body.splitlines() if CELL in line and not line.startswith("{"))
        found.update(word for row in rows for word in WORD.findall(row))
    return frozenset(word.lower() for word in found) if from_cluster([item]) else frozenset()


def signal_reasons(item: Evidence) -> frozenset[str]:
    """The reasons in one answer of the cluster that may be a signal type, as the cluster spells them.

    They are those of containers, conditions and warning events: `FailedCreate`, `ProvisioningFailed`.
    """
    if not from_cluster([item]):
        return frozenset()
    if item.kind is EvidenceKind.EVENTS:
        return frozenset(IN_WARNING.findall(item.body))
    _, _, status = item.body.rpartition(STATUS) if item.kind is EvidenceKind.OBJECT else ("", "", "")
    return frozenset(IN_REASON.findall(status))


def decides(item: Evidence) -> bool:
    """True if a state that the item does not report is absent from the objects it covers."""
    return bool(from_cluster([item])) and item.kind in STATED and not item.cut


def is_reported(signal_type: str, reasons: frozenset[str]) -> bool:
    """True if the cluster reports the signal type, or if Kubernetes has no reason for this type."""
    signs = SIGNS.get(signal_type)
    return signs is None or not reasons.isdisjoint(signs)


def _was_read(ref: ObjectRef, item: Evidence) -> bool:
    """True if the item is this very object, whole or in part. Code writes the scope of a successful read."""
    named = item.scope == str(ref) or item.scope.startswith(f"{ref}, part ")
    shows_objects = item.kind in {EvidenceKind.OBJECT, EvidenceKind.OWNERS}
    return shows_objects and named and not item.body.startswith(GONE)


def _unread(ref: ObjectRef, item: Evidence) -> bool:
    """True if the object could not be read. A look at its owners names it all the same."""
    if item.kind is not EvidenceKind.OWNERS:
        return False
    secret, note = NOT_READ
    at = item.body.find(note)
    unread = at >= 0 and item.body.startswith(str(ref), at + len(note))
    return unread or (secret in item.body and item.scope == str(ref))


def _named(ref: ObjectRef) -> re.Pattern[str]:
    name, kind = re.escape(ref.name), re.escape(ref.kind)
    home = re.escape(ref.namespace)
    service = rf"{BEFORE}{name}\.{home}(?![a-zA-Z0-9-])" if home else r"(?!)"
    if not ref.name.isalpha():
        return re.compile(rf"{BEFORE}{name}{AFTER}|{service}")
    inside = rf"(?:{home}/)?" if home else ""
    forms = [
        rf"\b(?i:{kind})(?:s|es)?(?:\.[a-z0-9.]+)?[\s:=\"'`/(\[]{{1,3}}{inside}{name}{AFTER}",
        rf"\"[A-Za-z]*[nN]ame\"\s*:\s*\"{name}\"",
        rf"^{name} \| ",
        service,
    ]
    if home:
        forms += [rf"{NOT_IN_PATH}{home}/{name}{NOT_AN_IMAGE}", rf"^{home} \| {name} \| "]
    elif ref.kind == "Node":
        forms.append(rf" \| {name}(?= \| |$)")
    return re.compile("|".join(forms), re.MULTILINE)


def _located(ref: ObjectRef, item: Evidence) -> bool:
    """True if kind, namespace and name occur next to each other."""
    if not ref.namespace:
        return False
    name, namespace = re.escape(ref.name), re.escape(ref.namespace)
    written = re.compile(rf"(?:([A-Za-z]+)[ /])?{NOT_IN_PATH}{namespace}/{name}{NOT_AN_IMAGE}")
    if any(_may_be(ref, found[1] or "") for found in written.finditer(item.body)):
        return True
    if re.search(rf"{BEFORE}{name}\.{namespace}(?![a-zA-Z0-9-])", item.body):
        return True
    member = rf'\{{"kind":\s*"{re.escape(ref.kind)}",\s*"name":\s*"{name}",\s*"namespace":\s*"{namespace}"'
    return re.search(member, item.body) is not None or _in_table(ref, item)


def _may_be(ref: ObjectRef, word: str) -> bool:
    """True if a word before `namespace/name` leaves it open, or says, that the object is of this kind."""
    kind = canonical_kind(word)
    return kind not in KINDS or kind == canonical_kind(ref.kind)


def _in_table(ref: ObjectRef, item: Evidence) -> bool:
    """True if a row of a table of this kind is the object."""
    name, namespace = re.escape(ref.name), re.escape(ref.namespace)
    if item.kind is EvidenceKind.TABLE:
        if re.match(rf"{re.escape(ref.kind)} in {namespace}(?::| where )", item.scope):
            return re.search(rf"^{name} \| ", item.body, re.MULTILINE) is not None
        if not item.scope.startswith(f"{ref.kind} in all namespaces"):
            return False
    elif ref.kind != "Pod":
        return False
    return re.search(rf"^{namespace} \| {name} \| ", item.body, re.MULTILINE) is not None


def check_claims(
    chain: tuple[AnsweredClaim, ...], reported_by: Mapping[str, frozenset[str] | None], report: CheckReport
) -> tuple[CausalClaim, ...]:
    """Check each step. `reported_by` has the reasons that each piece of evidence reports, by its id.

    The reasons are None for evidence that cannot decide: free text, or what was cut.
    """
    return tuple(_checked(claim, reported_by, report) for claim in chain)


def _checked(
    claim: AnsweredClaim, reported_by: Mapping[str, frozenset[str] | None], report: CheckReport
) -> CausalClaim:
    cited = tuple(id_ for id_ in claim.evidence if id_ in reported_by)
    if unknown := [id_ for id_ in claim.evidence if id_ not in reported_by]:
        shown = one_line(", ".join(unknown), SHOWN_CHARS)
        report.warnings.append(f"The causal chain cites {shown}, which is not in the evidence.")
    support = _support(claim.text, [reported_by[id_] for id_ in cited])
    if support is ClaimSupport.NOT_SHOWN:
        shown = one_line(claim.text, SHOWN_CHARS)
        report.warnings.append(f"The evidence that the causal chain cites does not show this: {shown}")
    return CausalClaim(claim=claim.text, evidence=cited, support=support)


def _support(text: str, reasons: list[frozenset[str] | None]) -> ClaimSupport:
    if not reasons:
        return ClaimSupport.UNCITED
    states = () if DENIED.search(text) else [name for name, named in NAMED.items() if named.search(text)]
    reported = frozenset[str]().union(*(found for found in reasons if found is not None))
    missing = [state for state in states if not is_reported(state, reported)]
    if states and not missing:
        return ClaimSupport.SHOWN
    return ClaimSupport.NOT_SHOWN if missing and None not in reasons else ClaimSupport.CITED
