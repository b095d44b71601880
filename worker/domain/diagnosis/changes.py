"""Changes before pods failed: of the template, or of a ConfigMap that they use. By times, thus TIMED."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from worker.domain.cluster.conditions import condition, holds
from worker.domain.cluster.fields import dig, mapping, moment, name_of, reference, text
from worker.domain.cluster.pods import containers, pod_failing
from worker.domain.cluster.references import references_of
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength, stated
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.mounts import mounts_of
from worker.domain.diagnosis.structure import (
    LATELY,
    SLACK,
    Rollout,
    changed,
    has_progressed,
    lately,
    made_by,
    observed,
    pods_of,
    ref_to,
    rollout_of,
    template_since,
    unavailable_since,
)
from worker.domain.values.objects import Manifest, ObjectRef

SOON = timedelta(hours=1)
MADE_ONCE = frozenset({"Pod", "Job", "CronJob"})
"""Kinds whose running pods nobody makes again, or only from the start of their work."""
SAME_CLOCK = timedelta(seconds=5)  # times that the API server writes are comparable


def change_findings(
    facts: ClusterFacts, workload: ObjectRef, sick: Sequence[Manifest]
) -> Iterator[Diagnosis]:
    """Yield the change that these pods failed after."""
    if not sick:
        return
    container = next((c.name for c in containers(sick[0]) if c.failing), "")
    rollout = failed_rollout(facts, workload, sick[0], container)
    if rollout:
        yield _bad_rollout(facts, workload, sick, rollout)
    else:
        yield from _configuration(facts, workload, sick[0])


def outdated(facts: ClusterFacts, pod: Manifest, workload: ObjectRef) -> bool:
    """True if a pod is of a revision that its StatefulSet has left: the controller waits for it."""
    status = dig(facts.get(workload), "status") if workload.kind == "StatefulSet" else None
    kept = {text(dig(status, "currentRevision")), text(dig(status, "updateRevision"))} - {""}
    return bool(kept) and text(dig(pod, "metadata", "labels", "controller-revision-hash")) not in {"", *kept}


def rollout_failed(facts: ClusterFacts, workload: ObjectRef, rollout: Rollout) -> bool:
    """True if the newest revision is known to have failed while the one before worked."""
    if both_run(facts, workload, rollout):
        return True
    manifest = facts.get(workload)
    if manifest is None:
        return False
    stuck = text(condition(manifest, "Progressing").get("reason")) == "ProgressDeadlineExceeded"
    if stuck or _half_way(manifest, rollout):
        return True
    began, failed = rollout.began, unavailable_since(manifest)
    return began is not None and failed is not None and failed <= began + SOON


def both_run(facts: ClusterFacts, workload: ObjectRef, rollout: Rollout) -> bool:
    """True if pods of the revision before are healthy while all of the newest one fail."""
    pods = pods_of(facts, workload)
    newest = [pod_failing(p) for p in pods if made_by(facts, p, rollout.newest)]
    previous = [pod_failing(p) for p in pods if made_by(facts, p, rollout.previous)]
    return bool(newest) and all(newest) and not all(previous)


def _half_way(manifest: Manifest, rollout: Rollout) -> bool:
    """True if a StatefulSet's status says that all pods ran with the revision before, and not with this."""
    stated = (text(dig(manifest, "status", key)) for key in ("currentRevision", "updateRevision"))
    return tuple(stated) == (name_of(rollout.previous), name_of(rollout.newest))


def _bad_rollout(
    facts: ClusterFacts, workload: ObjectRef, sick: Sequence[Manifest], rollout: Rollout
) -> Diagnosis:
    pod, newest, signals = reference(sick[0]), reference(rollout.newest), observed(facts, workload, sick[0])
    told = f"The pods of {workload} have failed since its newest revision, which changed {rollout.told}; revision {rollout.revision} was available."
    return Diagnosis(
        Cause.BAD_ROLLOUT, workload, told, Strength.TIMED, also=(pod, newest), revision=rollout.revision, signals=signals,
        remedies=frozenset({Remedy.ROLL_BACK}), reads=(workload, newest, reference(rollout.previous), pod),
    )  # fmt: skip


def _configuration(facts: ClusterFacts, workload: ObjectRef, pod: Manifest) -> Iterator[Diagnosis]:
    """Yield ConfigMaps of failing pods that changed after the template which uses them.

    Of several, none is known to be the cause, and no remedy is proposed.
    """
    since = template_since(facts, workload, pod)
    failing = [c for c in containers(pod) if c.failing and (c.last or c.terminated)]
    if since is None or not failing:
        return
    used = references_of(mapping(pod.get("spec")), text(dig(pod, "metadata", "name"))).config_maps
    there = [m for name in used if (m := facts.get(ref_to("ConfigMap", name, workload.namespace)))]
    later = [(m, when) for m in there if (when := changed(m)) and when > since + SAME_CLOCK]
    recent = [(m, when) for m, when in later if failed_after(facts, workload, pod, when)]
    remedies = {Remedy.PATCH_CONFIGURATION, Remedy.REVERT_SOURCE} if len(recent) == 1 else ()
    for found, when in recent:
        ref, signals = reference(found), observed(facts, workload, pod)
        told = f"{ref} changed at {when:%Y-%m-%dT%H:%M:%SZ}, after the template of {workload}, whose pods use it and have failed since"
        cause = Cause.BAD_CONFIGURATION_CHANGE
        by_time = stated(cause, ref, told, remedies, signals, (workload,), Strength.TIMED)
        yield replace(by_time, reads=(ref, reference(pod)))


def failed_after(facts: ClusterFacts, workload: ObjectRef, pod: Manifest, change: datetime) -> bool:
    """True if the failure of a pod came after the change, and not long after; as far as known."""
    unready = condition(pod, "Ready") if holds(pod, "Ready", "False") else {}
    began = moment(unready.get("lastTransitionTime"))
    if began is not None and began + SLACK < change:
        return False  # it was failing before
    manifest = facts.get(workload)
    failed = unavailable_since(manifest) if manifest and not has_progressed(manifest) else None
    end = failed or facts.now
    return end is None or (change <= end + SLACK and end - change <= LATELY)


def failed_rollout(facts: ClusterFacts, workload: ObjectRef, pod: Manifest, container: str) -> Rollout | None:
    """The rollout to undo: it made the pod, changed what fails, and is known to have failed."""
    rollout = rollout_of(facts, workload)
    if rollout is None or not rollout.touches(container=container) or not made_by(facts, pod, rollout.newest):
        return None
    return rollout if rollout_failed(facts, workload, rollout) else None


def stale_findings(facts: ClusterFacts, workload: ObjectRef, pods: Sequence[Manifest]) -> Iterator[Diagnosis]:
    """Yield running containers that hold old values of a changed ConfigMap, which only a restart renews."""
    for pod in pods[:1]:
        since = (moment(dig(c.status, "state", "running", "startedAt")) for c in containers(pod))
        started = min(filter(None, since), default=None)
        sources = dict.fromkeys(m.source for m in mounts_of(pod, "ConfigMap") if not m.path)
        for found in map(facts.get, sources):
            when = changed(found) if found else None
            if found is None or when is None or started is None or when <= started + SLACK:
                continue
            if lately(facts, when):
                told = f"the containers of {workload} started before {reference(found)} changed and still hold its former values"
                cause, also = Cause.STALE_CONFIGURATION, (reference(pod),)
                remedies = () if workload.kind in MADE_ONCE else (Remedy.RESTART,)
                stale = stated(cause, workload, told, remedies, (), also, Strength.TIMED)
                yield replace(stale, reads=(reference(pod), reference(found)))
