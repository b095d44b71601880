"""Pods that do not start: images, missing configuration, unmountable volumes, and refused starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches

from worker.domain.cluster.changes import template_of
from worker.domain.cluster.conditions import holds
from worker.domain.cluster.fields import dig, mapping, mappings, name_of, reference, text
from worker.domain.cluster.pods import Container, containers, pod_failing
from worker.domain.cluster.references import References, references_of
from worker.domain.diagnosis import structure
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength, stated
from worker.domain.diagnosis.changes import both_run, rollout_failed
from worker.domain.diagnosis.facts import ClusterFacts, Presence
from worker.domain.diagnosis.messages import ImageProblem, MissingPart, image_problem, missing_part, speaks_of
from worker.domain.diagnosis.mounts import Mount, mounts_of
from worker.domain.diagnosis.nodes import node_findings
from worker.domain.diagnosis.running import FailingPod
from worker.domain.diagnosis.scheduling import claims_of
from worker.domain.values.objects import Manifest, ObjectRef

EXTERNAL_SECRETS = "external-secrets.io/v1beta1"
REPEATED = 3
OF_REGISTRY = frozenset(
    {ImageProblem.UNAUTHORIZED, ImageProblem.RATE_LIMITED, ImageProblem.UNREACHABLE, ImageProblem.UNTRUSTED,
     ImageProblem.NO_SPACE}
)  # fmt: skip
"""Problems with a registry, or with the disk of a node, which a former image of the same registry has, too."""
OF_SANDBOX = ("runtimeClassName", "hostUsers")
"""What of a pod's spec decides which runtime makes its sandbox, and how. Its network does not depend on the spec."""
NOT_CREATED = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
NOT_FOUND = frozenset({"FailedMount", "Failed"})
NO_SECRET = "FailedToRetrieveImagePullSecret"  # noqa: S105 - the reason of an event
PULL_EVENTS = frozenset({"Failed", NO_SECRET, "InspectFailed"})
WRONG_NAME = frozenset({ImageProblem.NOT_FOUND, ImageProblem.ABSENT_OR_DENIED, ImageProblem.INVALID})


def starting_findings(failing: FailingPod) -> Iterator[Diagnosis]:
    """Yield why a pod that has a node does not run its containers."""
    for container in containers(failing.pod):
        reason = text(container.waiting.get("reason"))
        if reason in structure.PULLING:
            yield _image(failing, container)
        elif reason in NOT_CREATED:
            yield from _not_created(failing, container)
    if _waits(failing.pod):
        yield from _missing_references(failing)
        yield from _volumes(failing)


def _waits(pod: Manifest) -> bool:
    """True if no container of the pod runs yet although it has a node."""
    begun = dig(pod, "spec", "nodeName") and dig(pod, "status", "phase") == "Pending"
    return bool(begun) and not any(c.running for c in containers(pod))


def _image(failing: FailingPod, container: Container) -> Diagnosis:
    workload, about = failing.workload, failing.about
    said = [text(container.waiting.get("message"))]
    said += [e.message for e in reversed(about) if e.reason in PULL_EVENTS]
    image = text(container.spec.get("image"))
    problem = image_problem(*(message.replace(image, "IMAGE") for message in said))
    rollout = structure.rollout_of(failing.facts, workload)
    changed = rollout and rollout.touches("image", container=container.name)
    is_new = bool(rollout and changed and _came_with(failing, rollout))
    before = rollout or structure.was_available(failing.facts, workload)
    if problem is ImageProblem.ABSENT_OR_DENIED and before and not is_new:
        problem = ImageProblem.UNAUTHORIZED  # the same image could be pulled before
    remedies = {Remedy.FIX_IMAGE} if problem in WRONG_NAME else set()
    secrets: list[ObjectRef] = []
    if problem is ImageProblem.UNAUTHORIZED or any(e.reason == NO_SECRET for e in about):
        names = [text(s.get("name")) for s in mappings(dig(failing.pod, "spec", "imagePullSecrets"))]
        secrets = [structure.ref_to("Secret", name, workload.namespace) for name in names if name]
        makers = [maker for secret in secrets for maker in _makers(failing.facts, secret)]
        secrets = [*makers, *secrets]
        remedies = {Remedy.REFRESH_PULL_SECRET} if secrets and not makers else set()
    if rollout and not structure.made_by(failing.facts, failing.pod, rollout.newest):
        remedies.discard(Remedy.FIX_IMAGE)  # the template may name another image by now
    elif rollout and is_new and (problem not in OF_REGISTRY or _moved(rollout, container)):
        remedies.add(Remedy.ROLL_BACK)
    what = f"waits with {text(container.waiting.get('reason'))}: {problem}"
    strength = Strength.SYMPTOM if problem is ImageProblem.NO_SPACE else Strength.DIRECT  # the node says why
    return replace(
        failing.finding(container, Cause.IMAGE, what, *remedies, strength=strength),
        object=secrets[0] if secrets else workload,
        also=(*secrets[1:], workload, failing.ref) if secrets else (failing.ref,),
        signals=("ImagePullBackOff", "ErrImagePull", *failing.signals),
        revision=rollout.revision if rollout else 0,
    )


