"""The tolerant reader reads what has one meaning, and stops at everything else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.verdict.answers.json_text import (
    MAX_DEPTH,
    JsonFault,
    JsonFaultKind,
    read_value,
    same_value,
)

NAMES = st.text(max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda items: st.lists(items, max_size=4) | st.dictionaries(NAMES, items, max_size=4)
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)


def whole(text: str) -> Any:
    value = read_value(text, 0)
    assert len(text) == value.end
    return value.value


def fault(text: str) -> JsonFault:
    try:
        value = read_value(text, 0)
    except JsonFault as found:
        return found
    raise AssertionError(f"was read: {value}")


@given(OBJECTS, st.booleans(), st.sampled_from([None, 0, 2, "\t"]))
def test_all_json_is_read_as_the_standard_library_reads_it(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert same_value(json.loads(text), whole(text))


@given(st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=3), max_size=4))
def test_what_python_prints_is_read(value):
    assert same_value(value, whole(repr(value)))


@given(OBJECTS.map(json.dumps), st.data())
def test_no_strict_prefix_of_an_object_is_a_value(text, data):
    cut = data.draw(st.integers(0, len(text) - 1))
    assert fault(text[:cut]).kind in {JsonFaultKind.END, JsonFaultKind.SYNTAX}


@given(st.text(alphabet="{}[]\",:'/#*\\ \n\u200b“”abtrue019.-eE"))
def test_any_text_is_a_value_or_a_fault(text):
    try:
        value = read_value(text, 0)
        reached = value.end
    except JsonFault as found:
        reached = found.position
    assert 0 <= reached <= len(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 'it\\'s', \"b\": \"it's\"}", {"a": "it's", "b": "it's"}),
        ("{“a”: “b”, ”c”: ”d”, \u2018e\u2019: ’f’}", {"a": "b", "c": "d", "e": "f"}),
        ("{a: 1, $b_2: 2, c-d: 3}", {"a": 1, "$b_2": 2, "c-d": 3}),
        ("[1,]", [1]),
        ('{"a": 1,}', {"a": 1}),
        ('{"a"/* x */: // y {\n1 # z }\n}', {"a": 1}),
        ("[True, False, None, true, false, null]", [True, False, None, True, False, None]),
        ('"a\nb\tc"', "a\nb\tc"),
        (r'"\d \- \' \_ \/ \\ \q"', "\\d - ' _ / \\ \\q"),
        (r'"\x41\u0042\U0001F600\ud83d\ude00"', "AB\U0001f600\U0001f600"),
        (r'"\ud83d x \U99999999"', "\ufffd x \ufffd"),
        ("[+1, .5, 1., -0.5e2]", [1, 0.5, 1.0, -50.0]),
        ("\ufeff\u00a0\u200b{\u3000}", {}),
        ('{"a"\uff1a1\uff0c"b"\uff1a2}', {"a": 1, "b": 2}),
        ('{"a": 1, "a": 1}', {"a": 1}),
        ('"\\"', None),
    ],
)
def test_loose_spelling(text, value):
    if value is None:
        assert JsonFaultKind.END is fault(text).kind
    else:
        assert value == whole(text)


@pytest.mark.parametrize(
    "text",
    [
        "[1 2]",
        '{"a" 1}',
        '{"a": }',
        "{1: 2}",
        "[,]",
        "[1,,]",
        "{,}",
        "[yes]",
        "[NaN]",
        "[Infinity]",
        "[1e400]",
        "[01]",
        "[1.2.3]",
        "[1a]",
        "[12%]",
        "[0x1f]",
        f"[{2**63}]",
        f"[{'1' * 41}]",
        "(1,)",
        "[`a`]",
        "{'a', 'b'}",
        '{"a": 1]',
        "[1}",
        '{"' + "k" * 201 + '": 1}',
        "[\u0661]",
        '["a" "b"]',
        "[u'a']",
        "{...}",
        "[1;]",
    ],
)
def test_no_meaning_is_made_up(text):
    assert JsonFaultKind.SYNTAX is fault(text).kind


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[", '"a', "{'a", '{"a"', '{"a":', '{"a": 1', "[1,", "[1 /* ]", "[1 // ]", "[nul"]
)
def test_a_text_that_stops_is_told_apart(text):
    assert JsonFaultKind.END is fault(text).kind


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": 1, "a": 1.0}', '{"a": {"x": 1}, "a": {}}', "{a: 0, 'a': False}"]
)
def test_one_key_has_one_value(text):
    found = fault(text)
    assert (found.kind, "'a'" in found.message) == (JsonFaultKind.DUPLICATE, True)


def test_depth_is_bounded():
    assert len(whole("[" * MAX_DEPTH + "]" * MAX_DEPTH)) == 1
    assert "deeper" in fault("[" * (MAX_DEPTH + 1)).message


def test_a_fault_tells_what_it_saw_before():
    found = fault('{"a": {b: 1, "c": oops}}')
    assert (found.keys, found.quoted_key, found.position) == (("a", "b", "c"), True, 18)


def test_values_are_equal_only_when_they_are_of_one_kind():
    assert [
        same_value(1, True),
        same_value(1, 1.0),
        same_value(0, None),
        same_value({"a": [1], "b": 2}, {"b": 2, "a": [1]}),
    ] == [False, False, False, True]
    assert math.isclose(0.1, whole("0.1"))
