from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.audit import AuditEvent
from tests.fakes.messages import resumed_event
from worker.domain.audit.record import event_id, read_record, record_of, restored, shortened

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_a_record_is_canonical_json_and_reads_back():
    event = resumed_event("a.b é", "id-1", 3)
    record = record_of(event)
    assert event == AuditEvent.model_validate_json(record.body)
    assert record == read_record(record.body)
    assert ("id-1", "request.resumed", "a%2Eb%20%C3%A9", 3) == (
        record.event_id,
        record.event_type,
        record.request_key,
        record.sequence,
    )
    data = json.loads(record.body)
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical.encode() == record.body
    assert b"\n" not in record.body


@given(st.text(st.characters(exclude_categories=["C"]), max_size=20))
def test_what_is_derived_of_an_event_depends_on_its_run_and_the_event_before(words):
    prev = resumed_event(f"r{words}", "id-1").prev
    body = record_of(resumed_event(f"r{words}", event_id("run", prev))).body
    short = shortened(body)
    assert len(short) < len(body) - 198  # an id, two hashes and their names
    assert body == restored(short, "run", prev)
    assert body not in {restored(short, "other", prev), restored(short, "run", "0" * 64)}


def test_a_record_of_a_newer_version_keeps_its_bytes():
    body = b'{"event_id":"e","event_type":"new.kind","more":[1],"request_key":"k","sequence":9}'
    assert (body, "new.kind", 9) == (
        (record := read_record(body)).body,
        record.event_type,
        record.sequence,
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b'"text"',
        b"[" * 100_000,
        b'{"event_id":"e","event_type":"t","request_key":"k"}',
        b'{"event_id":1,"event_type":"t","request_key":"k","sequence":1}',
        b'{"event_id":"e","event_type":"t","request_key":"k","sequence":"1"}',
    ],
)
def test_what_is_no_event_is_reported(body):
    with pytest.raises(ValueError, match="no audit event"):
        read_record(body)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_an_event_or_rejected(body):
    with contextlib.suppress(ValueError):
        assert body == read_record(body).body
