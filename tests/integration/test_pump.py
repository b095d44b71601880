from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from tests.nats_servers import PATIENCE_SECONDS, connect, one_server, provisioned
from tests.waiting import until
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.adapters.nats.pump import LaneConsumer, Pump
from worker.domain.values.delivery import ACK, LET_GO, retry, term

REQUESTS = "RCA_REQUESTS"
DEFAULT = "rca.request.incident"


@pytest.fixture
async def case(tmp_path):
    """Nothing comes back by itself while a test runs, however slow the machine is."""
    async with one_server(tmp_path) as server, provisioned([server], ack_wait_seconds=60) as found:
        yield found


@pytest.fixture
async def brief(tmp_path):
    """What is not settled comes back soon."""
    async with one_server(tmp_path) as server, provisioned([server], ack_wait_seconds=4) as found:
        yield found


class Held:
    """A handler whose jobs wait until they are let go, then end as `how` says."""

    def __init__(self, how=ACK):
        self.go, self.how = asyncio.Event(), how
        self.running, self.peak, self.cancelled = 0, 0, 0
        self.bodies, self.headers, self.deliveries = [], [], []

    async def __call__(self, body, headers, delivery):
        self.bodies.append(body)
        self.headers.append(dict(headers))
        self.deliveries.append(delivery)
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return self.how


class Script:
    """A handler that does one thing after another, then ACK: settlements are returned, exceptions raised."""

    def __init__(self, *what):
        self.what, self.deliveries = list(what), []

    async def __call__(self, body, headers, delivery):
        self.deliveries.append(delivery)
        step = self.what.pop(0) if self.what else ACK
        if isinstance(step, Exception):
            raise step
        return step


@contextlib.asynccontextmanager
async def pumping(nc, handler, *, lane="p2", slots=1, drain_seconds=2.0, **options):
    pump = Pump(nc, REQUESTS, LaneConsumer(lane, (), slots), handler, **options)
    await pump.start()
    try:
        yield pump
    finally:
        await pump.drain(drain_seconds)


async def submit(case, *bodies, subject=DEFAULT, headers=None):
    for body in bodies:
        await case.js.publish(subject, body, headers=dict(headers) if headers else None)


async def pending(case, lane="p2"):
    return (await case.js.consumer_info(REQUESTS, lane)).num_ack_pending


async def empty(case):
    return await case.count(REQUESTS) == 0


async def two_are_left(case):
    return await case.count(REQUESTS) == 2


@contextlib.asynccontextmanager
async def listening(case, subject):
    """Everything that is published on a subject, the settlement words of workers included."""
    nc, heard = await connect(case.servers), []

    async def note(msg):
        heard.append(msg)

    await nc.subscribe(subject, cb=note)
    await nc.flush()
    yield heard
    await nc.close()


# --- what the handler gets


HOSTILE = [
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a": NaN, "a": 2}',
    b"\xff\xfe\x00",
    b"",
    b"null",
    b"x" * 1_500_000,
]


async def test_bodies_arrive_as_they_are_and_nobody_is_answered(case):
    held = Held()
    held.go.set()
    headers = {
        "ce-id": "7",
        "reply_to": "stolen.reply",
        "Status": "408",
        "Nats-Consumer-Stalled": "stolen.fc",
    }
    no_ascii = {"traceparent": "00-\xe9"}
    async with listening(case, "stolen.>") as heard, pumping(case.nc, held):
        await submit(case, *HOSTILE, headers={**headers, **no_ascii})
        await until(lambda: empty(case))
    assert held.bodies == HOSTILE
    assert headers.items() <= held.headers[0].items()
    assert {str} == {type(value) for value in held.headers[0].values()}
    assert heard == []
    first = held.deliveries[0]
    assert (first.subject, first.stream, first.durable) == (DEFAULT, REQUESTS, "p2")
    assert (first.sequence, first.deliveries) == (1, 1)
    assert first.stored_at.utcoffset().total_seconds() == 0


async def test_lanes_do_not_wait_for_each_other(case):
    busy, urgent = Held(), Held()
    async with pumping(case.nc, busy, lane="p3"), pumping(case.nc, urgent, lane="p0"):
        await submit(case, b"1", b"2", b"3", subject="rca.request.incident.p3")
        await submit(case, b"0", subject="rca.request.recovery.P0")
        await until(lambda: busy.running == urgent.running == 1)
        urgent.go.set()
        await until(lambda: case.count(REQUESTS))
        busy.go.set()
        await until(lambda: empty(case))
    assert (busy.peak, urgent.bodies) == (1, [b"0"])


