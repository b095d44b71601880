"""Pods that do not start: images, missing configuration, volumes that cannot be mounted, and refused starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from worker.domain.cluster.events import Happening
from worker.domain.cluster.fields import dig, mapping, mappings, name_of, reference, text
from worker.domain.cluster.pods import Container, containers
from worker.domain.cluster.references import references_of
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength
from worker.domain.diagnosis.facts import ClusterFacts, Presence
from worker.domain.diagnosis.messages import ImageProblem, MissingPart, image_problem, missing_part, speaks_of
from worker.domain.diagnosis.running import defective_start
from worker.domain.diagnosis.structure import (
    PULLING,
    container_specs,
    holds,
    observed,
    ref_to,
    rollout_of,
    was_available,
)
from worker.domain.values.objects import Manifest, ObjectRef

EXTERNAL_SECRETS = "external-secrets.io/v1beta1"
REPEATED = 3
NOT_CREATED = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
IMAGE_REMEDIES = {
    ImageProblem.UNAUTHORIZED: frozenset({Remedy.REFRESH_PULL_SECRET}),
    ImageProblem.NOT_FOUND: frozenset({Remedy.FIX_IMAGE}),
    ImageProblem.INVALID: frozenset({Remedy.FIX_IMAGE}),
}


def starting_findings(facts: ClusterFacts, pod: Manifest, workload: ObjectRef) -> Iterator[Diagnosis]:
    """Why a pod that has a node does not run its containers."""
    about = facts.events(workload.namespace, reference(pod))
    for container in containers(pod):
        reason = text(container.waiting.get("reason"))
        if reason in PULLING:
            yield _image(facts, pod, container, workload, about)
        elif reason in NOT_CREATED:
            yield from _not_created(facts, pod, container, workload)
    if _waits(pod):
        yield from _missing_references(facts, pod, workload, about)
        yield from _volumes(facts, pod, workload, about)


def _waits(pod: Manifest) -> bool:
    """Whether no container of the pod runs yet although it has a node."""
    if not dig(pod, "spec", "nodeName") or dig(pod, "status", "phase") != "Pending":
        return False
    return not any(c.running for c in containers(pod))


def _image(
    facts: ClusterFacts,
    pod: Manifest,
    container: Container,
    workload: ObjectRef,
    about: tuple[Happening, ...],
) -> Diagnosis:
    said = [text(container.waiting.get("message"))]
    said += [
        e.message
        for e in reversed(about)
        if e.reason in {"Failed", "FailedToRetrieveImagePullSecret", "InspectFailed"}
    ]
    image = text(container.spec.get("image"))
    problem = image_problem(*(message.replace(image, "IMAGE") for message in said))
    remedies, also = set(IMAGE_REMEDIES.get(problem, frozenset())), [reference(pod)]
    secrets = [text(s.get("name")) for s in mappings(dig(pod, "spec", "imagePullSecrets"))]
    if problem is ImageProblem.UNAUTHORIZED or any(
        e.reason == "FailedToRetrieveImagePullSecret" for e in about
    ):
        remedies = {Remedy.REFRESH_PULL_SECRET}
        also += [ref_to("Secret", name, workload.namespace) for name in secrets if name]
    rollout = rollout_of(facts, workload)
    changed = rollout and rollout.touches("image", container=container.name)
    if changed and problem is not ImageProblem.UNAUTHORIZED:
        remedies.add(Remedy.ROLL_BACK)
    blamed, also = (also[1], [workload, also[0]]) if len(also) > 1 else (workload, also)
    return Diagnosis(
        cause=Cause.IMAGE,
        object=blamed,
        sentence=f"Container {container.name} of {workload} waits with {text(container.waiting.get('reason'))} ({problem}).",
        also=tuple(also),
        remedies=frozenset(remedies),
        signals=("ImagePullBackOff", "ErrImagePull"),
        reads=(reference(pod),),
        container=container.name,
        revision=rollout.revision if rollout else 0,
    )  # fmt: skip


def _not_created(
    facts: ClusterFacts, pod: Manifest, container: Container, workload: ObjectRef
) -> Iterator[Diagnosis]:
    message = text(container.waiting.get("message"))
    part = missing_part(message)
    found = list(_named_references(pod, workload, message)) if part is not MissingPart.NONE else []
    for ref in found:
        yield _missing(facts, pod, workload, ref, part)
    if not found and part is MissingPart.NONE:
        reason = text(container.waiting.get("reason"))
        yield defective_start(facts, pod, container, workload, f"is not created by the kubelet: {reason}")


def _named_references(pod: Manifest, workload: ObjectRef, message: str) -> Iterator[ObjectRef]:
    """References of the pod's own spec that a message means, unless they are known to be there."""
    used = references_of(mapping(pod.get("spec")), text(dig(pod, "metadata", "name")))
    for kind, listed in (("ConfigMap", used.config_maps), ("Secret", used.secrets)):
        for name in listed:
            if speaks_of(message, name):
                yield ref_to(kind, name, workload.namespace)


