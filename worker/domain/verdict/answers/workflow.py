"""The workflow that an answer chose (an object, a flat id, or the best of a ranked list), and its parameters."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.taxonomy import normalize_risk
from worker.domain.untrusted.evidence import one_line
from worker.domain.verdict.answers.answer import AnsweredAlternative, AnsweredWorkflow, ProblemKind
from worker.domain.verdict.answers.fields import (
    MAX_ID_CHARS,
    MAX_TEXT_CHARS,
    Contradiction,
    Fields,
    Reading,
    agreed,
    agreed_in,
    clear_confidence,
    is_nothing,
    plain,
    single,
)
from worker.domain.verdict.answers.json_text import same_value

SELECTED = ("selectedworkflow", "recommendedworkflow", "chosenworkflow", "workflow")
RANKED = ("strategies", "recommendations", "remediationrecommendations")
FLAT_ID = ("workflowid", "selectedworkflowid", "recommendedworkflowid")
MAX_PARAMETERS = 100
MAX_WHOLE = 10**9

_ID = ("workflowid", "id")
_NAME = ("workflowname", "name")
CONFIDENCE = ("confidence", "confidencescore", "analysisconfidence", "probability")
RATIONALE = ("rationale", "reasoning", "reason")
_RISK = ("estimatedrisk", "risklevel", "risk")
_IMAGE = ("containerimage", "image", "executionbundle", "bundle")
_PARAMETERS = ("parameters", "params")
_PATH = "selected_workflow"
_PARAMETERS_PATH = f"{_PATH}.parameters"


@dataclass(frozen=True, slots=True)
class AnsweredChoice:
    """The workflow chosen, whether a choice (or none) was stated, and what else was considered."""

    selected: AnsweredWorkflow | None = None
    stated: bool = False
    rationale: str = ""
    others: tuple[AnsweredAlternative, ...] = field(default=())


def states_choice(root: Fields) -> bool:
    """True if an object says which workflow to run, or that none should run."""
    return root.states(*SELECTED, *RANKED, *FLAT_ID) or _says_none_matches(root)


def read_choice(root: Fields, reading: Reading) -> AnsweredChoice:
    """The choice of an answer.

    Raises:
        Contradiction: when it names two workflows where one counts.

    """
    if root.states(*SELECTED):
        choice = _selected(single(agreed(root.entries(*SELECTED)), _PATH), root, reading)
        _check_other_ids(choice, root)
    elif root.states(*FLAT_ID):
        choice = _by_id(agreed(root.entries(*FLAT_ID)), root, root, reading)
        _check_other_ids(choice, root)
    elif root.states(*RANKED):
        choice = _ranked(root.get(*RANKED), root, reading)
    else:
        return AnsweredChoice(stated=_says_none_matches(root), others=_alternatives(root, reading))
    return AnsweredChoice(
        choice.selected, choice.stated, choice.rationale, choice.others + _alternatives(root, reading)
    )


def _says_none_matches(root: Fields) -> bool:
    """A reason for review that says no workflow fits; the review flag itself is never read."""
    reason = root.get("humanreviewreason")
    return isinstance(reason, str) and plain(reason) in {"nomatchingworkflow", "nomatchingworkflows"}


def _check_other_ids(choice: AnsweredChoice, root: Fields) -> None:
    """Check that whatever else names a workflow, or says that none fits, agrees with the selected one."""
    named = choice.selected.workflow_id if choice.selected else ""
    best, _ = _best(root.get(*RANKED))
    flat = root.get(*FLAT_ID)
    others = [] if flat is None else [flat]
    others += [None] if _says_none_matches(root) else []
    for other in [*others, *([best.get("workflowid")] if best else [])]:
        said = "" if is_nothing(other) else Reading().name(other, _PATH)
        if said != named:
            shown = one_line(said, 60) or "null"
            raise Contradiction(f"the selected workflow is {named or 'null'}, but {shown} is named as well")


def _selected(value: Any, root: Fields, reading: Reading) -> AnsweredChoice:
    if is_nothing(value):
        return AnsweredChoice(stated=True)
    if isinstance(value, str):
        return _by_id(value, root, root, reading)
    workflow = Fields(value)
    if workflow.states(*_ID, *_NAME):
        return _by_id(_id_of(workflow), workflow, root, reading)
    reading.problem(
        ProblemKind.WORKFLOW_UNKNOWN,
        f"{_PATH}.workflow_id",
        "is missing: give the id from the catalog, or set selected_workflow to null for no workflow.",
    )
    return AnsweredChoice()


def _id_of(workflow: Fields) -> Any:
    """The id of a workflow. A null or a name with blanks beside it is no other id."""
    ids, names = workflow.entries(*_ID), [entry for entry in workflow.entries(*_NAME) if entry[1] is not None]
    titles = [entry for entry in names if ids and isinstance(entry[1], str) and " " in entry[1].strip()]
    return agreed([*ids, *(entry for entry in names if entry not in titles)])


def _by_id(workflow_id: Any, workflow: Fields, root: Fields, reading: Reading) -> AnsweredChoice:
    rationale = reading.prose(workflow.entries(*RATIONALE), f"{_PATH}.rationale")
    if is_nothing(workflow_id):
        return AnsweredChoice(stated=True, rationale=rationale)
    selected = AnsweredWorkflow(
        workflow_id=reading.name(workflow_id, f"{_PATH}.workflow_id"),
        confidence=reading.confidence(workflow.get(*CONFIDENCE), f"{_PATH}.confidence"),
        version=reading.name(workflow.get("version", "workflowversion"), f"{_PATH}.version"),
        container_image=reading.name(workflow.get(*_IMAGE), f"{_PATH}.container_image"),
        rationale=rationale,
        estimated_risk=_risk(workflow.get(*_RISK), reading),
        estimated_downtime_seconds=_downtime(workflow.get("estimateddowntimeseconds"), reading),
        impact_on_dependencies=reading.text(
            workflow.get("impactondependencies"), f"{_PATH}.impact_on_dependencies"
        ),
        parameters=_parameters(agreed_in((workflow, root), *_PARAMETERS), reading),
    )
    return AnsweredChoice(selected, stated=True)


def _ranked(value: Any, root: Fields, reading: Reading) -> AnsweredChoice:
    """The best of a ranked list (ADR-041), or the recommended action of the first rank (safety document)."""
    best, others = _best(value)
    if best is None:
        actions = [fields for fields in others if not is_nothing(fields.get("action"))]
        return _first_action(actions, root, reading) if actions else AnsweredChoice(stated=not others)
    choice = _by_id(best.get("workflowid"), best, Fields({}), reading)
    return replace(choice, others=_as_alternatives(others, reading))


def _best(value: Any) -> tuple[Fields | None, list[Fields]]:
    """The strategy with the highest confidence and the other ones; None if no entry names a workflow.

    Raises Contradiction when several have the highest confidence.
    """
    items = [
        Fields(item) for item in (value if isinstance(value, list) else [value]) if isinstance(item, Mapping)
    ]
    named = [fields for fields in items if not is_nothing(fields.get("workflowid"))]
    if len(named) < 2:
        return (named[0], []) if named else (None, items)
    scores = [clear_confidence(fields.get(*CONFIDENCE)) for fields in named]
    top = max((score for score in scores if score is not None), default=None)
    if None in scores or scores.count(top) > 1:
        raise Contradiction("several strategies are given and none has the highest confidence")
    best = named[scores.index(top)]
    return best, [fields for fields in named if fields is not best]


def _first_action(actions: list[Fields], root: Fields, reading: Reading) -> AnsweredChoice:
    """The action with the lowest `priority`, or the first one where none is ranked.

    The catalog decides what it stands for.
    """
    ranks = [_whole(action.get("priority", "rank")) for action in actions]
    stated = [rank for rank in ranks if rank is not None]
    first = ranks.index(min(stated)) if stated else 0
    if stated and stated.count(min(stated)) > 1:
        raise Contradiction("several recommendations have the first rank")
    choice = _by_id(actions[first].get("action"), actions[first], root, reading)
    reading.notes.append("the recommendations name actions: the first one is used")
    chosen = choice.selected
    if chosen and not actions[first].states(*CONFIDENCE):  # this form has one confidence, for all of it
        chosen = replace(chosen, confidence=clear_confidence(root.get(*CONFIDENCE)))
    return replace(choice, selected=chosen and replace(chosen, by_action=True))


def _alternatives(root: Fields, reading: Reading) -> tuple[AnsweredAlternative, ...]:
    value = root.get("alternativeworkflows", "alternatives")
    items = value if isinstance(value, list) else [value]
    found = [Fields(item if isinstance(item, Mapping) else {"id": item}) for item in items]
    return _as_alternatives(found, reading)


def _as_alternatives(items: list[Fields], reading: Reading) -> tuple[AnsweredAlternative, ...]:
    what = "alternative_workflows"
    named = ((_id_of(fields), fields) for fields in reading.items(items, what))
    return tuple(
        AnsweredAlternative(
            workflow_id=reading.name(workflow_id, what),
            confidence=clear_confidence(fields.get(*CONFIDENCE)),
            rationale=reading.prose(fields.entries(*RATIONALE), what),
        )
        for workflow_id, fields in named
        if not is_nothing(workflow_id)
    )


def _risk(value: Any, reading: Reading) -> str:
    """The level of the risk; empty, with a note, for an unknown word."""
    said = reading.text(value, f"{_PATH}.estimated_risk", MAX_ID_CHARS)
    level = normalize_risk(said)
    if said and not level:
        reading.notes.append(f"{_PATH}.estimated_risk is not low, medium or high, but {one_line(said, 60)}")
    return level


def _downtime(value: Any, reading: Reading) -> int | None:
    """Seconds; None, with a note, if the value is anything else than a number of seconds."""
    seconds = _whole(value)
    if seconds is None and not is_nothing(value):
        what = f"{_PATH}.estimated_downtime_seconds"
        reading.notes.append(f"{what} is not a number of seconds: {reading.text(value, what, 60)}")
    return seconds


def _whole(value: Any) -> int | None:
    """A number from 0 to 10^9, also as text, rounded up; None for anything else."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return math.ceil(number) if 0 <= number <= MAX_WHOLE else None


