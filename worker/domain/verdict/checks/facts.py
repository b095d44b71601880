"""The facts for judging an answer, and their look-up: existence and owners of the object, and the workflow.

The judging itself is pure (`verdict.judge`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from schemas.enrichment import DETECTED_LABELS, DetectedLabels
from schemas.safety import SafetyContext
from schemas.taxonomy import Severity, normalize_severity
from worker.domain.catalog.selection import for_final_choice, signal_types_of
from worker.domain.cluster.detected_labels import detect_labels
from worker.domain.cluster.history import KnownHistory, Lookback, failed_here
from worker.domain.cluster.kinds import canonical_kind
from worker.domain.cluster.owners import OwnerChain, owner_chain
from worker.domain.untrusted.evidence import ENRICHMENT, Evidence, EvidenceLog
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import CatalogUnavailable, ClusterError, ClusterReason
from worker.domain.values.objects import ObjectRef
from worker.domain.values.ports import Catalog, Cluster
from worker.domain.values.remediations import FailedExecution, PastRemediation
from worker.domain.values.workflows import SelectionContext, Workflow, action_name
from worker.domain.verdict.answers.answer import Answer, AnsweredWorkflow
from worker.domain.verdict.checks.evidence import (
    decides,
    from_cluster,
    reported,
    said_absent,
    seen_in,
    signal_reasons,
    stands_in,
)
from worker.domain.verdict.checks.targets import Existence, ResolvedObject, names_an_object, other_target

MAX_ALTERNATIVES = 5
LOOKED_FOR = ("pods", "events")
"""Sources that the first look must have read.

