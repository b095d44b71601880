"""Containers that end: by signal, by exit code, or by what they say before they die."""

from __future__ import annotations

import re
from dataclasses import replace

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.loglines import Telling, Trouble, plain, telling_lines
from worker.sandbox.analyst.refs import dig, make_ref
from worker.sandbox.analyst.rules import memory, messages, probes
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.rules.causes import with_change
from worker.sandbox.analyst.rules.rollouts import last_change
from worker.sandbox.analyst.shapes import ContainerState, container_named, pod_spec

START_FAILED = re.compile(
    r"executable file not found|no such file or directory|permission denied|exec format|not a directory|"
    r"StartError|ContainerCannotRun|failed to create (?:containerd )?(?:task|shim)",
    re.IGNORECASE,
)
NODE_OOM = re.compile(r"OOMKilling|SystemOOM|system oom", re.IGNORECASE)
SIGNALS = {139: "a segmentation fault (SIGSEGV)", 134: "an abort (SIGABRT)", 132: "an illegal instruction (SIGILL)",
           135: "a bus error (SIGBUS)", 136: "an arithmetic error (SIGFPE)"}  # fmt: skip
STARTUP_ONLY = frozenset({Trouble.CRASH, Trouble.PORT_IN_USE})


def crash_finding(
    case: Case, pod: Manifest, state: ContainerState, workload: ObjectRef | None
) -> Finding | None:
    """The cause of a container that keeps ending."""
    target = workload or make_ref("Pod", _name(pod), _namespace(pod))
    lines = crash_log(case, pod, state)
    if state.exit_reason == "OOMKilled":
        return memory.memory_finding(case, pod, state, target)
    failed_start = _start_failure(case, pod, state, target)
    if failed_start is not None:
        return failed_start
    telling = telling_lines(lines)
    decided = messages.from_lines(
        case, pod, state, target, [t for t in telling if t.trouble not in STARTUP_ONLY]
    )
    if decided is not None:
        return replace(decided, factors=(*decided.factors, *_ending(lines)))
    failure = probes.probe_failure(case, pod)
    if failure is not None and (failure.killed or state.exit_code in {137, 143}):
        return probes.probe_finding(case, pod, state, target, failure)
    return _by_exit(case, pod, state, target, telling, lines)


def _ending(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The last lines of the log, for people to read."""
    said = [short(plain(line), 140) for line in lines[-6:] if line.strip()]
    return (f"the log ends with: {' / '.join(said[-3:])}",) if said else ()


def crash_log(case: Case, pod: Manifest, state: ContainerState) -> tuple[str, ...]:
    """The log of the run that ended: the previous one when it was restarted, else the present one."""
    namespace, name = _namespace(pod), _name(pod)
    facts = case.facts
    lines: tuple[str, ...] = ()
    if state.restarts > 0:
        lines = facts.log(namespace, name, state.name, previous=True)
    if not lines and (
        state.restarts == 0
        or facts.asked("get_pod_logs", pod=name, namespace=namespace, container=state.name, previous=True)
    ):
        lines = facts.log(namespace, name, state.name, previous=False)
    return lines or tuple(state.exit_message.splitlines())


def _start_failure(case: Case, pod: Manifest, state: ContainerState, target: ObjectRef) -> Finding | None:
    """The container never ran: its command is not there or may not be run."""
    text = f"{state.waiting_message} {state.exit_message} {state.exit_reason}"
    if state.exit_code not in {126, 127, 128} and state.waiting not in {
        "RunContainerError",
        "StartError",
        "ContainerCannotRun",
    }:
        return None
    if not START_FAILED.search(text) and state.exit_code not in {126, 127}:
        return None
    container = container_named(pod_spec(pod), state.name)
    command = container.get("command") or container.get("args") or "the image's own command"
    if "exec format" in text:
        return messages.architecture(case, pod, state, target, text)
    told = f"container {state.name} of {target} cannot start its command {short(str(command), 120)} (exit code {state.exit_code}): {short(text, 200)}"
    finding = Finding(
        family="command",
        summary=f"{sentence(told)}.",
        target=target,
        certainty=0.8,
        symptoms=("CrashLoopBackOff",),
        remedies=(RemedyKind.FIX_IMAGE,),
        factors=(told,),
        workload=target,
        traits=frozenset({"bad_command"}),
        denied=frozenset({"oom", "config_content", "dependency_down"}),
        hints={"container": state.name},
    )
    return with_change(finding, last_change(case.facts, target))


def _by_exit(
    case: Case,
    pod: Manifest,
    state: ContainerState,
    target: ObjectRef,
    telling: list[Telling],
    lines: tuple[str, ...],
) -> Finding:
    """What is left: a signal, a success that was not wanted, or an error that only its own program understands."""
    last = telling[0].line if telling else next((x for x in reversed(lines) if x.strip()), "")
    said = f" Its last telling line: {short(last)}" if last else ""
    code, times = state.exit_code, state.restarts
    told = f"container {state.name} of {target} ends with exit code {code} ({times} restarts)"
    certainty, traits = 0.5, set[str]()
    if code == 0:
        why = "it finishes successfully and is started again: its command does not keep running, or the work belongs in a Job"
        certainty = 0.62
    elif code == 137:
        why, certainty, traits = _killed(case, pod)
    elif code in SIGNALS:
        why = f"it dies of {SIGNALS[code]}: a defect of the program or of its image"
        certainty = 0.6
    else:
        why = "the program itself gives up" if telling else "it says nothing that explains it"
    finding = Finding(
        family="crash",
        summary=f"{sentence(told)}: {why}.{said}",
        target=target,
        certainty=certainty if not telling else max(certainty, 0.6),
        symptoms=("CrashLoopBackOff",),
        factors=(told, *([short(last)] if last else [])),
        workload=target,
        traits=frozenset({"application_error", "crash_on_start", *traits}),
        denied=frozenset({"oom", "config_content"}),
        hints={"container": state.name},
    )
    changed = with_change(finding, last_change(case.facts, target))
    if "template_changed" in changed.traits:
        return replace(changed, certainty=0.84 if "healthy_before" in changed.traits else 0.72)
    return changed


def _killed(case: Case, pod: Manifest) -> tuple[str, float, set[str]]:
    node = str(dig(pod, "spec", "nodeName") or "")
    about_node = case.facts.events_of(make_ref("Node", node))
    killed = next((e for e in reversed(about_node) if NODE_OOM.search(f"{e.reason} {e.message}")), None)
    if killed is not None:
        return (
            f"the kernel of node {node} killed it for lack of memory on the node ({short(killed.message, 120)})",
            0.7,
            {"node_memory"},
        )
    return "something killed it (SIGKILL) that was not its own memory limit", 0.45, set()


def _name(pod: Manifest) -> str:
    return str(dig(pod, "metadata", "name") or "")


def _namespace(pod: Manifest) -> str:
    return str(dig(pod, "metadata", "namespace") or "")
