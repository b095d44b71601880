"""The object an incident is about, with its workload and pods, as far as they have been found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from worker.domain.cluster.fields import dig, mapping, name_of, pod_template, text
from worker.domain.cluster.owners import OwnerChain
from worker.domain.cluster.pod_finding import Pods
from worker.domain.cluster.references import References, references_of
from worker.domain.values.objects import ObjectRef


@dataclass(frozen=True, slots=True)
class IncidentTarget:
    """The object an incident is about with its owners, the workload that runs its pods, and the pods."""

    owners: OwnerChain
    workload: OwnerChain | None
    pods: Pods

    @property
    def object(self) -> ObjectRef:
        """The object itself."""
        return self.owners.start

    @property
    def worst_pods(self) -> Sequence[dict[str, Any]]:
        """The failing pods, or all pods if none fails."""
        return self.pods.failing or self.pods.own

    @property
    def namespace(self) -> str:
        """The namespace events and pods are in, empty for cluster scope."""
        return self.object.home

    @property
    def members(self) -> tuple[ObjectRef, ...]:
        """The object, its owners, and the workload with its owners."""
        return (*self.owners.chain, *(self.workload.chain if self.workload else ()))

    @property
    def pod_spec(self) -> dict[str, Any]:
        """The spec of the worst pod, or of the workload's template where there is no pod."""
        if pods := self.worst_pods:
            return mapping(pods[0].get("spec"))
        root = self.workload.root_manifest if self.workload else None
        return mapping(pod_template(root).get("spec"))

    @property
    def failing_on(self) -> list[str]:
        """Names of the nodes of failing pods, the worst first; an empty name for a pod that is not scheduled."""
        return list(dict.fromkeys(text(dig(pod, "spec", "nodeName")) for pod in self.pods.failing))

    @property
    def references(self) -> References:
        """The references in that spec."""
        pods = self.worst_pods
        return references_of(self.pod_spec, name_of(pods[0]) if pods else "")
