"""What `rca dlq` shows of dead letters: everything in them is a sender's."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters.nats.stored import StoredLetter
from worker.app.cli.dlq import _body, _facts, _shown


def letter(body):
    return StoredLetter(3, "internal_error", "boom", "rca.request.incident", 7, 5, datetime.now(UTC), body)


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.text().map(lambda t: json.dumps({"remediation_id": t}).encode())
)
def test_no_body_speaks_to_the_terminal(body):
    shown = [_body(body), *(_shown(str(value)) for value in _facts(letter(body)).values())]
    moving = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not any(char != "\n" and category(char) in moving for text in shown for char in text)
    assert _body(body).isascii()


def test_json_is_shown_as_json():
    assert '{\n  "a": "\\u001b[2J"\n}' == _body(b'{"a": "\\u001b[2J"}')


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"[" * 100_000, b"\xff", b'{"remediation_id": null}'])
def test_a_body_without_an_id_has_a_line_too(body):
    assert "-" == _shown(_facts(letter(body))["remediation_id"])
