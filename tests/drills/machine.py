"""Drills on a machine that is not as it should be: its clock is wrong, it allows few open files."""

from __future__ import annotations

import resource
import sys
from datetime import UTC, datetime, timedelta

from schemas.analysis import HumanReviewReason
from schemas.subjects import Lane
from tests.drills.accounts import stored_results, until
from tests.drills.stage import Ground, stage
from tests.drills.streams import SEEN_SECONDS, seconds_until_said
from tests.drills.table import Outcome, lost_and_twice
from tests.processes import COMMAND

LEFT = 3
"""Descriptors that a worker has left for the answer of readiness."""


async def wrong_clock(ground: Ground, *, ahead_seconds: float = 7_200.0, incidents: int = 6) -> Outcome:
    """A worker is hours ahead. Requests expire by the server's time: some not at all, one while it is analysed."""
    async with stage(ground, "clock", ack_wait_seconds=10.0) as s:
        await s.plan(latency_seconds=2.0, looks=2)
        worker = s.worker(sys.executable, "-m", "tests.drills.wrong_clock", str(ahead_seconds))
        await worker.start()
        await worker.ready()
        seen = await seconds_until_said(worker, "clock: ", status=200)
        now = datetime.now(UTC)
        for number in range(incidents):
            await s.publish(f"clock-{number}", expires_at=(now + timedelta(minutes=10)).isoformat())
        await s.publish("clock-late", expires_at=(now + timedelta(seconds=3)).isoformat())
        settled = await s.settled(incidents + 1, 120)
        account, results = await s.account(), await stored_results(s.nc, s.subjects)
        skew = (await worker.metrics())["rca_clock_skew_seconds"]
    expired = {
        result.remediation_id
        for result in results
        if result.human_review_reason is HumanReviewReason.DECISION_EXPIRED
    }
    wrong = [result.remediation_id for result in results if result.completed_at > datetime.now(UTC)]
    return Outcome(
        settled
        and seen <= SEEN_SECONDS
        and expired == {"clock-late"}
        and not wrong
        and abs(skew - ahead_seconds) < 5
        and account.clean
        and not account.dead,
        f"said after {seen:.1f} s (skew {skew:.0f} s), expired falsely {len(expired - {'clock-late'})} of {incidents}, "
        f"expired in time {len(expired & {'clock-late'})} of 1, results with a wrong time {len(wrong)}, "
        f"{lost_and_twice(account)}",
    )


async def few_files(ground: Ground, *, limit: int = 64, incidents: int = 20) -> Outcome:
    """All lanes full in a worker that may open 64 files. Then most of these are gone while requests are analysed."""
    async with stage(ground, "files", ack_wait_seconds=10.0) as s:
        await s.plan(latency_seconds=1.0, looks=2)
        worker = s.worker("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *COMMAND, "worker")
        await worker.start()
        await worker.ready()
        said = "files: " in await worker.reason()
        for number, lane in enumerate(Lane):
            await s.publish_all([f"files-{n}" for n in range(number, incidents, len(Lane))], lane)
        peak = 0.0

        async def at_work() -> bool:
            nonlocal peak
            peak = max(peak, (await worker.metrics())["process_open_fds"])
            return await s.count(s.subjects.results_stream) >= incidents

        await until(at_work, 120)
        settled = await s.settled(incidents, 60)
        few, asked = [f"few-{n}" for n in range(len(Lane))], len(s.calls())
        await s.publish_all(few)
        await until(lambda: len(s.calls()) > asked, 30)
        left_over = int((await worker.metrics())["process_open_fds"]) + LEFT
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (left_over, limit))
        seen = await seconds_until_said(worker, "files: ")
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (limit, limit))
        settled = settled and await s.settled(incidents + len(few), 60)
        account = await s.account()
        faults = len(worker.events("analysis_failed"))
        gaps = sum("unknown: " in note for r in await stored_results(s.nc, s.subjects) for note in r.notes)
    return Outcome(
        settled
        and said
        and seen <= SEEN_SECONDS
        and not faults
        and not gaps
        and peak < limit
        and account.clean
        and not account.dead,
        f"said {'at once' if said else 'NOT'}, at most {peak:.0f} files open; with {LEFT} descriptors left said after "
        f"{seen:.1f} s; failed analyses {faults}, gaps {gaps}, results {account.expected - len(account.lost)} of {account.expected}, "
        f"{lost_and_twice(account)}",
    )
