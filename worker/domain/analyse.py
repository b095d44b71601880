"""One request from facts to result: enrich, investigate, judge, decide, build. Over ports only.

Everything that was paid for or read is a journal step; a successor comes to the same place and goes on. The result is
the last step: once it is in the journal it is published as it is, never built a second time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from schemas import audit
from schemas.analysis import AnalysisResult, Approval, ApprovalFactor
from schemas.enrichment import DetectedLabels
from worker.domain.cluster.history import Lookback, record_of
from worker.domain.enrichment.enrich import enrich
from worker.domain.enrichment.first_look import FirstLook
from worker.domain.intake.context import (
    base_context,
    failed_execution,
    requested_names,
    sent_enrichment,
    signal_resource,
)
from worker.domain.investigation.loop import Investigated, Investigation, Judged, investigate
from worker.domain.investigation.models.tries import TryRule
from worker.domain.investigation.prompt import PROMPT_VERSION, SYSTEM_TEXT, PromptFacts, opening_turn
from worker.domain.investigation.prompt.sender import sender_texts
from worker.domain.investigation.toolbox.tool import ToolContext
from worker.domain.investigation.toolbox.toolbox import Toolbox
from worker.domain.investigation.toolbox.tools import offered_tools
from worker.domain.journal.run import Run, unanswered
from worker.domain.journal.second_reader import Opinion, SecondReader
from worker.domain.journal.steps import done
from worker.domain.untrusted.evidence import Evidence, EvidenceLog
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.conversation import Reply
from worker.domain.values.errors import CatalogUnavailable, HistoryUnavailable, JournalGap
from worker.domain.values.limits import Limits, Spent
from worker.domain.values.objects import ObjectRef
from worker.domain.values.ports import Catalog, Clock, Cluster, ExternalTools, History, Metrics, Model, Policy
from worker.domain.values.step_kinds import OPENING, RESULT
from worker.domain.verdict.answers.parse import UnreadableAnswer, parse_answer
from worker.domain.verdict.approval.factors import FactorCode, factor, sentences
from worker.domain.verdict.approval.policy import merge_approval, policy_facts, policy_input
from worker.domain.verdict.checks.alignment import follows_instruction
from worker.domain.verdict.checks.review import Reviewed, Reviewer
from worker.domain.verdict.checks.safety import stricter_environment
from worker.domain.verdict.checks.settled import doubts
from worker.domain.verdict.judge import judge
from worker.domain.verdict.outcome import ApprovalRule, Conclusion, Ending, Stop, conclude
from worker.domain.verdict.result import Ingredients, build
from worker.domain.verdict.verdict import NOTHING_TO_DO, Accepted, Rejected, Verdict

T = TypeVar("T")
NOT_LOOKED = FirstLook(unread=("anything",))
SHRUNK = "the conversation became too long for the model: it no longer read its first tool results at the end"


@dataclass(frozen=True, slots=True)
class Outside:
    """The outside world of one analysis. `jitter` gives a number in [0, 1). What may be missing has a default."""

    cluster: Cluster
    catalog: Catalog
    model: Model
    policy: Policy
    clock: Clock
    jitter: Callable[[], float]
    history: History | None = None
    metrics: Metrics | None = None
    external: ExternalTools | None = None
    shadow: Model | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What is allowed and expected."""

    limits: Limits = field(default_factory=Limits)
    tries: TryRule = field(default_factory=TryRule)
    enrichment_seconds: float = 3.0
    min_confidence: float = 0.7
    confidence_threshold: float = 0.8
    signal_types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Opening:
    """What the model is told first, and the facts behind it: made once, then replayed."""

    text: str
    fence_token: str
    evidence: tuple[Evidence, ...]
    detected_labels: DetectedLabels | None
    failed_sources: tuple[str, ...]
    first_look: FirstLook = NOT_LOOKED


OPENING_STEP = TypeAdapter(Opening)


