"""Whether an answer follows instructions that somebody planted in the evidence. It only makes the outcome stricter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from schemas import audit
from schemas.analysis import ApprovalFactor
from worker.domain.investigation.loop import Investigated
from worker.domain.investigation.prompt.sender import sender_texts
from worker.domain.journal.run import Run
from worker.domain.journal.second_reader import Opinion, SecondReader
from worker.domain.untrusted.evidence import Evidence
from worker.domain.values.limits import Spent
from worker.domain.values.ports import Clock, Model
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.checks.alignment import follows_instruction
from worker.domain.verdict.verdict import NOTHING_TO_DO, Accepted, Verdict


@dataclass(frozen=True, slots=True)
class Alignment:
    """What was found. `verdict` is the last one, marked as misaligned if it follows an instruction.

    `spent` includes the calls of the second model. `planted` name the evidence that holds instructions. `problem` says
    why the second model gave no opinion on everything; empty when it did or there is none. `doubts` speak against an
    answer that finds nothing to do.
    """

    verdict: Verdict | None
    spent: Spent
    planted: tuple[ApprovalFactor, ...] = ()
    problem: str = ""
    doubts: tuple[str, ...] = ()


async def check_alignment(
    run: Run, found: Investigated, evidence: Sequence[Evidence], second_model: Model | None, clock: Clock
) -> Alignment:
    """Check the answer of an investigation, and record what was found. Raises what `SecondReader.read` raises."""
    verdict, accepted = found.verdict, found.accepted
    opinion, spent = Opinion(), found.spent
    asked = second_model if accepted is not None else None
    if accepted is not None and asked is not None:
        opinion, spent = await _second_opinion(run, accepted, evidence, asked, spent, clock)
    if accepted is not None:
        verdict = accepted = _marked(accepted, opinion)
    planted = found.facts.instructions if found.facts else {}
    _record(run, accepted, opinion, planted, asked)
    nothing_to_do = accepted is not None and accepted.outcome in NOTHING_TO_DO
    return Alignment(
        verdict,
        spent,
        planted=_factors(planted, opinion),
        problem=opinion.problem,
        doubts=tuple(text for text in (opinion.warning, opinion.problem) if text) if nothing_to_do else (),
    )


async def _second_opinion(
    run: Run, accepted: Accepted, evidence: Sequence[Evidence], model: Model, spent: Spent, clock: Clock
) -> tuple[Opinion, Spent]:
    reader = SecondReader(
        model,
        run,
        run.proceed,
        run.trail,
        token=run.new_token(),
        word=run.new_token(),
        calls=spent.llm_calls,
    )
    chosen = accepted.workflow.workflow_id if accepted.workflow else f"no workflow: {accepted.outcome}"
    started = clock.monotonic()
    opinion, replies = await reader.read([*sender_texts(run.request), *evidence], chosen)
    wall = spent.wall_seconds + clock.monotonic() - started
    for reply in replies:
        spent = spent.plus(reply.usage, wall_seconds=wall)
    return opinion, spent


def _marked(accepted: Accepted, opinion: Opinion) -> Accepted:
    quotes, workflow = opinion.suspicious.values(), accepted.workflow
    followed = opinion.follows or (workflow is not None and follows_instruction(workflow, quotes))
    if accepted.misaligned or not followed:
        return accepted
    return replace(
        accepted, misaligned="A second model finds that the answer follows instructions in the evidence."
    )


def _record(
    run: Run,
    accepted: Accepted | None,
    opinion: Opinion,
    planted: Mapping[str, Sequence[str]],
    asked: Model | None,
) -> None:
    """An event for everything that was found; when a second model was asked, also for nothing."""
    if not planted and asked is None:
        return
    found = {id_: " | ".join(lines) for id_, lines in planted.items()}
    run.trail.record(
        audit.AlignmentChecked(
            suspicious={**opinion.suspicious, **found},
            second_model=asked.name if asked else None,
            problem=opinion.problem,
            misaligned=bool(accepted and accepted.misaligned),
        ),
        audit.Outcome.FAILURE if opinion.problem else audit.Outcome.SUCCESS,
    )


def _factors(planted: Mapping[str, Sequence[str]], opinion: Opinion) -> tuple[ApprovalFactor, ...]:
    """Approval factors for text in the evidence that reads like instructions."""
    found = {
        FactorCode.INJECTION_SUSPECTED: planted,
        FactorCode.SECOND_MODEL_SUSPICIOUS: opinion.suspicious,
    }
    return tuple(factor(code, ", ".join(items)) for code, items in found.items() if items)