def _missing_references(
    facts: ClusterFacts, pod: Manifest, workload: ObjectRef, about: tuple[Happening, ...]
) -> Iterator[Diagnosis]:
    """ConfigMaps and keys that the spec needs and the cluster does not have; Secrets only by what the kubelet says."""
    used = references_of(mapping(pod.get("spec")), text(dig(pod, "metadata", "name")))
    for name in used.config_maps:
        ref = ref_to("ConfigMap", name, workload.namespace)
        if name in used.optional:
            continue
        if facts.presence(ref) is Presence.ABSENT:
            yield _missing(facts, pod, workload, ref, MissingPart.OBJECT)
        elif missing_keys(pod, name, facts.get(ref)):
            yield _missing(facts, pod, workload, ref, MissingPart.KEY)
    for name in used.secrets:
        messages = (
            e.message for e in about if e.reason in {"FailedMount", "Failed"} and speaks_of(e.message, name)
        )
        part = next((p for m in messages if (p := missing_part(m)) is not MissingPart.NONE), MissingPart.NONE)
        if part is not MissingPart.NONE and name not in used.optional:
            yield _missing(facts, pod, workload, ref_to("Secret", name, workload.namespace), part)


def missing_keys(pod: Manifest, name: str, config_map: Manifest | None) -> list[str]:
    """Keys of a ConfigMap that the pod's spec asks for and that it does not have."""
    if config_map is None:
        return []
    there = {*mapping(config_map.get("data")), *mapping(config_map.get("binaryData"))}
    wanted: list[str] = []
    for volume in mappings(dig(pod, "spec", "volumes")):
        for source in [volume, *mappings(dig(volume, "projected", "sources"))]:
            found = mapping(source.get("configMap"))
            if found.get("name") == name and found.get("optional") is not True:
                wanted += [text(item.get("key")) for item in mappings(found.get("items"))]
    for container in container_specs(mapping(pod.get("spec"))):
        for variable in mappings(container.get("env")):
            found = mapping(dig(variable, "valueFrom", "configMapKeyRef"))
            if found.get("name") == name and found.get("optional") is not True:
                wanted.append(text(found.get("key")))
    return [key for key in wanted if key not in there]


def _missing(
    facts: ClusterFacts, pod: Manifest, workload: ObjectRef, ref: ObjectRef, part: MissingPart
) -> Diagnosis:
    remedies = set()
    if ref.kind == "ConfigMap" and (part is MissingPart.KEY or was_available(facts, workload)):
        remedies.add(Remedy.RESTORE_CONFIGURATION)
    if ref.kind == "ConfigMap" and part is MissingPart.KEY:
        remedies.add(Remedy.PATCH_CONFIGURATION)
    rollout = rollout_of(facts, workload)
    if rollout and rollout.touches("olumes", "env") and ref.name not in _names_in(rollout.previous):
        remedies.add(Remedy.ROLL_BACK)
    what = f"{ref} is missing (not found)" if part is MissingPart.OBJECT else f"{ref} lacks a key"
    blamed = [*_makers(facts, ref), *_misspelt(facts, ref, workload), ref]
    return Diagnosis(
        cause=Cause.MISSING_CONFIGURATION,
        object=blamed[0],
        sentence=f"{what}, which the pods of {workload} cannot start without.",
        also=tuple(dict.fromkeys((*blamed[1:], workload, reference(pod)))),
        remedies=frozenset(remedies),
        signals=("FailedMount", "CreateContainerConfigError"),
        reads=(reference(pod), ref),
        revision=rollout.revision if rollout and Remedy.ROLL_BACK in remedies else 0,
    )