class Analysis:
    """Analyses requests. One object serves all of them; what belongs to one request lives in `_Work`."""

    def __init__(self, outside: Outside, rules: Rules) -> None:
        self._outside, self._rules = outside, rules

    async def run(self, run: Run) -> AnalysisResult:
        """The result of the request, not yet published.

        Raises Retry, GiveUp, LostClaim, JournalGap, Unavailable, and what `proceed` raises.
        """
        if finished := done(run, RESULT):
            result = _read(TypeAdapter(AnalysisResult), finished[-1].data)
            kept = finished[-1].notes
        else:
            await run.proceed()
            opening = await self._opening(run)
            work = _Work(run, self._outside, self._rules, opening)
            found = await investigate(work.investigation())
            result, kept = await work.result(found), work.kept(found)
            await run.proceed()
            await run.conclude(result, **kept)
        await self._remember(result, kept)
        return result

    async def _remember(self, result: AnalysisResult, kept: Mapping[str, Any]) -> None:
        """Keep the result for later incidents of the same resource. A lost record is no reason to lose the result."""
        if self._outside.history is not None and kept.get("owner"):
            record = record_of(result, str(kept["spec_hash"]))
            with contextlib.suppress(HistoryUnavailable):
                await self._outside.history.remember(ObjectRef(*kept["owner"]), record)

    async def without_answer(self, run: Run, ending: Ending) -> AnalysisResult:
        """The result of a request that no answer was accepted for: expired, cancelled, models down. Not yet published."""
        now = self._outside.clock.now()
        result = unanswered(run, ending, now)
        await run.conclude(result)
        return result

    async def _opening(self, run: Run) -> Opening:
        if known := done(run, OPENING):
            return _read(OPENING_STEP, known[0].data)
        started = self._outside.clock.monotonic()
        opening = await self._first_look(run)
        run.trail.record(
            audit.EnrichmentCompleted(
                evidence_ids=tuple(item.id for item in opening.evidence),
                failed_sources=opening.failed_sources,
                detected_labels=opening.detected_labels,
                duration_seconds=round(self._outside.clock.monotonic() - started, 3),
            )
        )
        await run.append(OPENING, OPENING_STEP.dump_json(opening))
        return opening

    async def _first_look(self, run: Run) -> Opening:
        found = await enrich(
            run.request,
            self._outside.cluster,
            self._outside.clock,
            deadline_seconds=self._rules.enrichment_seconds,
        )
        log = EvidenceLog()
        numbered = tuple(log.add(replace(item, body=redact(item.body))) for item in found.evidence)
        sent = sent_enrichment(run.request)
        labels = sent.detected_labels if sent and sent.detected_labels else found.detected_labels
        token = run.new_token()
        facts = PromptFacts(
            fence_token=token,
            evidence=numbered,
            detected_labels=labels,
            custom_labels=sent.custom_labels if sent else {},
            unknown_sources=found.failed_sources,
        )
        text = opening_turn(run.request, facts)
        return Opening(text, token, numbered, labels, tuple(found.failed_sources), found.first_look)


