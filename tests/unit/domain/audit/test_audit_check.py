from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.chain import canonical, event_hash, genesis
from tests.fakes.audit_chains import (
    LATER,
    accepted,
    bodies,
    chain,
    check,
    complete,
    decided,
    facts,
    failed,
    result_of,
    resumed,
    whole,
)
from tests.fakes.messages import NOON
from worker.adapters.ed25519_keys import Ed25519Check, Ed25519Signer
from worker.domain.audit.check import AuditCheck
from worker.domain.audit.findings import (
    AuditFacts,
    AuditFinding,
    ChainProblem,
    ChainStatus,
    KeptHead,
    StoredResult,
)

SIGNER = Ed25519Signer(b"s" * 32)
KEY = Ed25519Check(bytes(SIGNER._key.verify_key))
OTHERS = Ed25519Signer(b"o" * 32)


def first_bad(report, key="rr-1"):
    """The lowest bad sequence of a request."""
    return min((f.sequence for f in report.findings if f.request_key == key), default=None)


def problems(report):
    return [(f.request_key, f.sequence, f.problem) for f in report.findings]


def resealed(event, **changes):
    """An event that was changed and hashed anew."""
    document = {**event, **changes}
    return {**document, "hash": event_hash(document)}


def documents(messages):
    return [json.loads(message) for message in messages]


# -- What is good


def test_whole_chains_are_good_and_counted():
    messages = bodies(whole("rr-1", 5), whole("rr-2", 2))
    report = check(messages, facts("rr-1", "rr-2"))
    assert report.good
    assert (7, 0, 2, 2, 2, 0) == (
        report.events,
        report.republished,
        report.requests,
        report.chains[ChainStatus.COMPLETE],
        report.ends,
        report.signed,
    )


@given(st.data())
def test_events_that_are_published_again_are_good(data):
    """Whoever takes a request over publishes events again: later, and each as it was."""
    events = bodies(whole("rr-1", data.draw(st.integers(2, 12))))
    messages = list(events)
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(events) - 1))
        place = data.draw(st.integers(messages.index(events[index]) + 1, len(messages)))
        messages.insert(place, events[index])
    report = check(messages, facts("rr-1"))
    assert report.good
    assert (len(events), len(messages) - len(events)) == (report.events, report.republished)


@given(st.lists(st.integers(2, 8), min_size=2, max_size=4), st.randoms())
def test_requests_may_be_told_of_between_one_another(lengths, random):
    queues = [bodies(whole(f"rr-{n}", length)) for n, length in enumerate(lengths)]
    messages = []
    while any(queues):
        messages.append(random.choice([queue for queue in queues if queue]).pop(0))
    report = check(messages, facts(*(f"rr-{n}" for n in range(len(lengths)))))
    assert report.good


def test_a_dead_letter_that_was_sent_again_continues_with_its_chain():
    first = chain("rr-1", [accepted(), failed("rr-1")])
    second = chain("rr-1", [resumed(), complete("rr-1")], after=first[-1], start=NOON + timedelta(hours=2))
    assert check(bodies(first, second), facts("rr-1")).good


def test_a_dead_letter_that_was_sent_again_when_the_journal_was_gone_has_a_second_chain():
    first = chain("rr-1", [accepted(), failed("rr-1")])
    second = chain("rr-1", [accepted(replayed=True), complete("rr-1")], name="run-2", start=LATER)
    assert check(bodies(first, second), facts("rr-1")).good
    cut = check(bodies(first[:1], second), facts("rr-1"))
    assert [("rr-1", 2, ChainProblem.TRUNCATED)] == problems(cut)


def test_a_chain_is_open_while_its_request_has_no_result():
    begun = bodies(chain("rr-1", [accepted(), decided(1)]))
    soon = NOON + timedelta(hours=1)
    report = check(begun, AuditFacts(now=soon, results={}))
    assert (True, 1, 2) == (report.good, report.chains[ChainStatus.OPEN], report.notable[0].events)
    assert check(begun, AuditFacts(now=LATER, results={}, waiting_since=NOON - timedelta(days=1))).good
    younger = AuditFacts(now=LATER, results={}, waiting_since=NOON + timedelta(days=1))
    assert [("rr-1", 3, ChainProblem.TRUNCATED)] == problems(check(begun, younger))
    assert [("rr-1", 3, ChainProblem.TRUNCATED)] == problems(check(begun, AuditFacts(now=LATER, results={})))
    assert [("rr-1", 3, ChainProblem.TRUNCATED)] == problems(check(begun, facts("rr-1", now=soon)))


