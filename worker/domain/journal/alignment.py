"""Two more checks of an accepted answer: for planted instructions, and by the second view.

Text that reads like instructions is only reported. The second view can corroborate an answer about which the
rules are silent. If there is such text and the second view chooses otherwise, a human must decide.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas import audit
from schemas.evidence import AlignmentFinding, AlignmentOutcome, AlignmentVerdict
from worker.domain.diagnosis.digest import digest
from worker.domain.intake.accepted import base_context, signal_resource
from worker.domain.investigation.loop import Investigated
from worker.domain.investigation.prompt.sender_texts import free_texts
from worker.domain.journal.run import Run
from worker.domain.journal.second_view import SecondChoice, SecondView
from worker.domain.journal.steps import done
from worker.domain.untrusted.evidence import Evidence
from worker.domain.untrusted.injection import injection_warning, injections
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.limits import Spent
from worker.domain.values.ports import Catalog, Model, Outside
from worker.domain.values.step_kinds import SHADOW
from worker.domain.values.workflows import SelectionContext, Workflow
from worker.domain.verdict.corroboration import Corroborated, without_settled_doubts
from worker.domain.verdict.verdict import Accepted, Verdict, actionable

MAX_WORKFLOWS = 40
CONFIRMED = "A second model that saw only structured facts chose the same object and the same workflow."
OTHERWISE = (
    "Text in the evidence reads like instructions, and a second model, which did not see it, chose otherwise."
)


@dataclass(frozen=True, slots=True)
class Alignment:
    """The findings of both checks.

    `verdict` is the last one, without doubts that the cluster has settled; it is marked as misaligned if
    planted text may have misled the model. `spent` includes the call of the second model. `planted` has the
    texts that read like instructions, by the id of the evidence. `checked` is everything that was checked for
    them. `problem` says why the second model made no choice; empty when it did or was not asked.
    """

    verdict: Verdict | None
    corroborated: Corroborated
    spent: Spent
    planted: Mapping[str, Sequence[str]]
    checked: Sequence[Evidence] = ()
    problem: str = ""

    @property
    def injection_suspected(self) -> bool:
        """True if some evidence reads like instructions. It decides nothing by itself."""
        return bool(self.planted)

    @property
    def summary(self) -> AlignmentVerdict:
        """The verdict in the form of the result."""
        sources = {item.id: item.source for item in self.checked}
        findings = tuple(
            AlignmentFinding(evidence=id_, tool=sources.get(id_, ""), explanation=line)
            for id_, lines in self.planted.items()
            for line in lines
        )
        misaligned = self.verdict.misaligned if isinstance(self.verdict, Accepted) else ""
        result = AlignmentOutcome.SUSPICIOUS if findings else AlignmentOutcome.CLEAN
        return AlignmentVerdict(
            result=AlignmentOutcome.MISALIGNED if misaligned else result,
            summary=misaligned or " ".join(self.warnings),
            flagged=len(findings),
            total=len(self.checked),
            findings=findings,
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for a human."""
        return (injection_warning(self.planted),) if self.planted else ()


async def check_alignment(
    run: Run,
    found: Investigated,
    corroborated: Corroborated,
    evidence: Sequence[Evidence],
    outside: Outside,
    would_run: Callable[[Alignment], Awaitable[bool]],
) -> Alignment:
    """Report planted text, and ask for the second view if only corroboration is missing.

    `would_run` says whether the answer would be executed without approval once it is corroborated. Raises
    what `SecondView.ask` raises.
    """
    checked = [*free_texts(run.request), *evidence]
    verdict = without_settled_doubts(found.verdict, corroborated)
    alignment = Alignment(verdict, corroborated, found.spent, injections(checked), checked)
    asked, model = "", outside.shadow
    if isinstance(verdict, Accepted) and model is not None and corroborated.silent:
        confirmed = replace(alignment, corroborated=corroborated.confirmed(CONFIRMED))
        if done(run, SHADOW) or await would_run(confirmed):
            asked, alignment = model.name, await _viewed(run, verdict, alignment, model, outside)
    _record(run, alignment, asked)
    return alignment


async def _viewed(
    run: Run, accepted: Accepted, alignment: Alignment, model: Model, outside: Outside
) -> Alignment:
    spent, clock, facts = alignment.spent, outside.clock, alignment.corroborated.facts
    if facts is None:
        return alignment
    started = clock.monotonic()
    view = SecondView(model, run, run.proceed, run.trail, spent.llm_calls)
    workflows = await _candidates(outside.catalog, base_context(run.request), accepted.workflow)
    step = await view.ask(str(signal_resource(run.request)), digest(facts), workflows)
    if step.reply is not None:
        wall = spent.wall_seconds + clock.monotonic() - started
        alignment = replace(alignment, spent=spent.plus(step.reply.usage, wall_seconds=wall))
    if step.choice is None:
        return replace(alignment, problem=step.problem)
    if _same(step.choice, accepted):
        return replace(alignment, corroborated=alignment.corroborated.confirmed(CONFIRMED))
    if step.choice.object is not None and alignment.injection_suspected:
        return replace(alignment, verdict=replace(accepted, misaligned=OTHERWISE))
    return alignment


def _same(choice: SecondChoice, accepted: Accepted) -> bool:
    blamed, chosen, workflow = actionable(accepted), choice.object, accepted.workflow
    if chosen is None or workflow is None or choice.workflow_id != workflow.workflow_id:
        return False
    return (chosen.kind, chosen.namespace, chosen.name) == (blamed.kind, blamed.namespace, blamed.name)


async def _candidates(
    catalog: Catalog, context: SelectionContext, chosen: Workflow | None
) -> Sequence[Workflow]:
    """At most 40 workflows for the business context of the request, the chosen one among them, by their ids.

    Empty if the catalog cannot be read. Nothing marks the chosen one.
    """
    found: list[Workflow] = []
    try:
        for action in await catalog.actions(context):
            found += (await catalog.workflows(action.action_type, context)).workflows
    except CatalogUnavailable:
        return ()
    found.sort(key=lambda offered: chosen is None or offered.workflow_id != chosen.workflow_id)
    return sorted(found[:MAX_WORKFLOWS], key=lambda offered: offered.workflow_id)


def _record(run: Run, alignment: Alignment, asked: str) -> None:
    """Record the findings as an event, if there are any or the second model was asked."""
    if not alignment.planted and not asked:
        return
    verdict = alignment.verdict
    run.trail.record(
        audit.AlignmentChecked(
            suspicious={id_: " | ".join(lines) for id_, lines in alignment.planted.items()},
            second_model=asked or None,
            problem=alignment.problem,
            misaligned=isinstance(verdict, Accepted) and bool(verdict.misaligned),
        ),
        audit.Outcome.FAILURE if alignment.problem else audit.Outcome.SUCCESS,
    )