async def test_lanes_are_independent_and_serve_the_oldest_first(case):
    busy, urgent = Held(), Held()
    await asyncio.gather(*(case.js.publish("rca.request.incident.p3", b"%d" % n) for n in range(2_000)))
    async with pumping(case.nc, busy, lane="p3", slots=3), pumping(case.nc, urgent, lane="p0"):
        await until(lambda: busy.running == 3)
        await submit(case, b"now", subject="rca.request.incident.p0")
        await until(lambda: urgent.running == 1)
        assert ([1, 2, 3], 2_001) == (
            [delivery.sequence for delivery in busy.deliveries],
            await case.count(REQUESTS),
        )
        urgent.go.set()
        busy.go.set()
        await until(lambda: len(busy.deliveries) > 100)
    order = [delivery.sequence for delivery in busy.deliveries]
    assert sorted(order) == order


# --- back-pressure


class Gate:
    """Lets nothing be asked for until it is opened."""

    def __init__(self):
        self.opened, self.waiting = asyncio.Event(), 0

    async def admit(self):
        waits = not self.opened.is_set()
        self.waiting += waits
        await self.opened.wait()
        return waits


async def test_nothing_is_pulled_before_admission(case):
    gate, held = Gate(), Held()
    await submit(case, b"x")
    async with pumping(case.nc, held, admit=gate.admit, pull_seconds=0.1) as pump:
        await until(lambda: gate.waiting)
        await asyncio.sleep(0.5)
        assert (held.bodies, pump.silent_seconds()) == ([], 0.0)
        gate.opened.set()
        await until(lambda: held.running == 1)
        gate.opened.clear()
        await submit(case, b"y")
        held.go.set()
        await until(lambda: gate.waiting == 2)
        assert held.bodies == [b"x"]
        gate.opened.set()
        await until(lambda: empty(case))
    assert held.bodies == [b"x", b"y"]


async def test_a_pump_that_waits_for_admission_can_be_drained(case):
    async with pumping(case.nc, Held(), admit=Gate().admit):
        pass


@dataclass
class Distant:
    url: str
    lets_up: asyncio.Event
    """While it is not set, nothing gets to the server."""