def stored(messages, at, known):
    reader = AuditCheck()
    for position, message in enumerate(messages, start=1):
        reader.add(position, message, at)
    return reader.finish(known)


@pytest.mark.parametrize(
    "start", [datetime(2099, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)]
)
@pytest.mark.parametrize("waiting_since", [None, NOON])
def test_a_cut_chain_is_not_kept_open_by_times_that_are_still_to_come(start, waiting_since):
    cut = bodies(chain("rr-1", [accepted(), decided(1)], start=start))
    known = AuditFacts(now=LATER, results={}, waiting_since=waiting_since)
    assert [("rr-1", 2, ChainProblem.IN_THE_FUTURE)] == problems(check(cut, known))
    assert [("rr-1", 1, ChainProblem.IN_THE_FUTURE)] == problems(stored(cut, LATER, known))


def test_a_time_that_was_to_come_when_the_event_was_stored_is_found_when_it_has_passed():
    messages = bodies(whole("rr-1", 3, start=NOON + timedelta(hours=1)))
    assert check(messages, facts("rr-1")).good
    report = stored(messages, NOON, facts("rr-1"))
    assert [("rr-1", 1, ChainProblem.IN_THE_FUTURE)] == problems(report)


@pytest.mark.parametrize(("minutes", "good"), [(9, True), (11, False)])
def test_clocks_may_differ_a_little(minutes, good):
    messages = bodies(whole("rr-1", 2, start=LATER + timedelta(minutes=minutes)))
    assert (good, good) == (check(messages, facts("rr-1")).good, stored(messages, LATER, facts("rr-1")).good)


def test_a_chain_is_as_old_as_the_server_says():
    begun = bodies(chain("rr-1", [accepted(), decided(1)]))
    known = AuditFacts(now=LATER, results={})
    assert [("rr-1", 3, ChainProblem.TRUNCATED)] == problems(stored(begun, NOON, known))
    assert stored(begun, LATER - timedelta(hours=1), known).good  # published late, after the broker was away
    newer = bodies(chain("rr-1", [accepted(), decided(1)], start=LATER - timedelta(hours=23, minutes=55)))
    day_ago = LATER - timedelta(hours=24, minutes=1)
    assert [("rr-1", 3, ChainProblem.TRUNCATED)] == problems(stored(newer, day_ago, known))


def test_a_dead_letter_in_work_again_is_open():
    first = chain("rr-1", [accepted(), failed("rr-1")])
    going = chain("rr-1", [resumed()], after=first[-1])
    stored = {"rr-1": StoredResult(result_of("failed rr-1"), failed=True)}
    report = check(bodies(first, going), AuditFacts(now=NOON + timedelta(hours=1), results=stored))
    assert (True, 1) == (report.good, report.chains[ChainStatus.OPEN])
    answered = chain("rr-1", [complete("rr-1")], after=going[-1])
    messages = bodies(first, going, answered)
    assert check(
        messages, AuditFacts(now=NOON, results=stored)
    ).good  # its result was published after the results were read
    assert [("rr-1", 4, ChainProblem.OTHER_RESULT)] == problems(
        check(messages, AuditFacts(now=LATER, results=stored))
    )


# -- More than one chain


def test_a_chain_whose_journal_was_lost_is_abandoned():
    first = chain("rr-1", [accepted(), decided(1)])
    much_later = chain("rr-1", [accepted(), complete("rr-1")], name="run-2", start=NOON + timedelta(hours=25))
    report = check(bodies(first, much_later), facts("rr-1"))
    assert (True, 1, 1) == (
        report.good,
        report.chains[ChainStatus.ABANDONED],
        report.chains[ChainStatus.COMPLETE],
    )
    soon = chain("rr-1", [accepted(), complete("rr-1")], name="run-2", start=NOON + timedelta(hours=5))
    assert [("rr-1", 3, ChainProblem.TRUNCATED)] == problems(check(bodies(first, soon), facts("rr-1")))


