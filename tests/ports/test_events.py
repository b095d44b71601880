"""Events in memory, on one server, and on three."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import timedelta
from functools import partial
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.analysis import AnalysisResult, HumanReviewReason, Status
from schemas.audit import AuditEvent
from schemas.failure import DeadLetter, ValidationFailure
from schemas.subjects import Header, request_key
from tests.fakes.memory_nats import MemoryEvents
from tests.fakes.messages import NOON, dead, new_id, refused, resumed_event, review_result
from tests.nats_servers import connect, provisioned
from worker.adapters.nats.publish import NatsEvents, header_value
from worker.adapters.nats.stream import FencedStream
from worker.domain.audit.record import record_of
from worker.domain.values.errors import Unavailable


class MemoryHarness:
    def __init__(self):
        self.events = MemoryEvents()

    async def results(self, result):
        """All that were published for its request, in order."""
        return [each for each in self.events.told if each.request_key == result.request_key]

    async def audits(self, key):
        return [event for event in self.events.audits if event.request_key == key]

    async def rejections(self, origin_sequence):
        return [f for f in self.events.rejections if f.origin_sequence == origin_sequence]

    async def dead_letters(self, origin_sequence):
        return [(d, body) for d, body in self.events.dead_letters if d.origin_sequence == origin_sequence]


class NatsHarness:
    """Other tests on the same server may have left any messages, even invalid ones."""

    def __init__(self, case):
        self.case, self.events = case, NatsEvents(partial(FencedStream, case.nc), case.subjects)

    async def results(self, result):
        subject = self.case.subjects.result(result.kind, result.request_key)
        found = await self.case.messages("RCA_RESULTS", subject)
        return [AnalysisResult.model_validate_json(m.data) for m in found]

    async def audits(self, key):
        found = await self.case.messages("RCA_AUDIT", "rca.audit.>")
        events = [AuditEvent.model_validate_json(m.data) for m in found if key.encode() in m.data]
        return [event for event in events if event.request_key == key]

    async def rejections(self, origin_sequence):
        found = await self.case.messages("RCA_VALIDATION", "rca.validation.>")
        ours = [m for m in found if str(origin_sequence).encode() in m.data]
        failures = [ValidationFailure.model_validate_json(m.data) for m in ours]
        return [f for f in failures if f.origin_sequence == origin_sequence]

    async def dead_letters(self, origin_sequence):
        found = await self.case.messages("RCA_DLQ", "rca.dlq.>")
        letters = [(letter_of(m.headers), m.data) for m in found]
        return [(d, body) for d, body in letters if d.origin_sequence == origin_sequence]


def letter_of(headers):
    value = {name: unquote(text) for name, text in headers.items()}
    return DeadLetter(
        reason=value[Header.REASON],
        origin_stream=value[Header.ORIGIN_STREAM],
        origin_sequence=int(value[Header.ORIGIN_SEQUENCE]),
        origin_subject=value[Header.ORIGIN_SUBJECT],
        deliveries=int(value[Header.DELIVERIES]),
        error=value[Header.ERROR],
    )


@pytest.fixture(params=["memory", "one server", pytest.param("three servers", marks=pytest.mark.slow)])
def event_servers(request):
    names = {"one server": "shared_server", "three servers": "shared_cluster"}
    return request.getfixturevalue(names[request.param]) if request.param in names else []


@pytest.fixture
async def harness(event_servers):
    if not event_servers:
        yield MemoryHarness()
        return
    async with provisioned(event_servers) as case:
        yield NatsHarness(case)


def new_sequence():
    return random.randrange(1, 2**53)


async def test_a_second_result_is_not_stored(harness):
    first = review_result(new_id(), analysis="first")
    other = first.model_copy(update={"analysis": "other", "request_digest": "0" * 64})
    assert first == await harness.events.result(first)
    assert first == await harness.events.result(first)
    assert first == await harness.events.result(other)


async def test_racers_all_get_the_one_result(harness):
    remediation_id = new_id()
    racers = [review_result(remediation_id, analysis=f"racer {n}") for n in range(20)]
    stored = await asyncio.gather(*(harness.events.result(result) for result in racers))
    assert len({result.analysis for result in stored}) == 1
    assert stored[0] in racers


async def test_incident_and_recovery_of_one_remediation_are_apart(harness):
    remediation_id = new_id()
    results = [review_result(remediation_id, attempt) for attempt in (None, 1, 2)]
    for result in results:
        assert result == await harness.events.result(result)


def failed_result(remediation_id: str) -> AnalysisResult:
    return review_result(
        remediation_id,
        status=Status.FAILED,
        human_review_reason=HumanReviewReason.INVESTIGATION_INCONCLUSIVE,
    )


async def test_a_replay_replaces_a_failed_result_once(harness):
    remediation_id = new_id()
    failed = await harness.events.result(failed_result(remediation_id))
    racers = [review_result(remediation_id, analysis=f"replay {n}") for n in range(10)]
    assert failed == await harness.events.result(racers[0])  # not asked to replace
    replays = await asyncio.gather(*(harness.events.result(r, replace_failed=True) for r in racers))
    assert len({result.analysis for result in replays}) == 1
    assert replays[0] in racers
    late = review_result(remediation_id, analysis="late")
    assert replays[0] == await harness.events.result(late, replace_failed=True)


async def test_a_replay_of_a_request_without_result_publishes_it(harness):
    result = review_result(new_id())
    assert result == await harness.events.result(result, replace_failed=True)


async def test_a_repeated_replay_publishes_nothing_twice(harness):
    remediation_id = new_id()
    first = await harness.events.result(failed_result(remediation_id))
    again = first.model_copy(update={"analysis": "failed again"})
    for _ in range(3):  # such as after a crash before the ack
        assert again == await harness.events.result(again, replace_failed=True)
    assert [first, again] == await harness.results(first)


async def test_an_audit_event_published_again_is_there_once(harness):
    remediation_id = new_id()
    events = [resumed_event(remediation_id, new_id(), sequence) for sequence in (1, 2, 3)]
    for event in [*events, *events]:  # a successor publishes all of them again
        await harness.events.audit(record_of(event))
    assert events == await harness.audits(request_key(remediation_id))


async def test_refused_messages_and_answers_are_there_once(harness):
    sequence, key = new_sequence(), request_key(new_id())
    message = refused(sequence)
    answers = [refused(sequence, request_key=key, attempt=attempt) for attempt in (1, 2)]
    for failure in [message, *answers, message, *answers]:
        await harness.events.reject(failure)
    assert [message, *answers] == await harness.rejections(sequence)


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00", b"{" * 100_000])
async def test_a_dead_letter_holds_the_raw_body(harness, body):
    letter = dead(new_sequence(), error="bad: é\r\nRca-Reason: other\x00 100 %")
    await harness.events.dead_letter(letter, body)
    await harness.events.dead_letter(letter, body)
    assert [(letter, body)] == [(d, b or b"") for d, b in await harness.dead_letters(letter.origin_sequence)]


@given(st.text())
def test_a_header_value_is_printable_ascii_and_can_be_read_back(text):
    value = header_value(text)
    assert all("!" <= character <= "~" and character != '"' for character in value)
    assert text == unquote(value)


# --- on servers only


async def test_cloud_events_headers_say_what_it_is(case):
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    events = NatsEvents(
        partial(FencedStream, case.nc), case.subjects, cluster_name="eu 1/ü", trace=lambda: trace
    )
    result = review_result(f"id.{new_id()} é", 2)
    await events.result(result)
    subject = f"rca.result.recovery.{result.request_key}"
    (message,) = await case.messages("RCA_RESULTS", subject)
    assert json.loads(message.data) == json.loads(result.model_dump_json())
    sent = {k: v for k, v in message.headers.items() if not k.startswith("Nats-")}
    assert sent == {
        "ce-specversion": "1.0",
        "ce-id": header_value(subject),
        "ce-source": header_value("/rca-worker/eu%201%2F%C3%BC"),
        "ce-type": "rca.recovery.result.v1",
        "ce-subject": header_value(result.request_key),
        "Content-Type": "application/json",
        **trace,
    }
    assert message.headers["Nats-Msg-Id"] == subject
    assert list(trace) == ["traceparent"]  # nats-py writes into the headers it is given


@pytest.mark.parametrize(
    ("failure", "subject", "event_type", "message_id"),
    [
        ({}, "rca.validation.request", "rca.validation.request.v1", "RCA_REQUESTS:{n}:invalid"),
        (
            {"request_key": "k{n}", "attempt": 2},
            "rca.validation.response.k{n}",
            "rca.validation.response.v1",
            "k{n}:RCA_REQUESTS:{n}:2",
        ),
    ],
)
async def test_rejections_have_their_own_subjects_and_ids(case, failure, subject, event_type, message_id):
    n = new_sequence()
    fields = {k: v.format(n=n) if isinstance(v, str) else v for k, v in failure.items()}
    await NatsEvents(partial(FencedStream, case.nc), case.subjects).reject(refused(n, **fields))
    message = (await case.messages("RCA_VALIDATION", subject.format(n=n)))[-1]
    assert message.headers["Nats-Msg-Id"] == message_id.format(n=n)
    assert message.headers["ce-type"] == event_type
    assert message.headers.get("ce-subject", "") == fields.get("request_key", "")


@pytest.mark.slow
async def test_a_full_stream_is_unavailable_and_never_success(own_server):
    events = NatsEvents(partial(FencedStream, own_server.nc), own_server.subjects)
    for stream in ("RCA_RESULTS", "RCA_AUDIT", "RCA_DLQ"):
        config = (await own_server.js.stream_info(stream)).config
        await own_server.js.update_stream(config.evolve(max_msgs=1))
    letter = dead(1)
    await events.result(review_result(new_id()))
    await events.audit(record_of(resumed_event("a", new_id())))
    await events.dead_letter(letter, b"")
    hurried = NatsEvents(
        partial(FencedStream, own_server.nc, patience_seconds=2.5), own_server.subjects
    )  # more than one request may take
    said = await asyncio.gather(
        hurried.result(review_result(new_id())),
        hurried.audit(record_of(resumed_event("a", new_id()))),
        hurried.dead_letter(dead(2), b""),
        return_exceptions=True,
    )
    assert [Unavailable] * 3 == [type(each) for each in said]
    assert ["maximum messages" in str(each) for each in said] == [True] * 3


async def test_a_flood_of_rejections_drops_the_oldest(own_server):
    events = NatsEvents(partial(FencedStream, own_server.nc), own_server.subjects)
    config = (await own_server.js.stream_info("RCA_VALIDATION")).config
    await own_server.js.update_stream(config.evolve(max_msgs=1))
    for number in (1, 2):
        await events.reject(refused(number))
    [kept] = await own_server.messages("RCA_VALIDATION", "rca.validation.request")
    assert 2 == json.loads(kept.data)["origin_sequence"]


async def test_a_missing_stream_is_unavailable(own_server):
    events = NatsEvents(partial(FencedStream, own_server.nc, patience_seconds=0.2), own_server.subjects)
    for stream in ("RCA_RESULTS", "RCA_AUDIT"):
        await own_server.js.delete_stream(stream)
    with pytest.raises(Unavailable):
        await events.result(review_result(new_id()))
    with pytest.raises(Unavailable):
        await events.audit(record_of(resumed_event("a", new_id())))


async def test_what_was_published_while_the_server_was_away_arrives_once(own_server):
    events = NatsEvents(partial(FencedStream, own_server.nc), own_server.subjects)
    await own_server.servers[0].kill()
    result, event = review_result(new_id()), resumed_event("a", new_id())
    publishing = asyncio.gather(events.result(result), events.audit(record_of(event)))
    await asyncio.sleep(0.3)
    await own_server.servers[0].start()
    assert result == (await publishing)[0]
    assert (await own_server.count("RCA_RESULTS"), await own_server.count("RCA_AUDIT")) == (1, 1)


async def test_a_closed_connection_is_unavailable_at_once(own_server):
    nc = await connect(own_server.servers)
    events = NatsEvents(partial(FencedStream, nc), own_server.subjects)
    await nc.close()
    with pytest.raises(Unavailable, match="ConnectionClosed"):
        await events.audit(record_of(resumed_event("a", new_id())))


async def test_a_message_above_the_servers_limit_is_refused_and_the_connection_lives(own_server):
    events = NatsEvents(partial(FencedStream, own_server.nc), own_server.subjects)
    limit = own_server.nc.max_payload
    for size in (limit + 1, limit, limit - 10):  # the last one fits only without its headers
        with pytest.raises(ValueError, match="at most"):
            await events.dead_letter(dead(1), bytes(size))
    await events.dead_letter(dead(2), bytes(limit - 2_000))
    assert (await own_server.count("RCA_DLQ"), own_server.nc.stats["reconnects"]) == (1, 0)


async def test_a_message_to_a_recreated_stream_is_no_duplicate(harness):
    """It counts from 1 again, inside the duplicate window of what was said of the one before."""
    sequence = new_sequence()
    for stored_at in (NOON, NOON + timedelta(hours=1)):
        for _ in range(2):
            await harness.events.reject(refused(sequence, origin_stored_at=stored_at))
            letter = dead(sequence).model_copy(update={"origin_stored_at": stored_at})
            await harness.events.dead_letter(letter, b"{}")
    assert 2 == len(await harness.rejections(sequence))
    assert 2 == len(await harness.dead_letters(sequence))
