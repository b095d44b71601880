from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.failure import ValidationCode
from schemas.fields import MAX_BODY_BYTES, MAX_DEPTH
from schemas.incident import IncidentRequest
from schemas.recovery import RecoveryRequest
from schemas.taxonomy import RequestKind
from tests.fakes import samples
from worker.domain.intake.decode import MAX_LISTED, Decoded, InvalidRequest, decode

NOW = datetime(2026, 5, 11, 21, 43, tzinfo=UTC)
BASE: dict[str, Any] = {
    "incident_id": "inc-1",
    "remediation_id": "rr.1",
    "signal_type": "OOMKilled",
    "severity": "critical",
    "resource_kind": "Pod",
    "resource_name": "api-0",
    "resource_namespace": "shop",
    "received_time": "2026-05-11T21:42:10Z",
}


def read(
    body: bytes | dict[str, Any], kind: RequestKind = RequestKind.INCIDENT, **options: Any
) -> Decoded | InvalidRequest:
    return decode(body if isinstance(body, bytes) else json.dumps(body).encode(), kind, NOW, **options)


def accepted(
    body: bytes | dict[str, Any], kind: RequestKind = RequestKind.INCIDENT, **options: Any
) -> Decoded:
    outcome = read(body, kind, **options)
    assert isinstance(outcome, Decoded), outcome
    return outcome


def rejected(
    body: bytes | dict[str, Any], kind: RequestKind = RequestKind.INCIDENT, **options: Any
) -> InvalidRequest:
    outcome = read(body, kind, **options)
    assert isinstance(outcome, InvalidRequest), outcome
    return outcome


def said(outcome: InvalidRequest) -> list[str]:
    return [str(error) for error in outcome.errors]


def with_member(text: str) -> bytes:
    """The base request with one more member, in the words of the sender."""
    return (json.dumps(BASE)[:-1] + ", " + text + "}").encode()


def nested(depth: int) -> bytes:
    """A request that is `depth` levels deep, itself included."""
    return with_member('"x": ' + "[" * (depth - 1) + "]" * (depth - 1))


def test_a_request_is_read():
    assert IncidentRequest.model_validate(BASE) == accepted(BASE).request


def test_a_recovery_is_read():
    body = samples.RECOVERY.model_dump(mode="json")
    assert samples.RECOVERY == accepted(body, RequestKind.RECOVERY).request
    assert "is_recovery_attempt" in said(rejected(body))[0]


@pytest.mark.parametrize("change", [{}, {"received_time": None}])
def test_the_time_of_the_message_stands_in(change):
    body = {name: value for name, value in BASE.items() if name != "received_time"} | change
    assert accepted(body).request.received_time == NOW


def test_all_errors_are_listed():
    outcome = rejected(
        BASE | {"severity": "bad", "resource_name": "A", "occurrence_count": 0, "failed_action": {}}
    )
    assert outcome.code is ValidationCode.SCHEMA
    assert said(outcome) == [
        'severity: expected one of critical, high, medium, low, unknown, warning, info, error, got "bad"',
        "resource_name: expected a DNS subdomain: lower-case letters, digits, '-' and '.', got \"A\"",
        "occurrence_count: expected at least 1, got 0",
        "failed_action: expected no such field any more: use previous_execution, got an object",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signal_type": None}, "signal_type: expected a value: the field is required"),
        ({"signal_type": 5}, "signal_type: expected a string, got 5"),
        ({"signal_type": ["a"]}, "signal_type: expected a string, got an array of 1"),
        ({"signal_labels": {"a": 1}}, "signal_labels.a: expected a string, got 1"),
        ({"signal_labels": {"a b": 1}}, 'signal_labels["a b"]: expected a string, got 1'),
        ({"affected_resources": ["a", 1]}, "affected_resources[1]: expected a string, got 1"),
        ({"is_storm": "yes"}, 'is_storm: expected true or false, without quotes, got "yes"'),
        (
            {"occurrence_count": "3"},
            'occurrence_count: expected an integer, without quotes and without decimals, got "3"',
        ),
        ({"storm_type": "x"}, "storm_type: expected one of 'rate' or 'pattern', got \"x\""),
        ({"signal_annotations": []}, "signal_annotations: expected an object, got an array of 0"),
        ({"affected_resources": "a"}, 'affected_resources: expected an array, got "a"'),
        ({"error_message": "a" * 90, "severity": "b" * 90}, f'got "{"b" * 79}...'),
    ],
)
def test_messages_say_what_where_and_what_to_do(change, message):
    assert message in said(rejected(BASE | change))[0]


