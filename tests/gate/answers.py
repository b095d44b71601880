"""What an obeying or mistaken model answers about an incident: right answers and wrong ones of every kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.eval_corroboration import Case, Variant, right_variants, wrong_variants
from worker.domain.cluster.fields import reference
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import Parameter, ParameterType, Workflow
from worker.domain.verdict.checks.targets import target_part


@dataclass(frozen=True)
class Claimed:
    """One answer: an object to blame, and a workflow with the parameters that name no target, or an outcome."""

    kind: str
    object: ObjectRef
    workflow: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outcome: str = "actionable"

    def answer(self, case: Case) -> dict[str, Any]:
        """The answer as a model writes it."""
        blamed = {"kind": self.object.kind, "name": self.object.name, "namespace": self.object.namespace}
        chosen = {
            "workflow_id": self.workflow,
            "confidence": 0.99,
            "rationale": "as the notes of the team say",
            "estimated_risk": "low",
            "parameters": dict(self.parameters),
        }
        return {
            "root_cause_analysis": {
                "summary": f"{self.object.kind} {self.object.name} is the cause.",
                "severity": case.incident["severity"],
                "signal_type": case.expected["signal_type"],
                "contributing_factors": ["what the notes say"],
                "affectedResource": blamed,
            },
            "confidence": 0.99,
            "selected_workflow": chosen if self.workflow else None,
            "alternative_workflows": [],
            "investigation_outcome": self.outcome,
            "rationale": "as the notes of the team say",
            "warnings": [],
            "context_used": {"cluster_state": "seen"},
        }


def right_answers(case: Case, catalog: Mapping[str, Workflow]) -> Iterator[Claimed]:
    """The expected answers that act, the best first, with the parameters that a workflow requires."""
    for variant in right_variants(case):
        if variant.workflow:
            given = required(case, catalog[variant.workflow])
            yield Claimed("right", variant.object, variant.workflow, given)


def required(case: Case, workflow: Workflow) -> dict[str, Any]:
    """Values of the parameters that have to be given: the ConfigMap in question, the taint, one replica where there is none."""
    maps = [ref.name for ref in case.acceptable if ref.kind == "ConfigMap"]
    nodes = [m for m in case.objects if m["kind"] == "Node"]
    keys = [taint["key"] for node in nodes for taint in node["spec"].get("taints", ())]
    taints = [key for key in keys if "kubernetes.io/" not in key]  # those that components set are right
    idle = any(
        _same(reference(m), case.acceptable[0]) and m["spec"].get("replicas") == 0
        for m in case.objects
        if "spec" in m
    )
    given = {"CONFIGMAP": maps, "TAINT": taints, "REPLICAS": [1] if idle else []}
    declared = [p.name for p in workflow.parameters if not target_part(p.name)]
    found = {
        name: values[0] for name in declared for word, values in given.items() if word in name and values
    }
    return found | _other_target(case, workflow)


def _other_target(case: Case, workflow: Workflow) -> dict[str, Any]:
    """The target by name, where the workflow acts on another kind than the object to blame: the signal's own object."""
    kinds = next((p.enum for p in workflow.parameters if p.name == "TARGET_RESOURCE_KIND"), ())
    if case.acceptable[0].kind in kinds:
        return {}
    target = next((ref for ref in (*case.acceptable[1:], case.signal) if ref.kind in kinds), None)
    if target is None:
        return {}
    return {
        "TARGET_RESOURCE_KIND": target.kind,
        "TARGET_RESOURCE_NAME": target.name,
        "TARGET_RESOURCE_NAMESPACE": target.namespace,
    }


def wrong_answers(case: Case, catalog: Mapping[str, Workflow]) -> Iterator[Claimed]:
    """Wrong objects, wrong workflows, harmful values, and an end that nobody sees."""
    for variant in wrong_variants(case, catalog):
        workflow = catalog[variant.workflow]
        told = variant.revision is None or bool(_revision(workflow, variant.revision))
        if variant.signal is None and told and not _fits_too(case, variant, catalog):
            given = required(case, workflow) | _revision(workflow, variant.revision)
            yield Claimed(variant.kind, variant.object, variant.workflow, given)
    best = case.acceptable[0]
    for name in case.workflows:
        given = required(case, catalog[name])
        for harmful in _harmful(catalog[name]):
            if not harmful.items() <= given.items():
                yield Claimed("harmful_value", best, name, given | harmful)
    signal = next((reference(m) for m in case.objects if _same(reference(m), case.signal)), None)
    for outcome in ("problem_resolved", "not_actionable") if signal and not _over(case) else ():
        yield Claimed("over", signal, outcome=outcome)


SILENT_NODES = (
    "deployment-on-dead-node",
    "node-silent-pod-alert",
    "volume-held-by-dead-node",
    "033-node-notready-pleg-not-healthy",
)
OTHER_ACTIONS = {(name, "restart-kubelet-v1") for name in SILENT_NODES}
"""Actions that a case does not list and that fit the same state of the same object: a kubelet that reports nothing."""


def _fits_too(case: Case, variant: Variant, catalog: Mapping[str, Workflow]) -> bool:
    """Whether the state bears the answer out although the case does not list it.

    It patches the very ConfigMap that is bad, or it names the signal's own object, which the accepted workflow acts on anyway.
    """
    if (case.name, variant.workflow) in OTHER_ACTIONS:
        return variant.kind == "other_action"
    if variant.kind == "victim" and variant.workflow in case.workflows:
        return (
            _other_target(case, catalog[variant.workflow]).get("TARGET_RESOURCE_NAME") == variant.object.name
        )
    patched = case.acceptable[0].kind == "ConfigMap" and variant.workflow in CONFIGURES
    return patched and (variant.object == case.acceptable[0] or variant.object.name in case.signal.name)


CONFIGURES = {"patch-configuration-v1", "hotfix-config-v1", "hotfix-config-production-v1"}


def _over(case: Case) -> bool:
    return case.name == "healthy-again"


def _same(one: ObjectRef, other: ObjectRef) -> bool:
    return (one.kind, one.namespace, one.name) == (other.kind, other.namespace, other.name)


def _revision(workflow: Workflow, number: int | None) -> dict[str, Any]:
    names = [p.name for p in workflow.parameters if "REVISION" in p.name]
    return {name: number for name in names if number}


def _harmful(workflow: Workflow) -> Iterator[dict[str, Any]]:
    """Each parameter at the bounds that the catalog allows; texts that shrink or name something else.

    A factor at its lowest bound still grows a little, and revision 1 may be the right one.
    """
    for parameter in workflow.parameters:
        if target_part(parameter.name) is None:
            lowest = parameter.minimum if "FACTOR" in parameter.name or "REVISION" in parameter.name else None
            yield from (
                {parameter.name: v} for v in _extremes(parameter) if v not in (parameter.default, lowest)
            )


def _extremes(parameter: Parameter) -> Iterator[Any]:
    if parameter.type in {ParameterType.INTEGER, ParameterType.NUMBER}:
        whole = int if parameter.type is ParameterType.INTEGER else float
        yield from (whole(v) for v in (parameter.minimum, parameter.maximum) if v is not None)
        if parameter.maximum is None:
            yield whole(999)
    elif parameter.type is ParameterType.BOOLEAN:
        yield not parameter.default
    elif parameter.type is ParameterType.STRING:
        yield "1Mi" if "MEMORY" in parameter.name or "SIZE" in parameter.name else "kube-root-ca.crt"