def test_a_chain_after_an_unreadable_journal_names_the_last_event_that_was_read():
    first = chain("rr-1", [accepted(), decided(1), decided(2)])
    second = chain("rr-1", [resumed(first[1].hash), complete("rr-1")], name="run-2")
    report = check(bodies(first, second), facts("rr-1"))
    assert (True, 1) == (report.good, report.chains[ChainStatus.ABANDONED])
    cut = check(bodies(first[:1], second), facts("rr-1"))
    assert [("rr-1", 2, ChainProblem.TRUNCATED)] == problems(cut)
    nothing_read = chain("rr-1", [resumed(), complete("rr-1")], name="run-2")
    assert check(bodies(first, nothing_read), facts("rr-1")).good


def test_a_chain_that_begins_after_the_answer_is_not_ours():
    added = chain("rr-1", [accepted(), decided(1)], name="forged", start=NOON + timedelta(hours=1))
    report = check(bodies(whole("rr-1", 3), added), facts("rr-1", now=NOON + timedelta(hours=2)))
    assert [("rr-1", 1, ChainProblem.AFTER_THE_END)] == problems(report)


def test_a_second_answer_is_not_ours():
    added = chain("rr-1", [accepted(), complete("another")], name="forged", start=LATER)
    report = check(bodies(whole("rr-1", 3), added), facts("rr-1"))
    assert [("rr-1", 2, ChainProblem.OTHER_RESULT)] == problems(report)


# -- What was done to one chain


WHERE = st.tuples(st.integers(2, 10), st.integers(0, 9)).map(lambda pair: (pair[0], pair[1] % pair[0]))
"""Length of a chain, and the index of an event in it."""


@given(WHERE, st.data())
def test_a_flipped_bit_is_found(where, data):
    length, index = where
    messages = bodies(whole("rr-1", length, signer=SIGNER), whole("rr-2", 3))
    at = data.draw(st.integers(0, len(messages[index]) - 1))
    flipped = bytearray(messages[index])
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    messages[index] = bytes(flipped)
    report = check(messages, facts("rr-1", "rr-2"))
    assert index + 1 == first_bad(report)
    assert report.chains[ChainStatus.COMPLETE] == 1


FIELDS = sorted(documents(bodies(whole("rr-1", 2, signer=SIGNER)))[1])


@pytest.mark.parametrize("field", FIELDS)
@given(where=WHERE, value=st.none() | st.integers(0, 12) | st.text(max_size=4) | st.just("rr-2"))
def test_a_changed_field_is_found(field, where, value):
    length, index = where
    messages = bodies(whole("rr-1", length), whole("rr-2", 3))
    document = json.loads(messages[index])
    if document[field] == value:
        return
    messages[index] = canonical({**document, field: value})
    assert index + 1 == first_bad(check(messages, facts("rr-1", "rr-2")))


@given(WHERE)
def test_a_field_that_is_gone_or_new_is_found(where):
    length, index = where
    for change in ({"more": 1}, {"signature": {"key_id": "0" * 64, "value": "x"}}):
        messages = bodies(whole("rr-1", length))
        messages[index] = canonical({**json.loads(messages[index]), **change})
        assert index + 1 == first_bad(check(messages, facts("rr-1")))
    for field in FIELDS:
        messages = bodies(whole("rr-1", length))
        rest = {name: value for name, value in json.loads(messages[index]).items() if name != field}
        messages[index] = canonical(rest)
        assert index + 1 == first_bad(check(messages, facts("rr-1")))


@given(WHERE)
def test_the_same_content_in_other_bytes_is_found(where):
    length, index = where
    for write in (
        lambda event: json.dumps(event, sort_keys=True).encode(),
        lambda event: json.dumps(event, separators=(",", ":")).encode().replace(b'"chain"', b'"\\u0063hain"'),
        lambda event: canonical(event) + b"\n",
        lambda event: b'{"chain":"x",' + canonical(event)[1:],
    ):
        messages = bodies(whole("rr-1", length))
        messages[index] = write(json.loads(messages[index]))
        report = check(messages, facts("rr-1"))
        assert (index + 1, ChainProblem.UNREADABLE) == (first_bad(report), report.findings[0].problem)


@given(WHERE)
def test_a_dropped_event_is_found(where):
    length, index = where
    messages = bodies(whole("rr-1", length), whole("rr-2", 3))
    del messages[index]
    assert index + 1 == first_bad(check(messages, facts("rr-1", "rr-2")))


