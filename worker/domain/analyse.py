"""The pipeline of one request, from enrichment to the published result.

Its stages are: enrich, investigate, corroborate, look for planted text and perhaps ask the second model,
conclude, decide about approval, build the result.

Everything that was read or paid for is a journal step, so that a successor gets to the same place and
continues. The result is the last step: once it is in the journal it is published as it is, and never built a
second time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from schemas import audit
from schemas.analysis import AnalysisResult, Approval
from schemas.recovery import RecoveryRequest
from worker.domain.cluster.history import Lookback, record_of
from worker.domain.enrichment.evidence_pack import changes_told
from worker.domain.intake.accepted import (
    alert_window,
    base_context,
    failed_execution,
    reported_condition,
    requested_names,
    signal_resource,
)
from worker.domain.investigation.journaled_steps import read_step
from worker.domain.investigation.loop import Investigated, Investigation, Judged, investigate
from worker.domain.investigation.models.tries import TryRule
from worker.domain.investigation.opening import OPENING_STEP, Opening, open_investigation
from worker.domain.investigation.prompt import PROMPT_VERSION, SYSTEM_TEXT
from worker.domain.investigation.toolbox.tool import ToolContext
from worker.domain.investigation.toolbox.toolbox import Toolbox
from worker.domain.investigation.toolbox.tools import offered_tools
from worker.domain.journal.alignment import Alignment, check_alignment
from worker.domain.journal.run import Progress, Run, progress_of, unanswered
from worker.domain.journal.steps import done
from worker.domain.untrusted.evidence import EvidenceLog
from worker.domain.values.conversation import Reply
from worker.domain.values.errors import ClusterUnreadable, HistoryUnavailable
from worker.domain.values.limits import CONFIDENCE_THRESHOLD, ENRICHMENT_SECONDS, MIN_CONFIDENCE, Limits
from worker.domain.values.objects import ObjectRef
from worker.domain.values.ports import Outside, PolicyDecision
from worker.domain.values.step_kinds import OPENING, RESULT
from worker.domain.verdict.answers.answer import UnreadableAnswer
from worker.domain.verdict.answers.form import INCIDENT_ANSWER, RECOVERY_ANSWER
from worker.domain.verdict.answers.parse import read_reply
from worker.domain.verdict.approval.policy import merge_approval, observed, policy_facts, policy_input
from worker.domain.verdict.checks.cause import doubts
from worker.domain.verdict.checks.facts import FactFinder
from worker.domain.verdict.corroboration import Corroborated, Corroborator
from worker.domain.verdict.judge import judge
from worker.domain.verdict.outcome import ApprovalRule, Conclusion, Ending, Stop, conclude
from worker.domain.verdict.result import Ingredients, build
from worker.domain.verdict.verdict import NOTHING_TO_DO, Accepted, Attempt, Rejected

SHRUNK = "the conversation became too long for the model: it no longer read its first tool results at the end"
RESULT_STEP = TypeAdapter(AnalysisResult)


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits and thresholds of an analysis.

    `observe`: every result requires approval and says what would have been decided.
    """

    limits: Limits = field(default_factory=Limits)
    tries: TryRule = field(default_factory=TryRule)
    enrichment_seconds: float = ENRICHMENT_SECONDS
    min_confidence: float = MIN_CONFIDENCE
    confidence_threshold: float = CONFIDENCE_THRESHOLD
    signal_types: frozenset[str] = frozenset()
    observe: bool = False