def _makers(facts: ClusterFacts, ref: ObjectRef) -> list[ObjectRef]:
    """Objects whose controller should have made a Secret and states that it did not."""
    if ref.kind != "Secret":
        return []
    found = []
    for maker in facts.list("ExternalSecret", ref.namespace, api_version=EXTERNAL_SECRETS).items:
        made = text(dig(maker, "spec", "target", "name")) or name_of(maker)
        if made == ref.name and holds(maker, "Ready", "False"):
            found.append(reference(maker))
    return found


def _misspelt(facts: ClusterFacts, ref: ObjectRef, workload: ObjectRef) -> list[ObjectRef]:
    """The workload, when it has never been available and a ConfigMap of nearly the same name exists."""
    if ref.kind != "ConfigMap" or was_available(facts, workload):
        return []
    names = [name_of(c) for c in facts.list("ConfigMap", ref.namespace).items]
    return [workload] if ref.name not in names and get_close_matches(ref.name, names, 1, 0.7) else []


def _names_in(revision: Manifest) -> set[str]:
    template = dig(revision, "spec", "template", "spec") or dig(revision, "data", "spec", "template", "spec")
    used = references_of(mapping(template))
    return {*used.config_maps, *used.secrets, *used.claims}


def _volumes(
    facts: ClusterFacts, pod: Manifest, workload: ObjectRef, about: tuple[Happening, ...]
) -> Iterator[Diagnosis]:
    """Volumes that cannot be attached or mounted, by typed reasons of the attach controller and the kubelet."""
    attach = [e for e in about if e.reason in {"FailedAttachVolume", "VolumePermissionChangeInProgress"}]
    claims = references_of(mapping(pod.get("spec")), text(dig(pod, "metadata", "name"))).claims
    if not attach:
        yield from _mounts(facts, pod, workload, claims, about)
        yield from _runtime(pod, workload, about)
        return
    yield Diagnosis(
        cause=Cause.VOLUME,
        object=workload,
        strength=Strength.TIMED,
        sentence=f"A volume of {reference(pod)} is not ready on its node ({attach[-1].reason}, {attach[-1].count} times).",
        also=(
            reference(pod),
            *(ref_to("PersistentVolumeClaim", name, workload.namespace) for name in claims),
        ),
        signals=observed(facts, workload, pod) or ("FailedMount",),
        reads=(reference(pod),),
    )


def _mounts(
    facts: ClusterFacts,
    pod: Manifest,
    workload: ObjectRef,
    claims: Sequence[str],
    about: tuple[Happening, ...],
) -> Iterator[Diagnosis]:
    """Claims whose volume the kubelet cannot mount, by its name in the kubelet's message."""
    failed = [e for e in about if e.reason == "FailedMount"]
    for claim in (ref_to("PersistentVolumeClaim", name, workload.namespace) for name in claims):
        volume = text(dig(facts.get(claim), "spec", "volumeName"))
        if volume and failed and speaks_of(failed[-1].message, volume):
            yield Diagnosis(
                cause=Cause.VOLUME,
                object=claim,
                sentence=f"The volume of {claim} is not mounted for {reference(pod)} ({failed[-1].count} failed attempts).",
                strength=Strength.SYMPTOM,
                also=(workload, reference(pod), ref_to("PersistentVolume", volume)),
                signals=("FailedMount",),
                reads=(reference(pod), claim),
            )


def _runtime(pod: Manifest, workload: ObjectRef, about: tuple[Happening, ...]) -> Iterator[Diagnosis]:
    """A container that the runtime refuses to create, again and again, by the kubelet's typed reason."""
    failed = [e for e in about if e.reason in {"Failed", "FailedCreatePodSandBox"} and e.count >= REPEATED]
    waiting = {text(c.waiting.get("reason")) for c in containers(pod)}
    if failed and waiting <= {"ContainerCreating", "PodInitializing", ""}:
        yield Diagnosis(
            cause=Cause.DEFECTIVE_START,
            object=workload,
            sentence=f"The runtime cannot create the containers of {reference(pod)} ({failed[-1].count} attempts).",
            also=(reference(pod),),
            reads=(reference(pod),),
        )
