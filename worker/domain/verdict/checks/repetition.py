"""Whether a workflow would be run again exactly as it has failed before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from worker.domain.catalog.parameter_values import BadValueError, check_value
from worker.domain.values.remediations import FailedExecution
from worker.domain.values.workflows import Parameter, ParameterType, Workflow
from worker.domain.verdict.checks.targets import spelling, target_part


def repeats(workflow: Workflow, parameters: Mapping[str, Any], failed: FailedExecution) -> bool:
    """Whether workflow and parameters are those that failed.

    Values compare by meaning (`2`, `2.0` and `"2"` are the same number), names in any spelling, defaults count as given.
    Parameters that name the target count only where both sides have them: older executions were given the target in
    other ways.
    """
    if failed.workflow_id.strip() != workflow.workflow_id:
        return False
    pairs = [(p, _given(parameters, p.name), _given(failed.parameters, p.name)) for p in workflow.parameters]
    return all(
        _meaning(p, now) == _meaning(p, before)
        for p, now, before in pairs
        if target_part(p.name) is None or (now is not None and before is not None)
    )


def _given(parameters: Mapping[str, Any], name: str) -> Any:
    """The value of this name, else of the first one that is it in another spelling; None without any."""
    if name in parameters:
        return parameters[name]
    return next((value for other, value in parameters.items() if spelling(other) == spelling(name)), None)


def _meaning(parameter: Parameter, value: Any) -> str:
    value = parameter.default if value is None else value
    if value is None:
        return ""
    if parameter.type is ParameterType.ARRAY and isinstance(value, str):
        value = _array_of(value)
    try:
        value = check_value(parameter, value)
    except BadValueError:
        return str(value).strip()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def _array_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return [item.strip() for item in text.split(",")]