class Analysis:
    """Analyses requests. One object serves all of them: it holds nothing that belongs to a request."""

    def __init__(self, outside: Outside, rules: Rules) -> None:
        self._outside, self.rules = outside, rules

    async def run(self, run: Run) -> AnalysisResult:
        """The result of the request, not yet published.

        Raises Retry, GiveUp, ClusterUnreadable, LostClaim, JournalGap, Unavailable, and what `proceed`
        raises.
        """
        if finished := done(run, RESULT):
            result, kept = read_step(RESULT_STEP, finished[-1].data), finished[-1].notes
        else:
            await run.proceed()
            result, kept = await self._analyse(run)
            await run.proceed()
            await run.conclude(result, **kept)
        await self._remember(result, kept)
        return result

    async def without_answer(self, run: Run, ending: Ending) -> AnalysisResult:
        """The result of a request that ends without an answer: expired, cancelled, models down.

        Not yet published.
        """
        found, rules = progress_of(run.steps), Corroborated()
        evidence = EvidenceLog(found.evidence, self._outside.clock.now)
        last = await self._last_attempt(run, found, evidence)
        if ending.stop is Stop.MODELS_DOWN:
            rules = await self._corroborate(run, None, evidence)
        now, observe = self._outside.clock.now(), self.rules.observe
        result = unanswered(run, ending, now, rules, evidence.items, last=last, observe=observe)
        await run.conclude(result)
        return result

    async def _last_attempt(self, run: Run, found: Progress, evidence: EvidenceLog) -> Attempt | None:
        """The paid answer whose verdict is not recorded, checked now; or None."""
        if found.answer is None or found.opening is None:
            return None
        judged = await _judge(found.answer, self._fact_finder(run, found.opening, evidence))
        judged = replace(judged, at=self._outside.clock.now())
        return judged.attempt(len(found.attempts) + 1, found.answer)

    async def _analyse(self, run: Run) -> tuple[AnalysisResult, Mapping[str, Any]]:
        """The pipeline. Also returns what the history needs to know about the result."""
        outside, rules, request = self._outside, self.rules, run.request
        opening = await self._opening(run)
        evidence = EvidenceLog(opening.evidence, outside.clock.now)
        found = await investigate(self._investigation(run, opening, evidence))
        run.finding = found.accepted or found.partial
        corroborated = await self._corroborate(run, found.accepted, evidence)
        alignment = await check_alignment(
            run, found, corroborated, evidence.items, outside, partial(self._would_run, run, found)
        )
        corroborated = alignment.corroborated
        accepted = alignment.verdict if isinstance(alignment.verdict, Accepted) else None
        ending = _ending(run, opening, found, alignment)
        conclusion = conclude(ending, rules.min_confidence)
        approval = await self._approval(run, found, alignment, conclusion)
        result = build(
            Ingredients(
                prompt_version=PROMPT_VERSION,
                request=request,
                digest=run.accepted.digest,
                conclusion=conclusion,
                approval=approval,
                completed_at=outside.clock.now(),
                accepted=accepted or found.partial,
                attempts=found.attempts,
                evidence=evidence.items,
                detected_labels=(found.facts or opening).detected_labels,
                corroborated=corroborated,
                spent=alignment.spent,
                model=found.model,
                alignment=alignment.summary,
                warnings=alignment.warnings,
                notes=_notes(run, opening, found),
            )
        )
        return result, _kept(found)

    async def _opening(self, run: Run) -> Opening:
        """The facts that code finds before the model is asked: from the journal, or gathered and recorded."""
        if known := done(run, OPENING):
            return read_step(OPENING_STEP, known[0].data)
        clock = self._outside.clock
        started = clock.monotonic()
        opening = await open_investigation(
            run.request,
            self._outside.cluster,
            clock,
            deadline_seconds=self.rules.enrichment_seconds,
            fence_token=run.new_token(),
            tells_filters=self._outside.external is not None,
        )
        ask = self._outside.cluster_problem
        if opening.first_look.unread and ask and (why := await ask()):
            raise ClusterUnreadable(why)
        run.trail.record(
            audit.EnrichmentCompleted(
                evidence_ids=tuple(item.id for item in opening.evidence),
                failed_sources=opening.failed_sources,
                detected_labels=opening.detected_labels,
                duration_seconds=round(clock.monotonic() - started, 3),
            )
        )
        await run.append(OPENING, OPENING_STEP.dump_json(opening))
        return opening

    async def _corroborate(self, run: Run, accepted: Accepted | None, evidence: EvidenceLog) -> Corroborated:
        """Check an answer against the state of the cluster; without an answer, look for a cause."""
        clock, request = self._outside.clock, run.request
        started = clock.monotonic()
        rules = Corroborator(self._outside.cluster, signal_resource(request), request.received_time)
        if accepted is None:
            found = await rules.diagnose(evidence)
        elif accepted.outcome in NOTHING_TO_DO:
            quiet_since = clock.now() - alert_window(request)
            found = await rules.contradict(evidence, reported_condition(request), quiet_since)
        else:
            found = await rules.judge(accepted, evidence)
        run.trail.record(
            audit.CorroborationChecked(
                corroboration=found.corroboration,
                causes=found.causes,
                reads=found.reads,
                duration_seconds=round(clock.monotonic() - started, 3),
            )
        )
        return found

    async def _approval(
        self, run: Run, found: Investigated, alignment: Alignment, conclusion: Conclusion
    ) -> Approval:
        """Decide whether a human must approve the workflow: by the policy, and the findings of the checks."""
        accepted, corroborated = alignment.verdict, alignment.corroborated
        if conclusion.approval is ApprovalRule.NOT_ASKED or not isinstance(accepted, Accepted):
            return self._published(merge_approval(Approval(required=False), conclusion.approval_factors))
        decision = await self._decide(run, found, accepted, alignment)
        approval = self._published(merge_approval(decision.approval, conclusion.approval_factors))
        run.trail.record(
            audit.PolicyDecided(
                policy=decision.policy,
                approval=approval,
                injection_detected=alignment.injection_suspected,
                corroboration=corroborated.corroboration,
                parameters_of_model=corroborated.of_model,
            )
        )
        return approval

    async def _would_run(self, run: Run, found: Investigated, alignment: Alignment) -> bool:
        """True if a workflow would be executed without approval, apart from observe mode."""
        accepted, ending = alignment.verdict, Ending(alignment.verdict, found.stop)
        if not isinstance(accepted, Accepted):
            return False
        if conclude(ending, self.rules.min_confidence).approval is not ApprovalRule.POLICY:
            return False
        return not (await self._decide(run, found, accepted, alignment)).approval.required

    async def _decide(
        self, run: Run, found: Investigated, accepted: Accepted, alignment: Alignment
    ) -> PolicyDecision:
        """The decision of the policy."""
        facts = policy_facts(
            run.request,
            accepted,
            labels=found.facts.detected_labels if found.facts else None,
            confidence_threshold=self.rules.confidence_threshold,
            injection=alignment.injection_suspected,
            corroboration=alignment.corroborated.corroboration,
            origins=alignment.corroborated.origins,
            records=self._outside.track_records,
        )
        return await self._outside.policy.decide(policy_input(facts))

    def _published(self, approval: Approval) -> Approval:
        """The approval in the mode of this worker."""
        return observed(approval) if self.rules.observe else approval

    def _investigation(self, run: Run, opening: Opening, evidence: EvidenceLog) -> Investigation:
        """The input of the loop between model and tools."""
        outside, request = self._outside, run.request
        fact_finder = self._fact_finder(run, opening, evidence)
        form = RECOVERY_ANSWER if isinstance(request, RecoveryRequest) else INCIDENT_ANSWER
        toolbox = Toolbox(
            offered_tools(outside.metrics, outside.external),
            ToolContext(
                cluster=outside.cluster,
                catalog=outside.catalog,
                now=request.received_time,
                labels=fact_finder.context,
                lookback=fact_finder.lookback,
                metrics=outside.metrics,
                told_changes=changes_told(opening.evidence),
            ),
            evidence,
            fence_token=opening.fence_token,
        )
        return Investigation(
            model=outside.model,
            tools=(*toolbox.specs, form),
            system=SYSTEM_TEXT,
            opening=opening.text,
            toolbox=toolbox,
            evidence=evidence,
            judge=lambda reply: _judge(reply, fact_finder),
            run=run,
            proceed=run.proceed,
            observer=run.trail,
            clock=outside.clock,
            jitter=outside.jitter,
            limits=self.rules.limits,
            tries=self.rules.tries,
            urgency=run.accepted.delivery.urgency,
        )

    def _fact_finder(self, run: Run, opening: Opening, evidence: EvidenceLog) -> FactFinder:
        """The finder of the facts by which answers to this request are judged."""
        outside, request, received = self._outside, run.request, run.request.received_time
        lookback = Lookback(outside.history, outside.cluster, received) if outside.history else None
        return FactFinder(
            cluster=outside.cluster,
            catalog=outside.catalog,
            evidence=evidence,
            signal=signal_resource(request),
            requested_names=requested_names(request),
            context=base_context(request),
            safety=request.safety_context,
            failed=failed_execution(request),
            extra_signal_types=self.rules.signal_types,
            lookback=lookback,
            failed_sources=opening.failed_sources,
        )

    async def _remember(self, result: AnalysisResult, kept: Mapping[str, Any]) -> None:
        """Keep the result for later incidents of the same resource.

        A failure of the history does not affect the result.
        """
        if self._outside.history is not None and kept.get("owner"):
            record = record_of(result, str(kept["spec_hash"]))
            with contextlib.suppress(HistoryUnavailable):
                await self._outside.history.remember(ObjectRef(*kept["owner"]), record)


