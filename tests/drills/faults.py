"""Drills in which what the worker asks gives bad answers: the model, the cluster."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from schemas.analysis import AnalysisResult, Status
from schemas.audit import AuditEvent
from tests.drills.accounts import JournalStep, stored_results, stream_messages
from tests.drills.stage import Ground, Stage, stage
from tests.drills.streams import SEEN_SECONDS, seconds_until_said
from tests.drills.table import Outcome, lost_and_twice, results_and_letters
from tests.fakes.faulty_api import Fault, FaultPlan
from worker.domain.values.step_kinds import END, LLM, MODEL_OUTAGE, TRIED

MAX_TRIES = 5
HALF_FAIL = (
    Fault(every=6, status=429, retry_after_seconds=1),
    Fault(every=5, status=500),
    Fault(every=4, hang=True),
)
"""One in six of all requests each: the second rule sees what the first leaves, the third what both leave."""


async def bad_model(ground: Ground, *, incidents: int = 100, workers: int = 2) -> Outcome:
    """Half of all calls refused as overloaded, a tenth never answered, a twentieth cut in the middle."""
    quick = {
        "RCA_LLM__CALL_SECONDS": "2",
        "RCA_LLM__RETRY_SECONDS": "0.05",
        "RCA_LLM__BREAKER_SECONDS": "0.5",
    }
    async with stage(ground, "bad-model", ack_wait_seconds=10.0, slots=8, **quick) as s:
        await s.plan(latency_seconds=0.05, overloaded=0.5, hang=0.1, cut=0.05)
        await s.start(workers)
        await s.publish_all(f"bad-{n}" for n in range(incidents))
        settled = await s.settled(incidents, 240)
        account, results = await s.account(), await stored_results(s.nc, s.subjects)
        tries = Counter((call.key, call.step) for call in s.calls())
        journal = await s.journal_steps()
    statuses = Counter(result.status for result in results)
    fine = statuses[Status.COMPLETED] + statuses[Status.NEEDS_HUMAN_REVIEW] == incidents
    counted = max(most_tries(steps) for steps in journal.values())
    unexplained = [key for key, steps in journal.items() if calls_of(key, tries) > explained_calls(steps)]
    return Outcome(
        settled
        and fine
        and counted <= MAX_TRIES
        and not unexplained
        and account.clean_results
        and not account.dead,
        f"results {len(results)} of {incidents}: {statuses[Status.COMPLETED]} completed, "
        f"{statuses[Status.NEEDS_HUMAN_REVIEW]} escalated to a human; at most {counted} tries of one call between two "
        f"outages ({max(tries.values())} with those of outages, {sum(tries.values()) / len(tries):.1f} on average), "
        f"requests with more calls than their journal explains {len(unexplained)}, {results_and_letters(account)}",
    )


def most_tries(steps: Sequence[JournalStep]) -> int:
    """The most failed tries of one call that count, which are those since the last outage."""
    tries = most = 0
    for step in steps:
        if step.kind == LLM or (step.kind == END and step.notes.get("reason") == MODEL_OUTAGE):
            tries = 0
        tries += step.kind == TRIED
        most = max(most, tries)
    return most


def explained_calls(steps: Sequence[JournalStep]) -> int:
    """How many calls the journal explains: replies, failed tries, and one for each outage that ended a run."""
    ended = sum(step.kind == END and step.notes.get("reason") == MODEL_OUTAGE for step in steps)
    return ended + sum(step.kind in {LLM, TRIED} for step in steps)


def calls_of(key: str, tries: Counter[tuple[str, int]]) -> int:
    """All calls of the model for a request."""
    return sum(count for (asked, _), count in tries.items() if asked == key)


async def bad_cluster(ground: Ground, *, incidents: int = 40) -> Outcome:
    """One request in six each is refused with 429, fails with 500, or is never answered."""
    quick = {"RCA_KUBERNETES__CALL_SECONDS": "3"}
    async with stage(ground, "bad-cluster", ack_wait_seconds=30.0, slots=8, faults=HALF_FAIL, **quick) as s:
        await s.start(1)
        await s.publish_all(f"k8s-{n}" for n in range(incidents))
        settled = await s.settled(incidents, 240)
        account, results = await s.account(), await stored_results(s.nc, s.subjects)
        failed = await _failed_sources(s)
    unmarked = [r.remediation_id for r in results if set(failed.get(r.remediation_id, ())) != _marked(r)]
    gaps = sum(bool(sources) for sources in failed.values())
    return Outcome(
        settled
        and len(results) == incidents
        and not unmarked
        and gaps > 0
        and account.clean
        and not account.dead,
        f"results {len(results)} of {incidents}, {gaps} with gaps in their first look, not marked as unknown "
        f"{len(unmarked)}, {lost_and_twice(account)}",
    )


async def every_call_fails(
    ground: Ground, name: str, says: str, *, incidents: int = 20, seconds: float = 20.0, **plan: Any
) -> Outcome:
    """The model fails as planned at every call for a while. What is queued waits, and gets its result afterwards."""
    quick = {
        "RCA_WORKER__PROBE_SECONDS": "2",
        "RCA_LLM__RETRY_SECONDS": "0.2",
        "RCA_WORKER__PATIENCE_SECONDS": "10",
    }
    async with stage(ground, name, ack_wait_seconds=10.0, slots=4, **quick) as s:
        await s.plan(**plan)
        [worker] = await s.start(1)
        await s.publish_all(f"{name}-{n}" for n in range(incidents))
        seen = await seconds_until_said(worker, says)
        await asyncio.sleep(seconds)
        early, calls = await s.count(s.subjects.results_stream), len(s.calls())
        await s.plan()
        settled = await s.settled(incidents, 120)
        account, results = await s.account(), await stored_results(s.nc, s.subjects)
    escalated = sum(result.status is Status.NEEDS_HUMAN_REVIEW for result in results)
    return Outcome(
        settled and seen <= SEEN_SECONDS and escalated <= 1 and account.clean_results and not account.dead,
        f"said after {seen:.1f} s; {early} results and {calls} calls in {seconds + seen:.0f} s, escalated {escalated} of "
        f"{incidents}, the others answered afterwards, {results_and_letters(account)}",
    )


async def wrong_model(ground: Ground) -> Outcome:
    """A model name that the provider does not know."""
    message = "The model `drill` does not exist"
    return await every_call_fails(ground, "model-404", message, status=404, message=message)


async def rejected_setting(ground: Ground) -> Outcome:
    """A setting that the provider rejects in every request."""
    message = "max_tokens must be at most 1024"
    return await every_call_fails(ground, "model-400", message, status=400, message=message)


async def model_outage(ground: Ground) -> Outcome:
    """An outage that is longer than the patience of a request."""
    message = "upstream connect error"
    return await every_call_fails(ground, "model-503", message, seconds=40.0, status=503, message=message)


async def model_is_a_page(ground: Ground) -> Outcome:
    """A proxy answers every call with 200 and a page."""
    return await every_call_fails(ground, "model-html", "expected JSON", html=True)


async def model_hangs(ground: Ground, *, incidents: int = 8, call_seconds: float = 25.0) -> Outcome:
    """The model takes every call and answers none, for less than a call may take."""
    settings = {"RCA_LLM__CALL_SECONDS": str(call_seconds), "RCA_LLM__RETRY_SECONDS": "0.2"}
    async with stage(ground, "hang", ack_wait_seconds=10.0, slots=4, **settings) as s:
        await s.plan(hang=1.0)
        [worker] = await s.start(1)
        await s.publish_all(f"hang-{n}" for n in range(incidents))
        seen = await seconds_until_said(worker, "no call was answered", status=200)
        measured = (await worker.metrics())["rca_llm_silent_seconds"]
        await s.plan()
        settled = await s.settled(incidents, 180)
        account, results = await s.account(), await stored_results(s.nc, s.subjects)
    escalated = sum(result.status is Status.NEEDS_HUMAN_REVIEW for result in results)
    return Outcome(
        settled
        and seen <= SEEN_SECONDS
        and measured > 0
        and not escalated
        and account.clean_results
        and not account.dead,
        f"said after {seen:.1f} s, the metric says {measured:.0f} s, escalated {escalated} of {incidents}, "
        f"{results_and_letters(account)}",
    )


async def cluster_credentials(ground: Ground) -> Outcome:
    """The API server rejects the credentials."""
    return await _unreadable(ground, "cluster-401", Fault(status=401))


async def cluster_rights(ground: Ground) -> Outcome:
    """The service account has lost its role."""
    return await _unreadable(ground, "cluster-403", Fault(path="/api*/*", status=403))


async def cluster_down(ground: Ground) -> Outcome:
    """The API server closes every connection."""
    return await _unreadable(ground, "cluster-down", Fault(drop=True))


async def _unreadable(ground: Ground, name: str, fault: Fault, *, incidents: int = 20) -> Outcome:
    """Nothing can be read from the cluster when a burst of requests arrives; later it can be read again."""
    nothing = Fault(path="/nothing")
    async with stage(ground, name, ack_wait_seconds=10.0, slots=4, faults=[nothing]) as s:
        assert s.api is not None
        [worker] = await s.start(1)
        s.api.faults = FaultPlan([fault])
        await s.publish_all(f"{name}-{n}" for n in range(incidents))
        seen = await seconds_until_said(worker, "kubernetes: ")
        await asyncio.sleep(10.0)
        early = await s.count(s.subjects.results_stream)
        s.api.faults = FaultPlan()
        settled = await s.settled(incidents, 120)
        account, failed = await s.account(), await _failed_sources(s)
    blind = sum(bool(sources) for sources in failed.values())
    return Outcome(
        settled and seen <= SEEN_SECONDS and not early and not blind and account.clean and not account.dead,
        f"readiness says so after {seen:.1f} s, {early} results meanwhile, {blind} of {incidents} analysed without the "
        f"cluster, {lost_and_twice(account)}",
    )


def _marked(result: AnalysisResult) -> set[str]:
    return {note.removeprefix("unknown: ") for note in result.notes if note.startswith("unknown: ")}


async def _failed_sources(s: Stage) -> dict[str, list[str]]:
    """What the first look of each request could not find out, by its audit event."""
    found: dict[str, list[str]] = {}
    subject = s.subjects.audit("enrichment.completed")
    async for message in stream_messages(s.nc, s.subjects.audit_stream, subject):
        event = AuditEvent.model_validate_json(message.data)
        found[event.request_key] = json.loads(event.payload.model_dump_json())["failed_sources"]
    return found