def _moved(rollout: structure.Rollout, container: Container) -> bool:
    """True if the revision before took the image from another registry or path."""
    specs = structure.container_specs(mapping(template_of(rollout.previous).get("spec")))
    before = [text(c.get("image")) for c in specs if c.get("name") == container.name]
    return text(container.spec.get("image")).rpartition("/")[0] not in {i.rpartition("/")[0] for i in before}


def _came_with(failing: FailingPod, rollout: structure.Rollout) -> bool:
    """True if no pod of the newest revision runs, and the revision is young or known to have failed."""
    facts, workload = failing.facts, failing.workload
    well = [pod for pod in structure.pods_of(facts, workload) if not pod_failing(pod)]
    if any(structure.made_by(facts, pod, rollout.newest) for pod in well):
        return False
    return structure.lately(facts, rollout.began) or rollout_failed(facts, workload, rollout)


def _not_created(failing: FailingPod, container: Container) -> Iterator[Diagnosis]:
    """Yield references of the pod's own spec that the kubelet reports as missing, else a defective start."""
    message, used = text(container.waiting.get("message")), _used(failing)
    part = missing_part(message)
    if part is MissingPart.NONE:
        reason = text(container.waiting.get("reason"))
        yield failing.defective_start(container, f"is not created by the kubelet: {reason}")
        return
    for kind, listed in (("ConfigMap", used.config_maps), ("Secret", used.secrets)):
        for name in (n for n in listed if speaks_of(message, n)):
            yield _missing(failing, structure.ref_to(kind, name, failing.workload.namespace), part)


def _used(failing: FailingPod) -> References:
    return references_of(mapping(failing.pod.get("spec")), failing.ref.name)


def _missing_references(failing: FailingPod) -> Iterator[Diagnosis]:
    """Yield ConfigMaps and keys that are missing; Secrets only by messages of the kubelet."""
    used, facts, home = _used(failing), failing.facts, failing.workload.namespace
    for name in used.config_maps:
        ref = structure.ref_to("ConfigMap", name, home)
        if name in used.optional:
            continue
        if facts.presence(ref) is Presence.ABSENT:
            yield _missing(failing, ref, MissingPart.OBJECT)
        elif missing_keys(failing.pod, name, facts.get(ref)):
            yield _missing(failing, ref, MissingPart.KEY)
    messages = [e.message for e in failing.about if e.reason in NOT_FOUND]
    keyed = {use.source.name for use in _keys_lacking(failing)}
    for name in used.secrets:
        parts = [missing_part(m) for m in messages if speaks_of(m, name) or keyed == {name}]
        known = [part for part in parts if part is not MissingPart.NONE and name not in used.optional]
        yield from (_missing(failing, structure.ref_to("Secret", name, home), part) for part in known[:1])


def _keys_lacking(failing: FailingPod) -> list[Mount]:
    """What the pod uses of Secrets by keys that they do not have, as the kubelet says."""
    said = [text(c.waiting.get("message")) for c in containers(failing.pod)]
    said += [e.message for e in failing.about if e.reason in NOT_FOUND]
    told = " ".join(m for m in said if missing_part(m) is MissingPart.KEY)
    return [use for use in mounts_of(failing.pod, "Secret") if use.key and speaks_of(told, use.key)]


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
    for container in structure.container_specs(mapping(pod.get("spec"))):
        for variable in mappings(container.get("env")):
            found = mapping(dig(variable, "valueFrom", "configMapKeyRef"))
            if found.get("name") == name and found.get("optional") is not True:
                wanted.append(text(found.get("key")))
    return [key for key in wanted if key not in there]


def _missing(failing: FailingPod, ref: ObjectRef, part: MissingPart) -> Diagnosis:
    facts, workload = failing.facts, failing.workload
    existed = part is MissingPart.KEY or structure.was_available(facts, workload)
    remedies = {Remedy.RESTORE_CONFIGURATION} if existed and ref.kind == "ConfigMap" else set()
    if ref.kind == "ConfigMap" and part is MissingPart.KEY:
        remedies.add(Remedy.PATCH_CONFIGURATION)
    rollout = structure.rollout_of(facts, workload)
    if rollout and not structure.made_by(facts, failing.pod, rollout.newest):
        remedies.clear()  # the newest revision may ask for something else
    elif rollout and rollout.touches("olumes", "env") and not _asked_before(failing, rollout, ref, part):
        remedies = remedies - {Remedy.RESTORE_CONFIGURATION} | {Remedy.ROLL_BACK}  # no former state has it
    what = "is missing (not found)" if part is MissingPart.OBJECT else "lacks a key that they use"
    blamed = [*_makers(facts, ref), *_misspelt(facts, ref, workload), ref]
    told = f"The pods of {workload} cannot start: {ref} {what}"
    also = tuple(dict.fromkeys((*blamed[1:], workload, failing.ref)))
    # Workflows that patch a configuration are declared for it.
    starts = ["CrashLoopBackOff"] if Remedy.PATCH_CONFIGURATION in remedies else []
    signals = ("FailedMount", "CreateContainerConfigError", *failing.signals, *starts)
    found = stated(Cause.MISSING_CONFIGURATION, blamed[0], told, remedies, signals, also)
    revision = rollout.revision if rollout and Remedy.ROLL_BACK in remedies else 0
    return replace(found, reads=(failing.ref, ref), revision=revision)


