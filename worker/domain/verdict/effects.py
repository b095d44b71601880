"""What keeps an action that fits the confirmed cause from taking effect: room to grow, or a paused rollout."""

from __future__ import annotations

from worker.domain.cluster.fields import dig, mapping, mappings, reference
from worker.domain.cluster.kinds import WORKLOADS
from worker.domain.cluster.quantities import quantity
from worker.domain.diagnosis.actions import ProposedAction, remedies_of
from worker.domain.diagnosis.causes import Diagnosis, Remedy
from worker.domain.diagnosis.creation import exhausted
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.structure import container_specs, pod_spec_of
from worker.domain.values.objects import Manifest

GROWING = frozenset({Remedy.INCREASE_MEMORY, Remedy.SCALE_UP, Remedy.RAISE_AUTOSCALER})
"""Remedies that ask for more of what the quotas and limits of a namespace bound."""
ROLLED_OUT = frozenset(
    {Remedy.ROLL_BACK, Remedy.FIX_IMAGE, Remedy.INCREASE_MEMORY, Remedy.INCREASE_CPU, Remedy.FIX_PROBE, Remedy.RESTART}
)  # fmt: skip
"""Remedies that reach the pods of a workload by a rollout."""
SCOPES = frozenset({"scopes", "scopeSelector"})
"""Fields of a quota that is for some pods only: whether for these, nothing says before it refuses one."""
GROWTH = 2.0
"""How much room a larger limit needs. The growth itself may be unknown here: the workflow chooses it."""


def hindrance(facts: ClusterFacts, action: ProposedAction, finding: Diagnosis) -> str:
    """Return what would keep the action from taking effect, else ""."""
    meant = remedies_of(action.workflow.action_type) & finding.remedies
    for target in (t for t in action.targets if meant & ROLLED_OUT and t.kind in WORKLOADS):
        spec = mapping(dig(facts.get(target), "spec"))
        if spec.get("paused") is True or dig(spec, "updateStrategy", "type") == "OnDelete":
            return f"{target} rolls out nothing by itself"
    grown = [m for ref in finding.subjects if ref.kind in WORKLOADS and (m := facts.get(ref))]
    return _no_room(facts, grown[0], finding) if grown and meant & GROWING else ""


def _no_room(facts: ClusterFacts, workload: Manifest, finding: Diagnosis) -> str:
    """Return what in its namespace leaves no room for a larger container or for one more pod of the workload."""
    home, spec = reference(workload).namespace, pod_spec_of(workload)
    quotas = [q for q in facts.list("ResourceQuota", home).items if SCOPES.isdisjoint(mapping(q.get("spec")))]
    full = [q for q in quotas if exhausted(q, {**spec, "makes": "count/pods"})]
    failing = next((c for c in container_specs(spec) if c.get("name") == finding.container), {})
    wanted = GROWTH * (quantity(dig(failing, "resources", "limits", "memory")) or 0)
    ranges = facts.list("LimitRange", home).items if Remedy.INCREASE_MEMORY in finding.remedies else ()
    most = [(r, dig(entry, "max", "memory")) for r in ranges for entry in mappings(dig(r, "spec", "limits"))]
    tight = [*full, *(r for r, top in most if top is not None and wanted > (quantity(top) or 0))]
    return f"{reference(tight[0])} leaves no room for it" if tight else ""
