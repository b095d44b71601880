"""Containers that are killed or taken out of service by their own probes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_dict, as_list, dig, make_ref
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import Change, last_change
from worker.sandbox.analyst.shapes import ContainerState, condition, container_named, pod_spec

PROBE = re.compile(r"\b(Liveness|Readiness|Startup) probe (?:failed|errored)", re.IGNORECASE)
KILLED = re.compile(r"failed (liveness|startup) probe", re.IGNORECASE)
NOT_RUN = re.compile(r"failed to exec|executable file not found|exec failed", re.IGNORECASE)
STATUS = re.compile(r"status ?code:? (\d{3})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProbeFailure:
    """The probe of a container that fails. `killed` when the kubelet restarts the container for it."""

    probe: str
    message: str
    killed: bool


def probe_failure(case: Case, pod: Manifest) -> ProbeFailure | None:
    """What the events of the pod say about its probes, the deadly one first, the newest first."""
    me = make_ref("Pod", str(dig(pod, "metadata", "name")), str(dig(pod, "metadata", "namespace") or ""))
    events = list(reversed(case.facts.events_of(me)))
    killed = next((m for e in events if (m := KILLED.search(e.message))), None)
    fitting = None
    for event in events:
        match = PROBE.search(event.message)
        if match and (killed is None or match[1].lower() == killed[1].lower()):
            fitting = fitting or ProbeFailure(match[1].lower(), event.message, killed is not None)
    if fitting is None and killed is not None:
        return ProbeFailure(killed[1].lower(), killed.string, killed=True)
    return fitting


def probe_finding(
    case: Case, pod: Manifest, state: ContainerState, target: ObjectRef, failure: ProbeFailure
) -> Finding:
    """A probe as the cause: too impatient, aimed at the wrong port or path, or right about a process that hangs."""
    container = container_named(pod_spec(pod), state.name)
    probe = as_dict(container.get(f"{failure.probe}Probe"))
    change = last_change(case.facts, target)
    why, wrong = _why(container, probe, failure)
    told = f"the {failure.probe} probe ({failure.probe}Probe) of container {state.name} of {target} fails: {short(failure.message, 160)}"
    ending = (
        f", and the kubelet restarts it (exit code {state.exit_code})"
        if failure.killed
        else ", so it gets no traffic"
    )
    finding = Finding(
        family="probe",
        summary=f"{sentence(told)}{ending}. {why}",
        target=target,
        certainty=_certainty(change, wrong=wrong),
        symptoms=_symptoms(case, target, failure),
        remedies=(RemedyKind.FIX_PROBE,),
        factors=(told, why),
        workload=target,
        traits=frozenset({"probe", "wrong_probe"} if wrong else {"probe"}),
        denied=frozenset({"oom", "dependency_down", "config_content"}),
        hints={"container": state.name},
    )
    return with_change(finding, change)


def _certainty(change: Change | None, *, wrong: bool) -> float:
    """How sure it is: very when the probe is wrong or was changed, or when all was well before a rollout."""
    if wrong or (change is not None and change.touches("probe")):
        return 0.82
    return 0.76 if change is not None and change.parts and change.healthy_before else 0.66


def _symptoms(case: Case, target: ObjectRef, failure: ProbeFailure) -> tuple[str, ...]:
    if failure.killed:
        return ("CrashLoopBackOff", "ProbeFailure")
    late = condition(case.facts.of(target, ask=False) or {}, "Progressing").get("reason")
    first = ("ProgressDeadlineExceeded",) if late == "ProgressDeadlineExceeded" else ()
    return (*first, "ReadinessProbeFailed", "PodNotReady", "Unhealthy", "CrashLoopBackOff")


def _why(container: Manifest, probe: Manifest, failure: ProbeFailure) -> tuple[str, bool]:
    """In words why the probe fails, and whether the probe itself is at fault."""
    patience = _patience(probe)
    code = STATUS.search(failure.message)
    if code and code[1] in {"401", "403", "404", "405"}:
        path = dig(probe, "httpGet", "path")
        return f"The path {path} of the probe answers {code[1]}: the probe asks for the wrong thing.", True
    if code:
        return f"The process answers {code[1]}: it runs but says that it is not healthy.", False
    if NOT_RUN.search(failure.message):
        command = dig(probe, "exec", "command")
        return (
            f"The command {command} of the probe cannot be run in this container: the probe is wrong.",
            True,
        )
    port = _port(probe)
    declared = {
        str(p)
        for c in as_list(container.get("ports"))
        for p in (as_dict(c).get("containerPort"), as_dict(c).get("name"))
        if p is not None
    }
    if port and declared and port not in declared:
        shown = ", ".join(sorted(declared))
        return (
            f"The probe asks port {port}, the container declares {shown}: the probe has the wrong port.",
            True,
        )
    if failure.probe == "startup" or patience <= 10:
        return (
            f"{_numbers(probe)}: it gives up after about {patience} second{'s' if patience != 1 else ''}, too short for a process that starts slowly.",
            True,
        )
    return f"{_numbers(probe)}: the process does not answer in time.", False


def _patience(probe: Manifest) -> int:
    def value(name: str, default: int) -> int:
        found = probe.get(name)
        return found if isinstance(found, int) else default

    return value("initialDelaySeconds", 0) + value("periodSeconds", 10) * value("failureThreshold", 3)


def _numbers(probe: Manifest) -> str:
    names = ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold")
    shown = ", ".join(f"{n} {probe[n]}" for n in names if n in probe)
    return f"The probe has {shown or 'default settings'}"


def _port(probe: Manifest) -> str:
    """The port a probe asks, empty when it has none."""
    found = (dig(probe, kind, "port") for kind in ("httpGet", "tcpSocket", "grpc"))
    return next((str(port) for port in found if port is not None), "")