class _Work:
    """One investigation: evidence, tools, reviewer, and the last review."""

    def __init__(self, run: Run, outside: Outside, rules: Rules, opening: Opening) -> None:
        self._run, self._outside, self._rules, self._opening = run, outside, rules, opening
        self._evidence = EvidenceLog()
        for item in opening.evidence:
            self._evidence.add(item)
        context, received = base_context(run.request), run.request.received_time
        lookback = Lookback(outside.history, outside.cluster, received) if outside.history else None
        self._toolbox = Toolbox(
            offered_tools(outside.metrics, outside.external),
            ToolContext(
                outside.cluster, outside.catalog, received, context, redact, lookback, outside.metrics
            ),
            self._evidence,
            fence_token=opening.fence_token,
        )
        self._reviewer = Reviewer(
            cluster=outside.cluster,
            catalog=outside.catalog,
            evidence=self._evidence,
            signal=signal_resource(run.request),
            requested_names=requested_names(run.request),
            context=context,
            safety=run.request.safety_context,
            failed=failed_execution(run.request),
            extra_signal_types=rules.signal_types,
            sender=sender_texts(run.request),
            lookback=lookback,
            failed_sources=opening.failed_sources,
        )
        self._review: Reviewed | None = None

    def investigation(self) -> Investigation:
        """What the loop works with."""
        return Investigation(
            model=self._outside.model,
            tools=self._toolbox.specs,
            system=SYSTEM_TEXT,
            opening=self._opening.text,
            toolbox=self._toolbox,
            evidence=self._evidence,
            judge=self._judge,
            run=self._run,
            proceed=self._run.proceed,
            observer=self._run.trail,
            clock=self._outside.clock,
            jitter=self._outside.jitter,
            limits=self._rules.limits,
            tries=self._rules.tries,
            urgency=self._run.accepted.delivery.urgency,
        )

    async def _judge(self, reply: Reply) -> Judged:
        self._review = None
        try:
            answer = parse_answer(reply.text, reply.finish)
        except UnreadableAnswer as unreadable:
            return Judged(Rejected((unreadable.problem,)))
        named = answer.selected_workflow.workflow_id if answer.selected_workflow else ""
        try:
            self._review = await self._reviewer.review(answer)
        except CatalogUnavailable as e:
            return Judged(Rejected(()), named, stop=Stop.CATALOG_DOWN, stop_detail=str(e))
        return Judged(judge(answer, self._review.facts), named)

    async def result(self, found: Investigated) -> AnalysisResult:
        """Hear the second model, conclude, ask the policy, build."""
        last = found.attempts[-1].verdict if found.attempts else None
        accepted = last if isinstance(last, Accepted) else None
        opinion, spent = await self._second_opinion(accepted, found.spent)
        if accepted is not None:
            last = accepted = self._aligned(accepted, opinion)
        ending = Ending(last, found.stop, found.stop_detail, doubts=self._doubts(last, opinion))
        conclusion = conclude(ending, self._rules.min_confidence)
        planted = self._planted(opinion)
        self._tell_alignment(accepted, opinion)
        approval = await self._approval(conclusion, accepted, planted, opinion)
        return build(
            Ingredients(
                prompt_version=PROMPT_VERSION,
                request=self._run.request,
                digest=self._run.accepted.digest,
                conclusion=conclusion,
                approval=approval,
                completed_at=self._outside.clock.now(),
                accepted=accepted,
                attempts=found.attempts,
                evidence=self._evidence.items,
                detected_labels=self._review.detected_labels
                if self._review
                else self._opening.detected_labels,
                spent=spent,
                model=found.model,
                warnings=sentences(planted),
                notes=self._notes(found),
            )
        )

    async def _second_opinion(self, accepted: Accepted | None, spent: Spent) -> tuple[Opinion, Spent]:
        if accepted is None or self._outside.shadow is None:
            return Opinion(), spent
        reader = SecondReader(
            self._outside.shadow,
            self._run,
            self._run.proceed,
            self._run.trail,
            token=self._run.new_token(),
            word=self._run.new_token(),
            calls=spent.llm_calls,
        )
        chosen = accepted.workflow.workflow_id if accepted.workflow else f"no workflow: {accepted.outcome}"
        started = self._outside.clock.monotonic()
        opinion, replies = await reader.read(
            [*sender_texts(self._run.request), *self._evidence.items], chosen
        )
        wall = spent.wall_seconds + self._outside.clock.monotonic() - started
        for reply in replies:
            spent = spent.plus(reply.usage, wall_seconds=wall)
        return opinion, spent

    @staticmethod
    def _aligned(accepted: Accepted, opinion: Opinion) -> Accepted:
        quotes, workflow = opinion.suspicious.values(), accepted.workflow
        followed = opinion.follows or (workflow is not None and follows_instruction(workflow, quotes))
        if accepted.misaligned or not followed:
            return accepted
        return replace(
            accepted, misaligned="a second model says that the answer follows instructions in the evidence"
        )

    def _tell_alignment(self, accepted: Accepted | None, opinion: Opinion) -> None:
        """An event for everything that was found; with a second model, also when nothing was."""
        found = {
            id_: " | ".join(lines)
            for id_, lines in (self._review.instructions if self._review else {}).items()
        }
        if not found and (self._outside.shadow is None or accepted is None):
            return
        self._run.trail.record(
            audit.AlignmentChecked(
                suspicious={**opinion.suspicious, **found},
                second_model=self._outside.shadow.name if self._outside.shadow and accepted else None,
                problem=opinion.problem,
                misaligned=bool(accepted and accepted.misaligned),
            ),
            audit.Outcome.FAILURE if opinion.problem else audit.Outcome.SUCCESS,
        )

    def _doubts(self, last: Verdict | None, opinion: Opinion) -> tuple[str, ...]:
        affected, request = self._review.facts.affected if self._review else None, self._run.request
        signal = signal_resource(request)
        look = self._opening.first_look
        found = doubts(last, affected, look, signal, request.safety_context, request.signal_type)
        heard = [text for text in (opinion.warning, opinion.problem) if text]
        decided = isinstance(last, Accepted) and last.outcome in NOTHING_TO_DO
        return (*found, *heard) if decided else found

    def kept(self, found: Investigated) -> Mapping[str, Any]:
        """What the history needs beside the result: the top owner and the hash of its spec; empty without a cause."""
        last = found.attempts[-1].verdict if found.attempts else None
        if not isinstance(last, Accepted):
            return {}
        root = last.root_owner
        spec_hash = self._review.spec_hash if self._review else ""
        return {"owner": [root.kind, root.name, root.namespace], "spec_hash": spec_hash}

    def _notes(self, found: Investigated) -> list[str]:
        notes = [*self._run.notes, *(f"unknown: {source}" for source in self._opening.failed_sources)]
        return [*notes, SHRUNK] if found.shrunk else notes

    def _planted(self, opinion: Opinion) -> tuple[ApprovalFactor, ...]:
        """Approval factors for text in the evidence that reads like instructions."""
        detected = self._review.instructions if self._review else {}
        found = {
            FactorCode.INJECTION_SUSPECTED: detected,
            FactorCode.SECOND_MODEL_SUSPICIOUS: opinion.suspicious,
        }
        return tuple(factor(code, ", ".join(items)) for code, items in found.items() if items)

    async def _approval(
        self,
        conclusion: Conclusion,
        accepted: Accepted | None,
        planted: Sequence[ApprovalFactor],
        opinion: Opinion,
    ) -> Approval:
        if conclusion.approval is ApprovalRule.NOT_NEEDED or accepted is None:
            return Approval(required=False)
        facts = policy_facts(
            self._run.request,
            accepted,
            labels=self._review.detected_labels if self._review else None,
            confidence_threshold=self._rules.confidence_threshold,
            injection=bool(planted),
        )
        environment = stricter_environment(facts.environment, self._run.request.safety_context)
        decided = await self._outside.policy.decide(policy_input(replace(facts, environment=environment)))
        failed = [factor(FactorCode.SECOND_MODEL_FAILED, opinion.problem)] if opinion.problem else []
        approval = merge_approval(decided, (*conclusion.approval_factors, *planted, *failed))
        self._run.trail.record(
            audit.PolicyDecided(
                policy=self._outside.policy.name, approval=approval, injection_detected=bool(planted)
            )
        )
        return approval


def _read(adapter: TypeAdapter[T], data: bytes) -> T:
    try:
        return adapter.validate_json(data)
    except ValidationError as e:
        raise JournalGap(f"a step is not readable: {e.error_count()} errors") from e
