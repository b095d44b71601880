"""Asks the cluster whether it confirms an accepted answer, and says so in the form of the result.

It runs only after the answer, so that none of it reaches the model before. Its reads become evidence, so that
an approver sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from schemas.analysis import Corroboration, CorroborationSource, DiagnosedCause, ParameterOrigin
from worker.domain.cluster.fields import stamp
from worker.domain.diagnosis.actions import ProposedAction
from worker.domain.diagnosis.causes import Diagnosis, Strength
from worker.domain.diagnosis.claims import Claim, ClaimVerdict, Doubt, corroborate, diagnose
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.facts import ClusterFacts, Presence, Question, ReadResult
from worker.domain.diagnosis.settled import settled_since
from worker.domain.untrusted.evidence import Evidence, EvidenceKind, EvidenceLog, one_line
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.objects import Listing, ObjectRef
from worker.domain.values.ports import Cluster
from worker.domain.verdict.approval.factors import Proof, unsettled
from worker.domain.verdict.effects import BOUNDS, hindrance
from worker.domain.verdict.origins import futile_parameter, growth_of, parameter_origins, values_of
from worker.domain.verdict.verdict import Accepted, Verdict, actionable, named

SOURCE = "corroboration"
MAX_CAUSES = 5
WHOLE = re.compile(r"-?[0-9]{1,9}")
UNDECIDED = frozenset({Doubt.NO_CAUSE_STATED, Doubt.AMBIGUOUS, Doubt.UNKNOWN})
"""Doubts with which the finding is about the answer's own object, but does not suffice."""


@dataclass(frozen=True, slots=True)
class Corroborated:
    """The conclusion of the rules about an answer, or about the cluster without one, and the number of reads.

    `contradictions` speak against an answer that finds nothing to do: causes that the cluster states, or that
    no status shows the end of the alert. `facts` are the reads by which an answer was judged. `signals` are
    the signal types of the state that confirms the answer.
    """

    corroboration: Corroboration | None = None
    causes: tuple[DiagnosedCause, ...] = ()
    contradictions: tuple[str, ...] = ()
    origins: Mapping[str, ParameterOrigin] = field(default_factory=dict)
    reads: int = 0
    facts: ClusterFacts | None = None
    signals: tuple[str, ...] = ()

    @property
    def silent(self) -> bool:
        """True if the rules neither confirm nor contradict the answer."""
        found = self.corroboration
        if found is None or found.by is not CorroborationSource.NONE:
            return False
        return found.doubt in UNDECIDED or not found.finding

    def confirmed(self, reason: str) -> Corroborated:
        """The conclusion, confirmed by the second view."""
        if self.corroboration is None:
            return self
        update = {"by": CorroborationSource.SECOND_VIEW, "doubt": "", "reason": reason}
        return replace(self, corroboration=self.corroboration.model_copy(update=update))

    @property
    def of_model(self) -> tuple[str, ...]:
        """The parameters whose values the model alone chose."""
        return tuple(name for name, origin in self.origins.items() if origin is ParameterOrigin.MODEL)


@dataclass(frozen=True, slots=True)
class Corroborator:
    """Judges answers about one signal by the state of the cluster. `now` is when the signal was received."""

    cluster: Cluster
    signal: ObjectRef
    now: datetime

    async def judge(self, accepted: Accepted, evidence: EvidenceLog) -> Corroborated:
        """Judge whether the cluster confirms the answer.

        Reads are added to the evidence. Never raises ClusterError.
        """
        facts, claim = ClusterFacts(now=self.now), claim_of(accepted)
        investigator = Investigator(self.cluster)
        verdict = await investigator.conclude(facts, lambda known: self._weigh(known, accepted, claim))
        ids = _keep(facts, evidence)
        return Corroborated(
            corroboration=_told(verdict, ids),
            origins=parameter_origins(accepted, verdict.finding if verdict.confirmed else None, facts),
            reads=len(facts.answers),
            facts=facts,
            signals=verdict.finding.signals if verdict.finding and verdict.confirmed else (),
        )

    def _weigh(self, facts: ClusterFacts, accepted: Accepted, claim: Claim) -> ClaimVerdict:
        """The verdict on a claim, which is not confirmed if its action would not fix anything."""
        verdict = corroborate(facts, self.signal, claim)
        if not verdict.confirmed or verdict.finding is None or claim.action is None:
            return verdict
        futile = futile_parameter(accepted, verdict.finding, facts)
        kept = hindrance(facts, claim.action, verdict.finding, growth_of(accepted, verdict.finding, facts))
        why = f"the value of {futile} would not fix this" if futile else kept or facts.unread(BOUNDS)
        told = f"{verdict.reason} However, {why}."
        return replace(verdict, doubt=Doubt.ACTION_DOES_NOT_FIT, reason=told) if why else verdict

    async def contradict(self, evidence: EvidenceLog, spoken_of: str, before: datetime) -> Corroborated:
        """Find objections to an answer that finds nothing to do. Never raises ClusterError.

        `spoken_of` is what the alert reports. The answer is contradicted unless the status of the signal's
        object has shown the opposite since `before`, and by any cause that the cluster states.
        """
        facts = ClusterFacts(now=self.now)
        found, since = await Investigator(self.cluster).conclude(
            facts, lambda known: (diagnose(known, self.signal), settled_since(known, self.signal, spoken_of))
        )
        stated = tuple(f.sentence for f in found if f.strength is Strength.DIRECT)
        if since is None or since > before:
            stated = (_not_settled(self.signal, spoken_of, since, before), *stated)
        _keep(facts, evidence)
        return Corroborated(contradictions=stated[:MAX_CAUSES], reads=len(facts.answers))

    async def diagnose(self, evidence: EvidenceLog) -> Corroborated:
        """Find causes by rules, for a result to which the model gave no answer.

        The likeliest cause comes first.

        Logs are read, too, because these causes only inform humans and confirm nothing. Never raises
        ClusterError.
        """
        facts = ClusterFacts(now=self.now, texts=True)
        found = await Investigator(self.cluster).conclude(facts, lambda known: diagnose(known, self.signal))
        _keep(facts, evidence)
        causes = tuple(map(_cause, found[:MAX_CAUSES])) or (_nothing_stated(self.signal),)
        return Corroborated(causes=causes, reads=len(facts.answers))


