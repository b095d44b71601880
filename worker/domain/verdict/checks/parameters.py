"""Checks the parameters of a workflow against its declaration (ADR-043).

Nothing is dropped or guessed: a number written as text is converted, everything else that does not fit is a problem that
says how to correct it. Patterns run in the linear-time regex engine of pydantic.

A workflow may put a value into a command line, an environment file or a template. Hidden characters and secrets are
rejected; characters that a shell or a template interprets require approval unless a pattern or a list of values allows
them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.analysis import ApprovalFactor
from worker.domain.catalog.parameter_values import SHOWN_CHARS, BadValueError, _choices, _shown, check_value
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflows import Parameter, ParameterType, Workflow
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.problems import Problem, ProblemKind

PARAMETERS_PATH = "selected_workflow.parameters"
RUNS = re.compile(r"[;|&`<>]|\$[({]|\{\{|\{%")
"""Characters that start something in a shell or a template."""


@dataclass(frozen=True, slots=True)
class CheckedValues:
    """The converted values, the problems of the others, notes on what was changed, and approval factors."""

    values: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    factors: tuple[ApprovalFactor, ...] = ()


def check_values(workflow: Workflow, given: Mapping[str, Any], exempt: Collection[str] = ()) -> CheckedValues:
    """Check all values against all declared parameters. Those in `exempt` are taken as they are.

    A null counts as absent. Defaults are left to whoever executes the workflow.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    notes: list[str] = []
    present = {name: value for name, value in given.items() if value is not None}
    for name, value in present.items():
        parameter = workflow.parameter(name)
        try:
            if parameter is None:
                raise BadValueError(_undeclared(name, workflow))
            values[name] = value if name in exempt else check_value(parameter, value)
        except BadValueError as error:
            problems.append(problem(name, str(error)))
            continue
        if values[name] != value or type(values[name]) is not type(value):
            notes.append(f"parameter {name}: {_shown(value)} was read as {_shown(values[name])}")
    problems += _missing(workflow, present)
    return CheckedValues(values, tuple(problems), tuple(notes), _factors(workflow, values))


def _factors(workflow: Workflow, values: Mapping[str, Any]) -> tuple[ApprovalFactor, ...]:
    """One factor for each value that a shell or a template would act on."""
    return tuple(
        factor(FactorCode.PARAMETER_ACTIVE_CHARACTERS, one_line(name, SHOWN_CHARS))
        for name, value in values.items()
        if (parameter := workflow.parameter(name)) is not None and _may_run(parameter, value)
    )


def _may_run(parameter: Parameter, value: Any) -> bool:
    """Whether the value has such characters, and the parameter does not say which values are allowed."""
    if parameter.pattern or parameter.enum:
        return False
    if isinstance(value, list):
        items = parameter.items or Parameter(name="", type=ParameterType.STRING)
        return any(_may_run(items, item) for item in value)
    return isinstance(value, str) and RUNS.search(value) is not None


def problem(name: str, message: str) -> Problem:
    """A problem with one parameter."""
    return Problem(ProblemKind.PARAMETERS, f"{PARAMETERS_PATH}.{one_line(name, SHOWN_CHARS)}", message)


def _missing(workflow: Workflow, present: Mapping[str, Any]) -> list[Problem]:
    found = []
    for parameter in workflow.parameters:
        if parameter.required and parameter.name not in present and parameter.default is None:
            hint = f": {one_line(parameter.description, 120)}" if parameter.description else ""
            found.append(problem(parameter.name, f"is required ({parameter.type}){hint}"))
        if parameter.name in present:
            found += [
                problem(parameter.name, f"requires {other} to be set too")
                for other in parameter.depends_on
                if other not in present and not _has_default(workflow, other)
            ]
    return found


def _has_default(workflow: Workflow, name: str) -> bool:
    declared = workflow.parameter(name)
    return declared is not None and declared.default is not None


def _undeclared(name: str, workflow: Workflow) -> str:
    names = [p.name for p in workflow.parameters]
    if not names:
        return f"{workflow.workflow_id} takes no parameters: leave it out"
    folded = {n.casefold(): n for n in names}
    close = difflib.get_close_matches(name[:SHOWN_CHARS].casefold(), folded, n=1, cutoff=0.7)
    if close:
        return f"is not declared by {workflow.workflow_id}: did you mean {folded[close[0]]}?"
    return f"is not declared by {workflow.workflow_id}: leave it out (declared: {_choices(names)})"
