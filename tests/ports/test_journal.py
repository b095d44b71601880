"""Journal in memory, on one server, and on three."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from schemas.subjects import request_key
from tests.fakes.earlier_journal import chained_body, earlier_body
from tests.fakes.memory_nats import MemoryJournal
from tests.fakes.messages import new_id, resumed_event
from tests.nats_servers import connect, provisioned
from worker.adapters.nats.journal import NatsJournal
from worker.adapters.nats.journal_format import (
    CHAINED,
    COMPACT,
    INLINE_BYTES,
    PACKED,
    PLAIN,
    STEP_BYTES,
    WORDS,
)
from worker.adapters.nats.stream import FencedStream
from worker.domain.audit.record import record_of
from worker.domain.journal.steps import FAILED, RELEASED, count, done, flaw, usable
from worker.domain.values.errors import LostClaim, Unavailable
from worker.domain.values.ports import Step
from worker.domain.values.step_kinds import BEGIN, CLAIM, END, FINISHED, UNREADABLE


def json_bytes():
    """Heads that are almost right."""
    value = st.none() | st.booleans() | st.integers() | st.text()
    names = st.sampled_from(["kind", "notes", "size", "sha256", "object", "events", "lines", "since"])
    formats = st.sampled_from([PLAIN, PACKED, CHAINED, COMPACT])
    return st.builds(
        lambda v, head: json.dumps({"v": v, **head}).encode(), formats, st.dictionaries(names, value)
    )


async def paid(run, kind, call):
    await run.append(CLAIM, what=kind)
    await run.append(kind, await call())


def journal_on(case, *, patience_seconds=30.0):
    stream = f"KV_{case.subjects.journal_bucket}"
    return NatsJournal(FencedStream(case.nc, stream, patience_seconds=patience_seconds), case.nc)


@pytest.fixture(params=["memory", "one server", pytest.param("three servers", marks=pytest.mark.slow)])
def journal_servers(request):
    names = {"one server": "shared_server", "three servers": "shared_cluster"}
    return request.getfixturevalue(names[request.param]) if request.param in names else []


@pytest.fixture
async def journal(journal_servers):
    if not journal_servers:
        yield MemoryJournal()
        return
    async with provisioned(journal_servers) as case:
        yield journal_on(case)


async def test_steps_come_back_in_order_with_what_they_held(journal):
    key = request_key(new_id())
    first = await journal.open(key, "first")
    assert list(first.past) == []
    await first.append(BEGIN, alone=True)
    for number in range(12):  # more than nine: 10 comes after 9, not after 1
        await first.append("llm", b"\x00\n\xff" + b"%d" % number, model="m", call=number)
    await first.append(END, outcome=RELEASED, why="é")
    past = (await journal.open(key, "second")).past
    assert [step.number for step in past] == list(range(1, 15))
    assert [step.kind for step in past] == [BEGIN, *["llm"] * 12, END]
    assert {step.run for step in past} == {"first"}
    assert [step.data for step in past[1:13]] == [b"\x00\n\xff" + b"%d" % n for n in range(12)]
    assert [dict(past[0].notes), dict(past[3].notes), dict(past[13].notes)] == [
        {"alone": True},
        {"model": "m", "call": 2},
        {"outcome": RELEASED, "why": "é"},
    ]


async def test_a_new_run_fences_the_old_one_before_it_spends(journal):
    key, calls = request_key(new_id(), 2), []

    async def call() -> bytes:
        calls.append(1)
        return b"answer"

    old = await journal.open(key, "old")
    await old.append(BEGIN)
    await paid(old, "llm", call)
    new = await journal.open(key, "new")
    assert [step.data for step in done(new, "llm")] == [b"answer"]
    assert (count(new.past).deaths, count(new.past).suspect) == (1, True)
    await new.append(BEGIN)
    with pytest.raises(LostClaim):
        await paid(old, "llm", call)
    with pytest.raises(LostClaim):
        await old.append(END, outcome=RELEASED)
    assert len(calls) == 1
    await paid(new, "llm", call)
    assert len(calls) == 2


async def test_of_two_runs_that_opened_together_one_begins(journal):
    key = request_key(new_id())
    runs = [await journal.open(key, f"run{n}") for n in range(20)]
    outcomes = await asyncio.gather(*(run.append(BEGIN) for run in runs), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes if outcome is not None] == [LostClaim] * 19
    winner = outcomes.index(None)
    assert [step.run for step in (await journal.open(key, "look")).past] == [f"run{winner}"]


NOTES = {"digest": "d", "message": 7}


async def test_of_a_finished_request_one_step_is_left_which_fences_every_older_run(journal):
    key, other = request_key(new_id()), request_key(new_id(), 1)
    for each in (key, other):
        await (await journal.open(each, "first")).append(BEGIN)
    stale = [await journal.open(key, "stale")]
    await stale[0].append("llm", b"paid")
    last = await journal.open(key, "last")
    await last.append(BEGIN)
    stale.append(await journal.open(key, "as far as the last"))
    await last.append("tools", os.urandom(INLINE_BYTES + 1))
    await last.append("result", b"{}")
    await last.finish(**NOTES)
    [left] = (await journal.open(key, "look")).past
    assert (FINISHED, "last", NOTES) == (left.kind, left.run, dict(left.notes))
    for run in stale:
        with pytest.raises(LostClaim):
            await run.append(CLAIM, what="llm")
        with pytest.raises(LostClaim):
            await run.finish(**NOTES)
    assert [FINISHED] == [step.kind for step in (await journal.open(key, "look")).past]
    assert [BEGIN] == [step.kind for step in (await journal.open(other, "look")).past]


async def test_finishing_again_changes_nothing_and_a_new_run_goes_on_behind_it(journal):
    key = request_key(new_id())
    run = await journal.open(key, "run")
    await run.append(BEGIN)
    await run.finish(**NOTES)
    again = await journal.open(key, "again")
    await again.finish(digest="other")
    assert [NOTES] == [dict(step.notes) for step in (await journal.open(key, "look")).past]
    await again.append(BEGIN)
    await again.append("result", b"{}")
    await again.finish(digest="new")
    assert [{"digest": "new"}] == [dict(step.notes) for step in (await journal.open(key, "look")).past]


async def test_lists_of_similar_keys_do_not_mix(journal):
    stem = new_id()
    keys = [request_key(stem), request_key(stem, 1), request_key(f"{stem}.1"), request_key(f"{stem}>* %=é")]
    for key in keys:
        await (await journal.open(key, "run")).append("llm", key.encode())
    for key in keys:
        assert [step.data for step in (await journal.open(key, "look")).past] == [key.encode()]


async def test_large_steps_come_back_whole(journal):
    key = request_key(new_id())
    sizes = [0, INLINE_BYTES, INLINE_BYTES + 1, 1_000_000]
    run = await journal.open(key, "run")
    bodies = [os.urandom(size) for size in sizes]
    for body in bodies:
        await run.append("tools", body)
    assert [step.data for step in (await journal.open(key, "look")).past] == bodies


async def test_racing_workers_never_record_a_step_twice(journal):
    key, paid_for, lost = request_key(new_id()), [], []

    async def attempt(name: str) -> bool:
        run = await journal.open(key, name)
        try:
            await run.append(BEGIN)
            for number in range(len(done(run, "llm")), 5):

                async def call(number: int = number) -> bytes:
                    paid_for.append(number)
                    await asyncio.sleep(0.01)
                    return b"%d" % number

                await paid(run, "llm", call)
        except LostClaim:
            lost.append(name)
            return False
        return True

    async def restless(worker: str) -> None:
        for n in range(4):
            await attempt(f"{worker}{n}")
            await asyncio.sleep(0.02 * n)

    await asyncio.gather(restless("a"), restless("b"))
    assert await attempt("undisturbed")
    answers = [step.data for step in done(await journal.open(key, "look"), "llm")]
    assert answers == [b"%d" % number for number in range(5)]
    assert len(paid_for) - len(answers) <= len(
        lost
    )  # at most the outstanding call of each run that was fenced


# --- on servers only


async def test_an_append_that_was_cancelled_after_the_server_had_it_is_found(case):
    journal, key = journal_on(case), request_key(new_id())
    run = await journal.open(key, "run")
    await run.append(BEGIN)
    twin = await journal.open(key, "run")  # stands at step 2 as well
    await run.append(CLAIM, what="llm")
    await twin.append(END, outcome=RELEASED)
    assert [step.kind for step in (await journal.open(key, "look")).past] == [BEGIN, CLAIM, END]


async def test_a_claim_whose_ack_was_lost_is_worth_nothing_once_another_run_has_begun(case):
    """A server that was away hands the request out again before the first run hears that its claim was stored."""
    key, journal = request_key(new_id()), journal_on(case)
    run = await journal.open(key, "stale")
    await run.append(BEGIN)
    await journal.create(key, Step(2, CLAIM, "stale", b"", {"what": "llm"}), run._after, run._written)
    await (await journal.open(key, "next")).append(BEGIN)
    with pytest.raises(LostClaim, match="another run has gone on"):
        await run.append(CLAIM, what="llm")


async def test_a_claim_whose_ack_was_lost_holds_while_nobody_else_has_begun(case):
    key, journal = request_key(new_id()), journal_on(case)
    run = await journal.open(key, "run")
    await journal.create(key, Step(1, CLAIM, "run", b"", {"what": "llm"}), 0)
    await run.append(CLAIM, what="llm")
    assert [CLAIM] == [step.kind for step in (await journal.open(key, "look")).past]


async def test_the_bucket_can_be_read_by_any_client(case):
    key = request_key("a.b/c-" + new_id(), 2)
    await (await journal_on(case).open(key, "run")).append("llm", b"answer", call=1)
    bucket = await case.js.key_value(case.subjects.journal_bucket)
    entry = await bucket.get(f"{key.replace('%', '=')}.1")
    head, _, content = (entry.value or b"").partition(b"\n")
    shown = {"v": COMPACT, "kind": "llm", "run": "run", "notes": {"call": 1}}
    assert shown == json.loads(head)
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS, zdict=WORDS)
    assert (hashlib.sha256(b"answer").digest()[:8], b"answer") == (
        content[:8],
        unpacker.decompress(content[8:]),
    )


def stored_step(data, **more):
    """A step with its data behind the head as it is, as earlier versions write it."""
    digest = hashlib.sha256(data).hexdigest()
    head = {"v": 2, "kind": "llm", "run": "old", "notes": {}, "size": len(data), "sha256": digest, **more}
    return json.dumps(head).encode() + b"\n" + data


async def test_steps_of_earlier_versions_are_continued_from(case):
    """In a rolling upgrade nothing is lost or paid for twice."""
    paid_for = [b"short", b"a long answer. " * 1_000, b"another answer. " * 1_000]
    events = [record_of(resumed_event("r", new_id(), n)) for n in (1, 2)]
    earlier = [Step(n + 1, "llm", "old", paid_for[n], {"call": n}, (events[n],)) for n in (0, 1)]
    for write in (earlier_body, lambda step: chained_body(step, earlier[: step.number - 1])):
        key = request_key(new_id())
        for step in earlier:
            subject = f"$KV.{case.subjects.journal_bucket}.{key}.{step.number}"
            await case.js.publish(subject, write(step))
        run = await journal_on(case).open(key, "new")
        await run.append(BEGIN)
        await run.append("llm", paid_for[2])
        past = (await journal_on(case).open(key, "look")).past
        assert ["", earlier, BEGIN, paid_for[2]] == [flaw(past), list(past[:2]), past[2].kind, past[3].data]


async def stored_bodies(case, key):
    subject = f"$KV.{case.subjects.journal_bucket}.{key}.*"
    return [message.data for message in await case.messages(f"KV_{case.subjects.journal_bucket}", subject)]


async def test_a_step_that_repeats_an_earlier_one_of_its_run_is_short(case):
    key, data = request_key(new_id()), os.urandom(5_000)
    run = await journal_on(case).open(key, "run")
    for _ in range(3):
        await run.append("llm", data)
    first, *others = map(len, await stored_bodies(case, key))
    assert (True, True) == (first > 5_000, max(others) < 300)
    assert [data] * 3 == [step.data for step in (await journal_on(case).open(key, "look")).past]


async def test_what_a_run_writes_is_read_without_the_steps_of_earlier_runs(case):
    """With those unreadable, a run starts afresh, and must not be lost with them."""
    key, data, stream = request_key(new_id()), os.urandom(5_000), f"KV_{case.subjects.journal_bucket}"
    for name in ("first", "second"):
        run = await journal_on(case).open(key, name)
        await run.append(BEGIN, afresh=True)
        await run.append("llm", data)
    await case.js.purge_stream(stream, subject=f"$KV.{case.subjects.journal_bucket}.{key}.1")
    past = (await journal_on(case).open(key, "look")).past
    assert [UNREADABLE, UNREADABLE, BEGIN, "llm"] == [step.kind for step in past]
    assert "step 2 of 4: it continues a step that cannot be read" == past[1].notes["why"]
    assert [BEGIN, "llm"] == [step.kind for step in usable(past)]


async def test_runs_are_counted_where_the_rest_cannot_be_read(case):
    """A request that kills its process must not start again without end because its journal has a gap."""
    key, bucket = request_key(new_id()), case.subjects.journal_bucket
    for name in ("first", "second"):
        run = await journal_on(case).open(key, name)
        await run.append(BEGIN, alone=True)
        await run.append("opening", b"what is known")
        await run.append("tools", b"what is known, and more")
        await run.append(END, outcome=FAILED)
    for number in (2, 6):
        await case.js.purge_stream(f"KV_{bucket}", subject=f"$KV.{bucket}.{key}.{number}")
    past = (await journal_on(case).open(key, "look")).past
    assert [BEGIN, UNREADABLE, UNREADABLE, END] * 2 == [step.kind for step in past]
    assert (2, 0) == (count(past).failures, count(past).deaths)


async def test_a_cancelled_append_that_was_stored_breaks_no_step_after_it(case):
    """The run does not know what is stored in its place, so the next step goes without a dictionary."""
    key, data = request_key(new_id()), [os.urandom(3_000) for _ in range(3)]
    run = await journal_on(case).open(key, "run")
    await run.append(BEGIN)
    twin = await journal_on(case).open(key, "run")
    await twin.append("llm", data[0])
    for body in (data[1], data[1], data[2]):
        await run.append("tools", body)
    past = (await journal_on(case).open(key, "look")).past
    assert [b"", data[0], data[1], data[1], data[2]] == [step.data for step in past]


@pytest.mark.parametrize("kind", [BEGIN, END, FINISHED])
async def test_every_version_can_read_which_runs_there_were(case, kind):
    key, events = request_key(new_id()), [record_of(resumed_event("r", new_id()))]
    run = await journal_on(case).open(key, "run")
    await run.append("llm", b"x" * 2_000)
    await run.append(kind, events=events)
    head, *content = (await stored_bodies(case, key))[1].split(b"\n")
    digests = [hashlib.sha256(body).hexdigest() for body in (b"", events[0].body)]
    assert {
        "v": PLAIN,
        "kind": kind,
        "run": "run",
        "notes": {},
        "size": 0,
        "sha256": digests[0],
        "object": "",
        "events": [{"sequence": 1, "sha256": digests[1]}],
    } == json.loads(head)
    assert [events[0].body, b""] == content


async def test_a_step_above_the_limit_is_refused(case):
    run = await journal_on(case).open(request_key(new_id()), "run")
    with pytest.raises(ValueError, match="at most"):
        await run.append("tools", bytes(STEP_BYTES + 1))


async def test_racers_with_large_steps_leave_one(case):
    journal, key, big = journal_on(case), request_key(new_id()), os.urandom(400_000)
    runs = [await journal.open(key, f"run{n}") for n in range(4)]
    outcomes = await asyncio.gather(
        *(run.append("tools", big + b"%d" % n) for n, run in enumerate(runs)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["LostClaim"] * 3 + ["NoneType"]
    past = (await journal.open(key, "look")).past
    assert [step.data for step in past] == [big + b"%d" % outcomes.index(None)]


GAPS = {
    "a step expired": ("KV_RCA_JOURNAL", "$KV.RCA_JOURNAL.{key}.1", "step 1 of 3: it is gone"),
    "a part expired": ("OBJ_RCA_JOURNAL", "$O.RCA_JOURNAL.C.>", "a part in the object store is gone"),
    "a part's name expired": ("OBJ_RCA_JOURNAL", "$O.RCA_JOURNAL.M.>", "a part in the object store is gone"),
}


@pytest.mark.parametrize("gap", GAPS)
async def test_a_gap_is_told(own_server, gap):
    journal, key = journal_on(own_server), request_key(new_id())
    run = await journal.open(key, "run")
    await run.append("llm", b"small")
    await run.append("tools", os.urandom(INLINE_BYTES + 1))
    await run.append("llm", b"small")
    stream, subject, message = GAPS[gap]
    await own_server.js.purge_stream(stream, subject=subject.format(key=key))
    assert message in flaw((await journal.open(key, "next")).past)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not a journal step"),
        (b"\xff\xfe", "not a journal step"),
        (b"[1]\n", "not a journal step"),
        (b'{"v":1,"anything":"else"}\ndata', "format 1"),
        (b'{"v":6,"anything":"else"}\ndata', "format 6"),
        (b'{"v":5,"kind":"llm","run":"r"}\n12345678\xff', "cannot be decompressed"),
        (stored_step(b"data", v=PACKED), "cannot be decompressed"),
        (stored_step(b"data", v=CHAINED), "cannot be decompressed"),
        (stored_step(zlib.compress(bytes(STEP_BYTES + 1)), v=CHAINED), "is cut, or larger"),
        (stored_step(zlib.compress(b"data"), v=CHAINED), "does not match its hash"),
        (stored_step(zlib.compress(b"data")[:-1], v=PACKED), "is cut"),
        (stored_step(zlib.compress(bytes(STEP_BYTES + 1)), v=PACKED), "is cut, or larger"),
        (
            b'{"v":2,"kind":"llm","run":"r","notes":{},"size":4,"sha256":"00"}\ndata',
            "does not match its hash",
        ),
        (
            b'{"v":2,"kind":"llm","run":"r","notes":{},"size":0,"sha256":"%s","events":[{"sequence":1,"sha256":"00"}]}\n{}\n'
            % hashlib.sha256(b"").hexdigest().encode(),
            "its events do not match their hashes",
        ),
        (
            b'{"v":2,"kind":"llm","run":"r","notes":{},"size":0,"sha256":"%s","events":[{"sequence":1,"sha256":"%s"}]}\n{}\n'
            % (hashlib.sha256(b"").hexdigest().encode(), hashlib.sha256(b"{}").hexdigest().encode()),
            "one of its audit events cannot be read",
        ),
    ],
)
async def test_what_is_no_step_of_this_version_is_told_and_the_journal_goes_on_behind_it(
    own_server, body, message
):
    key = request_key(new_id())
    await own_server.js.publish(f"$KV.RCA_JOURNAL.{key}.1", body)
    journal = journal_on(own_server)
    run = await journal.open(key, "next")
    assert message in flaw(run.past)
    assert () == usable(run.past)
    await run.append(BEGIN, afresh=True)
    await run.append("llm", b"answer")
    past = (await journal.open(key, "look")).past
    assert [UNREADABLE, BEGIN, "llm"] == [step.kind for step in past]
    assert [BEGIN, "llm"] == [step.kind for step in usable(past)]


async def test_events_of_a_step_come_back_byte_for_byte(journal):
    key, sizes = request_key(new_id()), [0, 10, INLINE_BYTES + 1]
    run = await journal.open(key, "run")
    events = [record_of(resumed_event("é\u2028b", new_id(), n)) for n in range(1, 6)]
    data = [os.urandom(size) for size in sizes]
    for n, body in enumerate(data):
        await run.append("tools", body, events=events[n : 2 * n + 1])
    past = (await journal.open(key, "look")).past
    assert [(events[n : 2 * n + 1], data[n]) for n in range(3)] == [
        (list(step.events), step.data) for step in past
    ]


class OneMessage:
    """A bucket that holds one message."""

    bucket = "B"

    def __init__(self, body):
        self.subject, self.body, self.ours, self.sequence = "$KV.B.key.1", body, False, 1

    async def newest(self, subject):
        return self

    async def subjects(self, pattern):
        return [self.subject]

    async def create(self, subject, body, **how):
        return self


@given(st.binary() | st.text().map(str.encode) | json_bytes())
async def test_any_bytes_are_a_gap_and_a_lost_claim(body):
    journal = NatsJournal(OneMessage(body), Client())
    assert [UNREADABLE] == [step.kind for step in (await journal.open("key", "run")).past]
    with pytest.raises(LostClaim):
        await journal.create("key", Step(1, "llm", "run", b""), 0)


async def test_what_a_finished_request_leaves_behind_is_short(own_server):
    journal = journal_on(own_server)
    for number in range(3):
        run = await journal.open(request_key(new_id()), "run")
        for size in (0, 40_000, INLINE_BYTES + 1, 1_000_000):
            await run.append("tools", os.urandom(size))
        await run.finish(digest="d" * 64, message=number, stored_at="2026-11-28T16:00:00+00:00")
    state = (await own_server.js.stream_info("KV_RCA_JOURNAL")).state
    assert (3, True) == (state.messages, state.bytes < 3 * 700)
    objects = (await own_server.js.stream_info("OBJ_RCA_JOURNAL")).state
    assert (6, True) == (objects.messages, objects.bytes < 6 * 700)  # that they were deleted


async def test_steps_that_a_dying_process_left_behind_the_finished_one_are_deleted_later(own_server):
    journal, key = journal_on(own_server), request_key(new_id())
    run = await journal.open(key, "run")
    await run.append(BEGIN)
    await run.append(FINISHED, **NOTES)
    assert 2 == await own_server.count("KV_RCA_JOURNAL")
    again = await journal.open(key, "again")
    assert [FINISHED] == [step.kind for step in again.past]
    await again.finish(**NOTES)
    assert 1 == await own_server.count("KV_RCA_JOURNAL")


async def test_a_run_outlives_steps_that_have_expired(own_server):
    """Held without a step for longer than the bucket keeps one: nobody else has begun, so it goes on."""
    journal, key = journal_on(own_server), request_key(new_id())
    run = await journal.open(key, "run")
    await run.append(BEGIN)
    await own_server.js.purge_stream("KV_RCA_JOURNAL")
    await run.append(END, outcome=RELEASED)
    assert [UNREADABLE, END] == [step.kind for step in (await journal.open(key, "look")).past]


@pytest.mark.parametrize("name", ["note", "1x", "0", "-1", "9" * 30])
async def test_a_foreign_entry_among_the_steps_is_passed_over(own_server, name):
    key, journal = request_key(new_id()), journal_on(own_server)
    await (await journal.open(key, "run")).append("llm", b"answer")
    await own_server.js.publish(f"$KV.RCA_JOURNAL.{key}.{name}", b"by hand")
    run = await journal.open(key, "next")
    assert [b"answer"] == [step.data for step in run.past]
    await run.append("llm", b"more")
    assert [b"answer", b"more"] == [step.data for step in (await journal.open(key, "look")).past]


async def test_a_foreign_writer_fences_too(own_server):
    key = request_key(new_id())
    run = await journal_on(own_server).open(key, "run")
    await own_server.js.publish(f"$KV.RCA_JOURNAL.{key}.1", b"by hand")
    with pytest.raises(LostClaim, match="an unknown writer"):
        await run.append(BEGIN)


async def test_without_server_or_bucket_it_is_unavailable(own_server):
    journal, key = journal_on(own_server), request_key(new_id())
    run = await journal.open(key, "run")
    journal._stream._patience_seconds = 0.2  # from here on nothing can succeed
    await own_server.js.delete_stream("OBJ_RCA_JOURNAL")
    with pytest.raises(Unavailable):
        await run.append("tools", os.urandom(INLINE_BYTES + 1))
    await own_server.js.delete_stream("KV_RCA_JOURNAL")
    with pytest.raises(Unavailable):
        await journal.open(key, "next")
    nc = await connect(own_server.servers)
    log = FencedStream(nc, "KV_RCA_JOURNAL", patience_seconds=0.2)
    await own_server.servers[0].kill()
    with pytest.raises(Unavailable):
        await NatsJournal(log, nc).open(key, "next")
    await nc.close()
