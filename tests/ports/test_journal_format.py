"""Journal steps as bytes, without a server."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.audit import EventType, LLMToolCall
from schemas.chain import sealed
from tests.fakes.messages import new_id, resumed_event
from worker.adapters.nats.journal_format import (
    DICTIONARY_BYTES,
    INLINE_BYTES,
    STEP_BYTES,
    WORDS,
    Unreadable,
    decode,
    encode,
    is_large,
)
from worker.domain.audit.record import event_id, record_of, shortened
from worker.domain.values.ports import Step
from worker.domain.values.step_kinds import BEGIN, CLAIM, END, FINISHED, LLM, RESULT, TOOLS, UNREADABLE

# Names and values of a model that look like those of an event.
ARGUMENTS = {
    "prev": "ab",
    "hash": "0" * 64,
    "request_key": "k",
    "incident_id": '","hash":"1",',
    "event_type": "t",
}
CALL = {
    "event_type": EventType.LLM_TOOL_CALL,
    "payload": LLMToolCall(index=1, name="x", arguments=ARGUMENTS, succeeded=True, result_chars=0),
}


def chain(length):
    """Events as one run records them, with one that cannot be shortened."""
    records, event = [], resumed_event("é\u2028b", new_id())
    for number in range(length):
        links = {
            "event_id": event_id("run", event.prev),
            "sequence": number + 1,
            **(CALL if number == 1 else {}),
        }
        event = sealed(event.model_copy(update=links))
        records.append(record_of(event))
        event = resumed_event("é\u2028b", new_id()).model_copy(update={"prev": event.hash})
    return records


EVENTS = chain(3)
LARGE = bytes(INLINE_BYTES + 1)


@st.composite
def steps(draw):
    """A step without its number. Contents repeat one another, and are longer than the dictionary together."""
    parts = st.sampled_from([b"", b"\n", b"evidence", EVENTS[0].body, b"0123456789" * 1_500, LARGE])
    return Step(
        0,
        draw(st.sampled_from([BEGIN, CLAIM, LLM, TOOLS, RESULT, END, FINISHED])),
        "run",
        draw(parts | st.binary()),
        draw(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans(), max_size=2)),
        tuple(draw(st.lists(st.sampled_from(EVENTS), max_size=3))),
    )


def write(given_steps, *, first=1, forgets=()):
    """What is stored of steps that one run takes. It does not know what is stored before those of `forgets`."""
    stored, known = [], []
    for number, step in enumerate(given_steps, first):
        numbered = dataclasses.replace(step, number=number)
        known = [] if number in forgets else known
        stored.append(encode(numbered, known, "name"))
        known = [*known, numbered]
    return stored


def read(bodies, larges):
    """The steps that are stored, the unreadable ones among them."""
    found = []
    for number, (body, large) in enumerate(zip(bodies, larges, strict=True), 1):
        try:
            found.append(decode(number, body, large, found))
        except Unreadable:
            found.append(Step(number, UNREADABLE, "", b""))
    return found


def objects(given_steps):
    return [step.data if is_large(step) else b"" for step in given_steps]


@given(st.lists(steps(), max_size=8), st.sets(st.integers(1, 8)))
def test_all_steps_come_back_as_they_were(taken, forgets):
    found = read(write(taken, forgets=forgets), objects(taken))
    assert [dataclasses.replace(step, number=n) for n, step in enumerate(taken, 1)] == found


@given(st.lists(steps(), min_size=1, max_size=6), st.data())
def test_a_changed_byte_is_noticed(taken, data):
    """No step comes back other than it was, whatever is stored in its place or before it."""
    bodies = write(taken)
    at = data.draw(st.integers(0, len(bodies) - 1))
    place = data.draw(st.integers(bodies[at].index(b"\n") + 1, len(bodies[at])))
    bodies[at] = bodies[at][:place] + data.draw(st.binary(min_size=1, max_size=4)) + bodies[at][place + 1 :]
    for step, found in zip(taken, read(bodies, objects(taken)), strict=True):
        assert found.kind == UNREADABLE or (found.data, found.events) == (step.data, step.events)


@given(st.lists(st.sampled_from([LLM, TOOLS, CLAIM]), min_size=2, max_size=6), st.data())
def test_without_one_step_those_that_need_it_are_unreadable(kinds, data):
    taken = [Step(0, kind, "run", b"data of a step") for kind in kinds]
    bodies, gone = write(taken), data.draw(st.integers(1, len(kinds)))
    bodies[gone - 1] = b""
    kept = [number for number, step in enumerate(read(bodies, [b""] * len(bodies)), 1) if step.data]
    assert list(range(1, gone)) == kept


def test_the_fixed_part_of_the_dictionary_never_changes():
    """Else no step that was stored with it could be read."""
    assert (
        "89f22e91314419dead6ed1e4f0c65ec047d1b153012574bd5f78fc1846f30b62"
        == hashlib.sha256(WORDS).hexdigest()
    )
    assert len(WORDS) < DICTIONARY_BYTES // 3


def test_an_event_that_follows_another_is_stored_without_what_follows_from_it():
    chained = chain(8)
    begin = Step(1, BEGIN, "run", b"", {}, tuple(chained[:1]))
    taken = [Step(n, CLAIM, "run", b"", {}, (chained[n - 1],)) for n in range(2, 9)]
    bodies = write([begin, *taken])
    assert max(map(len, bodies[3:])) < 130
    assert [begin, *taken] == read(bodies, [b""] * 8)
    links = {b'"event_id"', b'"hash"', b'"prev"'}
    assert not any(name in shortened(chained[2].body) for name in links)


@pytest.mark.slow
def test_hostile_contents_do_not_grow_without_limit():
    """Each part of a chain could be decompressed to a thousand times of its size."""
    chained = b'{"v":4,"kind":"llm","run":"r","sha256":"00"}\n'
    compact = b'{"v":5,"kind":"llm","run":"r"}\n' + bytes(8)
    for head, wbits in ((chained, zlib.MAX_WBITS), (compact, -zlib.MAX_WBITS)):
        with pytest.raises(Unreadable, match="larger"):
            decode(1, head + zlib.compress(bytes(20 * STEP_BYTES), wbits=wbits), b"", [])


@pytest.mark.parametrize("since", [2, 3, 10**30])
def test_a_wrong_beginning_of_the_chain_is_unreadable(since):
    first = Step(1, LLM, "run", b"data of a step")
    body = encode(dataclasses.replace(first, number=2), [first], "name")
    wrong = body.replace(b'"since":1', b'"since":%d' % since)
    assert wrong != body
    with pytest.raises(Unreadable):
        decode(2, wrong, b"", [first])
