"""Checks the parameters of a workflow against its declaration (ADR-043).

Nothing is dropped or guessed: a number written as text is converted, everything else that does not fit is a
problem that says how to correct it. Patterns run in the linear-time regex engine of pydantic.

A workflow may put a value into a command line, an environment file or a template. Hidden characters and
secrets are rejected; characters that a shell or a template interprets require approval unless a pattern or a
list of values allows them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any

from worker.domain.catalog.parameter_values import SHOWN_CHARS, BadValueError, brief, check_value, listed
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflows import Parameter, ParameterType, Workflow
from worker.domain.verdict.approval.factors import FactorCode
from worker.domain.verdict.checks.report import CheckReport

RUNS = re.compile(r"[;|&`<>]|\$[({]|\{\{|\{%")
"""Characters that start something in a shell or a template."""


def check_values(
    workflow: Workflow, given: Mapping[str, Any], report: CheckReport, exempt: Collection[str] = ()
) -> dict[str, Any]:
    """Check all values against all declared parameters. Returns those that fit, converted.

    Those in `exempt` are taken as they are. A null counts as absent. Defaults are left to whoever executes
    the workflow. A parameter that was rejected before is not rejected again.
    """
    rejected, start = {problem.path for problem in report.problems}, len(report.problems)
    values: dict[str, Any] = {}
    present = {name: value for name, value in given.items() if value is not None}
    for name, value in present.items():
        parameter = workflow.parameter(name)
        try:
            if parameter is None:
                raise BadValueError(_undeclared(name, workflow))
            values[name] = value if name in exempt else check_value(parameter, value)
        except BadValueError as error:
            report.reject_parameter(name, str(error))
            continue
        if values[name] != value or type(values[name]) is not type(value):
            report.notes.append(f"parameter {name}: {brief(value)} was read as {brief(values[name])}")
        if _may_run(parameter, values[name]):
            report.require_approval(FactorCode.PARAMETER_ACTIVE_CHARACTERS, one_line(name, SHOWN_CHARS))
    _check_missing(workflow, present, report)
    report.problems[start:] = [p for p in report.problems[start:] if p.path not in rejected]
    return values


def _may_run(parameter: Parameter, value: Any) -> bool:
    """True if the value has such characters, and the parameter does not say which values are allowed."""
    if parameter.pattern or parameter.enum:
        return False
    if isinstance(value, list):
        items = parameter.items or Parameter(name="", type=ParameterType.STRING)
        return any(_may_run(items, item) for item in value)
    return isinstance(value, str) and RUNS.search(value) is not None


def _check_missing(workflow: Workflow, present: Mapping[str, Any], report: CheckReport) -> None:
    for parameter in workflow.parameters:
        if parameter.required and parameter.name not in present and parameter.default is None:
            hint = f": {one_line(parameter.description, 120)}" if parameter.description else ""
            report.reject_parameter(parameter.name, f"is required ({parameter.type}){hint}")
        for other in parameter.depends_on if parameter.name in present else ():
            if other not in present and not _has_default(workflow, other):
                report.reject_parameter(parameter.name, f"requires {other} to be set as well")


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
    return f"is not declared by {workflow.workflow_id}: leave it out (declared: {listed(names)})"