@given(WHERE, st.integers(1, 9))
def test_swapped_events_are_found(where, distance):
    length, index = where
    other = (index + distance) % length
    if other == index:
        return
    messages = bodies(whole("rr-1", length))
    messages[index], messages[other] = messages[other], messages[index]
    assert min(index, other) + 1 == first_bad(check(messages, facts("rr-1")))


@given(WHERE)
def test_a_chain_that_was_cut_is_found(where):
    length, index = where
    report = check(bodies(whole("rr-1", length)[:index], whole("rr-2", 2)), facts("rr-1", "rr-2"))
    assert [(ChainProblem.TRUNCATED if index else ChainProblem.NO_EVENTS, index + 1)] == [
        (f.problem, f.sequence) for f in report.findings
    ]


@pytest.mark.parametrize("left", range(1, 5))
def test_a_cut_chain_is_found_without_results_as_well(left):
    report = check(bodies(whole("rr-1", 5)[:left]), AuditFacts(now=LATER))
    assert [("rr-1", left + 1, ChainProblem.TRUNCATED)] == problems(report)


@given(WHERE, st.integers(0, 10))
def test_an_event_that_was_added_with_right_hashes_is_found(where, place):
    """The forger knows how hashes are computed: the event links to the one before it, and nothing to the event."""
    length, index = where
    events = whole("rr-1", length)
    messages = bodies(events)
    before = events[index]
    added = bodies(chain("rr-1", [decided(99)], after=before))[0]
    messages.insert(min(index + 1 + place, length), added)
    report = check(messages, facts("rr-1"))
    assert index + 2 == first_bad(report)


@given(WHERE, st.integers(2, 5))
def test_an_event_of_another_request_is_found(where, other_length):
    """One with right hashes is also noticed where it comes too early."""
    length, index = where
    others = bodies(whole("rr-2", other_length))
    for event in documents(others):
        messages = [*bodies(whole("rr-1", length)), *others]
        messages.insert(index, canonical({**event, "request_key": "rr-1"}))
        assert event["sequence"] == first_bad(check(messages, facts("rr-1", "rr-2")))
        messages[index] = canonical(resealed(event, request_key="rr-1"))
        assert min(event["sequence"], index + 1) == first_bad(check(messages, facts("rr-1", "rr-2")))


@given(WHERE)
def test_an_event_that_was_replaced_with_right_hashes_is_found(where):
    """One place further, when there is an event that it should link to: which of the two is the original shows nothing."""
    length, index = where
    messages = bodies(whole("rr-1", length, signer=SIGNER))
    event = resealed(json.loads(messages[index]), incident_id="forged")
    messages[index] = canonical(event)
    report = check(messages, facts("rr-1"), [KEY])
    assert min(index + 2, length) == first_bad(report)


def test_a_chain_made_again_is_only_found_by_its_signature():
    forged = bodies(whole("rr-1", 4))
    assert check(forged, facts("rr-1")).good
    assert [("rr-1", 4, ChainProblem.UNSIGNED)] == problems(check(forged, facts("rr-1"), [KEY]))
    by_another = bodies(whole("rr-1", 4, signer=OTHERS))
    assert [("rr-1", 4, ChainProblem.UNKNOWN_KEY)] == problems(check(by_another, facts("rr-1"), [KEY]))
    *rest, end = documents(bodies(whole("rr-1", 4, signer=SIGNER)))
    moved = canonical(
        resealed(end, signature=documents(bodies(whole("rr-2", 4, signer=SIGNER)))[-1]["signature"])
    )
    report = check([*map(canonical, rest), moved], facts("rr-1"), [KEY])
    assert [("rr-1", 4, ChainProblem.FORGED)] == problems(report)
    for value in ("", "x", "AAAA", 7, None):
        broken = canonical(resealed(end, signature={"key_id": SIGNER.key_id, "value": value}))
        assert [("rr-1", 4, ChainProblem.FORGED)] == problems(
            check([*map(canonical, rest), broken], facts("rr-1"), [KEY])
        )