def without_settled_doubts(verdict: Verdict | None, found: Corroborated) -> Verdict | None:
    """The verdict, without the approval factors that the state which confirms the answer settles."""
    if not isinstance(verdict, Accepted):
        return verdict
    left = unsettled(verdict.approval_factors, set(_proofs(verdict, found)))
    return replace(verdict, approval_factors=left)


def _proofs(accepted: Accepted, found: Corroborated) -> Iterator[Proof]:
    confirmed = {signal.lower() for signal in found.signals}
    made_for = accepted.workflow.labels.get("signal_type", ()) if accepted.workflow else ()
    if accepted.signal_type.lower() in confirmed:
        yield Proof.REPORTS_SIGNAL_TYPE
    if not confirmed.isdisjoint(signal.lower() for signal in made_for):
        yield Proof.FITS_WORKFLOW


def _not_settled(signal: ObjectRef, spoken_of: str, since: datetime | None, before: datetime) -> str:
    shown = one_line(spoken_of, 80) or "the signal"
    if since is None:
        return f"The status of {signal} does not show that {shown} is over."
    late = f"The status of {signal} has shown that {shown} is over only since {stamp(since)}"
    return f"{late}; it must have shown this since {stamp(before)}."


def _keep(facts: ClusterFacts, evidence: EvidenceLog) -> tuple[str, ...]:
    lines = [told(question, result) for question, result in facts.answers.items()]
    return tuple(evidence.add(Evidence(SOURCE, line, "", kind=EvidenceKind.FACTS)).id for line in lines)


def claim_of(accepted: Accepted) -> Claim:
    """The claim of an accepted answer."""
    targets, flow = (accepted.target,) if accepted.target else (), accepted.workflow
    numbers = (_number(accepted, "REVISION"), _number(accepted, "REPLICAS"))
    action = ProposedAction(flow, targets, *numbers) if flow else None
    return Claim(accepted.affected, action, actionable(accepted))


def _number(accepted: Accepted, word: str) -> int | None:
    """The whole number of the only parameter whose name has the word.

    One that is left out has its default.
    """
    found = [str(v) for n, v in values_of(accepted).items() if word in n.upper() and v is not None]
    return int(found[0]) if len(found) == 1 and WHOLE.fullmatch(found[0]) else None


def told(question: Question, result: ReadResult) -> str:
    """A read and its result, in one line."""
    if isinstance(result, Listing):
        return f"{question}: {len(result.items)}{'' if result.complete else ', and more'}"
    if isinstance(result, tuple):
        return f"{question}: {len(result)} lines"
    return f"{question}: {result if isinstance(result, Presence) else Presence.PRESENT}"


def _told(verdict: ClaimVerdict, ids: tuple[str, ...]) -> Corroboration:
    finding = verdict.finding
    return Corroboration(
        by=CorroborationSource.RULES if verdict.confirmed else CorroborationSource.NONE,
        object=named(finding.object) if finding else None,
        finding=finding.cause if finding else "",
        evidence=ids,
        doubt=verdict.doubt or "",
        reason=verdict.reason,
    )


def _cause(finding: Diagnosis) -> DiagnosedCause:
    return DiagnosedCause(
        cause=finding.cause,
        object=named(finding.object),
        summary=redact(finding.sentence),
        signal_types=finding.signals,
    )


def _nothing_stated(signal: ObjectRef) -> DiagnosedCause:
    told = f"No readable state of {signal}, or of the objects it depends on, shows a cause."
    return DiagnosedCause(cause="none_stated", object=named(signal), summary=told)
