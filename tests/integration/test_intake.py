"""The life of an intake on a real server: how it begins, and every way in which it ends."""

from __future__ import annotations

import asyncio

import pytest

from schemas.subjects import EXHAUSTED, Lane, Subjects
from tests.drills.accounts import until
from tests.fakes.fixed_clock import FixedClock
from tests.nats_servers import one_server, provisioned
from worker.adapters.nats.pump import LaneConsumer
from worker.app.admission import Admission
from worker.app.broker import make_broker
from worker.app.intake import Handlers, Intake, IntakeError
from worker.app.link import BrokerLink
from worker.app.server_clock import ServerClock
from worker.app.settings.groups import NatsSettings
from worker.app.stream_watch import StreamWatch
from worker.domain.values.delivery import ACK


async def acknowledge(body, headers, delivery):
    return ACK


async def handlers(nc):
    return Handlers(acknowledge, {EXHAUSTED: acknowledge})


class Broken(Admission):
    """A bug in what a pull loop calls."""

    async def admit(self, urgency):
        raise LookupError("a bug")


@pytest.fixture
async def server(tmp_path):
    async with one_server(tmp_path) as server, provisioned([server]):
        yield server


def intake_on(server, *, open_handlers=handlers, admission=None):
    subjects, link = Subjects(), BrokerLink()
    return Intake(
        broker=make_broker(NatsSettings(servers=(server.url,)), link),
        link=link,
        stream=subjects.requests_stream,
        lanes=[LaneConsumer(Lane.P2, subjects.lane_subjects(Lane.P2), 1)],
        others={subjects.dlq_stream: LaneConsumer(EXHAUSTED, (subjects.max_deliveries_advisory(),), 1)},
        open_handlers=open_handlers,
        admission=admission or Admission(FixedClock()),
        streams=StreamWatch((), ServerClock(FixedClock())),
        drain_seconds=1.0,
    )


async def test_a_loop_that_dies_ends_the_intake_and_is_named(server):
    intake = intake_on(server, admission=Broken(FixedClock()))
    with pytest.raises(IntakeError, match="pull p2"):
        await asyncio.wait_for(intake.run(), 100)
    assert intake.link.client.is_closed
    assert intake.draining


async def test_a_start_that_fails_closes_the_connection(server):
    async def fails(nc):
        raise LookupError("a bug")

    intake = intake_on(server, open_handlers=fails)
    with pytest.raises(LookupError):
        await asyncio.wait_for(intake.run(), 100)
    assert intake.link.client.is_closed


async def test_a_cancelled_intake_stops_and_leaves_nothing_open(server):
    intake = intake_on(server)
    running = asyncio.create_task(intake.run())
    assert await until(lambda: intake.pumps and not intake.trouble(), 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 100)
    assert intake.link.client.is_closed
