"""What has to be looked up before an answer can be judged: does the blamed object exist, who owns it, does the chosen
workflow fit. The judging itself is pure (`verdict.judge`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.enrichment import DETECTED_LABELS, DetectedLabels
from schemas.safety import SafetyContext
from worker.domain.catalog.selection import signal_types_of
from worker.domain.cluster.detected_labels import detect_labels
from worker.domain.cluster.history import Known, Lookback, failed_here
from worker.domain.cluster.kinds import canonical_kind
from worker.domain.cluster.owners import OwnerChain, owner_chain
from worker.domain.untrusted.evidence import Evidence, EvidenceLog
from worker.domain.untrusted.injection import instructions
from worker.domain.untrusted.steering import steering
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import ObjectRef
from worker.domain.values.ports import Catalog, Cluster
from worker.domain.values.remediations import FailedExecution
from worker.domain.values.workflows import SelectionContext
from worker.domain.verdict.answers.parse import Answer, AnsweredTarget
from worker.domain.verdict.checks.alignment import named_in
from worker.domain.verdict.checks.facts import VerdictFacts, lookup_context
from worker.domain.verdict.checks.grounding import ENRICHMENT, from_cluster, seen_in, stands_in
from worker.domain.verdict.checks.reported import reported
from worker.domain.verdict.checks.targets import Existence, ResolvedObject, names_an_object, other_target

MAX_ALTERNATIVES = 5
NEAR_CHARS = 200
ABSENCE = re.compile(
    r"not[ _-]?found|does(?:n't| not) exist|no such|missing|unable to retrieve|(?:could|can)(?:n't| not) find|cannot find"
    r"|deleted|removed|killing|terminat|replaced|no longer|not exist|absent|evicted",
    re.IGNORECASE,
)
"""How Kubernetes components say that an object is not there (kubelet, controllers, API server)."""

LOOKED_FOR = ("pods", "events")
"""What the first look must have read: without them nobody knows whether anything is wrong."""

NO_SUCH_KIND = frozenset({ClusterReason.UNKNOWN_KIND, ClusterReason.BAD_REQUEST})
"""The cluster has answered: it serves no such kind, or the words name no kind, or more than one."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The facts for the judge, and what was found about the affected resource on the way.

    `spec_hash` is that of its top owner, empty when no workflow was chosen or it could not be read.
    """

    facts: VerdictFacts
    detected_labels: DetectedLabels | None
    instructions: Mapping[str, tuple[str, ...]]
    spec_hash: str = ""


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Looks things up for one request. `signal` is the resource the request names, `sender` what it says in words.

    `failed_sources` are those of the first look that could not be read, by name, each with the reason.
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
    sender: Sequence[Evidence] = ()
    lookback: Lookback | None = None
    failed_sources: Sequence[str] = ()

    async def review(self, answer: Answer) -> Reviewed:
        """Everything at once. Raises CatalogUnavailable: then no workflow may be chosen."""
        affected, chain, labels = await self._affected(answer.affected_resource)
        context = self._final_context(chain, labels)
        read = [*self.sender, *self.evidence.items]
        planted = await _one_by_one(instructions, read)
        facts = VerdictFacts(
            context=context,
            affected=affected,
            signal_types=await self._signal_types(),
            safety=self.safety,
            failed=self.failed,
            instructions=tuple(line for lines in planted.values() for line in lines),
            steering=tuple(await _one_by_one(steering, read)),
            shown=reported(self.evidence.items),
            not_seen=self._not_seen(),
        )
        known = await self._history(answer, chain)
        facts = replace(facts, failed_here=failed_here(known), history_problem=known.problem)
        return Reviewed(await self._with_choice(answer, facts), labels, planted, known.spec_hash)

    def _not_seen(self) -> tuple[str, ...]:
        """Pods and events around the signal, if the first look could not read them and no tool has since."""
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

    async def _history(self, answer: Answer, chain: OwnerChain | None) -> Known:
        """Past remediations of the top owner, if a workflow is to be judged by them."""
        if self.lookback is None or chain is None or answer.selected_workflow is None:
            return Known()
        return await self.lookback.known(chain)

    async def _signal_types(self) -> frozenset[str]:
        return signal_types_of(await self.catalog.actions(SelectionContext())) | self.extra_signal_types

    async def _with_choice(self, answer: Answer, facts: VerdictFacts) -> VerdictFacts:
        lookup = lookup_context(answer, facts.context)
        wanted = [a.workflow_id for a in answer.alternatives[:MAX_ALTERNATIVES]]
        found = await asyncio.gather(*(self.catalog.get(id_, lookup) for id_ in wanted))
        known = frozenset(workflow.workflow_id for workflow in found if workflow is not None)
        facts = replace(facts, alternatives=known)
        chosen = answer.selected_workflow
        workflow = await self.catalog.get(chosen.workflow_id, lookup) if chosen else None
        if workflow is not None:
            objects = [member.name for member in facts.affected.chain] if facts.affected else []
            read = [*self.sender, *self.evidence.items]
            given = chosen.parameters if chosen else {}
            facts = replace(facts, named_in=named_in(workflow, read, objects, given))
        if chosen is None or workflow is None or facts.affected is None:
            return replace(facts, workflow=workflow)
        meant = other_target(workflow, chosen.parameters, facts.affected)
        other = (await self._resolve(meant))[0] if meant else None
        unseen = frozenset(
            n for n, v in chosen.parameters.items() if names_an_object(n) and not self._stands(v)
        )
        return replace(facts, workflow=workflow, other_target=other, unseen_parameters=unseen)

    def _stands(self, value: object) -> bool:
        known = {self.signal.name, self.signal.namespace} | self.requested_names
        return str(value) in known or stands_in(str(value), self.evidence.items)

    async def _affected(
        self, named: AnsweredTarget | None
    ) -> tuple[ResolvedObject | None, OwnerChain | None, DetectedLabels | None]:
        if named is None or not named.kind.strip() or not named.name.strip():
            return None, None, None
        resolved, chain = await self._resolve(
            ObjectRef(
                named.kind.strip(), named.name.strip(), named.namespace.strip(), named.api_version.strip()
            )
        )
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
        """Whether it is the signal's resource. A sender may give a cluster-scoped one a namespace."""
        namespace = self.signal.namespace if ref.namespace else ""
        kind = canonical_kind(self.signal.kind)
        return replace(self.signal, kind=kind, namespace=namespace).same_as(
            replace(ref, kind=canonical_kind(ref.kind))
        )

    def _outside(self, ref: ObjectRef, shown: Sequence[Evidence]) -> str:
        """Why the object need not concern the signal; empty when it is near, or the first look came upon it."""
        home = self._home
        if home and ref.namespace:
            return "" if ref.namespace == home else f"is outside the namespace of the signal ({home})"
        if (ref.kind, ref.name) == ("Namespace", home) or any(
            item.source.startswith(ENRICHMENT) for item in shown
        ):
            return ""
        return "was not found around the signal, only by looking elsewhere"

    def _known_absent(self, ref: ObjectRef) -> bool:
        """The signal's own resource was there when it was signalled; for others the cluster must say so by itself.

        A look-up by the model that failed does not: anybody may ask for what never was.
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


def members_read(chain: OwnerChain) -> tuple[ObjectRef, ...]:
    """The object asked for, and the owners that were read: a name in a reference alone may be of something else."""
    owners = zip(chain.chain[1:], chain.manifests[1:], strict=True)
    return (chain.start, *(ref for ref, manifest in owners if manifest is not None))


def said_absent(ref: ObjectRef, text: str) -> bool:
    """Whether the text says, near its name and its kind, that the object is not there."""
    named = re.compile(rf"(?<![a-zA-Z0-9-]){re.escape(ref.name)}(?![a-zA-Z0-9-])")
    for match in named.finditer(text):
        start = max(text.rfind("\n", 0, match.start()), match.start() - NEAR_CHARS)
        end = text.find("\n", match.end())
        near = text[start + 1 : min(end if end >= 0 else len(text), match.end() + NEAR_CHARS)]
        if ref.kind.lower() in near.lower().replace(" ", "") and ABSENCE.search(near):
            return True
    return False


def label_values(labels: DetectedLabels) -> dict[str, str | bool | None]:
    """Detected labels by snake_case name; None for one whose detection failed."""
    return {name: None if labels.is_unknown(name) else getattr(labels, name) for name in DETECTED_LABELS}


async def _one_by_one(
    look: Callable[[Sequence[Evidence]], dict[str, tuple[str, ...]]], items: Sequence[Evidence]
) -> dict[str, tuple[str, ...]]:
    """What `look` finds in each. All at once, they would keep every other request of the process waiting."""
    found: dict[str, tuple[str, ...]] = {}
    for item in items:
        found |= look([item])
        await asyncio.sleep(0)
    return found