@contextlib.asynccontextmanager
async def far_away(server, delay):
    """A server behind a proxy that adds latency in both directions."""
    tasks, writers, loop = set(), [], asyncio.get_running_loop()
    lets_up, lets_down = asyncio.Event(), asyncio.Event()
    lets_up.set()
    lets_down.set()

    async def write(queue, writer, lets):
        while True:
            at, data = await queue.get()
            await asyncio.sleep(max(0.0, at - loop.time()))
            await lets.wait()
            writer.write(data)

    async def pipe(reader, writer, lets):
        queue = asyncio.Queue()
        tasks.add(asyncio.create_task(write(queue, writer, lets)))
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                queue.put_nowait((loop.time() + delay, data))

    async def serve(reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", server.port)
        writers.extend([writer, up_writer])
        ways = ((reader, up_writer, lets_up), (up_reader, writer, lets_down))
        tasks.update(asyncio.create_task(pipe(*way)) for way in ways)

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Distant(f"nats://127.0.0.1:{proxy.sockets[0].getsockname()[1]}", lets_up)
    finally:
        proxy.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.close()
        await asyncio.sleep(0)


async def just_out(count, case, heard):
    """Whether no message is out at the server but those that run. Any other one must have been given back.

    That happens when the machine stands still for a second: the message comes when nobody waits for it any more.
    """

    async def none_forgotten():
        return await pending(case) <= count + sum(msg.data.startswith(b"-NAK") for msg in heard)

    await until(none_forgotten)
    return await pending(case) == count


async def waiting_pulls(case):
    return (await case.js.consumer_info(REQUESTS, "p2")).num_waiting


async def test_no_more_is_handed_out_than_there_are_slots_even_with_latency(case):
    async def burst(nc, n):
        held = Held()
        async with (
            listening(case, f"$JS.ACK.{REQUESTS}.p2.>") as heard,
            pumping(nc, held, slots=3, ack_wait_seconds=30, pull_seconds=0.2),
        ):
            await asyncio.sleep(0.15 + 0.02 * n)
            await submit(case, *(b"x" for _ in range(8)))
            await until(lambda: held.running == 3)
            await asyncio.sleep(0.2)  # for a fourth one to come
            exactly = await just_out(3, case, heard)
            assert held.peak == 3
            held.go.set()
            await until(lambda: empty(case))
        return exactly

    async with far_away(case.servers[0], 0.02) as distant:
        nc = await connect([distant])
        for n in range(5):  # bursts around the moment when a pull expires
            assert await burst(nc, n) or await burst(nc, n) or await burst(nc, n)
        await nc.close()


async def test_nothing_is_lost_between_pumps_that_come_and_go(brief):
    case, done = brief, []

    async def quick(body, headers, delivery):
        await asyncio.sleep(0.005)
        done.append(body)
        return ACK

    bodies = [b"%d" % n for n in range(150)]
    async with pumping(case.nc, quick, slots=4):
        sending = asyncio.create_task(submit(case, *bodies))
        for _ in range(6):
            async with pumping(case.nc, quick, slots=3, drain_seconds=1):
                await asyncio.sleep(0.03)
        await sending
        await until(lambda: empty(case))
    assert sorted(bodies) == sorted(set(done))


# --- settling


async def test_a_retry_comes_back_and_a_handler_that_raised_too(case):
    script = Script(retry(0.01), LookupError("a bug"), ACK)
    async with pumping(case.nc, script, fallback_seconds=0.01):
        await submit(case, b"x")
        await until(lambda: empty(case))
    assert [(d.sequence, d.deliveries) for d in script.deliveries] == [(1, 1), (1, 2), (1, 3)]


async def test_a_terminated_message_is_gone_and_the_reason_told(case):
    subject = f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{REQUESTS}.p2"
    async with listening(case, subject) as heard, pumping(case.nc, Script(term("no\nJSON" + "x" * 9_000))):
        await submit(case, b"x")
        await until(lambda: heard)
    advisory = json.loads(heard[0].data)
    assert (advisory["stream_seq"], advisory["reason"]) == (1, "no\nJSON" + "x" * 249)
    await until(lambda: empty(case))


async def test_a_released_message_is_not_acknowledged(brief):
    case, script = brief, Script(LET_GO)
    async with listening(case, f"$JS.ACK.{REQUESTS}.>") as heard, pumping(case.nc, script):
        await submit(case, b"x")
        await until(lambda: empty(case))  # after ack_wait somebody else has it, here the same pump
        await until(lambda: heard)
    assert [d.deliveries for d in script.deliveries][:2] == [1, 2]
    assert {msg.data for msg in heard} == {b"+ACK"}


async def test_what_was_done_while_the_server_was_away_is_settled_after_it(case):
    held = Held()
    nc = await connect(case.servers)
    async with pumping(nc, held):
        await submit(case, b"x")
        await until(lambda: held.running == 1)
        await case.servers[0].stop()
        held.go.set()
        await until(lambda: held.running == 0)
        await case.servers[0].start()
        await until(lambda: empty(case))
    await nc.close()
    assert len(held.bodies) == 1


class Deaf:
    """A connection whose first requests get no answer, and never arrive."""

    def __init__(self, nc, unanswered):
        self._nc, self.unanswered, self.asked = nc, unanswered, []

    def __getattr__(self, name):
        return getattr(self._nc, name)

    async def request(self, subject, payload, **options):
        self.asked.append(payload)
        if len(self.asked) <= self.unanswered:
            raise TimeoutError
        return await self._nc.request(subject, payload, **{**options, "timeout": PATIENCE_SECONDS})


async def test_an_ack_is_repeated_until_it_is_confirmed(case):
    deaf, held = Deaf(case.nc, 2), Held()
    held.go.set()
    async with pumping(deaf, held):
        await submit(case, b"x")
        await until(lambda: empty(case))
    assert (deaf.asked, len(held.bodies)) == ([b"+ACK"] * 3, 1)


async def test_a_nak_is_never_repeated(brief):
    """By then somebody else may run the message."""
    case, deaf, script = brief, Deaf(brief.nc, 1), Script(retry(0.5))
    async with pumping(deaf, script):
        await submit(case, b"x")
        await until(lambda: empty(case))
    assert deaf.asked[0] == b'-NAK {"delay": 500000000}'
    assert set(deaf.asked[1:]) == {b"+ACK"}


async def test_nothing_is_given_back_over_a_lost_connection(case):
    """It would be sent after the reconnect, when another worker may have the message."""
    nc, held = await connect(case.servers), Held(retry(0.01))
    with capture_logs() as logs:
        async with pumping(nc, held):
            await submit(case, b"x")
            await until(lambda: held.running == 1)
            await case.servers[0].kill()
            await until(lambda: not nc.is_connected)
            said = nc.stats["out_msgs"]
            held.go.set()
            await until(lambda: [entry for entry in logs if entry["event"] == "settlement_failed"])
            assert said == nc.stats["out_msgs"]
            await case.servers[0].start()
            await until(lambda: nc.is_connected)
    await nc.close()


async def test_a_crashed_server_may_forget_a_delivery_but_no_message(brief):
    """Then it ignores the ack, the slot is free again after the patience, and the message runs once more."""
    case, held, nc = brief, Held(), await connect(brief.servers)
    held.go.set()
    async with pumping(nc, held, settle_seconds=0.5):
        for _ in range(3):
            await submit(case, b"x")
            await case.servers[0].kill()
            await case.servers[0].start()
            await until(lambda: case.nc.is_connected)
        await until(lambda: empty(case))
    await nc.close()
    assert len({delivery.sequence for delivery in held.deliveries}) == 3


async def test_a_running_job_is_held_by_heartbeats(case):
    held = Held()
    words = f"$JS.ACK.{REQUESTS}.p2.>"
    async with listening(case, words) as heard, pumping(case.nc, held, slots=2, ack_wait_seconds=0.3):
        await submit(case, b"x", b"y")
        await until(lambda: len(heard) >= 6)
        assert {msg.data for msg in heard} == {b"+WPI"}
        assert len({msg.subject for msg in heard}) == 2
        held.go.set()
        await until(lambda: [msg.data for msg in heard[-2:]] == [b"+ACK", b"+ACK"])
        await until(lambda: empty(case))


async def test_a_redelivery_to_the_process_that_runs_it_starts_nothing(brief):
    case, held = brief, Held()
    async with pumping(case.nc, held, slots=2, ack_wait_seconds=60):  # its heartbeats come too late
        await submit(case, b"x")
        await until(lambda: held.running == 1)

        async def redelivered():
            return (await case.js.consumer_info(REQUESTS, "p2")).num_redelivered == 1

        await until(redelivered)
        await submit(case, b"y")  # and the slot is free for another
        await until(lambda: held.running == 2)
        held.go.set()
        await until(lambda: empty(case))
    assert held.bodies == [b"x", b"y"]


# --- stopping


async def test_drain_finishes_what_it_can_and_gives_back_the_rest(case):
    held, peer = Held(), Held()
    peer.go.set()
    short, hurry, releases = asyncio.Event(), asyncio.Event(), []

    async def handler(body, headers, delivery):
        if body == b"short":
            await short.wait()
            return ACK
        try:
            return await held(body, headers, delivery)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)  # such as a last step in the journal
            releases.append(body)
            raise

    pump = Pump(case.nc, REQUESTS, LaneConsumer("p2", (), 2), handler, nak_seconds=0.01)
    await pump.start()
    await submit(case, b"short", b"long")
    await until(lambda: pump.running == 2)
    await submit(case, b"queued")
    draining = asyncio.create_task(pump.drain(3_600, hurry))
    await asyncio.sleep(0)
    short.set()
    await until(lambda: two_are_left(case))
    hurry.set()
    await draining
    assert (pump.running, held.cancelled, releases) == (0, 1, [b"long"])
    assert await two_are_left(case)
    async with pumping(case.nc, peer):
        await until(lambda: empty(case))
    assert sorted((body, d.deliveries) for body, d in zip(peer.bodies, peer.deliveries, strict=True)) == [
        (b"long", 2),
        (b"queued", 1),
    ]


