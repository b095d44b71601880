"""Jobs and CronJobs: used-up retries, deadlines, suspension."""

from __future__ import annotations

from dataclasses import replace

from worker.domain.values.objects import ObjectRef
from worker.sandbox.analyst.facts import Facts, Manifest
from worker.sandbox.analyst.finding import Finding, RemedyKind
from worker.sandbox.analyst.refs import as_list, controller_of, dig, make_ref
from worker.sandbox.analyst.rules import images, pods
from worker.sandbox.analyst.rules.case import Case, sentence, short
from worker.sandbox.analyst.shapes import condition, container_states

MAX_PODS = 2


def diagnose_job(case: Case, ref: ObjectRef) -> Finding | None:
    """Why a Job failed: what its pods said, or what kept them from starting."""
    manifest = case.facts.of(ref)
    if manifest is None:
        return None
    suspended = suspended_finding(case, ref, manifest)
    if suspended is not None:
        return suspended
    failed = condition(manifest, "Failed") or condition(manifest, "FailureTarget")
    reason = str(failed.get("reason") or "")
    owner = controller_of(manifest)
    target = owner if owner is not None and owner.kind == "CronJob" else ref
    told = f"{ref} failed: {reason}: {failed.get('message')}" if failed else f"{ref} has not completed"
    cause = _cause(case, ref, manifest, target)
    symptoms = (reason,) if reason in {"BackoffLimitExceeded", "DeadlineExceeded"} else ()
    if cause is not None:
        remedies = (
            (*cause.remedies, RemedyKind.RESTORE_OPERATOR) if _bundle(case.facts, ref) else cause.remedies
        )
        return replace(
            cause,
            summary=f"{told}. {cause.summary}",
            symptoms=tuple(dict.fromkeys([*symptoms, *cause.symptoms])),
            factors=(told, *cause.factors),
            remedies=remedies,
            traits=cause.traits | {"job_failed"},
        )
    return _by_condition(manifest, target, reason, told) if failed else None


def _cause(case: Case, ref: ObjectRef, manifest: Manifest, target: ObjectRef) -> Finding | None:
    rows = [
        r
        for r in case.facts.rows("Pod", ref.namespace)
        if r.get("OWNER") == f"Job/{ref.name}" and r.get("STATUS") != "Completed"
    ]
    for row in rows[:MAX_PODS]:
        case.facts.get("Pod", row["NAME"], ref.namespace)
    for pod in case.facts.objects("Pod", ref.namespace):
        owner = controller_of(pod)
        if owner is not None and (owner.kind, owner.name) == ("Job", ref.name) and not pods.well(pod):
            finding = pods.diagnose_pod(case, pod, workload=target) or _held_open(pod, ref, target)
            if finding is not None:
                return finding
    events = case.facts.events_of(ref)
    gone = [
        e.message.rpartition(": ")[2] for e in events if e.reason in {"SuccessfulCreate", "SuccessfulDelete"}
    ]
    if not any(e.name in gone for e in case.facts.events):
        case.facts.ask_events(ref.namespace)
    return images.from_events(case, target, manifest, gone)


def _held_open(pod: Manifest, ref: ObjectRef, target: ObjectRef) -> Finding | None:
    """A pod whose work is done while another container runs on: it never completes."""
    states = [s for s in container_states(pod) if not s.init]
    done = [s.name for s in states if s.finished_well]
    on = [s.name for s in states if s.running_since]
    if not done or not on:
        return None
    told = f"container {', '.join(done)} of {ref} has finished with success and {', '.join(on)} runs on"
    return Finding(
        family="held-open",
        summary=f"{sentence(told)}: a Job completes when all containers of its pod have ended. What only accompanies the work belongs into initContainers with restartPolicy Always.",
        target=target,
        certainty=0.8,
        factors=(told,),
        workload=target,
        denied=frozenset({"oom", "config_content", "template_changed", "dependency_down"}),
    )


