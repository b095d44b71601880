from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from schemas.taxonomy import (
    Environment,
    Priority,
    PriorityWord,
    ReasonCode,
    Severity,
    SignalType,
    normalize_severity,
)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("critical", Severity.CRITICAL),
        ("HIGH", Severity.HIGH),
        (" Medium ", Severity.MEDIUM),
        ("low", Severity.LOW),
        ("Unknown", Severity.UNKNOWN),
        ("warning", Severity.MEDIUM),
        ("INFO", Severity.LOW),
        ("Error", Severity.HIGH),
        ("apocalyptic", None),
        ("", None),
    ],
)
def test_severity_in_any_case_with_aliases(text, level):
    assert level is normalize_severity(text)


@pytest.mark.parametrize(("text", "priority"), [("P0", Priority.P0), ("p3", Priority.P3)])
def test_priority_in_any_case(text, priority):
    assert priority is TypeAdapter(PriorityWord).validate_python(text)


@pytest.mark.parametrize("value", ["P4", "", "0", 0, True, ["P0"], {}])
def test_anything_else_is_no_priority(value):
    with pytest.raises(ValidationError, match="one of P0, P1, P2, P3"):
        TypeAdapter(PriorityWord).validate_python(value)


@pytest.mark.parametrize(
    ("text", "name"), [("Production", "production"), ("", "unknown"), (" Dev-2 ", "dev-2")]
)
def test_environment_is_an_open_lower_case_value(text, name):
    assert name == TypeAdapter(Environment).validate_python(text)


def test_an_environment_is_bounded_as_it_is_kept():
    with pytest.raises(ValidationError, match="at most 253 characters"):
        TypeAdapter(Environment).validate_python("\u0130" * 253)


def test_the_vocabularies_may_grow_but_not_shrink():
    assert len(SignalType) >= 13
    assert len(ReasonCode) >= 19
