"""How a request is named by a person."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.subjects import request_key
from worker.app.operations import OperationError, read_key

IDS = st.text(min_size=1, max_size=20)


@given(IDS, st.none() | st.integers(1, 99))
def test_a_key_names_its_request(remediation_id, attempt):
    key = request_key(remediation_id, attempt)
    assert key == read_key(key)


@pytest.mark.parametrize(
    ("given_id", "key"),
    [("rr 1", "rr%201"), ("a.b.c", "a%2Eb%2Ec"), ("100%", "100%25"), ("ü.2x", "%C3%BC%2E2x")],
)
def test_a_remediation_id_names_its_incident(given_id, key):
    assert key == read_key(given_id)


@pytest.mark.parametrize(
    ("text", "keys"), [("a.b.3", ("a%2Eb%2E3", "a%2Eb.3")), ("", ()), ("\udcff", ())], ids=ascii
)
def test_what_may_mean_two_requests_or_none_is_refused_with_the_keys(text, keys):
    with pytest.raises(OperationError) as refused:
        read_key(text)
    assert all(key in str(refused.value) for key in keys)


@given(st.text(max_size=20))
def test_any_text_is_a_key_or_refused(text):
    try:
        key = read_key(text)
    except OperationError:
        return
    assert key == read_key(key)
