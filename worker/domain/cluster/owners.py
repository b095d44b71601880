"""The owner chain of an object: who controls it, up to the top (Kubernetes API, OwnerReference; ADR-055).

Only `controller: true` references count, and only when the owner still has the uid the reference names: an
object that was recreated under the old name is not the owner. An owner that cannot be read is kept by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from worker.domain.cluster.fields import controller_of, reference, referred, text
from worker.domain.values.errors import ClusterError, ClusterReason, or_none
from worker.domain.values.objects import Manifest, ObjectRef
from worker.domain.values.ports import Cluster

MAX_OWNERS = 5  # Pod, ReplicaSet, Deployment, Revision, Configuration, Service of Knative


@dataclass(frozen=True, slots=True)
class OwnerChain:
    """The requested object, then its controllers, the top one last.

    `manifests` holds the objects that could be read, None for the others. `exists` is about the requested
    object, None if unknown. `note` says why the chain may continue further than shown; empty if it is
    complete.
    """

    chain: tuple[ObjectRef, ...]
    manifests: tuple[Manifest | None, ...]
    exists: bool | None = True
    note: str = ""

    @property
    def start(self) -> ObjectRef:
        """The object asked for."""
        return self.chain[0]

    @property
    def root(self) -> ObjectRef:
        """The last known owner."""
        return self.chain[-1]

    @property
    def complete(self) -> bool:
        """True if the top was reached and every object on the way could be read."""
        return not self.note

    @property
    def root_manifest(self) -> Manifest | None:
        """The top object, if it could be read."""
        return self.manifests[-1]


async def owner_chain(cluster: Cluster, ref: ObjectRef) -> OwnerChain:
    """Walk from the object to its top controller.

    Never raises ClusterError: a failure ends the chain with a note.
    """
    try:
        manifest = await cluster.get(ref)
    except ClusterError as error:
        gone = error.reason in {ClusterReason.NOT_FOUND, ClusterReason.UNKNOWN_KIND}
        return OwnerChain((ref,), (None,), exists=False if gone else None, note=f"{ref}: {error.message}")
    return await owners_of(cluster, manifest, ref)


async def owners_of(cluster: Cluster, manifest: Manifest, asked: ObjectRef | None = None) -> OwnerChain:
    """The owner chain of an object that has already been read."""
    start = _complete(reference(manifest), asked)
    chain: list[ObjectRef] = [start]
    manifests: list[Manifest | None] = [manifest]
    note = ""
    current: Manifest | None = manifest
    while current is not None and (owner := await _owner_ref(cluster, current, chain[-1])):
        if any(owner.same_as(known) for known in chain):
            note = f"{owner} owns itself"
            break
        if len(chain) > MAX_OWNERS:
            note = f"more than {MAX_OWNERS} owners"
            break
        current, note = await _read(cluster, owner)
        chain.append(owner)
        manifests.append(current)
    return OwnerChain(tuple(chain), tuple(manifests), note=note)


def _complete(found: ObjectRef, asked: ObjectRef | None) -> ObjectRef:
    if asked is None:
        return found
    return replace(
        found,
        kind=found.kind or asked.kind,
        name=found.name or asked.name,
        namespace=found.namespace or asked.namespace,
        api_version=found.api_version or asked.api_version,
    )


async def _owner_ref(cluster: Cluster, manifest: Manifest, child: ObjectRef) -> ObjectRef | None:
    controller = controller_of(manifest)
    owner = referred(controller, child.namespace)
    if not owner.kind or not owner.name:
        return None
    namespace = child.namespace if await _namespaced(cluster, owner.kind, owner.api_version) else ""
    return replace(owner, namespace=namespace, uid=text(controller.get("uid")))


async def _namespaced(cluster: Cluster, kind: str, api_version: str) -> bool:
    """True unless discovery knows the kind as cluster-scoped.

    Owners are in the namespace of the owned object, or cluster-scoped.
    """
    info = await or_none(cluster.kind(kind, api_version))
    return info is None or info.namespaced


async def _read(cluster: Cluster, owner: ObjectRef) -> tuple[Manifest | None, str]:
    try:
        found = await cluster.get(owner)
    except ClusterError as error:
        return None, f"{owner}: {error.message}"
    uid = reference(found).uid
    if owner.uid and uid and uid != owner.uid:
        return None, f"{owner} has been replaced by a new object of the same name"
    return found, ""