def _makers(facts: ClusterFacts, ref: ObjectRef) -> list[ObjectRef]:
    """Objects whose controller should have made a Secret and reports that it did not."""
    if ref.kind != "Secret":
        return []
    makers = facts.list("ExternalSecret", ref.namespace, api_version=EXTERNAL_SECRETS).items
    failed = [maker for maker in makers if holds(maker, "Ready", "False")]
    named = [(maker, text(dig(maker, "spec", "target", "name")) or name_of(maker)) for maker in failed]
    return [reference(maker) for maker, name in named if name == ref.name]


def _misspelt(facts: ClusterFacts, ref: ObjectRef, workload: ObjectRef) -> list[ObjectRef]:
    """The workload, if it has never been available and a ConfigMap of nearly the same name exists."""
    if ref.kind != "ConfigMap" or structure.was_available(facts, workload):
        return []
    names = [name_of(c) for c in facts.list("ConfigMap", ref.namespace).items]
    return [workload] if ref.name not in names and get_close_matches(ref.name, names, 1, 0.7) else []


def _asked_before(failing: FailingPod, rollout: structure.Rollout, ref: ObjectRef, part: MissingPart) -> bool:
    """True if the revision before asks for what is missing, too. That it finds its keys of a Secret, its pods show."""
    facts, before = failing.facts, template_of(rollout.previous)
    if part is MissingPart.KEY and ref.kind == "ConfigMap":
        return bool(missing_keys(before, ref.name, facts.get(ref)))
    if part is MissingPart.KEY and both_run(facts, failing.workload, rollout):
        lacking = {use.key for use in _keys_lacking(failing) if use.source == ref}
        former = {use.key for use in mounts_of(before, ref.kind) if use.source.name == ref.name}
        return not lacking or not lacking.isdisjoint(former)
    used = references_of(mapping(before.get("spec")))
    return ref.name in {*used.config_maps, *used.secrets, *used.claims}


def _volumes(failing: FailingPod) -> Iterator[Diagnosis]:
    """Yield volumes that are not attached or mounted, by typed reasons of events; else the runtime."""
    about, workload, facts = failing.about, failing.workload, failing.facts
    attach = [e for e in about if e.reason in {"FailedAttachVolume", "VolumePermissionChangeInProgress"}]
    mount = [e for e in about if e.reason == "FailedMount"]
    claims = claims_of(failing.pod, workload.namespace)
    if attach:
        what = f"A volume of {failing.ref} is not ready on its node ({attach[-1].reason} x{attach[-1].count})"
        found = replace(_waiting(failing, Cause.VOLUME, what, *claims), strength=Strength.TIMED)
        yield replace(found, signals=failing.signals or ("FailedMount",))
        return
    for claim in claims:
        volume = text(dig(facts.get(claim), "spec", "volumeName"))
        if volume and mount and speaks_of(mount[-1].message, volume):
            what = f"The volume of {claim} is not mounted for {failing.ref} ({mount[-1].count} attempts)"
            found = _waiting(failing, Cause.VOLUME, what, structure.ref_to("PersistentVolume", volume))
            also = (workload, *found.also)
            yield replace(found, object=claim, also=also, strength=Strength.SYMPTOM, signals=("FailedMount",))
    failed = [e for e in about if e.reason in {"Failed", "FailedCreatePodSandBox"} and e.count >= REPEATED]
    waiting = {text(c.waiting.get("reason")) for c in containers(failing.pod)}
    if failed and waiting <= {"ContainerCreating", "PodInitializing", ""}:
        what = f"The runtime cannot create the containers of {failing.ref} ({failed[-1].count} attempts)"
        node = structure.ref_to("Node", text(dig(failing.pod, "spec", "nodeName")))
        told = next(node_findings(facts, node), None)  # why the node cannot
        found = failing.with_rollback(_waiting(failing, Cause.DEFECTIVE_START, what), *OF_SANDBOX)
        yield replace(found, strength=Strength.SYMPTOM) if told else found


def _waiting(failing: FailingPod, cause: Cause, what: str, *also: ObjectRef) -> Diagnosis:
    """A finding about a pod whose containers have not been created."""
    found = stated(cause, failing.workload, what, (), failing.signals, (failing.ref, *also))
    return replace(found, reads=(failing.ref,))
