"""The origins of the values of a workflow's parameters: code, the catalog, or the model alone.

Code sets the values that name the target. It checks those that it can compute from the finding that confirms
the answer: the revision, names of the objects in question, and sizes, which may grow to at most twice their
present value, memory and CPU also to the limit of the revision that a rollback would restore.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.analysis import ParameterOrigin
from worker.domain.cluster.fields import dig
from worker.domain.cluster.kinds import kind_named
from worker.domain.cluster.quantities import quantity
from worker.domain.diagnosis import structure
from worker.domain.diagnosis.actions import remedies_of
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import Parameter
from worker.domain.verdict.checks.targets import target_part
from worker.domain.verdict.effects import GROWTH
from worker.domain.verdict.verdict import Accepted

MAX_GROWTH = 2.0
"""How many times its present value a size may reach and still count as checked by code."""
MAX_EXCESS = 16.0
"""How many times its present value, or 1 if that is less, a size may reach at all: more is not what a finding asks for."""
ZONE = "topology.kubernetes.io/zone"
RESOURCES = {Remedy.INCREASE_MEMORY: "memory", Remedy.INCREASE_CPU: "cpu"}
FIELDS = {
    Remedy.SCALE_UP: ("REPLICA", ("spec", "replicas")),
    Remedy.RAISE_AUTOSCALER: ("REPLICA", ("spec", "maxReplicas")),
    Remedy.EXPAND_VOLUME: ("SIZE", ("spec", "resources", "requests", "storage")),
    Remedy.EXTEND_DEADLINE: ("DEADLINE", ("spec", "activeDeadlineSeconds")),
}
"""A word in the name of the parameter, and where the target has the present value."""


def parameter_origins(
    accepted: Accepted, finding: Diagnosis | None, facts: ClusterFacts
) -> dict[str, ParameterOrigin]:
    """The origin of each parameter.

    `finding` confirms the answer; without one, code has nothing to check against.

    A value equal to the catalog's default is the catalog's, whoever wrote it down. But a default that changes
    nothing for the better here, given or left out, is the model's choice: it chose the workflow.
    """
    if accepted.workflow is None:
        return {}
    check = _Check(accepted, finding, facts) if finding else None
    origins = {}
    for name, value in values_of(accepted).items():
        harmless = check is None or not check.misses(name.upper(), value)
        if target_part(name) or (check is not None and check.holds(name.upper(), value)):
            origin = ParameterOrigin.CODE
        elif harmless and _is_default(accepted.workflow.parameter(name), value):
            origin = ParameterOrigin.CATALOG_DEFAULT
        else:
            origin = ParameterOrigin.MODEL
        if name in accepted.parameters or not harmless:
            origins[name] = origin
    return origins


def futile_parameter(accepted: Accepted, finding: Diagnosis, facts: ClusterFacts) -> str:
    """The first parameter with whose value the workflow would not act on the finding; empty if there is none."""
    check = _Check(accepted, finding, facts)
    values = {n: v for n, v in values_of(accepted).items() if not target_part(n)} if accepted.workflow else {}
    return next((name for name, value in values.items() if check.misses(name.upper(), value)), "")


def growth_of(accepted: Accepted, finding: Diagnosis, facts: ClusterFacts) -> float:
    """How many times its present value the answer makes a size at most; the usual growth if it gives none."""
    check = _Check(accepted, finding, facts)
    sizes = (size for name, value in values_of(accepted).items() for size in check.sizes(name.upper(), value))
    return max((wanted / now for now, wanted in sizes if now), default=GROWTH)


def values_of(accepted: Accepted) -> dict[str, Any]:
    """The values with which the workflow would run, defaults included."""
    declared = accepted.workflow.parameters if accepted.workflow else ()
    return {p.name: p.default for p in declared if p.default is not None} | dict(accepted.parameters)


def _is_default(declared: Parameter | None, value: Any) -> bool:
    return declared is not None and declared.default is not None and value == declared.default


@dataclass(frozen=True, slots=True)
class _Check:
    accepted: Accepted
    finding: Diagnosis
    facts: ClusterFacts

    @property
    def target(self) -> ObjectRef:
        return self.accepted.target or self.finding.object

    def holds(self, name: str, value: Any) -> bool:
        """True if code computes this value, too, or a range that contains it."""
        if not isinstance(value, str | int | float):
            return False
        if "CONTAINER" in name or "TAINT" in name:
            return value in self.meant(name)
        named = value in {ref.name for ref in self.finding.subjects}
        revision = "REVISION" in name and str(value) in {str(self.finding.revision), "0"}
        return named or revision or self.grows(name, value)

    def grows(self, name: str, value: Any) -> bool:
        """True if the value is larger than now, but not by too much.

        It is at most twice the present value (or 1 if that is 0), or at most the value in the revision to roll
        back to.
        """
        sizes, before = self.sizes(name, value), self.before(name) or 0
        return any(now < wanted <= max(now * MAX_GROWTH or 1, before) for now, wanted in sizes)

    def misses(self, name: str, value: Any) -> bool:
        """True if the value is known to repair nothing.

        It names another container, taint or object of the kind in question, a zone without nodes, the present
        image, or a size that does not grow, or grows beyond measure.
        """
        if self.finding.cause is Cause.IMAGE and "IMAGE" in name:
            return value in [spec.get("image") for spec in self.specs()]
        if isinstance(value, str) and quantity(value) is None and (meant := self.meant(name)):
            return value not in meant
        if not isinstance(value, str) and not any(word in name for word in ("REPLICA", "FACTOR", "SECOND")):
            return False  # a number whose unit is not known
        sizes, before = self.sizes(name, value), self.before(name) or 0
        return any(not now < wanted <= max(max(now, 1.0) * MAX_EXCESS, before) for now, wanted in sizes)

    def meant(self, name: str) -> set[Any]:
        """The names that a parameter of this name may have here; empty if that is not known."""
        if "CONTAINER" in name:
            return self.containers()
        if "TAINT" in name:
            return {self.finding.taint}
        if "ZONE" in name.split("_"):
            nodes = self.facts.list("Node")
            return {structure.labels_of(n).get(ZONE) for n in nodes.items if nodes.complete} - {None}
        kinds = {kind_named(word) for word in name.split("_")}
        subjects = self.finding.subjects
        return {r.name for r in subjects if r.kind in kinds or r.kind.upper() in name.replace("_", "")}

    def sizes(self, name: str, value: Any) -> list[tuple[float, float]]:
        """The present size and the one that the parameter sets; none if they are not known."""
        now, wanted = self.now(name), quantity(value)
        return [] if now is None or wanted is None else [(now, wanted)]

    def now(self, name: str) -> float | None:
        """Return the present value, in the target, of the size that the parameter sets.

        None if the parameter sets no size, or if the value is not known.
        """
        workflow = self.accepted.workflow
        remedies = remedies_of(workflow.action_type) & self.finding.remedies if workflow else ()
        for remedy in remedies:
            if remedy in RESOURCES and RESOURCES[remedy].upper() in name:
                return 1.0 if "FACTOR" in name else quantity(self.limit(RESOURCES[remedy], self.specs()))
            word, path = FIELDS.get(remedy, ("", ()))
            if word and word in name:
                return quantity(dig(self.facts.get(self.target), *path))
        return None

    def before(self, name: str) -> float | None:
        """The limit that the parameter sets, in the revision to roll back to; None if it is not known."""
        resource = next((r for r in RESOURCES.values() if r.upper() in name and "FACTOR" not in name), "")
        spec = structure.former_spec(self.facts, self.target, self.finding.revision) if resource else {}
        return quantity(self.limit(resource, structure.container_specs(spec)))

    def limit(self, resource: str, specs: list[dict[str, Any]]) -> Any:
        """The limit of the container that the answer names, or of the only one."""
        given = [value for name, value in values_of(self.accepted).items() if "CONTAINER" in name.upper()]
        chosen = [spec for spec in specs if spec.get("name") in given] if given else specs
        return dig(chosen[0], "resources", "limits", resource) if len(chosen) == 1 else None

    def containers(self) -> set[str]:
        """The container that the finding is about, else those that have a problem.

        If there are none, the only container of the pod.
        """
        if self.finding.container:
            return {self.finding.container}
        pods = structure.pods_of(self.facts, self.target)
        sick = {container.name for pod in pods for container in structure.sick_containers(pod)}
        names = {str(spec.get("name")) for spec in self.specs()}
        return sick & names or (names if len(names) == 1 else set())

    def specs(self) -> list[dict[str, Any]]:
        return structure.container_specs(structure.pod_spec_of(self.facts.get(self.target) or {}))