def _by_condition(manifest: Manifest, target: ObjectRef, reason: str, told: str) -> Finding:
    deadline = dig(manifest, "spec", "activeDeadlineSeconds")
    late = reason == "DeadlineExceeded"
    why = (
        f"its work takes longer than activeDeadlineSeconds {deadline}"
        if late
        else "its pods failed and left no message"
    )
    return Finding(
        family="job",
        summary=f"{told}; {why}.",
        target=target,
        certainty=0.7 if late else 0.5,
        symptoms=(reason,) if reason else (),
        remedies=(RemedyKind.EXTEND_DEADLINE,) if late else (),
        factors=(told,),
        workload=target,
        traits=frozenset({"job_failed"} | ({"deadline_too_short"} if late else set())),
        denied=frozenset({"oom", "config_content", "template_changed"}),
        hints={"deadline": int(deadline) * 2 if isinstance(deadline, int) else ""},
    )


def _bundle(facts: Facts, ref: ObjectRef) -> bool:
    """Whether the Job unpacks an operator's bundle (Operator Lifecycle Manager)."""
    manifest = facts.of(ref, ask=False) or {}
    text = str(dig(manifest, "spec", "template", "spec") or "") + str(
        dig(manifest, "metadata", "labels") or ""
    )
    return "bundle" in text and ("opm" in text or "operatorframework" in text)


def suspended_finding(case: Case, ref: ObjectRef, manifest: Manifest | None) -> Finding | None:
    """A Job or CronJob that is suspended."""
    if manifest is None or ref.kind not in {"Job", "CronJob"} or dig(manifest, "spec", "suspend") is not True:
        return None
    last = dig(manifest, "status", "lastScheduleTime")
    told = (
        f"{ref} is suspended{f'; it last ran at {last}' if last else ''} (received {case.incident.received})"
    )
    return Finding("suspended", f"{told}: no runs are started.", ref, 0.84, ("CronJobSuspended", "Suspended", "BackoffLimitExceeded"), (RemedyKind.RESUME,),
                   (told,), ref, frozenset({"suspended"}), frozenset({"oom", "config_content", "template_changed"}))  # fmt: skip


def diagnose_cron_job(case: Case, ref: ObjectRef) -> Finding | None:
    """Why a CronJob does not do its work: suspended, its last Job failed, or runs that block each other."""
    manifest = case.facts.of(ref)
    suspended = suspended_finding(case, ref, manifest)
    if suspended is not None or manifest is None:
        return suspended
    rows = [r for r in case.facts.rows("Job", ref.namespace) if r.get("OWNER") == f"CronJob/{ref.name}"]
    failing = [r for r in rows if r.get("STATUS") == "Failed"] or [
        r for r in rows if r.get("STATUS") == "Running"
    ]
    for row in sorted(failing, key=lambda r: r.get("NAME", ""), reverse=True)[:1]:
        finding = case.follow(make_ref("Job", row["NAME"], ref.namespace))
        if finding is not None:
            return finding
    active = as_list(dig(manifest, "status", "active"))
    if active and dig(manifest, "spec", "concurrencyPolicy") == "Forbid":
        job = make_ref("Job", str(dig(active[0], "name") or ""), ref.namespace)
        last = dig(manifest, "status", "lastScheduleTime")
        since = f" since {last}" if last else ""
        told = f"{ref} starts no run while {job} is active{since} (concurrencyPolicy Forbid): that run does not end"
        return Finding("cron-blocked", f"{told}.", job, 0.72, (), (RemedyKind.RERUN_JOB,), (told,), ref)
    warnings = [e for e in case.facts.events_of(ref) if e.type == "Warning"]
    if warnings:
        told = f"{ref}: {warnings[-1].reason}: {short(warnings[-1].message)}"
        return Finding("cron", f"{told}.", ref, 0.6, (), (), (told,), ref)
    return None