def _parameters(value: Any, reading: Reading) -> dict[str, Any]:
    """Parameters by name, values untouched: a cut or converted value would be another one."""
    if isinstance(value, list):
        value = _from_pairs(value)
    if is_nothing(value):
        return {}
    complaint = ""
    if not isinstance(value, dict):
        complaint = 'must be one object of the form {"NAME": value}.'
    elif len(value) > MAX_PARAMETERS or any(_too_long(item) for item in value.items()):
        complaint = (
            f"is too large: at most {MAX_PARAMETERS} parameters of {MAX_TEXT_CHARS} characters are read."
        )
    if complaint:
        reading.problem(ProblemKind.PARAMETERS, _PARAMETERS_PATH, complaint)
        return {}
    return dict(value)


def _too_long(item: tuple[str, Any]) -> bool:
    return len(json.dumps(item, ensure_ascii=False)) > MAX_TEXT_CHARS


def _from_pairs(items: list[Any]) -> Any:
    """`[{"name": N, "value": V}]` and `[{N: V}]` as one object; the list itself when it is neither."""
    parameters: dict[str, Any] = {}
    for item in items:
        fields = Fields(item)
        name = fields.get("name", "key", "parameter")
        if isinstance(name, str) and fields.states("value"):
            pair = (name, fields.get("value"))
        elif isinstance(item, dict) and len(item) == 1 and not isinstance(name, str):
            pair = next(iter(item.items()))
        else:
            return items
        if pair[0] in parameters and not same_value(parameters[pair[0]], pair[1]):
            raise Contradiction(f"the parameter {pair[0][:60]!r} is given two different values")
        parameters[pair[0]] = pair[1]
    return parameters