Without them the worker cannot tell whether anything is wrong.
"""

NO_SUCH_KIND = frozenset({ClusterReason.UNKNOWN_KIND, ClusterReason.BAD_REQUEST})
"""Reasons that are answers: the cluster serves no such kind, or the words name no kind or more than one."""


@dataclass(frozen=True, slots=True)
class VerdictFacts:
    """Everything an answer is judged by.

    `context`: business labels of the request, detected and custom labels of the affected resource.
    `affected`: the resource that the answer blames, looked up; None when it names none. `detected_labels`:
    those of the affected resource; None when they were not looked up. `workflow`: what the catalog returned
    for the chosen id in `lookup_context`; None for unknown and unfit alike. `other_target`: the object of
    `targets.other_target`, looked up. `unseen_parameters`: those of the chosen parameters that name an object
    which no evidence shows. `alternatives`: those ids of the answer's alternatives that the catalog knows.
    `shown`: reasons of Kubernetes that the cluster reports, in lower case; None if nobody looked. `reasons`:
    those of them that may be a signal type, as the cluster spells them. `reported_by`: the same reasons by
    the id of the evidence; None for evidence that cannot show that a state is absent. `failed_here`:
    executions that did not help the affected resource while it had its present spec; `history_problem` says
    why they are not known. `spec_hash`: hash of the spec of the top owner; empty when no workflow was chosen
    or it could not be read. `not_seen`: sources around the signal (pods, events) that could not be read.
    `catalog_problem`: why the catalog could not be read; then no workflow can be judged.
    """

    context: SelectionContext
    affected: ResolvedObject | None = None
    detected_labels: DetectedLabels | None = None
    workflow: Workflow | None = None
    other_target: ResolvedObject | None = None
    unseen_parameters: frozenset[str] = frozenset()
    alternatives: frozenset[str] = frozenset()
    signal_types: frozenset[str] = frozenset()
    safety: SafetyContext | None = None
    failed: FailedExecution | None = None
    shown: frozenset[str] | None = None
    reasons: frozenset[str] = frozenset()
    reported_by: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    failed_here: tuple[PastRemediation, ...] = ()
    history_problem: str = ""
    spec_hash: str = ""
    not_seen: tuple[str, ...] = ()
    catalog_problem: str = ""


def lookup_context(answer: Answer, context: SelectionContext) -> SelectionContext:
    """The context in which the chosen workflow is fetched.

    It has the severity of the answer, and accepts any component.
    """
    severity = normalize_severity(answer.severity) or Severity.UNKNOWN
    return for_final_choice(replace(context, severity=severity, components=()))


@dataclass(frozen=True, slots=True)
class FactFinder:
    """Looks up the facts for the answers to one request.

    `signal` is the resource that the request names. `failed_sources` are those of the first look that could
    not be read, each as its name and the reason. Texts are checked once for each item of evidence, however
    many answers there are.
    """

    cluster: Cluster
    catalog: Catalog
    evidence: EvidenceLog
    signal: ObjectRef
    requested_names: frozenset[str]
    context: SelectionContext
    safety: SafetyContext | None = None
    failed: FailedExecution | None = None
    extra_signal_types: frozenset[str] = frozenset()
    lookback: Lookback | None = None
    failed_sources: Sequence[str] = ()

    _reasons: dict[Evidence, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    """What `reported` and `signal_reasons` have found in each item so far."""

    async def facts_for(self, answer: Answer) -> VerdictFacts:
        """Look up everything an answer is judged by.

        Never raises: what could not be read is part of the facts.
        """
        affected, chain, labels = await self._affected(answer.affected_resource)
        history = await self._history(answer, chain)
        items = self.evidence.items
        for item in items:
            if item not in self._reasons:
                self._reasons[item] = reported(item), signal_reasons(item)
                await asyncio.sleep(0)  # other requests of the process may run
        facts = VerdictFacts(
            context=self._final_context(chain, labels),
            affected=affected,
            detected_labels=labels,
            safety=self.safety,
            failed=self.failed,
            shown=frozenset().union(*(self._reasons[item][0] for item in items)),
            reasons=frozenset().union(*(self._reasons[item][1] for item in items)),
            reported_by={item.id: self._reasons[item][0] if decides(item) else None for item in items},
            failed_here=failed_here(history),
            history_problem=history.problem,
            spec_hash=history.spec_hash,
            not_seen=self._not_seen(),
        )
        try:
            facts = replace(facts, signal_types=await self._signal_types())
            return await self._with_choice(answer, facts)
        except CatalogUnavailable as e:
            return replace(facts, catalog_problem=str(e) or "no answer")

    def _not_seen(self) -> tuple[str, ...]:
        """The sources around the signal (pods, events) that neither the first look nor a tool has read."""
        missing = [name for name in LOOKED_FOR if any(f.startswith(f"{name} (") for f in self.failed_sources)]
        items = from_cluster(self.evidence.items)
        return tuple(name for name in missing if not any(self._makes_up_for(name, item) for item in items))

    def _makes_up_for(self, source: str, item: Evidence) -> bool:
        home = self._home
        if source == "events":
            here = re.search(rf"(?<![a-z0-9-]){re.escape(home)}(?![a-z0-9-])", item.scope)
            return item.source == "get_events" and (here is not None or not home)
        return item.source in {"list_resources", "get_resource"} and item.scope.startswith(
            (f"Pod in {home}:", f"Pod in {home} ", f"Pod {home}/", "Pod in all namespaces")
        )

    async def _history(self, answer: Answer, chain: OwnerChain | None) -> KnownHistory:
        """Past remediations of the top owner; empty when no workflow was chosen."""
        if self.lookback is None or chain is None or answer.selected_workflow is None:
            return KnownHistory()
        return await self.lookback.look_up(chain)

    async def _signal_types(self) -> frozenset[str]:
        return signal_types_of(await self.catalog.actions(SelectionContext())) | self.extra_signal_types

    async def _with_choice(self, answer: Answer, facts: VerdictFacts) -> VerdictFacts:
        lookup = lookup_context(answer, facts.context)
        wanted = [a.workflow_id for a in answer.alternatives[:MAX_ALTERNATIVES]]
        found = await concurrently([self.catalog.get(id_, lookup) for id_ in wanted])
        known = frozenset(workflow.workflow_id for workflow in found if workflow is not None)
        facts = replace(facts, alternatives=known)
        chosen = answer.selected_workflow
        workflow = await self._chosen(chosen, lookup) if chosen else None
        if chosen is None or workflow is None or facts.affected is None:
            return replace(facts, workflow=workflow)
        meant = other_target(workflow, chosen.parameters, facts.affected)
        other = (await self._resolve(meant))[0] if meant else None
        unseen = frozenset(
            n for n, v in chosen.parameters.items() if names_an_object(n) and not self._stands(v)
        )
        return replace(facts, workflow=workflow, other_target=other, unseen_parameters=unseen)

    async def _chosen(self, chosen: AnsweredWorkflow, lookup: SelectionContext) -> Workflow | None:
        """The chosen workflow. Where an action is named, the only one that takes it and fits."""
        found = await self.catalog.get(chosen.workflow_id, lookup)
        if found is not None or not chosen.by_action:
            return found
        wanted = _singular(chosen.workflow_id)
        known = (action.action_type for action in await self.catalog.actions(lookup))
        actions = [action for action in known if _singular(action) == wanted]
        if len(actions) != 1:
            return None
        fitting = (await self.catalog.workflows(actions[0], lookup)).workflows
        return await self.catalog.get(fitting[0].workflow_id, lookup) if len(fitting) == 1 else None

    def _stands(self, value: object) -> bool:
        known = {self.signal.name, self.signal.namespace} | self.requested_names
        return str(value) in known or stands_in(str(value), self.evidence.items)

    async def _affected(
        self, named: ObjectRef | None
    ) -> tuple[ResolvedObject | None, OwnerChain | None, DetectedLabels | None]:
        if named is None or not named.kind.strip() or not named.name.strip():
            return None, None, None
        parts = (named.kind, named.name, named.namespace, named.api_version)
        resolved, chain = await self._resolve(ObjectRef(*(part.strip() for part in parts)))
        labels = await detect_labels(self.cluster, chain) if chain.exists else None
        return resolved, chain, labels

    async def _resolve(self, ref: ObjectRef) -> tuple[ResolvedObject, OwnerChain]:
        try:
            info = await self.cluster.kind(ref.kind, ref.api_version)
        except ClusterError as error:
            existence = Existence.NOT_FOUND if error.reason in NO_SUCH_KIND else Existence.UNVERIFIABLE
            return self._seen(ref, existence, namespaced=None, detail=error.message), OwnerChain(
                (ref,), (None,), exists=None
            )
        named = replace(ref, kind=info.kind, namespace=ref.namespace if info.namespaced else "")
        chain = await owner_chain(self.cluster, replace(named, api_version=info.api_version))
        existence = Existence.UNVERIFIABLE
        if chain.exists:
            existence = Existence.EXISTS
        elif chain.exists is False:
            existence = Existence.ABSENT if self._known_absent(named) else Existence.NOT_FOUND
        detail = "" if chain.exists else chain.note
        seen = self._seen(chain.start, existence, namespaced=info.namespaced, detail=detail)
        note = chain.note if chain.exists else ""
        return replace(seen, owners=members_read(chain)[1:], owners_note=note), chain

    def _seen(
        self, ref: ObjectRef, existence: Existence, *, namespaced: bool | None, detail: str
    ) -> ResolvedObject:
        shown, own = seen_in(ref, self.evidence.items, self._home), self._is_signal(ref)
        near = not ref.namespace or ref.namespace == self._home
        return ResolvedObject(
            ref,
            existence,
            namespaced,
            seen_in=tuple(item.id for item in shown),
            requested=own or (near and ref.name in self.requested_names),
            detail=detail,
            outside="" if own else self._outside(ref, shown),
        )

    @property
    def _home(self) -> str:
        """The namespace the signal is about, empty for cluster scope."""
        kind = canonical_kind(self.signal.kind)
        return self.signal.name if kind == "Namespace" else self.signal.namespace

    def _is_signal(self, ref: ObjectRef) -> bool:
        """True if it is the resource of the signal. A sender may give a cluster-scoped one a namespace."""
        namespace = self.signal.namespace if ref.namespace else ""
        kind = canonical_kind(self.signal.kind)
        return replace(self.signal, kind=kind, namespace=namespace).same_as(
            replace(ref, kind=canonical_kind(ref.kind))
        )

    def _outside(self, ref: ObjectRef, shown: Sequence[Evidence]) -> str:
        """Why the object may be unrelated to the signal; empty if it is near, or the first look found it."""
        home = self._home
        if home and ref.namespace:
            return "" if ref.namespace == home else f"is outside the namespace of the signal ({home})"
        if (ref.kind, ref.name) == ("Namespace", home) or any(
            item.source.startswith(ENRICHMENT) for item in shown
        ):
            return ""
        return "was not found around the signal, only by looking elsewhere"

    def _known_absent(self, ref: ObjectRef) -> bool:
        """True if it is known that the object is gone, or was never there.

        The resource of the signal existed when the signal was sent. For others the cluster must say so by
        itself; a look-up by the model that found nothing does not count, since anybody may ask for what never
        existed.
        """
        near = not ref.namespace or ref.namespace == self._home
        said = from_cluster(self.evidence.items)
        return self._is_signal(ref) or (near and any(said_absent(ref, item.body) for item in said))

    def _final_context(self, chain: OwnerChain | None, labels: DetectedLabels | None) -> SelectionContext:
        members = members_read(chain) if chain else ()
        return replace(
            self.context,
            components=tuple((member.api_version, member.kind) for member in members),
            detected_labels=label_values(labels) if labels else self.context.detected_labels,
        )


def _singular(action_type: str) -> str:
    return action_name(action_type).removesuffix("s")


def members_read(chain: OwnerChain) -> tuple[ObjectRef, ...]:
    """The object itself and those of its owners that were read: a reference alone may name something else."""
    owners = zip(chain.chain[1:], chain.manifests[1:], strict=True)
    return (chain.start, *(ref for ref, manifest in owners if manifest is not None))


def label_values(labels: DetectedLabels) -> dict[str, str | bool | None]:
    """Detected labels by snake_case name; None for one whose detection failed."""
    return {name: None if labels.is_unknown(name) else getattr(labels, name) for name in DETECTED_LABELS}
