"""Results in memory, on one server, and on three; and the fence that keeps them single."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest
from nats.js.errors import APIError

from schemas.subjects import request_key
from tests.fakes.memory_nats import MemoryEvents, MemoryResults
from tests.fakes.messages import new_id, review_result
from tests.nats_servers import PATIENCE_SECONDS, connect, provisioned, three_servers
from worker.adapters.nats.publish import NatsEvents, NatsResults, UnreadableResult
from worker.adapters.nats.stream import FencedStream
from worker.app.client import RequestClient
from worker.domain.values.errors import Unavailable


@pytest.fixture(params=["memory", "one server", pytest.param("three servers", marks=pytest.mark.slow)])
def result_servers(request):
    names = {"one server": "shared_server", "three servers": "shared_cluster"}
    return request.getfixturevalue(names[request.param]) if request.param in names else []


def results_of(nc, subjects, **options):
    return NatsResults(FencedStream(nc, subjects.results_stream, **options), subjects)


@pytest.fixture
async def ports(result_servers):
    """Events and Results of the same broker."""
    if not result_servers:
        events = MemoryEvents()
        yield events, MemoryResults(events)
        return
    async with provisioned(result_servers) as case:
        yield NatsEvents(partial(FencedStream, case.nc), case.subjects), results_of(case.nc, case.subjects)


async def test_nothing_is_found_before_anything_is_published(ports):
    _, results = ports
    assert await results.find(request_key(new_id())) is None


async def test_a_published_result_is_found_as_it_was(ports):
    events, results = ports
    result = review_result(f"a.b*>/ é%= {new_id()}", analysis="line\nline é", notes=("x",))
    await events.result(result)
    assert result == await results.find(result.request_key)


async def test_kinds_and_attempts_do_not_answer_for_each_other(ports):
    events, results = ports
    remediation_id = new_id()
    second = review_result(remediation_id, 2)
    await events.result(second)
    assert await results.find(request_key(remediation_id)) is None
    assert await results.find(request_key(remediation_id, 1)) is None
    assert second == await results.find(request_key(remediation_id, 2))


# --- on servers only


async def test_what_cannot_be_read_is_unavailable_and_is_not_answered_again(own_server):
    key = request_key(new_id())
    await own_server.js.publish(f"rca.result.incident.{key}", b'{"from": "a newer version"}')
    with pytest.raises(UnreadableResult):
        await results_of(own_server.nc, own_server.subjects).find(key)
    with pytest.raises(UnreadableResult):
        await RequestClient(own_server.nc, own_server.subjects).stored_result(key)


async def test_a_missing_stream_does_not_look_like_no_result(own_server):
    results = results_of(own_server.nc, own_server.subjects, patience_seconds=0.2)
    await own_server.js.delete_stream("RCA_RESULTS")
    with pytest.raises(Unavailable):
        await results.find("key")
    client = RequestClient(own_server.nc, own_server.subjects)
    assert await client.stored_result("key") is None  # it asks again later


async def test_a_server_that_is_away_is_unavailable(own_server):
    nc = await connect(own_server.servers)
    await own_server.servers[0].kill()
    with pytest.raises(Unavailable):
        await results_of(nc, own_server.subjects, patience_seconds=0.2).find("key")
    await nc.close()


class Answers:
    """A connection that counts what the server says to publishes: proof that a test met what it is about.

    The first `lost` publishes never reach the server.
    """

    def __init__(self, nc, seen, lost=0):
        self._nc, self._seen, self._lost = nc, seen, lost

    def __getattr__(self, name):
        return getattr(self._nc, name)

    def jetstream(self, **options):
        patient = {
            **options,
            "timeout": PATIENCE_SECONDS,
        }  # an answer that came too late would not be counted
        return AnsweredJetStream(self._nc.jetstream(**patient), self._seen, self._lost)


class AnsweredJetStream:
    def __init__(self, js, seen, lost):
        self._js, self._seen, self._lost = js, seen, lost
        self.get_msg = js.get_msg

    async def publish(self, *arguments, **options):
        if self._lost:
            self._lost -= 1
            raise TimeoutError
        try:
            ack = await self._js.publish(*arguments, **options)
        except APIError as e:
            self._seen[str(e.err_code)] += 1
            raise
        self._seen["duplicate" if ack.duplicate else "ok"] += 1
        return ack


async def test_every_refusal_ends_in_the_truth(case):
    seen, connections = Counter(), [await connect(case.servers) for _ in range(6)]
    streams = [FencedStream(Answers(nc, seen), "RCA_RESULTS") for nc in connections]

    async def race(subject, message_ids):
        return await asyncio.gather(
            *(
                streams[n % 6].create(subject, b"%d" % n, msg_id=message_id)
                for n, message_id in enumerate(message_ids)
            )
        )

    for n in range(10):
        for ids in ([f"shared-{new_id()}"] * 40, [new_id() for _ in range(40)]):
            subject = f"rca.result.incident.{new_id()}-{n}"
            stored = await race(subject, ids)
            assert [each.ours for each in stored if each.ours] == [True]
            assert len({(each.sequence, each.body) for each in stored}) == 1
            assert len(await case.messages("RCA_RESULTS", subject)) == 1
    for nc in connections:
        await nc.close()
    assert seen["ok"] == 20
    assert seen["10071"]
    if len(case.servers) == 3:
        assert {"duplicate", "10158", "10164"} <= set(seen)


async def test_a_message_that_is_called_a_duplicate_but_is_gone_is_stored_anew(case):
    seen = Counter()
    subject, message_id = f"rca.result.incident.{new_id()}", new_id()
    stream = FencedStream(Answers(case.nc, seen), "RCA_RESULTS")
    first = await stream.create(subject, b"x", msg_id=message_id)
    await case.js.delete_msg("RCA_RESULTS", first.sequence)
    second = await stream.create(subject, b"x", msg_id=message_id)
    assert (True, True) == (second.ours, second.sequence > first.sequence)
    assert (seen["ok"], seen["duplicate"] > 0) == (2, True)


async def test_only_the_message_named_is_replaced(case):
    subject = f"rca.result.incident.{new_id()}"
    stream = FencedStream(case.nc, "RCA_RESULTS")
    first = await stream.create(subject, b"first", msg_id=new_id())
    second = await stream.create(subject, b"second", msg_id=new_id(), replacing=first.sequence)
    late = await stream.create(subject, b"late", msg_id=new_id(), replacing=first.sequence)
    assert (second.ours, late.ours, late.body) == (True, False, b"second")


async def test_a_replacement_that_was_lost_is_sent_again(case):
    subject, seen = f"rca.result.incident.{new_id()}", Counter()
    first = await FencedStream(case.nc, "RCA_RESULTS").create(subject, b"first", msg_id=new_id())
    lossy = FencedStream(Answers(case.nc, seen, lost=2), "RCA_RESULTS")
    second = await lossy.create(subject, b"second", msg_id=new_id(), replacing=first.sequence)
    assert (second.ours, second.body, seen["ok"]) == (True, b"second", 1)


async def test_the_wrong_stream_is_told_at_once(case):
    """A mistake in the configuration; waiting doesn't help."""
    with pytest.raises(Unavailable, match="RCA_RESULTS stores"):
        await FencedStream(case.nc, "RCA_AUDIT").create("rca.result.incident.x", b"", msg_id=new_id())


