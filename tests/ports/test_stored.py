"""Requests, Cancellations and dead letters, read without a consumer: in memory, on one server, and on three."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from schemas.subjects import REPLAY_HEADER, Header, kv_key, request_key
from tests.fakes.memory_nats import MemoryCancellations, MemoryRequests
from tests.fakes.messages import dead, new_id, refused
from tests.nats_servers import PATIENCE_SECONDS, connect
from worker.adapters.nats.publish import NatsEvents
from worker.adapters.nats.stored import NatsCancellations, NatsDeadLetters, NatsRequests
from worker.adapters.nats.stream import FencedStream
from worker.app.client import RequestClient
from worker.domain.values.delivery import MessageId
from worker.domain.values.errors import Unavailable
from worker.domain.values.ports import StoredRequest

BODY = b'{"remediation_id": "rr-\xc3\xa9"}'


def stream(case, name, **options):
    return FencedStream(case.nc, name, **options)


def letters_of(case):
    return NatsDeadLetters(stream(case, "RCA_DLQ"), stream(case, "RCA_REQUESTS"), case.subjects)


def cancellations_of(case):
    return NatsCancellations(stream(case, "KV_RCA_CANCEL"))


# -- Requests


async def test_a_request_is_read_as_it_is_stored_and_removed(case):
    ack = await case.js.publish("rca.request.incident.p1", BODY, headers={"x": "y"})
    requests = NatsRequests(stream(case, "RCA_REQUESTS"), case.subjects)
    found = await requests.read(ack.seq)
    assert ("rca.request.incident.p1", ack.seq, BODY, "y") == (
        found.subject,
        found.sequence,
        found.body,
        found.headers["x"],
    )
    assert timedelta(0) == found.stored_at.utcoffset()
    assert abs(datetime.now(UTC) - found.stored_at) < timedelta(minutes=1)
    await case.js.publish("rca.request.recovery", b"2")
    assert [BODY, b"2"] == [(await requests.after(ack.seq + n)).body for n in (-1, 0)]
    assert await requests.after(ack.seq + 1) is None
    await requests.remove(MessageId(ack.seq))
    assert await requests.read(ack.seq) is None
    await requests.remove(MessageId(ack.seq))  # again is no error


async def test_in_memory_a_request_is_read_and_removed_too():
    stored = StoredRequest("rca.request.incident", 7, datetime.now(UTC), BODY)
    requests = MemoryRequests({7: stored})
    assert (stored, None) == (await requests.read(7), await requests.read(8))
    assert (stored, None) == (await requests.after(6), await requests.after(7))
    await requests.remove(MessageId(7))
    assert await requests.read(7) is None
    await requests.remove(MessageId(7))


async def test_a_request_that_was_settled_is_not_there(case):
    ack = await case.js.publish("rca.request.incident.p3", BODY)
    puller = await case.js.pull_subscribe_bind(consumer="p3", stream="RCA_REQUESTS")
    while True:
        [message] = await puller.fetch(1, timeout=PATIENCE_SECONDS)
        await message.ack_sync(timeout=PATIENCE_SECONDS)
        if message.metadata.sequence.stream == ack.seq:
            break
    requests = NatsRequests(stream(case, "RCA_REQUESTS"), case.subjects)
    for _ in range(1_000):  # replicas need a moment
        if await requests.read(ack.seq) is None:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it is still there")


async def test_a_missing_stream_does_not_look_like_a_request_that_is_gone(own_server):
    await own_server.js.delete_stream("RCA_REQUESTS")
    requests = NatsRequests(stream(own_server, "RCA_REQUESTS", patience_seconds=0.2), own_server.subjects)
    with pytest.raises(Unavailable):
        await requests.read(1)
    with pytest.raises(Unavailable):
        await requests.remove(MessageId(1))


async def test_stranded_requests_are_those_that_no_consumer_delivers_again(own_server):
    """Exhausted ones below one that is still held, and above it once nothing is outstanding."""
    requests = NatsRequests(stream(own_server, "RCA_REQUESTS"), own_server.subjects)
    assert [] == await requests.stranded()
    config = (await own_server.js.consumer_info("RCA_REQUESTS", "p2")).config
    await own_server.js.add_consumer("RCA_REQUESTS", config.evolve(max_deliver=1, ack_wait=60.0))
    for number in range(4):
        await own_server.js.publish("rca.request.incident", b"%d" % number)
    puller = await own_server.js.pull_subscribe_bind(consumer="p2", stream="RCA_REQUESTS")
    first, second, third = [(await puller.fetch(1, timeout=PATIENCE_SECONDS))[0] for _ in range(3)]
    await second.nak(delay=0.01)
    await third.nak(delay=0.01)
    for _ in range(1_000):  # the server notices when somebody pulls
        with contextlib.suppress(TimeoutError):
            await (await puller.fetch(1, timeout=0.2))[0].ack_sync(timeout=PATIENCE_SECONDS)
        if (await own_server.js.consumer_info("RCA_REQUESTS", "p2")).num_ack_pending == 1:
            break
    assert [] == await requests.stranded()  # the first is held: who can say whether the others are, too
    await first.ack_sync(timeout=PATIENCE_SECONDS)
    assert [b"1", b"2"] == [found.body for found in await requests.stranded()]


# -- Cancellations


async def test_only_the_cancelled_request_is(case):
    cancellations = cancellations_of(case)
    key, other = (request_key(f"a.b/{new_id()}", attempt) for attempt in (None, 2))
    assert await cancellations.cancelled(key) is False
    await cancellations.cancel(key, at=datetime.now(UTC), token=new_id())
    await cancellations.cancel(key, at=datetime.now(UTC), token=new_id())
    assert (True, False) == (await cancellations.cancelled(key), await cancellations.cancelled(other))


async def test_in_memory_only_the_cancelled_request_is_too():
    cancellations = MemoryCancellations({"rr-1"})
    assert (True, False) == (await cancellations.cancelled("rr-1"), await cancellations.cancelled("rr-2"))


async def test_any_client_can_set_a_flag_and_take_it_back(case):
    bucket, cancellations = await case.js.key_value("RCA_CANCEL"), cancellations_of(case)
    key = request_key(f"a b.c{new_id()}")
    await bucket.put(kv_key(key), b"please")
    assert await cancellations.cancelled(key) is True
    await bucket.delete(kv_key(key))
    assert await cancellations.cancelled(key) is False
    await cancellations.cancel(key, at=datetime.now(UTC), token=new_id())
    assert await cancellations.cancelled(key) is True


async def test_a_server_that_is_away_does_not_look_like_no_flag(own_server):
    nc = await connect(own_server.servers)
    log = FencedStream(nc, "KV_RCA_CANCEL", patience_seconds=0.2)
    await own_server.servers[0].kill()
    with pytest.raises(Unavailable):
        await NatsCancellations(log).cancelled("key")
    await nc.close()


# -- Dead letters


@pytest.fixture
async def buried(own_server):
    """A server with three dead letters; and something else among them."""
    events = NatsEvents(partial(FencedStream, own_server.nc), own_server.subjects)
    await events.dead_letter(dead(1, "first\nline é"), BODY)
    advisory = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.RCA_REQUESTS.p0"
    await own_server.js.publish(advisory, b"{}")
    await events.dead_letter(dead(2), b"\xff\xfe")
    await own_server.js.publish("rca.dlq.by_hand", b"")
    return own_server


async def test_letters_are_listed_oldest_first_with_their_facts(buried):
    found = [letter async for letter in letters_of(buried).all()]
    assert [
        (1, "internal_error", "first\nline é", "rca.request.incident", 1, 3, BODY),
        (3, "internal_error", "boom", "rca.request.incident", 2, 3, b"\xff\xfe"),
        (4, "", "", "", 0, 0, b""),
    ] == [(f.id, f.reason, f.error, f.origin_subject, f.origin_sequence, f.deliveries, f.body) for f in found]


async def test_what_is_no_letter_is_not_read_as_one(buried):
    letters = letters_of(buried)
    assert (await letters.read(3)).body == b"\xff\xfe"
    assert (None, None) == (await letters.read(2), await letters.read(9))


async def test_a_header_beyond_ascii_is_no_error(case):
    headers = {**dead(1).headers(), Header.ERROR: "é"}
    ack = await case.js.publish("rca.dlq.internal_error", b"{}", headers=headers)
    letter = await letters_of(case).read(ack.seq)
    assert ("internal_error", True) == (letter.reason, bool(letter.error))
    await letters_of(case).drop(letter)


async def test_a_letter_is_sent_again_as_it_was_and_forgotten(buried):
    letters = letters_of(buried)
    letter = await letters.read(1)
    await letters.replay(letter)
    await letters.replay(letter)  # by two people at once
    assert [3, 4] == [found.id async for found in letters.all()]
    [request] = await buried.messages("RCA_REQUESTS", "rca.request.incident")
    assert (BODY, "1") == (request.data, request.headers[REPLAY_HEADER])


async def test_a_letter_that_is_dropped_is_gone(buried):
    letters = letters_of(buried)
    await letters.drop(await letters.read(3))
    assert [1, 4] == [found.id async for found in letters.all()]
    assert 0 == await buried.count("RCA_REQUESTS")


async def test_a_letter_that_the_full_queue_does_not_take_stays(buried):
    config = (await buried.js.stream_info("RCA_REQUESTS")).config
    await buried.js.update_stream(config.evolve(max_msgs=1))
    await buried.js.publish("rca.request.incident", b"x")
    letters = NatsDeadLetters(
        stream(buried, "RCA_DLQ"), stream(buried, "RCA_REQUESTS", patience_seconds=0.2), buried.subjects
    )
    letter = await letters.read(1)
    with pytest.raises(Unavailable):
        await letters.replay(letter)
    assert letter == await letters.read(1)


# -- The newest first


async def test_the_newest_come_first_across_gaps_and_other_subjects(case):
    log = stream(case, "RCA_DLQ")
    for name, count in (("kept", 3), ("deleted", 100), ("kept", 40), ("other", 1)):
        for _ in range(count):
            await log.add(f"rca.dlq.gaps.{name}", b"", msg_id=new_id())
    stored = [message async for message in log.messages(await log.extent(datetime.now(UTC)))]
    expected = [message.sequence for message in stored if message.subject == "rca.dlq.gaps.kept"][::-1]
    assert 43 == len(expected)

    async def sequences(*subject, **options):
        return [message.sequence async for message in log.newest_first(*subject, **options)]

    assert expected == await sequences("rca.dlq.gaps.kept")
    await case.js.purge_stream("RCA_DLQ", subject="rca.dlq.gaps.deleted")
    assert [expected[0] + 1, *expected] == await sequences("rca.dlq.gaps.>")
    assert [expected[0] + 1, *expected] == (await sequences())[:44]
    assert expected[5:] == await sequences("rca.dlq.gaps.kept", before=expected[4])
    assert [] == await sequences("rca.dlq.gaps.kept", before=1)
    await case.js.purge_stream("RCA_DLQ", subject="rca.dlq.gaps.>")


async def test_an_old_rejection_is_found_beyond_gaps(case):
    body = refused(41_507).model_dump_json().encode()
    await case.js.publish("rca.validation.request", body)
    others = [await case.js.publish("rca.validation.response.rr-gap", b"{}") for _ in range(20)]
    await case.js.publish("rca.validation.request", b"of a newer version")
    await case.js.delete_msg("RCA_VALIDATION", others[-1].seq)
    client = RequestClient(case.nc, case.subjects)
    assert 41_507 == (await client.stored_rejection(41_507)).origin_sequence
    assert await client.stored_rejection(41_508) is None
