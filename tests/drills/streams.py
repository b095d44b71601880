"""Drills in which streams are lost, wiped, stranded or full under running workers."""

from __future__ import annotations

from schemas.taxonomy import RequestKind
from tests.drills.accounts import stream_messages, until
from tests.drills.stage import Ground, Stage, stage
from tests.drills.table import Outcome, lost_and_twice
from worker.adapters.nats.provision import provision, wanted


async def _provision(s: Stage, ack_wait_seconds: float) -> None:
    await provision(s.nc, wanted(s.subjects, ack_wait_seconds=ack_wait_seconds))


async def queue_created_anew(ground: Ground, *, incidents: int = 4) -> Outcome:
    """The stream of requests is deleted and provisioned again while requests of the old one run."""
    async with stage(ground, "anew", ack_wait_seconds=5.0, slots=2 * incidents) as s:
        await s.plan(latency_seconds=3.0)
        await s.start(1)
        await s.publish_all(f"old-{n}" for n in range(incidents))
        await until(lambda: len(s.calls()) >= incidents, 30)
        js = s.nc.jetstream(timeout=10)
        await js.publish(s.subjects.request(RequestKind.INCIDENT), b"{")
        await until(lambda: _rejections(s, 1), 30)
        await js.delete_stream(s.subjects.requests_stream)
        await _provision(s, 5.0)
        await s.publish_all(f"new-{n}" for n in range(incidents))
        await js.publish(s.subjects.request(RequestKind.INCIDENT), b"{")
        settled = await s.settled(2 * incidents, 90)
        rejected = await until(lambda: _rejections(s, 2), 30)
        account = await s.account()
    return Outcome(
        settled and rejected and account.clean and not account.dead,
        f"results {account.expected - len(account.lost)} of {account.expected}, {lost_and_twice(account)}, "
        f"rejections with the same sequence {2 if rejected else 1} of 2",
    )


async def _rejections(s: Stage, number: int) -> bool:
    found = stream_messages(s.nc, s.subjects.validation_stream, s.subjects.validation_request())
    return len([message async for message in found]) >= number