async def test_the_fence_holds_without_a_message_id(case):
    """Also when the same bytes are sent again while the first copy is on its way."""
    for _ in range(10):
        subject, stream = f"rca.result.incident.{new_id()}", FencedStream(case.nc, "RCA_RESULTS")
        stored = await asyncio.gather(*(stream.create(subject, b"%d" % (n % 2)) for n in range(8)))
        assert 1 == sum(message.ours for message in stored)
        assert 1 == len({(message.body, message.sequence) for message in stored})
        assert 1 == len(await case.messages("RCA_RESULTS", subject))


@pytest.mark.slow
async def test_results_survive_the_death_of_the_leader(tmp_path):
    async with three_servers(tmp_path) as servers, provisioned(servers) as case:
        events, results = (
            NatsEvents(partial(FencedStream, case.nc), case.subjects),
            results_of(case.nc, case.subjects),
        )
        before, after = review_result(new_id()), review_result(new_id())
        await events.result(before)
        info = await case.js.stream_info("RCA_RESULTS")
        (leader,) = [server for server in servers if server.name == info.cluster.leader]
        await leader.kill()
        assert before == await events.result(before.model_copy(update={"analysis": "again"}))
        assert after == await events.result(after)
        assert before == await results.find(before.request_key)
        assert await case.count("RCA_RESULTS") == 2