async def _judge(reply: Reply, fact_finder: FactFinder) -> Judged:
    """Read an answer, look up what it names, check it."""
    try:
        answer = read_reply(reply)
    except UnreadableAnswer as unreadable:
        return Judged(Rejected((unreadable.problem,)), unreadable=unreadable.reason)
    named = answer.selected_workflow.workflow_id if answer.selected_workflow else ""
    facts = await fact_finder.facts_for(answer)
    verdict = judge(answer, facts)
    if facts.catalog_problem:
        partial = verdict if isinstance(verdict, Accepted) else verdict.partial
        stopped = Rejected((), partial)
        return Judged(stopped, named, Stop.CATALOG_DOWN, facts.catalog_problem, facts)
    return Judged(verdict, named, facts=facts)


def _ending(run: Run, opening: Opening, found: Investigated, alignment: Alignment) -> Ending:
    affected, request = found.facts.affected if found.facts else None, run.request
    against = doubts(
        alignment.verdict, affected, opening.first_look, signal_resource(request), request.safety_context
    )
    stated = (*against, *alignment.corroborated.contradictions)
    return Ending(alignment.verdict, found.stop, found.stop_detail, doubts=stated)


def _notes(run: Run, opening: Opening, found: Investigated) -> list[str]:
    notes = [*run.notes, *(f"unknown: {source}" for source in opening.failed_sources)]
    return [*notes, SHRUNK] if found.shrunk else notes


def _kept(found: Investigated) -> Mapping[str, Any]:
    """What the history needs besides the result: the top owner and its spec hash; empty without a cause."""
    if found.accepted is None:
        return {}
    root = found.accepted.root_owner
    spec_hash = found.facts.spec_hash if found.facts else ""
    return {"owner": [root.kind, root.name, root.namespace], "spec_hash": spec_hash}