async def test_a_hurried_drain_gives_jobs_back_at_once(case):
    held, hurry = Held(), asyncio.Event()
    pump = Pump(case.nc, REQUESTS, LaneConsumer("p2", (), 1), held, nak_seconds=0.01)
    await pump.start()
    await submit(case, b"x")
    await until(lambda: pump.running == 1)
    draining = asyncio.create_task(pump.drain(3_600, hurry))
    await asyncio.sleep(0.1)
    assert (draining.done(), held.cancelled) == (False, 0)
    hurry.set()
    await draining
    assert (pump.running, held.cancelled) == (0, 1)
    assert await case.count(REQUESTS) == 1


async def test_what_arrives_while_it_stops_is_given_back(brief):
    """The pull is open when the drain begins, and the message is on its way before the server hears of it."""
    case, held, peer = brief, Held(), Held()
    peer.go.set()
    async with far_away(case.servers[0], 0.02) as distant:
        nc = await connect([distant])
        pump = Pump(nc, REQUESTS, LaneConsumer("p2", (), 1), held, nak_seconds=0.01, pull_seconds=30)
        await pump.start()
        await until(lambda: waiting_pulls(case))
        distant.lets_up.clear()
        draining = asyncio.create_task(pump.drain(0.01))
        await submit(case, b"x")
        await until(lambda: pending(case))
        distant.lets_up.set()
        await draining
        await nc.close()
    assert held.bodies == []
    async with pumping(case.nc, peer):
        await until(lambda: empty(case))
    assert [delivery.deliveries for delivery in peer.deliveries] == [2]


