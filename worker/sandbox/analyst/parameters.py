"""Values for the parameters of a workflow, by what their names mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from worker.domain.catalog.parameter_values import BadValueError, check_value
from worker.domain.cluster.fields import dig, mappings, sequence, text
from worker.domain.cluster.quantities import doubled
from worker.domain.diagnosis.causes import Diagnosis, Remedy
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.storage import size_of
from worker.domain.diagnosis.structure import container_specs, pod_spec_of
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import Parameter, ParameterType, Workflow
from worker.domain.verdict.checks.targets import target_part

NAMING = {
    "TARGET_RESOURCE_NAME": "name",
    "TARGET_RESOURCE_KIND": "kind",
    "TARGET_RESOURCE_NAMESPACE": "namespace",
}
MEANINGS: Sequence[tuple[str, str]] = (
    (r"CONFIG_?MAP", "ConfigMap"),
    (r"SECRET", "Secret"),
    (r"PVC|CLAIM", "PersistentVolumeClaim"),
    (r"CONTAINER", "container"),
    (r"CONNECTION", "connections"),
    (r"MAX_REPLICAS|HPA_MAX", "max_replicas"),
    (r"REPLICA", "replicas"),
    (r"REVISION", "revision"),
    (r"MEMORY(?!.*FACTOR)", "memory"),
    (r"TAINT.*VALUE", "taint_value"),
    (r"TAINT", "taint"),
    (r"NODE", "Node"),
    (r"DEADLINE", "deadline"),
    (r"IMAGE|TAG", "image"),
    (r"NETWORK_?POLICY|POLICY_NAME", "NetworkPolicy"),
    (r"CERT", "Certificate"),
    (r"QUOTA", "ResourceQuota"),
    (r"SERVICE_?ACCOUNT", "ServiceAccount"),
    (r"SIZE|CAPACITY|STORAGE", "size"),
)


def parameter_of(declared: dict[str, Any]) -> Parameter:
    """A parameter as get_workflow shows it."""
    low, high = (v if isinstance(v, int | float) else None for v in map(declared.get, ("minimum", "maximum")))
    kinds = {str(kind): kind for kind in ParameterType}
    return Parameter(
        name=text(declared.get("name")),
        type=kinds.get(text(declared.get("type")), ParameterType.STRING),
        required=declared.get("required") is True,
        default=declared.get("default"),
        enum=tuple(sequence(declared.get("enum"))),
        pattern=text(declared.get("pattern")),
        minimum=low,
        maximum=high,
    )


def acts_on(workflow: Workflow, candidates: Sequence[ObjectRef]) -> ObjectRef | None:
    """The object that the workflow would act on: the first candidate of a kind it covers, or None.

    Where it covers several kinds, the one that its id names comes first.
    """
    kinds = _covered(workflow)
    fitting = [c for c in candidates if not kinds or c.kind.lower() in kinds]
    return min(fitting, key=lambda c: c.kind.lower() not in workflow.workflow_id, default=None)


def _covered(workflow: Workflow) -> set[str]:
    """Kinds that a workflow acts on, in lower case; empty when it does not say."""
    for parameter in workflow.parameters:
        if target_part(parameter.name) == "kind" and parameter.enum:
            return {str(k).lower() for k in parameter.enum}
    if any("DEPLOYMENT" in p.name for p in workflow.parameters if target_part(p.name)):
        return {"deployment"}
    kinds = {c.rpartition("/")[2].lower() for c in workflow.labels.get("component", ())}
    return set() if "*" in kinds else kinds


def fill(
    workflow: Workflow, finding: Diagnosis, target: ObjectRef, facts: ClusterFacts
) -> dict[str, Any] | None:
    """Parameters with values, without those that code fills in; None if a required one has no value."""
    meanings = _known(finding, target, facts)
    values: dict[str, Any] = {}
    if target != finding.object and not any(target_part(p.name) for p in workflow.parameters):
        values = {name: value for name, part in NAMING.items() if (value := getattr(target, part))}
    for parameter in workflow.parameters:
        value = _value(parameter, meanings, target)
        if value is None and parameter.required and parameter.default is None:
            return None
        if value is not None:
            values[parameter.name] = value
    return values


def _known(finding: Diagnosis, target: ObjectRef, facts: ClusterFacts) -> dict[str, Any]:
    """Values by meaning: names of the objects of the finding, and what the state of the cluster gives."""
    known: dict[str, Any] = {}
    for ref in (target, *finding.subjects):
        known.setdefault(ref.kind, ref.name)
    manifest = facts.get(target) if target.kind != "Secret" else None
    spec = pod_spec_of(manifest or {})
    failing = next((c for c in container_specs(spec) if c.get("name") == finding.container), {})
    top = dig(manifest, "spec", "maxReplicas")
    deadline = dig(manifest, "spec", "activeDeadlineSeconds")
    taints = mappings(dig(manifest, "spec", "taints"))
    taint = next((t for t in taints if text(t.get("key")) in finding.sentence), {})
    images = [text(c.get("image")) for c in container_specs(spec)]
    known |= {
        "container": finding.container,
        "memory": doubled(text(dig(failing, "resources", "limits", "memory"))),
        "revision": finding.revision or None,
        "replicas": 0 if Remedy.SCALE_DOWN in finding.remedies else 1,
        "max_replicas": top * 2 if isinstance(top, int) else None,
        "deadline": deadline * 2 if isinstance(deadline, int) else None,
        "taint": text(taint.get("key")),
        "taint_value": text(taint.get("value")),
        "size": doubled(size_of(manifest)),
        "image": images[0] if images and Remedy.FIX_IMAGE not in finding.remedies else "",
    }
    return known


def _value(parameter: Parameter, meanings: dict[str, Any], target: ObjectRef) -> Any:
    if held := target_part(parameter.name):
        part = str(getattr(target, held))
        spelled = {str(o).lower(): o for o in parameter.enum}
        return (spelled.get(part.lower()) if spelled else part) or None
    for pattern, meaning in MEANINGS:
        if re.search(pattern, parameter.name):
            found = meanings.get(meaning)
            checked = fitted(found, parameter) if found not in (None, "") else None
            return checked if checked is not None else _only_choice(parameter)
    return _only_choice(parameter)


def _only_choice(parameter: Parameter) -> Any:
    """A required parameter with one allowed value, or with a default, needs no thought."""
    if not parameter.required:
        return None
    return parameter.enum[0] if len(parameter.enum) == 1 else parameter.default


def fitted(value: Any, parameter: Parameter) -> Any:
    """The value in the declared type, at most the declared maximum; None when the checks of answers reject it."""
    if isinstance(value, int) and parameter.maximum is not None:
        value = min(value, parameter.maximum)
    try:
        return check_value(parameter, value)
    except BadValueError:
        return None
