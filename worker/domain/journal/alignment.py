"""What speaks for and against an accepted answer beside its checks: text that reads like instructions, and a second view.

Text is only reported. The second view can corroborate what rules do not confirm; where text was planted and the second view
chooses otherwise, a person must look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from schemas import audit
from schemas.analysis import CorroborationSource
from worker.domain.diagnosis.digest import digest
from worker.domain.intake.context import signal_resource
from worker.domain.investigation.loop import Investigated
from worker.domain.journal.run import Run
from worker.domain.journal.second_view import SecondView, read_choice
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.limits import Spent
from worker.domain.values.ports import Outside
from worker.domain.values.workflows import SelectionContext, WorkflowSummary
from worker.domain.verdict.corroboration import Corroborated
from worker.domain.verdict.verdict import Accepted, Verdict, actionable

MAX_WORKFLOWS = 40
CONFIRMED = "A second model that saw only structured facts chose the same object and the same workflow."
OTHERWISE = (
    "Text in the evidence reads like instructions, and a second model that did not see it chooses otherwise."
)


@dataclass(frozen=True, slots=True)
class Alignment:
    """What was found. `verdict` is the last one, marked as misaligned where planted text may have led it astray.

    `spent` includes the call of the second model. `warnings` name evidence that reads like instructions;
    `injection_suspected` says that there is some.
    """

    verdict: Verdict | None
    corroborated: Corroborated
    spent: Spent
    warnings: tuple[str, ...] = ()
    injection_suspected: bool = False


async def check_alignment(
    run: Run, found: Investigated, corroborated: Corroborated, context: SelectionContext, outside: Outside
) -> Alignment:
    """Report planted text, and ask for a second view where it can matter. Raises what `SecondView.ask` raises."""
    planted = found.facts.instructions if found.facts else {}
    alignment = Alignment(found.verdict, corroborated, found.spent, _warnings(planted), bool(planted))
    accepted, asked = found.accepted, ""
    if accepted is not None and outside.shadow is not None and _matters(accepted, corroborated):
        asked = outside.shadow.name
        alignment = await _viewed(run, accepted, alignment, context, outside)
    _record(run, alignment, planted, asked)
    return alignment


def _matters(accepted: Accepted, corroborated: Corroborated) -> bool:
    """Whether only corroboration is missing: there is a workflow, nothing else requires approval, rules are silent."""
    silent = (
        corroborated.corroboration is not None and corroborated.corroboration.by is CorroborationSource.NONE
    )
    return accepted.workflow is not None and not accepted.approval_factors and silent


async def _viewed(
    run: Run, accepted: Accepted, alignment: Alignment, context: SelectionContext, outside: Outside
) -> Alignment:
    if outside.shadow is None or alignment.corroborated.facts is None:
        return alignment
    spent, clock = alignment.spent, outside.clock
    view = SecondView(outside.shadow, run, run.proceed, run.trail, spent.llm_calls)
    started = clock.monotonic()
    workflows = await _candidates(outside, context)
    step = await view.ask(str(signal_resource(run.request)), digest(alignment.corroborated.facts), workflows)
    if step.reply is None:
        return alignment
    spent = spent.plus(step.reply.usage, wall_seconds=spent.wall_seconds + clock.monotonic() - started)
    alignment = replace(alignment, spent=spent)
    choice = read_choice(step.reply)
    if choice is None or choice.object is None or accepted.workflow is None:
        return alignment
    blamed, chosen = actionable(accepted), choice.object
    same = (chosen.kind, chosen.namespace, chosen.name) == (blamed.kind, blamed.namespace, blamed.name)
    if same and choice.workflow_id == accepted.workflow.workflow_id:
        return replace(alignment, corroborated=alignment.corroborated.confirmed(CONFIRMED))
    if alignment.injection_suspected:
        return replace(alignment, verdict=replace(accepted, misaligned=OTHERWISE))
    return alignment


async def _candidates(outside: Outside, context: SelectionContext) -> Sequence[WorkflowSummary]:
    """Workflows of the catalog for the business context of the request, at most 40; none when it cannot be read."""
    found: list[WorkflowSummary] = []
    try:
        for action in await outside.catalog.actions(context):
            found += (await outside.catalog.workflows(action.action_type, context)).workflows
    except CatalogUnavailable:
        return ()
    return found[:MAX_WORKFLOWS]


def _record(run: Run, alignment: Alignment, planted: Mapping[str, Sequence[str]], asked: str) -> None:
    """An event for everything that was found; when a second model was asked, also for nothing."""
    if not planted and not asked:
        return
    verdict = alignment.verdict
    run.trail.record(
        audit.AlignmentChecked(
            suspicious={id_: " | ".join(lines) for id_, lines in planted.items()},
            second_model=asked or None,
            misaligned=isinstance(verdict, Accepted) and bool(verdict.misaligned),
        )
    )


def _warnings(planted: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """What a person should know about text in the evidence that reads like instructions."""
    if not planted:
        return ()
    return (f"Text in the evidence reads like instructions to the analysis: {', '.join(planted)}.",)
