"""A bad outcome is told everything that is wrong with it, like a bad request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.failure import ValidationCode
from schemas.outcome import RemediationOutcome
from schemas.subjects import Subjects
from tests.fakes import samples
from worker.domain.intake.decode import InvalidRequest, decode_outcome

SUBJECTS = Subjects()
GOOD: dict[str, Any] = samples.OUTCOME.model_dump(mode="json")
SUBJECT = SUBJECTS.outcome("rr-1")


def rejected(body: Any, subject: str = SUBJECT) -> InvalidRequest:
    read = decode_outcome(body if isinstance(body, bytes) else json.dumps(body).encode(), subject, SUBJECTS)
    assert isinstance(read, InvalidRequest)
    return read


def test_a_valid_outcome_is_read():
    assert isinstance(decode_outcome(json.dumps(GOOD).encode(), SUBJECT, SUBJECTS), RemediationOutcome)
    recovery = GOOD | {"kind": "recovery", "recovery_attempt_number": 2}
    read = decode_outcome(json.dumps(recovery).encode(), SUBJECTS.outcome("rr-1.2"), SUBJECTS)
    assert isinstance(read, RemediationOutcome)


@pytest.mark.parametrize(
    ("body", "code", "paths"),
    [
        (b"", ValidationCode.NOT_JSON, [""]),
        (b"[]", ValidationCode.SCHEMA, [""]),
        (b"\xff", ValidationCode.NOT_UTF8, [""]),
        (b'{"kind": NaN}', ValidationCode.NOT_JSON, ["kind"]),
        (GOOD | {"outcome": "great"}, ValidationCode.SCHEMA, ["outcome"]),
        (
            GOOD | {"effectiveness_score": 2, "target": None},
            ValidationCode.SCHEMA,
            ["effectiveness_score", "target"],
        ),
    ],
)
def test_every_error_of_an_outcome_is_listed(body, code, paths):
    read = rejected(body)
    assert code == read.code
    assert sorted(paths) == sorted(error.path for error in read.errors)


def test_a_rejected_outcome_names_its_request():
    assert ("rr-1", "inc-1", "rr-1") == _ids(rejected(GOOD | {"outcome": "great"}))
    recovery = GOOD | {"kind": "recovery", "recovery_attempt_number": 2, "outcome": "great"}
    assert ("rr-1", "inc-1", "rr-1.2") == _ids(rejected(recovery))


def _ids(read):
    return read.remediation_id, read.incident_id, read.request_key


def test_an_outcome_on_the_subject_of_another_key_is_rejected():
    read = rejected(GOOD, SUBJECTS.outcome("rr-2"))
    [error] = read.errors
    assert ("remediation_id", True) == (error.path, SUBJECT in error.expected)


@given(st.binary(max_size=60))
def test_any_body_is_an_outcome_or_rejected(body):
    assert isinstance(decode_outcome(body, SUBJECT, SUBJECTS), InvalidRequest)