async def test_drain_ends_while_the_server_is_away(case):
    nc, held = await connect(case.servers), Held()
    pump = Pump(nc, REQUESTS, LaneConsumer("p2", (), 1), held)
    await pump.start()
    await submit(case, b"x")
    await until(lambda: held.running == 1)
    await case.servers[0].kill()
    await pump.drain(0.1)
    assert (held.running, pump.running) == (0, 0)
    with contextlib.suppress(ConnectionError):
        await nc.close()


# --- nothing to get


async def test_a_missing_consumer_is_asked_for_once_a_pause_and_never_created(case):
    pauses, held, nc = [], Held(), await connect(case.servers)
    held.go.set()

    def pause(low, high):
        pauses.append((low, high))
        return 0.02

    await case.js.delete_consumer(REQUESTS, "p2")
    with capture_logs() as logs:
        async with pumping(nc, held, slots=5, spread=pause) as pump:
            await until(lambda: len(pauses) >= 10)
            first = pump.answered_at
            await until(lambda: len(pauses) >= 15)
            assert first == pump.answered_at  # "no responders" is no sign of life
            pulls = nc.stats[
                "out_msgs"
            ]  # counted on the connection: a listener on the subject would answer for it
            assert pulls in {len(pauses), len(pauses) + 1}
            assert pauses[0] == (0.5, 1.5)
            assert (await case.js.stream_info(REQUESTS)).state.consumer_count == 3
            await submit(case, b"x")
            await provision(case.nc, wanted(case.subjects, ack_wait_seconds=60))
            await until(lambda: empty(case))
            assert pump.running == 0
    await nc.close()
    assert [entry["event"] for entry in logs] == ["lane_stalled", "lane_resumed"]


async def test_pulls_do_not_pile_up_while_the_server_is_away(case):
    async def away():
        pauses, held, nc = [], Held(), await connect(case.servers)

        def pause(low, high):
            pauses.append(low)
            return 0.05

        async with pumping(nc, held, slots=2, ack_wait_seconds=30, pull_seconds=0.5, spread=pause):
            await case.servers[0].kill()
            await until(lambda: len(pauses) >= 20)
            await case.servers[0].start()
            await until(lambda: nc.is_connected and case.nc.is_connected)
            async with listening(case, f"$JS.ACK.{REQUESTS}.p2.>") as heard:
                await submit(case, *(b"x" for _ in range(10)))
                await until(lambda: held.running == 2)
                await asyncio.sleep(0.5)  # for more than two to come
                exactly = await just_out(2, case, heard)
                assert held.peak == 2
                held.go.set()
                await until(lambda: empty(case))
        await nc.close()
        return exactly

    assert await away() or await away() or await away()


