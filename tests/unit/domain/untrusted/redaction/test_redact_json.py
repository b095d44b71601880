"""Redaction of JSON text keeps it JSON: same keys, same shape, only values change."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.untrusted.redaction.redact import redact

KEYS = st.sampled_from(
    [
        "automountServiceAccountToken",
        "password",
        "token",
        "authorization",
        "apiKey",
        "name",
        "containers",
        "a",
    ]
)
VALUES = st.recursive(
    st.one_of(
        st.booleans(), st.none(), st.integers(-(10**9), 10**9), st.sampled_from(["", "x", "postgres:5432"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


def shape(value):
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return (
            []
            if all(not isinstance(item, (dict, list)) for item in value)
            else [shape(item) for item in value]
        )
    return None


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_json_stays_json_with_the_same_keys(document):
    for separators in ((",", ":"), (", ", ": ")):
        text = json.dumps(document, separators=separators)
        assert shape(document) == shape(json.loads(redact(text)))


@pytest.mark.parametrize(
    "text",
    [
        '{"spec":{"automountServiceAccountToken":false,"containers":[{"name":"app"}]}}',
        '{"token":null,"next":2}',
        '{"authorization":{"mode":"RBAC"},"kind":"X"}',
    ],
)
def test_values_that_can_be_no_secret_are_left_alone(text):
    assert text == redact(text)


def test_a_bare_number_under_a_secret_key_is_removed_and_nothing_else():
    assert '{"password":"[REDACTED:password]","next":1}' == redact('{"password":123456,"next":1}')
