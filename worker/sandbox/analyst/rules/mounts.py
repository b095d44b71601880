"""ConfigMaps, Secrets and keys that a pod needs and that are not there."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import changed_references, last_change, only_revision
from worker.sandbox.analyst.shapes import ContainerState, Reference, pod_spec, references

MISSING = re.compile(
    r"\b(?P<kind>configmaps?|secrets?)\b[^\"'`]{0,12}[\"'`](?P<ns>[a-z0-9-]+/)?(?P<name>[a-z0-9][a-z0-9.-]*)[\"'`] (?:is )?not ?found"
    r"|references non-existent (?P<kind2>config|secret) key: ?(?P<key2>\S+)"
    r"|couldn't find key [\"'`]?(?P<key>[\w.-]+)[\"'`]? in (?P<kind3>ConfigMap|Secret) [\"'`]?(?P<ns3>[a-z0-9-]+)/(?P<name3>[a-z0-9][a-z0-9.-]*)"
    r"|object [\"'`](?P<ns4>[a-z0-9-]+)[\"'`]/[\"'`](?P<name4>[a-z0-9][a-z0-9.-]*)[\"'`] not registered",
    re.IGNORECASE,
)
CLOSE = 0.6


@dataclass(frozen=True, slots=True)
class MissingReference:
    """What is missing. `key` is empty when the whole object is."""

    kind: str
    name: str
    key: str = ""


def missing_in(text: str, spec: Manifest) -> MissingReference | None:
    """The object or key that a message says is missing."""
    match = MISSING.search(text)
    if match is None:
        return None
    if match["key"]:
        return MissingReference(
            "ConfigMap" if match["kind3"].lower() == "configmap" else "Secret", match["name3"], match["key"]
        )
    if match["key2"]:
        key = match["key2"].strip(".,\"'")
        kind = "ConfigMap" if match["kind2"].lower() == "config" else "Secret"
        holder = next((r for r in references(spec) if r.kind == kind and r.key == key), None)
        return MissingReference(kind, holder.name, key) if holder else None
    if match["name4"]:
        holder = next((r for r in references(spec) if r.name == match["name4"]), None)
        return MissingReference(holder.kind, holder.name) if holder else None
    return MissingReference(
        "ConfigMap" if match["kind"].lower().startswith("config") else "Secret", match["name"]
    )


def config_error_finding(
    case: Case, pod: Manifest, state: ContainerState, workload: ObjectRef | None
) -> Finding | None:
    """A container that cannot be created: mostly a reference to something that is not there."""
    namespace, name = str(dig(pod, "metadata", "namespace") or ""), str(dig(pod, "metadata", "name") or "")
    target = workload or make_ref("Pod", name, namespace)
    me = make_ref("Pod", name, namespace)
    text = "\n".join([state.waiting_message, *(e.message for e in reversed(case.facts.events_of(me)))])
    lack = missing_in(text, pod_spec(pod))
    if lack is not None:
        return lack_finding(case, pod, target, lack, state.waiting)
    if not text.strip():
        case.facts.ask_events(namespace)
        return None
    told = f"container {state.name} of {target} cannot be created ({state.waiting}): {short(text)}"
    finding = Finding("create", f"{sentence(told)}.", target, 0.66, ("CreateContainerError", "CrashLoopBackOff", "PodPending"),
                      factors=(told,), workload=target, traits=frozenset({"bad_template"}), denied=frozenset({"oom", "dependency_down"}))  # fmt: skip
    return with_change(finding, last_change(case.facts, target))


def lack_finding(case: Case, pod: Manifest, target: ObjectRef, lack: MissingReference, state: str) -> Finding:
    """A slip of the pen in the workload, a rollout that names something new, or an object that was deleted."""
    namespace = str(dig(pod, "metadata", "namespace") or "")
    change = last_change(case.facts, target)
    finding = _lacking(pod, target, lack, make_ref(lack.kind, lack.name, namespace), state)
    touched = change is not None and change.touches("configMap", "secret", "].env")
    if touched or lack.name in changed_references(change):
        return replace(with_change(finding, change), target=target, certainty=0.88)
    maker = None if lack.key else _maker(case.facts, finding.target)
    if maker is not None:
        why = f"{maker} should write it and fails: {_complaint(case.facts, maker)}"
        return replace(
            finding,
            target=maker,
            summary=f"{finding.summary} {sentence(why)}.",
            factors=(*finding.factors, why),
            remedies=(),
        )
    similar = "" if lack.key else _similar(case.facts, lack, namespace)
    if not similar:
        return finding
    why = f"a {lack.kind} {similar} exists, so the name in the pod template is most likely a slip"
    rest = " This is its only revision, so a rollback cannot help."
    return replace(
        finding,
        target=target,
        summary=f"{finding.summary[:-1]}; {why}.{rest if only_revision(case.facts, target) else ''}",
        factors=(*finding.factors, why),
        remedies=(),
    )


def _maker(facts: Facts, absent: ObjectRef) -> ObjectRef | None:
    """The custom object that should write a Secret or ConfigMap of its own name, when events tell of its failure."""
    events = [e for e in facts.events if e.namespace == absent.namespace and e.type == "Warning"]
    facts.ask_events(absent.namespace)
    for event in reversed(events):
        made = event.kind == "Certificate" or (event.kind != absent.kind and event.kind.endswith(absent.kind))
        if made and (event.name == absent.name or absent.name in event.message):
            return make_ref(event.kind, event.name, absent.namespace)
    return None


def _complaint(facts: Facts, maker: ObjectRef) -> str:
    said = [e for e in facts.events_of(maker) if e.type == "Warning"]
    return f"{said[-1].reason}: {short(said[-1].message)}" if said else "see its status"


def _lacking(
    pod: Manifest, target: ObjectRef, lack: MissingReference, absent: ObjectRef, state: str
) -> Finding:
    named = (r for r in references(pod_spec(pod)) if (r.kind, r.name) == (lack.kind, lack.name))
    how = next((_told(r) for r in named), "")
    what = f"key {lack.key} in {absent}" if lack.key else str(absent)
    mounted = ("FailedMount", "CreateContainerConfigError")
    told = f"{target} needs {what}{f' ({how})' if how else ''}, which does not exist (not found)"
    return Finding(
        family="missing-reference",
        summary=f"{told}; its pods stay in {state or 'ContainerCreating'}.",
        target=absent,
        certainty=0.84,
        symptoms=mounted if "volume" in how else ("CreateContainerConfigError", "FailedMount", "PodPending"),
        remedies=(RemedyKind.RESTORE_REFERENCE,),
        factors=(told,),
        workload=target,
        traits=frozenset({"missing_key" if lack.key else "missing_reference"}),
        denied=frozenset({"oom", "dependency_down", "bad_image", "config_content", "volume_full"}),
        hints={
            "configmap": lack.name if lack.kind == "ConfigMap" else "",
            "secret": lack.name if lack.kind == "Secret" else "",
            "key": lack.key,
        },
    )


def _told(reference: Reference) -> str:
    return f"{reference.how}{f' mounted at {reference.mount}' if reference.mount else ''}"


def _similar(facts: Facts, lack: MissingReference, namespace: str) -> str:
    """An object of the kind with a name like the missing one; Secrets are never listed."""
    if lack.kind == "Secret":
        return ""
    names = [r.get("NAME", "") for r in facts.rows(lack.kind, namespace)]
    close = difflib.get_close_matches(lack.name, names, 1, CLOSE)
    stems = [n for n in names if n.startswith(lack.name) or lack.name.startswith(n)]
    return next(iter([*close, *stems]), "")