async def test_readiness_sees_silence_but_not_a_busy_lane(case):
    held, nc = Held(), await connect(case.servers)
    async with pumping(nc, held, pull_seconds=0.1) as pump:
        started = pump.answered_at
        await until(lambda: pump.answered_at > started)
        await submit(case, b"x")
        await until(lambda: held.running == 1)
        await until(lambda: pump.silent_seconds() == 0.0)
        await case.servers[0].stop()
        await until(lambda: not nc.is_connected)
        assert pump.silent_seconds() == 0.0  # all slots busy: nothing is asked
        held.go.set()
        await case.servers[0].start()
        await until(lambda: empty(case))
        await case.servers[0].stop()
        await until(lambda: pump.silent_seconds() > 0.5)
        await case.servers[0].start()
        await until(lambda: pump.silent_seconds() < 0.5)
    await nc.close()


async def test_forged_messages_to_the_inbox_cost_no_slot(case):
    held, pulled, errors = Held(), f"$JS.API.CONSUMER.MSG.NEXT.{REQUESTS}.p2", []
    nc = await connect(case.servers, errors)
    async with listening(case, pulled) as pulls, pumping(nc, held):
        await until(lambda: pulls)
        for reply in ("", "junk", "$JS.ACK.a.b", "$JS.ACK.S.C.x.y.z.t.p"):
            await case.nc.publish(pulls[0].reply, b"forged", reply)
        await case.nc.flush()
        await submit(case, b"x")
        await until(lambda: held.running == 1)
        held.go.set()
        await until(lambda: empty(case))
    await nc.close()
    assert held.bodies == [b"x"]
    assert errors == []


# --- streams created anew


async def test_a_stream_created_anew_under_a_running_job_loses_nothing(case):
    """It counts from 1 again: neither is its first message the one that runs, nor does the old ack remove it."""
    held = Held()
    async with pumping(case.nc, held, slots=2):
        await submit(case, b"old")
        await until(lambda: held.running == 1)
        await case.js.delete_stream(REQUESTS)
        await provision(case.nc, wanted(case.subjects, ack_wait_seconds=60))
        await submit(case, b"new")
        await until(lambda: held.running == 2)
        first, second = held.deliveries
        assert first.sequence == second.sequence
        assert first.message != second.message
        held.go.set()
        await until(lambda: empty(case))
    assert [b"old", b"new"] == held.bodies


async def test_the_ack_of_a_job_from_before_leaves_the_message_in_its_place(case):
    held = Held()
    with capture_logs() as logs:
        async with pumping(case.nc, held):
            await submit(case, b"old")
            await until(lambda: held.running == 1)
            await case.js.delete_stream(REQUESTS)
            await provision(case.nc, wanted(case.subjects, ack_wait_seconds=60))
            await submit(case, b"new")
            taken = await case.js.pull_subscribe_bind("p2", REQUESTS)
            [new] = await taken.fetch(1, timeout=PATIENCE_SECONDS)
            held.go.set()
            await until(lambda: [entry for entry in logs if entry["event"] == "settlement_failed"])
            assert not await empty(case)
            await new.ack_sync(timeout=PATIENCE_SECONDS)


async def test_a_consumer_created_anew_under_a_running_job_does_not_hold_up_the_lane(case):
    """It confirms no ack of an older delivery, and delivers the message again."""
    held = Held()
    async with pumping(case.nc, held, settle_seconds=600.0):
        await submit(case, b"old", b"new")
        await until(lambda: held.running == 1)
        await case.js.delete_consumer(REQUESTS, "p2")
        await provision(case.nc, wanted(case.subjects, ack_wait_seconds=60))
        held.go.set()
        await until(lambda: empty(case))
    assert [b"old", b"old", b"new"] == held.bodies
    assert 1 == held.peak


async def test_a_message_that_only_waits_can_give_its_slot_to_another(case):
    held = Held()

    async def waiting(body, headers, delivery):
        if body == b"waits":
            delivery.release_slot()
            delivery.release_slot()
        return await held(body, headers, delivery)

    async with pumping(case.nc, waiting):
        await submit(case, b"waits", b"a", b"b")
        await until(lambda: held.running == 2)
        await asyncio.sleep(0.2)
        assert [b"waits", b"a"] == held.bodies
        held.go.set()
        await until(lambda: empty(case))
        assert 2 == held.peak
