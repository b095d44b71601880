"""The form that is hashed, and what another language needs to check it."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.chain import HEAD_PURPOSE, canonical, event_hash, genesis, head_text
from tests.fakes import samples

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


def test_the_form_is_the_documented_one():
    value = {
        "b": [1, 1.0, 0.92, 1e-7, 1e16, -0.0],
        "a": 'é"\\\n\x1f/',
        "É": None,
        "\U0001f525": True,
        "\uffff": False,
    }
    expected = '{"a":"é\\"\\\\\\n\\u001f/","b":[1,1.0,0.92,1e-07,1e+16,-0.0],"É":null,"\uffff":false,"\U0001f525":true}'
    assert expected.encode() == canonical(value)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_the_form_reads_back_and_is_written_the_same_again(value):
    assert canonical(value) == canonical(json.loads(canonical(value)))


def test_an_unpaired_surrogate_has_no_form():
    with pytest.raises(ValueError, match="surrogates"):
        canonical({"a": "\ud800"})


@pytest.mark.parametrize("event", samples.EVENTS.values(), ids=list(samples.EVENTS))
def test_the_hash_can_be_computed_from_the_published_bytes_alone(event):
    document = event.model_dump(mode="json")
    cut = re.sub(rb'"hash":"[0-9a-f]{64}",', b"", canonical(document), count=1)
    assert event.hash == hashlib.sha256(cut).hexdigest() == event_hash(document)


def test_the_samples_are_a_chain():
    events = list(samples.EVENTS.values())
    assert [genesis("rr-1", "run-1"), *(e.hash for e in events[:-1])] == [e.prev for e in events]


def test_a_genesis_is_bound_to_request_and_chain():
    assert hashlib.sha256(b'{"chain":"c","request_key":"k"}').hexdigest() == genesis("k", "c")
    assert 4 == len({genesis(key, chain) for key in ("a", "b") for chain in ("a", "b")})


def test_what_is_signed_names_request_chain_and_count_and_does_not_depend_on_the_signature():
    end = samples.EVENTS["response.complete"].model_dump(mode="json")
    text = json.loads(head_text(end))
    unsigned = {name: value for name, value in end.items() if name != "signature"}
    assert {
        "chain": "run-1",
        "count": end["sequence"],
        "head": event_hash(unsigned),
        "purpose": HEAD_PURPOSE,
        "request_key": "rr-1",
    } == text
    assert head_text(end) == head_text({**end, "signature": {"key_id": "x"}, "hash": "y"})
