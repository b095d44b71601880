"""Pods that are placed but do not start: volumes, the pod sandbox, the network plugin."""

from __future__ import annotations

import re

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules import attach, mounts, nodes
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.shapes import pod_spec

VOLUME = re.compile(
    r"FailedMount|FailedAttachVolume|MountVolume|AttachVolume|Multi-Attach|Unable to attach or mount",
    re.IGNORECASE,
)
SANDBOX = re.compile(
    r"FailedCreatePodSandBox|sandbox|network plugin|\bCNI\b|setup network|IPAM|assign an IP", re.IGNORECASE
)
VAGUE = re.compile(r"timed out waiting for the condition|unmounted volumes=", re.IGNORECASE)


def creating_finding(case: Case, pod: Manifest, workload: ObjectRef | None) -> Finding | None:
    """What a pod in ContainerCreating or in its init phase waits for."""
    namespace, name = str(dig(pod, "metadata", "namespace") or ""), str(dig(pod, "metadata", "name") or "")
    target = workload or make_ref("Pod", name, namespace)
    me = make_ref("Pod", name, namespace)
    warnings = [e for e in reversed(case.facts.events_of(me)) if e.type == "Warning"]
    if not warnings:
        case.facts.ask_events(namespace)
        return _from_message(case, pod, target)
    warnings.sort(key=lambda e: bool(VAGUE.search(e.message)))
    for event in warnings:
        text = f"{event.reason} {event.message}"
        lack = mounts.missing_in(event.message, pod_spec(pod))
        if lack is not None:
            return mounts.lack_finding(case, pod, target, lack, "ContainerCreating")
        if VOLUME.search(text):
            return attach.attach_finding(case, pod, target, event.message)
        if SANDBOX.search(text):
            return _sandbox(case, pod, target, event.message)
    return None


def _from_message(case: Case, pod: Manifest, target: ObjectRef) -> Finding | None:
    """Without events, what the sender of the signal quotes."""
    message = case.incident.message
    lack = mounts.missing_in(message, pod_spec(pod))
    if lack is not None:
        return mounts.lack_finding(case, pod, target, lack, "ContainerCreating")
    return attach.attach_finding(case, pod, target, message) if VOLUME.search(message) else None


def _sandbox(case: Case, pod: Manifest, target: ObjectRef, message: str) -> Finding:
    """The node cannot set up the pod's network: its plugin, or no addresses left."""
    node = str(dig(pod, "spec", "nodeName") or "")
    unready = (
        nodes.unready_finding(case, node, seen=f"{target} cannot start on node {node}.") if node else None
    )
    if unready is not None:
        return unready
    told = f"the pod sandbox of {target} cannot be created on node {node}: {short(message)}"
    exhausted = bool(
        re.search(
            r"no (?:more )?(?:available |free )?(?:ip|addresses)|failed to (?:allocate|assign)|ipam",
            message,
            re.IGNORECASE,
        )
    )
    return Finding(
        family="sandbox",
        summary=f"{sentence(told)}: the network plugin of the node {'has no addresses left' if exhausted else 'does not work'}.",
        target=make_ref("Node", node),
        certainty=0.7,
        symptoms=("PodPending", "FailedCreatePodSandBox", "NetworkNotReady"),
        remedies=(RemedyKind.RESTART_NODE_AGENT, RemedyKind.CORDON),
        factors=(told,),
        workload=target,
        traits=frozenset({"node_network"}),
        denied=frozenset({"oom", "config_content", "template_changed", "dependency_down"}),
        hints={"node": node},
    )
