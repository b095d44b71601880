"""What readiness and log say of a stream that does not do what it is asked."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest
from nats.aio.client import Client

from tests.fakes.fixed_clock import FixedClock
from tests.waiting import until
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.adapters.nats.stream import UNCONFIRMED, FencedStream
from worker.adapters.nats.stream_faults import StreamFaults
from worker.adapters.nats.stream_info import StreamExtent
from worker.app.server_clock import ServerClock
from worker.app.stream_watch import StreamWatch
from worker.domain.values.errors import Unavailable


@pytest.mark.slow
async def test_a_server_that_answers_and_confirms_no_write_must_be_restarted(own_server):
    """As after ENOSPC, which a stream without acknowledgements looks like."""
    await own_server.js.add_stream(name="MUTE", subjects=["mute.>"], no_ack=True)
    told = list[str]()
    faults = StreamFaults(told.append)
    stream = FencedStream(own_server.nc, "MUTE", patience_seconds=7.0, faults=faults)
    with pytest.raises(Unavailable):
        await stream.add("mute.1", b"x", msg_id="1")
    assert f"MUTE refuses to write: {UNCONFIRMED}" == faults.problem() == told[-1]
    assert len(told) == len(set(told))  # each once, however often it is tried


async def test_a_full_stream_is_told_until_a_write_succeeds(own_server):
    config = (await own_server.js.stream_info("RCA_AUDIT")).config
    await own_server.js.update_stream(config.evolve(max_bytes=1))
    faults = StreamFaults()
    stream = FencedStream(own_server.nc, "RCA_AUDIT", patience_seconds=0.1, faults=faults)
    with pytest.raises(Unavailable):
        await stream.add("rca.audit.policy.decided", b"x", msg_id="1")
    assert "RCA_AUDIT refuses to write" in faults.problem()
    await own_server.js.update_stream(config)
    await stream.add("rca.audit.policy.decided", b"x", msg_id="1")
    assert "" == faults.problem()


async def test_a_missing_consumer_is_no_refusal_of_its_stream(own_server):
    faults = StreamFaults()
    stream = FencedStream(own_server.nc, "RCA_AUDIT", faults=faults)
    with pytest.raises(Unavailable, match="there is no consumer nobody"):
        await stream.consumer("nobody")
    assert "" == faults.problem()


async def test_a_stream_whose_server_cannot_tell_now_is_not_missing(own_server):
    """As during an election: the answer is an error that passes."""
    nc, path = own_server.nc, "STREAM.INFO.RCA_AUDIT"
    unavailable = {"code": 503, "err_code": 10008, "description": "JetStream system temporarily unavailable"}
    refusals = [json.dumps({"error": unavailable}).encode()] * 2

    async def answer(msg):
        await msg.respond(refusals.pop() if refusals else (await nc.request(f"$JS.API.{path}")).data)

    await nc.subscribe(f"ELECTING.{path}", cb=answer)
    stream = FencedStream(nc, "RCA_AUDIT", api_prefix="ELECTING")
    assert "RCA_AUDIT" == (await stream.info()).config["name"]
    refusals.extend([json.dumps({"error": unavailable}).encode()] * 100)
    hurried = FencedStream(nc, "RCA_AUDIT", api_prefix="ELECTING", patience_seconds=0.1)
    with pytest.raises(Unavailable, match="temporarily unavailable"):
        await hurried.info()


class Lost(FencedStream):
    """A stream whose server is lost while it is read by several tasks."""

    async def _walk(self, first, last, subject=">"):
        await asyncio.sleep(0 if first == 1 else 0.01)
        raise Unavailable("away")


async def test_a_read_that_fails_leaves_no_task_and_no_error_behind(caplog):
    stream, mine = Lost(Client(), "S"), asyncio.all_tasks()
    with pytest.raises(Unavailable):
        async for _ in stream.messages(StreamExtent(1, 1_000, None, None)):
            pass
    assert mine == asyncio.all_tasks()
    with pytest.raises(Unavailable):
        async for _ in stream.messages(StreamExtent(2, 1_000, None, None)):
            pass
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.slow
async def test_without_a_connection_no_number_of_waiting_requests_is_told():
    """Other workers may have emptied the queue, and an alert must not count what was there an hour ago."""
    watch = StreamWatch((), ServerClock(FixedClock()), waiting={"p0": 3})
    watching = asyncio.create_task(watch.run(Client(), lambda _: None))
    await until(lambda: not watch.waiting)
    watching.cancel()


@pytest.mark.parametrize(
    ("name", "subject", "says"),
    [
        ("RCA_DLQ", "rca.dlq.x", "problem"),
        ("RCA_REQUESTS", "rca.request.incident", "notice"),
        ("RCA_VALIDATION", "rca.validation.request", ""),
    ],
)
async def test_a_full_stream_is_a_problem_unless_producers_hold_or_old_messages_make_room(
    own_server, name, subject, says
):
    subjects = own_server.subjects
    items = wanted(subjects, ack_wait_seconds=2.0, store_bytes=1 << 20)
    await provision(own_server.nc, items)
    limit = next(item.config["max_bytes"] for item in items if item.name == name)
    for _ in range(3 if says else 30):
        await own_server.js.publish(subject, bytes(int(limit * 0.33)))
    watch = StreamWatch(items, ServerClock(FixedClock()), subjects.requests_stream)
    await watch.look(own_server.nc)
    assert {"problem": bool(watch.problem), "notice": bool(watch.notice)} == {
        each: each == says for each in ("problem", "notice")
    }
    assert (watch.usage[name].share > 0.9) is bool(says)