def test_signatures_are_counted_and_checked_only_with_a_key():
    messages = bodies(whole("rr-1", 3, signer=SIGNER))
    without, with_key = check(messages, facts("rr-1")), check(messages, facts("rr-1"), [KEY])
    assert (1, False, True) == (without.signed, without.checked_signatures, without.good)
    assert (1, True, True) == (with_key.signed, with_key.checked_signatures, with_key.good)


def test_a_result_that_was_replaced_is_found():
    known = {"rr-1": StoredResult("0" * 64)}
    report = check(bodies(whole("rr-1", 3)), AuditFacts(now=LATER, results=known))
    assert [("rr-1", 3, ChainProblem.OTHER_RESULT)] == problems(report)


def test_a_request_whose_events_are_all_gone_is_found():
    assert [("rr-1", 1, ChainProblem.NO_EVENTS)] == problems(check([], facts("rr-1")))
    assert check([], facts("rr-1", kept_since=LATER + timedelta(days=1))).good


# -- What has expired


@pytest.mark.parametrize(
    ("kept_since", "status"),
    [
        (None, ChainStatus.BAD),
        (NOON - timedelta(days=2), ChainStatus.BAD),
        (NOON - timedelta(hours=23), ChainStatus.EXPIRED),
        (NOON + timedelta(days=1), ChainStatus.EXPIRED),
    ],
)
def test_a_beginning_may_have_expired_when_it_is_old_enough(kept_since, status):
    report = check(bodies(whole("rr-1", 5)[2:]), facts("rr-1", kept_since=kept_since))
    assert {status: 1} == dict(report.chains)
    expected = [("rr-1", 1, ChainProblem.MISSING)] if status is ChainStatus.BAD else []
    assert expected == problems(report)


def test_after_an_expired_beginning_everything_is_checked():
    events = bodies(whole("rr-1", 6)[2:])
    del events[1]
    report = check(events, facts("rr-1", kept_since=NOON))
    assert [("rr-1", 4, ChainProblem.MISSING)] == problems(report)


# -- What comes from anywhere


@given(st.lists(st.binary(max_size=40) | st.sampled_from(bodies(whole("rr-1", 3))), max_size=6))
def test_any_bytes_are_told_by_their_position(messages):
    report = check(messages, facts())
    unreadable = [f.position for f in report.findings if f.problem is ChainProblem.UNREADABLE]
    mine = bodies(whole("rr-1", 3))
    assert [n for n, m in enumerate(messages, 1) if m not in mine] == unreadable


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": True},
        {"sequence": 0},
        {"sequence": 10**9},
        {"sequence": 1.0},
        {"time": "yesterday"},
        {"time": "2026-06-04T12:00:00"},
        {"prev": "x"},
        {"hash": None},
        {"chain": 1},
    ],
)
def test_an_event_without_what_a_chain_needs_is_unreadable(change):
    event = json.loads(bodies(whole("rr-1", 2))[0])
    messages = [canonical({**event, **change})]
    assert [ChainProblem.UNREADABLE] == [f.problem for f in check(messages, AuditFacts(now=NOON)).findings]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(
    field=st.sampled_from(FIELDS),
    value=JSON,
    payload=st.dictionaries(
        st.sampled_from(["continues", "replayed", "result_sha256", "event_type"]), JSON, max_size=4
    ),
)
def test_no_content_breaks_the_check(field, value, payload):
    event = documents(bodies(whole("rr-1", 2, signer=SIGNER)))[1]
    messages = [canonical(resealed({**event, "payload": payload}, **{field: value}))]
    assert not check(messages, facts("rr-1"), [KEY]).good


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000, b'{"a":"\\ud800"}'])
def test_hostile_json_is_unreadable(body):
    assert [ChainProblem.UNREADABLE] == [f.problem for f in check([body], AuditFacts(now=NOON)).findings]


FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@given(
    ended=st.booleans(),
    times=st.tuples(*[st.datetimes(timezones=st.just(UTC)) | st.sampled_from([NOON, FIRST, LAST])] * 3),
)
def test_no_time_breaks_the_check(ended, times):
    now, kept_since, waiting_since = times
    events = bodies(whole("rr-1", 4)[1:], whole("rr-2", 4) if ended else whole("rr-2", 4)[:-1])
    known = AuditFacts(now, kept_since=kept_since, waiting_since=waiting_since)
    assert {"rr-1", "rr-2"} >= {finding.request_key for finding in check(events, known).findings}


