"""Determines the object that a workflow acts on, and the parameters that name it.

When the workflow covers the affected resource or one of its owners, that is the target, whatever the model
wrote. Only when the workflow covers another kind does the model's choice count, and then the object must
exist and the evidence must show it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from schemas.enrichment import snake_case
from worker.domain.catalog.selection import component_of, covers_kind
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import WILDCARD, Parameter, Workflow
from worker.domain.verdict.answers.answer import ProblemKind
from worker.domain.verdict.approval.factors import FactorCode
from worker.domain.verdict.checks.report import CheckReport

DEPLOYMENT: Final = "Deployment"
KIND_PARAMETER: Final = "TARGET_RESOURCE_KIND"
DEPLOYMENT_PARAMETERS: Final = frozenset({"DEPLOYMENT_NAME", "TARGET_DEPLOYMENT"})
TARGET_PARAMETERS: Final = MappingProxyType(
    {
        "TARGET_RESOURCE_NAME": "name",
        "TARGET_NAME": "name",
        "DEPLOYMENT_NAME": "name",
        "TARGET_DEPLOYMENT": "name",
        KIND_PARAMETER: "kind",
        "TARGET_RESOURCE_NAMESPACE": "namespace",
        "TARGET_NAMESPACE": "namespace",
        "NAMESPACE": "namespace",
        "TARGET_RESOURCE_API_VERSION": "api_version",
    }
)
"""Parameters that name the object a workflow acts on (Kubernaut workflow schema), and the part each one
holds.
"""
NAMES_AN_OBJECT: Final = re.compile(
    r"(?:^|_)(?:NAME|NAMESPACE|NODE|POD|PVC|CLAIM|DEPLOYMENT|STATEFULSET|DAEMONSET|CONFIGMAP|SECRET|SERVICE)$"
)
"""How the names of other parameters end that name an object."""


def spelling(name: str) -> str:
    """A parameter name as TARGET_PARAMETERS spells it: `target_namespace` and `targetNamespace` are the same."""
    flat = name.strip().replace("-", "_")
    return (flat if flat.isupper() else snake_case(flat)).upper()


def target_part(name: str) -> str | None:
    """The part of the target that a parameter holds; None for any other parameter."""
    return TARGET_PARAMETERS.get(spelling(name))


def names_an_object(name: str) -> bool:
    """True if a parameter, by its name, holds the name of some object."""
    return NAMES_AN_OBJECT.search(spelling(name)) is not None


class Existence(enum.StrEnum):
    """Whether an object exists, according to the cluster.

    `absent`: not found, and the evidence shows that it was deleted or never existed. `unverifiable`: the
    cluster gave no answer (forbidden, timeout).
    """

    EXISTS = "exists"
    NOT_FOUND = "not_found"
    ABSENT = "absent"
    UNVERIFIABLE = "unverifiable"


@dataclass(frozen=True, slots=True)
class ResolvedObject:
    """An object that an answer names, after it was looked up.

    `namespaced` is None when the cluster does not know the kind. `owners` follow the controller references,
    nearest first; `owners_note` says why there may be others. `seen_in` are ids of the evidence that shows
    the object; `requested`: the request names it. `outside` says why it may have nothing to do with the
    signal.
    """

    ref: ObjectRef
    existence: Existence = Existence.EXISTS
    namespaced: bool | None = None
    owners: tuple[ObjectRef, ...] = ()
    seen_in: tuple[str, ...] = ()
    requested: bool = False
    detail: str = ""
    outside: str = ""
    owners_note: str = ""

    @property
    def unverified(self) -> bool:
        """True if the cluster did not say whether the object exists, or what owns it."""
        return self.existence is Existence.UNVERIFIABLE or bool(self.owners_note)

    @property
    def chain(self) -> tuple[ObjectRef, ...]:
        """The object itself and its owners, nearest first."""
        return (self.ref, *self.owners)


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """The object that a workflow will act on, and the parameters with everything that names it filled in."""

    target: ObjectRef | None
    parameters: Mapping[str, Any]


def covered_kinds(workflow: Workflow) -> tuple[str, ...]:
    """The components that the workflow can act on; empty if it does not say.

    A list of kinds takes precedence over its labels.
    """
    kind = workflow.parameter(KIND_PARAMETER)
    if kind is not None and kind.enum:
        return tuple(str(k) for k in kind.enum)
    declared = workflow.labels.get("component", ())
    if declared and WILDCARD not in declared:
        return declared
    only_deployments = any(spelling(p.name) in DEPLOYMENT_PARAMETERS for p in workflow.parameters)
    return (DEPLOYMENT,) if only_deployments else ()


def acts_on_one_of(workflow: Workflow, chain: Sequence[ObjectRef]) -> bool:
    """True if the workflow covers an object or one of its owners.

    Code then fills in the parameters that name its target.
    """
    kinds = covered_kinds(workflow)
    return any(not kinds or covers_kind(kinds, member.kind, member.api_version) for member in chain)


def other_target(workflow: Workflow, given: Mapping[str, Any], affected: ResolvedObject) -> ObjectRef | None:
    """The object that the parameters name if the workflow covers no member of the owner chain.

    It has to be looked up before the answer can be judged. None when the workflow covers one of them, or no
    name is given. The namespace is that of the affected resource unless given; the cluster decides whether
    the kind has one.
    """
    kinds = covered_kinds(workflow)
    named = _named(given)
    if _candidates(affected, kinds) or not named.get("name"):
        return None
    kind, api_version = _other_kind(named.get("kind", ""), kinds)
    if not kind:
        return None
    namespace = named.get("namespace") or affected.ref.namespace
    return ObjectRef(kind, named["name"], namespace, named.get("api_version") or api_version)


def choose_target(
    workflow: Workflow,
    given: Mapping[str, Any],
    affected: ResolvedObject,
    report: CheckReport,
    other: ResolvedObject | None = None,
    unseen: frozenset[str] = frozenset(),
) -> TargetChoice:
    """The target and the completed parameters. `other` is what `other_target` named, looked up.

    `unseen` are the given parameters whose value no evidence shows.
    """
    candidates = _candidates(affected, covered_kinds(workflow))
    if candidates:
        target, chain, known = _best_candidate(candidates, given), affected.chain, affected.chain
    elif _check_other(workflow, other_target(workflow, given, affected), other, report) and other is not None:
        detail = f"{workflow.workflow_id} acts on {other.ref}, but the cause lies in {affected.ref}"
        report.require_approval(FactorCode.TARGET_NOT_AFFECTED_RESOURCE, detail)
        target, chain, known = other.ref, (other.ref,), (other.ref, *affected.chain)
    else:
        return TargetChoice(None, dict(given))
    _check_conflicts(given, target, chain, report)
    parameters = _filled(workflow, given, target, chain, report)
    _check_beside(workflow, given, target, known, unseen, report)
    return TargetChoice(target, parameters)


def _candidates(affected: ResolvedObject, kinds: Sequence[str]) -> tuple[ObjectRef, ...]:
    return tuple(m for m in affected.chain if not kinds or covers_kind(kinds, m.kind, m.api_version))


def _named(given: Mapping[str, Any]) -> dict[str, str]:
    """Parts of a target that the given parameters state; of each part the first one."""
    named: dict[str, str] = {}
    for name, part in _target_names(given):
        value = given[name]
        if isinstance(value, str) and value.strip():
            named.setdefault(part, value.strip())
            if spelling(name) in DEPLOYMENT_PARAMETERS:
                named.setdefault("kind", DEPLOYMENT)
    return named


def _other_kind(kind: str, kinds: Sequence[str]) -> tuple[str, str]:
    """Kind and API version of the covered component that is meant; empty when none is."""
    meant = [k for k in kinds if not kind or component_of(k)[1] == kind.lower()]
    if len({component_of(k)[1] for k in meant}) != 1:
        return "", ""
    api_version, _, spelt = meant[0].strip().rpartition("/")
    return spelt, api_version


def _best_candidate(candidates: Sequence[ObjectRef], given: Mapping[str, Any]) -> ObjectRef:
    named = _named(given)

    def agreement(member: ObjectRef) -> int:
        same_kind = named.get("kind", "").lower() == member.kind.lower()
        return int(same_kind) + 2 * int(named.get("name") == member.name)

    return max(candidates, key=agreement)


def _check_conflicts(
    given: Mapping[str, Any], target: ObjectRef, chain: Sequence[ObjectRef], report: CheckReport
) -> None:
    """Check given parts that do not name the target.

    An owner or an owned object is corrected; anything else is a problem.
    """
    for name, part in _target_names(given):
        value, expected = given[name], _expected(name, target, chain)
        if value is None or value == "" or expected is None or value == expected:
            continue
        shown = one_line(str(value), 80) if isinstance(value, str) else type(value).__name__
        if isinstance(value, str) and _belongs_to_chain(part, value, target, chain):
            report.notes.append(
                f"parameter {name}: {shown} was corrected to {expected or 'nothing'} ({target})"
            )
        else:
            report.reject_parameter(
                name, f"must be {expected or 'empty'}, not {shown}: the target is {target}"
            )


def _target_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """The names that hold a part of the target, each with the part, in the order of TARGET_PARAMETERS."""
    order = list(TARGET_PARAMETERS)
    found = [(name, part) for name in dict.fromkeys(names) if (part := target_part(name))]
    return sorted(found, key=lambda pair: order.index(spelling(pair[0])))


def _check_beside(
    workflow: Workflow,
    given: Mapping[str, Any],
    target: ObjectRef,
    chain: Sequence[ObjectRef],
    unseen: frozenset[str],
    report: CheckReport,
) -> None:
    """Check declared parameters that name an object other than the target."""
    namespaces = {target.namespace, *(member.namespace for member in chain)}
    for name, value in given.items():
        if value in (None, "") or workflow.parameter(name) is None or not names_an_object(name):
            continue
        shown = one_line(str(value), 80)
        if target_part(name):
            if _expected(name, target, chain) is not None:
                continue
            if name in unseen:
                report.reject_parameter(name, f"no evidence shows {shown}: fetch it before naming it")
            else:
                detail = f"{name} is {shown}, but the target is {target}"
                report.require_approval(FactorCode.PARAMETER_OTHER_OBJECT, detail)
        elif spelling(name).endswith("NAMESPACE") and value not in namespaces:
            report.require_approval(FactorCode.PARAMETER_OTHER_NAMESPACE, f"{name} is {shown}")
        elif name in unseen:
            report.require_approval(FactorCode.PARAMETER_OBJECT_UNSEEN, f"{name} is {shown}")


def _expected(name: str, target: ObjectRef, chain: Sequence[ObjectRef]) -> str | None:
    """The required value of a target parameter; None if nothing is known about it."""
    if spelling(name) in DEPLOYMENT_PARAMETERS and target.kind != DEPLOYMENT:
        return next((m.name for m in chain if m.kind == DEPLOYMENT), None)
    part = TARGET_PARAMETERS[spelling(name)]
    if part == "api_version":
        return target.api_version or None
    return str(getattr(target, part))


def _belongs_to_chain(part: str, value: str, target: ObjectRef, chain: Sequence[ObjectRef]) -> bool:
    if part == "api_version" or (part == "namespace" and not target.namespace):
        return True
    return any(str(getattr(member, part)).lower() == value.strip().lower() for member in chain)


def _filled(
    workflow: Workflow,
    given: Mapping[str, Any],
    target: ObjectRef,
    chain: Sequence[ObjectRef],
    report: CheckReport,
) -> dict[str, Any]:
    """The given parameters with every declared target parameter set.

    Undeclared target parameters are left out.
    """
    parameters = dict(given)
    for name, part in _target_names([*given, *(p.name for p in workflow.parameters)]):
        expected, declared = _expected(name, target, chain), workflow.parameter(name)
        if declared is None:
            if parameters.pop(name, None) is not None:
                report.notes.append(
                    f"parameter {name} was left out: {workflow.workflow_id} does not declare it"
                )
            continue
        if expected is None:
            continue
        if part == "namespace" and not expected and not declared.required:
            parameters.pop(name, None)
            continue
        if not parameters.get(name) and expected:
            report.notes.append(f"parameter {name} was set to {expected}")
        parameters[name] = _spelt_as_declared(declared, expected)
    return parameters


def _spelt_as_declared(parameter: Parameter, value: str) -> str:
    return next((str(e) for e in parameter.enum if str(e).lower() == value.lower()), value)


def _check_other(
    workflow: Workflow, meant: ObjectRef | None, other: ResolvedObject | None, report: CheckReport
) -> bool:
    """Check that the object that the parameters name can be the target. Returns whether it can."""
    kinds = " or ".join(covered_kinds(workflow))
    name = next((p.name for p in workflow.parameters if target_part(p.name) == "name"), "")
    if not name:
        message = (
            f"{workflow.workflow_id} acts on {kinds}, not on the affected resource: choose another, or null"
        )
        report.reject(ProblemKind.WORKFLOW_UNKNOWN, "selected_workflow.workflow_id", message)
        return False
    if wrong := _wrong_with(meant, other, f"must name the {kinds} that {workflow.workflow_id} acts on"):
        report.reject_parameter(name, wrong)
    return not wrong


def _wrong_with(meant: ObjectRef | None, other: ResolvedObject | None, unnamed: str) -> str:
    if meant is None:
        return unnamed
    if other is None or (other.ref.kind.lower(), other.ref.name) != (meant.kind.lower(), meant.name):
        return f"{meant} could not be looked up"
    if other.existence is not Existence.EXISTS:
        return f"cannot act on {other.ref}: {other.detail or _NOT_THERE[other.existence]}"
    if not other.seen_in and not other.requested:
        return f"no evidence shows {other.ref}: fetch it before acting on it"
    return ""


_NOT_THERE = {
    Existence.NOT_FOUND: "it was not found in the cluster",
    Existence.ABSENT: "it no longer exists in the cluster",
    Existence.UNVERIFIABLE: "the cluster did not say whether it exists",
}


def within_scope(resolved: ResolvedObject) -> ResolvedObject:
    """The same object, without a namespace when its kind is cluster-scoped."""
    if resolved.namespaced is False and resolved.ref.namespace:
        return replace(resolved, ref=replace(resolved.ref, namespace=""))
    return resolved