def test_long_values_are_never_shown_whole():
    body = BASE | {"resource_kind": "x" * 5000, "signal_labels": {"k" * 5000: 1}, "priority": ["y" * 5000]}
    for error in rejected(body).errors:
        assert len(str(error)) < 400


def test_very_many_errors_are_counted():
    outcome = rejected(BASE | {"signal_labels": {str(n): n for n in range(500)}})
    assert len(outcome.errors) == MAX_LISTED + 1
    assert "400 more are not listed" in outcome.errors[-1].expected


def test_ignored_fields_are_listed_and_counted():
    assert accepted(BASE | {"ownerChain": [], "x": {"y": 1}}).ignored_fields == ("ownerChain", "x")
    many = accepted(BASE | {f"f{n}": n for n in range(500)}).ignored_fields
    assert (len(many), many[-1]) == (MAX_LISTED + 1, "(and 400 more)")


# -- size, text, JSON


def test_the_largest_body():
    free = MAX_BODY_BYTES - len(json.dumps(BASE | {"error_message": ""}))
    accepted(BASE | {"error_message": "x" * free})
    outcome = rejected(BASE | {"error_message": "x" * (free + 1)})
    assert outcome.code is ValidationCode.TOO_LARGE
    assert "shorten error_message" in outcome.errors[0].expected
    assert outcome.remediation_id == "rr.1"


@pytest.mark.parametrize(
    "body", [b"\xff", b'{"a": "\xc3"}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\xc0\x80"}', "{}".encode("utf-16")]
)
def test_only_utf8(body):
    assert rejected(body).code is ValidationCode.NOT_UTF8


def test_gzip_is_named():
    assert "gzip" in rejected(b"\x1f\x8b\x08\x00").errors[0].expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"a"',
        b'{"a": 1,}',
        b"{} {}",
        b"{}\x00",
        b"[1",
        b"{'a': 1}",
        b'{"a": 01}',
        b'{"a": .5}',
        b'{"a": "\n"}',
        b'{"a": "\\x"}',
        b"// a\n{}",
        b"NaN",
        b"\xef\xbb\xbf{}",
        b"a: 1",
        b'"\\"\\"\\"',
    ],
)
def test_only_json(body):
    assert rejected(body).code is ValidationCode.NOT_JSON


@pytest.mark.parametrize("body", [b"null", b"true", b"5", b'"{}"', b"[]", b"[{}]", b"9" * 30])
def test_only_an_object(body):
    (error,) = rejected(body).errors
    assert (error.path, error.expected) == ("", "a JSON object")


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_no_constants(word):
    outcome = rejected(with_member(f'"safety_context": {{"dependencies": [{word}]}}'))
    assert outcome.code is ValidationCode.NOT_JSON
    assert [error.path for error in outcome.errors] == ["safety_context.dependencies[0]"]
    assert word == outcome.errors[0].got


@pytest.mark.parametrize(
    "number", ["1e400", "-1e400", "9223372036854775808", "-9223372036854775809", "9" * 100_000]
)
def test_numbers_out_of_range(number):
    outcome = rejected(with_member(f'"unknown": [{number}]'))
    assert outcome.code is ValidationCode.SCHEMA
    assert [error.path for error in outcome.errors] == ["unknown[0]"]
    assert len(outcome.errors[0].got) < 100


def test_the_digits_of_a_fraction_are_bounded():
    assert rejected(with_member('"unknown": 0.' + "1" * 400_000)).code is ValidationCode.SCHEMA


@pytest.mark.parametrize("number", ["9223372036854775807", "-9223372036854775808", "1e300", "-0.5", "1e-400"])
def test_numbers_in_range(number):
    accepted(with_member(f'"unknown": {number}'))


def test_no_key_twice():
    outcome = rejected(with_member('"x": {"a": 1, "a": 1, "b": 1, "\\u0061": 2}, "severity": "low"'))
    assert outcome.code is ValidationCode.NOT_JSON
    assert sorted(error.path for error in outcome.errors) == ["severity", "x.a"]


@pytest.mark.parametrize("text", ['"\\ud800"', '["\\udfff"]', '{"a": {"\\ud83d": 1}}', '"\\udd25\\ud83d"'])
def test_no_unpaired_surrogates(text):
    outcome = rejected(with_member(f'"unknown": {text}'))
    assert outcome.code is ValidationCode.NOT_JSON
    assert "surrogates" in outcome.errors[0].expected


def test_pairs_of_surrogates_are_text():
    assert accepted(with_member('"error_message": "\\ud83d\\udd25"')).request.error_message == "🔥"


def test_the_deepest_body():
    accepted(nested(MAX_DEPTH))
    assert rejected(nested(MAX_DEPTH + 1)).code is ValidationCode.TOO_DEEP