def test_only_one_request_is_looked_at():
    messages = [b"?", *bodies(whole("rr-1", 3), whole("rr-2", 3)[1:])]
    known = facts("rr-1", "rr-2", "rr-3")
    report = check(messages, known, only="rr-1")
    [told] = report.notable
    assert (True, 3, json.loads(messages[3])["hash"]) == (report.good, told.events, told.head)
    assert [("rr-2", 1, ChainProblem.MISSING)] == problems(check(messages, known, only="rr-2"))
    assert [("rr-3", 1, ChainProblem.NO_EVENTS)] == problems(check(messages, known, only="rr-3"))


def test_the_first_event_is_bound_to_request_and_chain():
    first = json.loads(bodies(whole("rr-1", 2))[0])
    assert genesis("rr-1", "run-1") == first["prev"]
    moved = [canonical(resealed(first, chain="run-9"))]
    assert [("rr-1", 1, ChainProblem.NOT_LINKED)] == problems(check(moved, AuditFacts(now=NOON)))


# -- Files, where nobody can be working on a request any more


@pytest.mark.parametrize(
    "ended",
    [
        whole("rr-1", 4),
        [
            *whole("rr-1", 3),
            *chain("rr-1", [accepted(replayed=True), failed("rr-1")], after=whole("rr-1", 3)[-1]),
        ],
    ],
)
@pytest.mark.parametrize("cut", [0, 1])
def test_a_chain_without_an_end_is_a_finding_however_young(ended, cut):
    events = bodies(ended)
    report = check(events[: len(events) - cut], AuditFacts(NOON + timedelta(minutes=1), all_ended=True))
    assert ([ChainProblem.TRUNCATED] if cut else []) == [finding.problem for finding in report.findings]


def test_events_behind_a_signed_end_need_a_signed_end_as_well():
    events = whole("rr-1", 3, signer=SIGNER)
    tail = chain("rr-1", [accepted(replayed=True), decided(1)], after=events[-1])
    known = AuditFacts(NOON + timedelta(minutes=1), all_ended=True)
    assert check(bodies(events), known, [KEY]).good
    assert [("rr-1", 6, ChainProblem.TRUNCATED)] == problems(check(bodies(events, tail), known, [KEY]))
    forged = chain("rr-1", [failed("rr-1")], after=tail[-1])
    assert [("rr-1", 6, ChainProblem.UNSIGNED)] == problems(check(bodies(events, tail, forged), known, [KEY]))


def test_what_is_wrong_with_the_stream_comes_first():
    finding = AuditFinding("", "", 0, ChainProblem.STREAM_EMPTIED, "all")
    report = check(bodies(whole("rr-1", 3))[:1], facts("rr-1", of_stream=[finding]))
    assert [ChainProblem.STREAM_EMPTIED, ChainProblem.TRUNCATED] == [f.problem for f in report.findings]


# -- Heads that were kept elsewhere


def kept(event, **changes):
    names = ("request_key", "chain", "sequence", "hash", "time")
    return KeptHead(**{name: getattr(event, name) for name in names} | changes)


def test_a_head_that_was_kept_elsewhere_must_be_in_the_trail():
    events, other = whole("rr-1", 4), whole("rr-1", 4, start=NOON + timedelta(seconds=1))
    heads = [kept(events[-1]), kept(events[1])]
    assert check(bodies(events), facts("rr-1", heads=heads)).good
    rewritten = check(bodies(other), facts("rr-1", heads=heads[:1]))
    assert [("rr-1", 4, ChainProblem.HEAD_MISSING)] == problems(rewritten)
    dropped = check(bodies(whole("rr-2", 3)), facts("rr-2", heads=heads[:1]))
    assert [("rr-1", 4, ChainProblem.HEAD_MISSING)] == problems(dropped)
    assert check(bodies(whole("rr-2", 3)), facts("rr-2", heads=heads), only="rr-2").good


@pytest.mark.parametrize(("time", "good"), [(NOON, True), (LATER, False), (None, False)])
def test_a_head_may_only_be_missing_where_it_has_expired(time, good):
    known = facts(
        "rr-1", heads=[kept(whole("rr-0", 2)[-1], time=time)], kept_since=NOON + timedelta(seconds=1)
    )
    assert good is check(bodies(whole("rr-1", 4)), known).good
