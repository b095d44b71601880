"""Values for the parameters of a workflow, by what their names mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.finding import Finding
from worker.sandbox.analyst.refs import as_dict, as_list

TARGETS = {
    "TARGET_RESOURCE_NAME": "name", "TARGET_NAME": "name", "DEPLOYMENT_NAME": "name", "TARGET_DEPLOYMENT": "name",
    "TARGET_RESOURCE_KIND": "kind", "TARGET_KIND": "kind",
    "TARGET_RESOURCE_NAMESPACE": "namespace", "TARGET_NAMESPACE": "namespace", "NAMESPACE": "namespace",
    "TARGET_RESOURCE_API_VERSION": "api_version",
}  # fmt: skip
MEANINGS: Sequence[tuple[str, str]] = (
    (r"CONFIG_?MAP", "configmap"),
    (r"SECRET", "secret"),
    (r"PVC|CLAIM", "claim"),
    (r"CONTAINER", "container"),
    (r"CONNECTION", "max_connections"),
    (r"MAX_REPLICAS|HPA_MAX", "max_replicas"),
    (r"REPLICA", "replicas"),
    (r"REVISION", "revision"),
    (r"MEMORY(?!.*FACTOR)", "new_memory"),
    (r"ZONE", "zone"),
    (r"TAINT.*VALUE", "taint_value"),
    (r"TAINT", "taint"),
    (r"NODE", "node"),
    (r"DEADLINE", "deadline"),
    (r"IMAGE|TAG", "image"),
    (r"NETWORK_?POLICY|POLICY_NAME", "network_policy"),
    (r"CERT", "certificate"),
    (r"QUOTA", "quota"),
    (r"SERVICE_?ACCOUNT", "service_account"),
    (r"SIZE|CAPACITY|STORAGE", "new_size"),
    (r"KEY", "key"),
    (r"HOST", "host"),
)
MAX_PATTERN_INPUT = 512


def acts_on(workflow: Mapping[str, Any], finding: Finding, chain: Sequence[ObjectRef]) -> ObjectRef | None:
    """The object the workflow would act on: the first candidate of a kind it covers; None when there is none."""
    kinds = covered(workflow)
    for candidate in candidates(finding, chain):
        if not kinds or candidate.kind.lower() in kinds:
            return candidate
    return None


def covered(workflow: Mapping[str, Any]) -> set[str]:
    """Kinds a workflow acts on, in lower case; empty when it does not say."""
    declared = [as_dict(p) for p in as_list(workflow.get("parameters"))]
    for parameter in declared:
        if str(parameter.get("name")) in {"TARGET_RESOURCE_KIND", "TARGET_KIND"} and parameter.get("enum"):
            return {str(k).lower() for k in as_list(parameter.get("enum"))}
    names = {str(p.get("name")) for p in declared}
    if names & {"DEPLOYMENT_NAME", "TARGET_DEPLOYMENT"}:
        return {"deployment"}
    labels = workflow.get("labels")
    components = as_list(labels.get("component")) if isinstance(labels, dict) else []
    kinds = {str(c).rpartition("/")[2].lower() for c in components}
    return set() if "*" in kinds else kinds


def candidates(finding: Finding, chain: Sequence[ObjectRef]) -> list[ObjectRef]:
    """Objects a workflow may act on: the target and its owners, the workload, and objects the hints name."""
    found = [finding.target, *chain]
    if finding.workload is not None:
        found.append(finding.workload)
    namespace = (finding.workload or finding.target).namespace
    for hint, kind in (
        ("node", "Node"),
        ("claim", "PersistentVolumeClaim"),
        ("configmap", "ConfigMap"),
        ("secret", "Secret"),
    ):
        name = finding.hints.get(hint)
        if name:
            found.append(ObjectRef(kind, str(name), "" if kind == "Node" else namespace))
    return list(dict.fromkeys(found))


def fill(workflow: Mapping[str, Any], finding: Finding, target: ObjectRef) -> dict[str, Any] | None:
    """Parameters with values; None when a required one has none."""
    values: dict[str, Any] = {}
    for parameter in as_list(workflow.get("parameters")):
        if not isinstance(parameter, dict):
            continue
        name = str(parameter.get("name") or "")
        value = _value(name, parameter, finding, target)
        if value is None and parameter.get("required") and parameter.get("default") is None:
            return None
        if value is not None:
            values[name] = value
    return values


def _value(name: str, parameter: Mapping[str, Any], finding: Finding, target: ObjectRef) -> Any:
    if name in TARGETS:
        part = str(getattr(target, TARGETS[name]))
        return _spelled(part, parameter) if part else None
    for pattern, meaning in MEANINGS:
        if re.search(pattern, name):
            found = finding.hints.get(meaning)
            checked = fitted(found, parameter) if found not in (None, "") else None
            return checked if checked is not None else _only_choice(parameter)
    return _only_choice(parameter)


def _only_choice(parameter: Mapping[str, Any]) -> Any:
    """A required parameter with one allowed value, or with a default, needs no thought."""
    if not parameter.get("required"):
        return None
    options = as_list(parameter.get("enum"))
    return options[0] if len(options) == 1 else parameter.get("default")


def _spelled(value: str, parameter: Mapping[str, Any]) -> str | None:
    options = [str(o) for o in as_list(parameter.get("enum"))]
    if not options:
        return value
    return next((o for o in options if o.lower() == value.lower()), None)


def fitted(value: Any, parameter: Mapping[str, Any]) -> Any:
    """The value in the declared type and within the declared limits; None when it cannot be."""
    kind = str(parameter.get("type") or "string").lower()
    if kind in {"integer", "int", "number", "float"}:
        return _number(value, parameter, whole=kind.startswith("int"))
    if kind in {"boolean", "bool"}:
        return value if isinstance(value, bool) else None
    if kind == "array":
        return None
    return _text(str(value), parameter)


def _number(value: Any, parameter: Mapping[str, Any], *, whole: bool) -> Any:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    low, high = parameter.get("minimum"), parameter.get("maximum")
    if isinstance(high, int | float) and number > high:
        number = float(high)
    if isinstance(low, int | float) and number < low:
        return None
    return int(number) if whole or number.is_integer() else number


def _text(value: str, parameter: Mapping[str, Any]) -> str | None:
    options = [str(o) for o in as_list(parameter.get("enum"))]
    if options and value not in options:
        return None
    pattern = str(parameter.get("pattern") or "")
    if pattern and len(value) <= MAX_PATTERN_INPUT:
        try:
            return value if re.search(pattern, value) else None
        except re.error:
            return None
    return value