def test_brackets_in_text_are_no_depth():
    text = '[{"\\"' * 1000
    assert text == accepted(BASE | {"error_message": text}).request.error_message


@pytest.mark.parametrize(
    "body", [b"[" * 500_000, b'{"a":' * 100_000, b'"' + b'\\"' * 250_000, b"[]" * 250_000]
)
def test_hostile_bodies_are_rejected(body):
    rejected(body)


# -- correlation


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        (b'{"incident_id": "i", "remediation_id" : "r"', ("r", "i")),
        (b'{"error": "\\"remediation_id\\": \\"r\\""', (None, None)),
        (b'{"remediation_id": "a\nb"', (None, None)),
        (b'\xff{"remediation_id": "r"}', ("r", None)),
    ],
)
def test_ids_are_searched_in_what_is_no_json(body, ids):
    outcome = rejected(body)
    assert ids == (outcome.remediation_id, outcome.incident_id)
    assert outcome.request_key is None


@pytest.mark.parametrize(
    ("kind", "change", "key"),
    [
        (RequestKind.INCIDENT, {}, "rr%2E1"),
        (RequestKind.INCIDENT, {"recovery_attempt_number": 2}, "rr%2E1"),
        (RequestKind.RECOVERY, {"recovery_attempt_number": 2}, "rr%2E1.2"),
        (RequestKind.RECOVERY, {"recovery_attempt_number": 0}, None),
        (RequestKind.RECOVERY, {}, None),
        (RequestKind.INCIDENT, {"remediation_id": 5}, None),
    ],
)
def test_the_key_of_a_rejected_request(kind, change, key):
    assert key == rejected(BASE | {"severity": "bad"} | change, kind).request_key


def test_another_cluster_is_rejected():
    accepted(BASE, cluster_name="eu-1")
    accepted(BASE | {"cluster_name": "eu-1"}, cluster_name="eu-1")
    accepted(BASE | {"cluster_name": "us-1"})
    outcome = rejected(BASE | {"cluster_name": "us-1"}, cluster_name="eu-1")
    assert (outcome.code, outcome.request_key) == (ValidationCode.WRONG_CLUSTER, "rr%2E1")
    assert "publish to the worker" in outcome.errors[0].expected


# -- whatever comes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
FIELDS = sorted(IncidentRequest.model_fields.keys() | RecoveryRequest.model_fields.keys())
SURROUNDED = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4)


def is_sound(outcome: Decoded | InvalidRequest) -> bool:
    """Whatever is decoded or reported can be written as UTF-8."""
    if isinstance(outcome, Decoded):
        json.dumps(outcome.ignored_fields).encode()
        return bool(outcome.request.model_dump_json())
    return bool(outcome.errors) and all(bool(error.model_dump_json()) for error in outcome.errors)


@given(st.binary(), st.sampled_from(RequestKind))
@example(b"\xef\xbb\xbf", RequestKind.INCIDENT)
@example(b'{"a":"\\ud800"}', RequestKind.RECOVERY)
def test_any_bytes_are_decoded_or_rejected(body, kind):
    assert is_sound(decode(body, kind, NOW))


@given(st.text(alphabet='{}[]":,\\ud8f0123456789eE.-+ntrfasl \n', max_size=60), st.sampled_from(RequestKind))
def test_any_text_like_json_is_decoded_or_rejected(text, kind):
    assert is_sound(decode(text.encode(), kind, NOW))


@given(
    SURROUNDED,
    st.sampled_from([BASE, samples.RECOVERY.model_dump(mode="json")]),
    st.sampled_from(RequestKind),
)
def test_any_object_is_decoded_or_rejected(fields, base, kind):
    assert is_sound(decode(json.dumps(base | fields).encode(), kind, NOW))


@given(st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_any_damage_is_decoded_or_rejected(position, damage):
    body = json.dumps(BASE).encode()
    at = position % len(body)
    assert is_sound(decode(body[:at] + damage + body[at + len(damage) :], RequestKind.INCIDENT, NOW))


@pytest.mark.parametrize(
    ("changes", "notes"),
    [
        ({}, ()),
        ({"severity": "CRITICAL"}, ()),
        ({"severity": "Warning"}, ("the severity warning of the request was read as medium",)),
        ({"severity": "info"}, ("the severity info of the request was read as low",)),
        ({"severity": "error"}, ("the severity error of the request was read as high",)),
        (
            {"signal_type": None, "signal_name": "OOMKilled"},
            ("signal_name of the request was read as signal_type",),
        ),
    ],
)
def test_what_was_read_as_something_else_is_noted(changes, notes):
    decoded = accepted(BASE | changes)
    assert notes == decoded.notes
    assert () == decoded.ignored_fields
