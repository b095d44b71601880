"""TrackRecords from our own broker: results and outcomes are read once, then only what is new."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from nats.js.errors import NotFoundError

from schemas.subjects import Subjects
from schemas.taxonomy import RequestKind
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.proposals import ACTION, outcome, result
from tests.nats_servers import connect, provisioned
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.stream import FencedStream
from worker.adapters.nats.track_record import STALE_SECONDS, NatsTrackRecords, OutcomeReader
from worker.domain.values.remediations import TrackRecord

PLACE = (ACTION, "staging")


async def publish(case, key, executed=None, **fields):
    """A result, and what an executor said of it."""
    kind = RequestKind.RECOVERY if "." in key else RequestKind.INCIDENT
    await case.js.publish(case.subjects.result(kind, key), result(**fields))
    if executed:
        await case.js.publish(case.subjects.outcome(key), executed)


def reader_of(case, nc=None, patience_seconds=10.0, **options):
    def stream(name):
        return FencedStream(nc or case.nc, name, patience_seconds=patience_seconds)

    subjects = case.subjects
    return OutcomeReader(
        stream(subjects.results_stream), stream(subjects.outcomes_stream), subjects, **options
    )


def records_of(case, **options):
    return NatsTrackRecords(reader_of(case, **options), FixedClock(datetime.now(UTC)))


async def counted(records):
    await records.refresh()
    return records.of(*PLACE)


async def test_nothing_is_known_before_the_first_read(own_server):
    records = records_of(own_server)
    assert records.of(*PLACE) is None
    assert TrackRecord() == await counted(records)


async def test_what_became_of_results_is_counted(own_server):
    await publish(own_server, "rr-1", outcome())
    await publish(own_server, "rr-1.2", outcome(outcome="failed"))
    await publish(own_server, "rr%2E3")
    await publish(own_server, "rr-4", outcome(), environment="production")
    records = records_of(own_server)
    assert TrackRecord(3, 1, 1) == await counted(records)
    assert TrackRecord(1, 1, 0) == records.of(ACTION, "production")
    assert TrackRecord() == records.of("Another", "staging")


async def test_only_what_is_new_is_read_again(own_server):
    now = datetime.now(UTC)
    await publish(own_server, "rr-1", completed_at=now)
    records = records_of(own_server)
    assert TrackRecord(1) == await counted(records)
    await own_server.js.delete_msg("RCA_RESULTS", 1)  # was read before
    await publish(own_server, "rr-2", completed_at=now)
    await own_server.js.publish("rca.outcome.rr-1", outcome(outcome="failed"))
    await own_server.js.publish("rca.outcome.rr-2", outcome())
    assert TrackRecord(2, 1, 1) == await counted(records)
    await own_server.js.publish("rca.outcome.rr-1", outcome())  # after the assessment
    assert TrackRecord(2, 2, 0) == await counted(records)


async def test_no_more_than_the_newest_are_read(own_server):
    for number in range(4):
        await publish(own_server, f"rr-{number}", outcome())
    assert TrackRecord(3, 3, 0) == await counted(records_of(own_server, newest=3))
    assert TrackRecord(4, 4, 0) == await counted(records_of(own_server))


async def test_recreated_streams_are_read_from_their_beginning(own_server):
    for number in range(3):
        await publish(own_server, f"rr-{number}", outcome())
    records = records_of(own_server)
    assert TrackRecord(3, 3, 0) == await counted(records)
    for name in ("RCA_RESULTS", "RCA_OUTCOMES"):
        await own_server.js.delete_stream(name)
    async with provisioned(own_server.servers):
        await publish(own_server, "rr-9")
        assert TrackRecord(1) == await counted(records)


async def test_results_that_have_expired_are_forgotten(own_server):
    await publish(own_server, "rr-1", outcome(), completed_at=datetime(2026, 1, 1, tzinfo=UTC))
    records = records_of(own_server)
    assert TrackRecord(1, 1, 0) == await counted(records)
    await own_server.js.delete_msg("RCA_RESULTS", 1)
    await publish(own_server, "rr-2", completed_at=datetime.now(UTC))
    assert TrackRecord(1) == await counted(records)


async def test_without_the_broker_the_figures_stay_until_they_are_stale(own_server):
    await publish(own_server, "rr-1", outcome())
    clock = FixedClock(datetime.now(UTC))
    records = NatsTrackRecords(reader_of(own_server, patience_seconds=0.1), clock)
    assert TrackRecord(1, 1, 0) == await counted(records)
    await own_server.servers[0].stop()
    assert TrackRecord(1, 1, 0) == await counted(records)
    clock.advance(STALE_SECONDS + 1)
    assert await counted(records) is None
    await own_server.servers[0].start()
    for _ in range(300):
        if await counted(records):
            break
        await asyncio.sleep(0.1)
    assert TrackRecord(1, 1, 0) == records.of(*PLACE)


async def test_streams_that_are_not_there_are_no_error(own_server):
    subjects = Subjects("other")
    with pytest.raises(NotFoundError):
        await own_server.js.stream_info(subjects.results_stream)
    own_server.subjects = subjects
    assert await counted(records_of(own_server)) is None
    assert subjects.results_stream in [item.name for item in wanted(subjects)]


async def test_reading_goes_on_until_it_is_cancelled(own_server):
    await publish(own_server, "rr-1")
    nc, slept = await connect(own_server.servers), asyncio.Event()

    class Clock(FixedClock):
        async def sleep(self, seconds):
            slept.set()
            await asyncio.Event().wait()

    records = NatsTrackRecords(reader_of(own_server, nc), Clock(datetime.now(UTC)))
    task = asyncio.create_task(records.run())
    await asyncio.wait_for(slept.wait(), 30)
    task.cancel()
    await asyncio.wait({task})
    await nc.close()
    assert task.cancelled()
    assert TrackRecord(1) == records.of(*PLACE)
