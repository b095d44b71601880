"""Redaction looks at a few lines only, and finds there what it would find if it looked at all of them."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.untrusted.redaction.pair_forms import FORMS
from worker.domain.untrusted.redaction.pairs import MAX_KEYS, SecretKeys, mask_pairs, mask_with
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.untrusted.redaction.shapes import HINTS, SHAPES, is_plain_name
from worker.domain.untrusted.redaction.words import distinct_words, folded, lines_with, mask_lines

PIECES = [
    "password", "token", "tokens:", "apiKeys", "key", "api key", "private_key", "name", "value", '"', "'", '\\"', "\\n", "\n",
    "\n  ", "\n- ", " ", ": ", ":", "=", "%3A", "\\u003d", "&quot;", ",", "{", "}", "(", ")", "|", "</", "--", "@", "://",
    "Bearer ", "ghp_abcdefABCDEF0123456789", "AKIAABCDEFGHIJKLMNOP", "hunter2", "not set", "requirepass ", "-u bob:hunter2",
    "psw", "sig", "auth", "secret", "\\", "1", "\u212a", "\u017f", "\u0130", "\u00e9", "\u00a0", "\r\n", "a.b/c", "$2a$10$abcdefgh",
    "host:5432:db:bob:hunter2", "bob:hunter2@db/orders", "IDENTIFIED BY 'hunter2'", "mysql -phunter2", "glpat-abcdefghijklmnop12",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@given(texts)
def test_a_shape_is_found_in_the_lines_of_its_needles(text):
    words = distinct_words(text)
    for shape in SHAPES:
        if any(hint in words for hint, owner in HINTS if owner is shape):
            assert shape.mask(text) == shape.mask_all(text)
        elif not shape.pattern.flags & re.IGNORECASE:
            assert shape.mask_all(text) == text


@given(texts)
def test_a_key_is_found_in_its_line(text):
    lines = SecretKeys.of(distinct_words(text)).lines(text)
    for form in FORMS:
        assert mask_with(form, text, lines[form]) == mask_with(form, text, [(0, len(text))])


def test_many_keys_are_found_as_well():
    text = "\n".join(f"{name}_password=hunter2" for name in string.ascii_lowercase + string.ascii_uppercase)
    assert text.count("\n") > MAX_KEYS
    assert "hunter2" not in mask_pairs(text, distinct_words(text))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.needles[0])
def test_a_needle_is_one_word(shape):
    assert all(len(needle.split()) == 1 for needle in shape.needles)


@given(st.text())
def test_lower_case_keeps_the_length(text):
    assert len(folded(text)) == len(text)
    assert "k" in folded("\u212a")
    assert folded("\u0130\u0131\u017f") == "iis"


def test_words_are_told_apart_once_with_zeros_for_digits():
    assert sorted(distinct_words('took 12 ms, took 34 ms "took"').split()) == ["00", "ms", "took"]


def test_lines_are_masked_in_place():
    text = "one\ntwo\nthree\ntwo"
    assert lines_with(text, ["two", re.compile("w")]) == [(4, 7), (14, 17)]
    assert mask_lines(text, lines_with(text, ["two"]), str.upper) == "one\nTWO\nthree\nTWO"


def test_ordinary_lines_stay_as_they_are():
    line = '2026-05-11T21:42:10Z level=info msg="request served" path=/api/v1/orders status=200 took=12ms\n'
    assert redact(line * 1_000) == line * 1_000


@given(
    st.from_regex(r"[A-Za-z0-9_.-]{0,60}", fullmatch=True)
    | st.sampled_from(["sk-a1b2", "glpat-x", "hvs.x", "xoxb-1"])
)
def test_a_plain_name_is_no_secret(text):
    assert not is_plain_name(text) or redact(f"{text} ") == f"{text} "


@pytest.mark.parametrize(
    "secret", ["xoxb-123456789012-abcdefghijkl", "glpat-abcdefghijklmnop12", "hvs.abcdefghijklmnopqr"]
)
def test_a_secret_in_lower_case_is_no_plain_name(secret):
    assert not is_plain_name(secret)
    assert secret not in redact(secret)
