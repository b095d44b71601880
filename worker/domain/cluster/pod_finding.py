"""Finds the pods and the workload behind an object of any kind, for the first look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.domain.cluster.descent import descent, is_selected, maker_of, pod_selector
from worker.domain.cluster.fields import (
    controller_of,
    dig,
    mapping,
    mappings,
    meta,
    name_of,
    pod_template,
    reference,
    referred,
    strings,
    text,
    without_managers,
)
from worker.domain.cluster.kinds import WORKLOADS, belongs_by_name, built_in
from worker.domain.cluster.owners import OwnerChain, owner_chain, owners_of
from worker.domain.cluster.pods import pod_failing, pod_restarts, pod_status
from worker.domain.cluster.references import references_of, selector_text, selects
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import Listing, ListQuery, Manifest, ObjectRef
from worker.domain.values.ports import Cluster

SELECTING = {"PodDisruptionBudget": ("spec", "selector"), "NetworkPolicy": ("spec", "podSelector")}
WHOLE_NAMESPACE = {"Namespace", "ResourceQuota", "LimitRange"}
NOT_RUNNING = "status.phase!=Running,status.phase!=Succeeded"
QUIET = {"Running", "Completed", "Succeeded"}
STARTING = {"Pending", "ContainerCreating", "PodInitializing"}


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of the target and other failing pods around it, the worst first.

    `complete`: `own` are all pods of the target. `all_read`: all pods around it were read. `between` are the
    objects through which a target of a custom kind has its pods.
    """

    own: tuple[Manifest, ...] = ()
    others: tuple[Manifest, ...] = ()
    complete: bool = True
    all_read: bool = True
    between: tuple[ObjectRef, ...] = ()

    @property
    def failing(self) -> tuple[Manifest, ...]:
        """The failing pods of the target."""
        return tuple(pod for pod in self.own if pod_failing(pod))


async def find_pods(cluster: Cluster, target: OwnerChain, workload: OwnerChain | None) -> Pods:
    """Pods behind the target: its own, those it selects, those of its namespace or node.

    Raises ClusterError.
    """
    start = target.start
    if start.kind == "Node":
        listing = await cluster.list(ListQuery("Pod", field_selector=f"spec.nodeName={start.name}"))
        return Pods(worst_first(listing.items), (), listing.complete, listing.complete)
    namespace = start.home
    if not namespace:
        return Pods()

    def keep(pod: Manifest) -> Manifest | None:
        wanted = _is_custom(start) or pod_failing(pod) or _belongs(pod, target, workload)
        return without_managers(pod) if wanted else None

    listing = await cluster.list(ListQuery("Pod", namespace, keep=keep))
    own = listing if listing.complete else await _selected(cluster, workload or target, listing)
    made, between = await descent(cluster, start, own.items) if _is_custom(start) else (frozenset(), ())
    chosen = [pod for pod in own.items if name_of(pod) in made or _belongs(pod, target, workload)]
    if start.kind == "Pod" and (pod := target.manifests[0]) and start.name not in map(name_of, chosen):
        chosen.append(pod)
    around = listing.items
    if not listing.complete:
        waiting = ListQuery("Pod", namespace, field_selector=NOT_RUNNING, keep=without_managers)
        around += (await cluster.list(waiting)).items
    mine = {name_of(pod) for pod in chosen}
    others = {name_of(pod): pod for pod in around if name_of(pod) not in mine and pod_failing(pod)}
    return Pods(
        worst_first(chosen), worst_first(list(others.values())), own.complete, listing.complete, between
    )


def _is_custom(start: ObjectRef) -> bool:
    return built_in(start.kind.lower(), start.api_version) is None


async def _selected(cluster: Cluster, workload: OwnerChain, listing: Listing) -> Listing:
    """The pods that the workload selects, for a namespace with more pods than one list holds."""
    selector = selector_text(pod_selector(workload.root_manifest))
    if not selector:
        return listing
    query = ListQuery("Pod", workload.root.namespace, label_selector=selector, keep=without_managers)
    return await cluster.list(query)


def worst_first(pods: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """Crashing pods, then those that do not start, then the others; more restarts first."""

    def badness(pod: Manifest) -> tuple[int, int, str]:
        status = pod_status(pod)
        grade = 2 if not pod_failing(pod) else 1 if status in STARTING or status in QUIET else 0
        return grade, -pod_restarts(pod), name_of(pod)

    return tuple(sorted(pods, key=badness))


def _belongs(pod: Manifest, target: OwnerChain, workload: OwnerChain | None) -> bool:
    start, manifest = target.start, target.manifests[0] or {}
    if _is_custom(start):
        return _made_for(pod, workload or target)
    if start.kind in WHOLE_NAMESPACE:
        return True
    if start.kind in SELECTING:
        return selects(dig(manifest, *SELECTING[start.kind]), strings(meta(pod).get("labels")))
    if start.kind in {"Service", "Endpoints"}:
        return is_selected(pod, manifest)
    if start.kind in {"PersistentVolumeClaim", "ConfigMap", "Secret"}:
        found = references_of(mapping(pod.get("spec")), name_of(pod))
        named = {
            "PersistentVolumeClaim": found.claims,
            "ConfigMap": found.config_maps,
            "Secret": found.secrets,
        }
        return start.name in named[start.kind]
    return _made_for(pod, workload or target)


def _made_for(pod: Manifest, chain: OwnerChain) -> bool:
    """True if the pod is a member of the chain, selected by its top, or made by one of its members."""
    ref, owner = reference(pod), controller_of(pod)
    for member, manifest in zip(chain.chain, chain.manifests, strict=True):
        if member.same_as(ref):
            return True
        if owner and text(owner.get("kind")) == member.kind and text(owner.get("name")) == member.name:
            return True
        if member.kind in WORKLOADS and owner and belongs_by_name(member, ref):
            return True
        if member is chain.root and pod_selector(manifest) and member.kind != "Pod":
            return is_selected(pod, manifest)
    return False


async def find_workload(cluster: Cluster, target: OwnerChain) -> OwnerChain | None:
    """The owner chain whose top runs the pods.

    It is that of the target itself, of the object that the target scales, or of the target's maker.

    A deleted pod still has a maker. A custom kind with a pod template is a workload. None for kinds that run
    no pods. Never raises ClusterError.
    """
    start, manifest = target.start, target.manifests[0] or {}
    if start.kind == "HorizontalPodAutoscaler":
        scaled = mapping(dig(manifest, "spec", "scaleTargetRef"))
        if not scaled:
            return None
        return await owner_chain(cluster, referred(scaled, start.namespace))
    if start.kind == "Pod" and target.exists is False and (maker := await maker_of(cluster, start)):
        return await owner_chain(cluster, maker)
    if start.kind in {"Pod", *WORKLOADS} or target.root.kind in WORKLOADS:
        return target
    return target if mappings(dig(pod_template(manifest), "spec", "containers")) else None


async def workload_of_pods(cluster: Cluster, pods: Sequence[Manifest]) -> OwnerChain | None:
    """The owner chain of the first pod. Never raises ClusterError."""
    return await owners_of(cluster, pods[0]) if pods else None


async def get_optional(cluster: Cluster, ref: ObjectRef) -> Manifest | None:
    """The object, or None if it does not exist. Raises ClusterError if that is unknown."""
    try:
        return await cluster.get(ref)
    except ClusterError as error:
        if error.reason is ClusterReason.NOT_FOUND:
            return None
        raise
