"""The file of a recording: what is written is read back, and what is not a bundle is refused with a reason."""

from __future__ import annotations

import hashlib
import json
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.recording.bundle import (
    GZIP,
    MAX_BYTES,
    VERSION,
    Bundle,
    BundleError,
    RecordedCall,
    SavedStep,
    Versions,
    decode,
    encode,
    encode_within,
)

TEXT = st.text(max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(TEXT, VALUES, max_size=3)
EXCHANGES = st.builds(RecordedCall, call=TEXT, asked=TEXT, answer=st.none() | TEXT, error=st.none() | FIELDS)
BUNDLES = st.builds(
    Bundle,
    key=TEXT,
    kind=st.just("incident"),
    request=FIELDS,
    digest=TEXT,
    lane=TEXT,
    rules=FIELDS,
    versions=st.builds(Versions, program=TEXT, model=TEXT),
    ports=st.lists(TEXT, max_size=2).map(tuple),
    steps=st.lists(st.builds(SavedStep, kind=TEXT, run=TEXT, data=TEXT, notes=FIELDS), max_size=2).map(tuple),
    exchanges=st.lists(EXCHANGES, max_size=3).map(tuple),
    result=TEXT,
)


def bundle(**fields):
    given = {
        "key": "rr-1",
        "kind": "incident",
        "request": {},
        "digest": "d",
        "lane": "p2",
        "rules": {},
        "versions": Versions(),
        "ports": (),
        "result": "{}",
    }
    return Bundle(**{**given, **fields})


def packed(head, body=b"{}"):
    packer = zlib.compressobj(wbits=GZIP)
    return packer.compress(json.dumps(head).encode() + b"\n" + body) + packer.flush()


@given(BUNDLES)
def test_what_is_written_is_read_back(made):
    data = encode(made)
    assert made == decode(data, "file")
    assert data == encode(decode(data, "file"))


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_reason(data):
    with pytest.raises(BundleError, match="file"):
        decode(data, "file")


@pytest.mark.parametrize("data", [b"", b"vm\n", b'{"incident_id": "inc-1"}'])
def test_a_file_that_is_not_packed_is_no_recording(data):
    with pytest.raises(BundleError, match="rca record"):
        decode(data, "file")


def test_a_file_that_was_cut_is_damaged():
    data = encode(bundle(result="x" * 5_000))
    with pytest.raises(BundleError, match="damaged"):
        decode(data[:-8], "file")


def test_a_changed_content_is_damaged():
    head, _, body = zlib.decompress(encode(bundle()), wbits=GZIP).partition(b"\n")
    with pytest.raises(BundleError, match="damaged"):
        decode(packed(json.loads(head), body.replace(b"rr-1", b"rr-2")), "file")


@pytest.mark.parametrize("version", [VERSION + 1, 0, "1", None])
def test_another_version_of_the_format_is_named(version):
    with pytest.raises(BundleError, match="version"):
        decode(packed({"format": "rca-bundle", "version": version, "sha256": ""}), "file")


@pytest.mark.parametrize("head", [[], {}, {"format": "tar"}, 7, None])
def test_another_file_is_not_a_bundle(head):
    with pytest.raises(BundleError, match="rca record"):
        decode(packed(head), "file")


def test_a_file_with_a_good_digest_and_a_wrong_content_is_refused():
    head = {"format": "rca-bundle", "version": VERSION, "sha256": hashlib.sha256(b"{}").hexdigest()}
    with pytest.raises(BundleError, match="can be replayed"):
        decode(packed(head), "file")


def test_a_file_that_unpacks_to_too_much_is_not_read():
    with pytest.raises(BundleError, match=str(MAX_BYTES)):
        decode(packed({}, b"0" * (MAX_BYTES + 1)), "file")


def test_the_largest_answers_are_left_out_until_it_fits():
    chance = random.Random(1)
    answers = ["".join(chance.choices("abcdefgh01234567", k=size)) for size in (50, 40_000, 30_000, 100)]
    made = bundle(
        exchanges=tuple(RecordedCall(call="c", asked=str(n), answer=a) for n, a in enumerate(answers))
    )
    read = decode(encode_within(made, 5_000), "file")
    assert [answers[0], None, None, answers[3]] == [each.answer for each in read.exchanges]
    assert 2 == read.left_out
    assert made == decode(encode_within(made, 1 << 20), "file")
    assert encode(bundle()) == encode_within(bundle(), 10), "nothing is left to leave out"
