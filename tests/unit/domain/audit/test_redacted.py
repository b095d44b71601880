"""No secret gets into an audit event, whatever its type and whichever field it stands in."""

from __future__ import annotations

import types
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, StringConstraints

from schemas import audit
from schemas.fields import Message, Sha256
from tests.fakes.canaries import FORMS, Mint, spellings
from worker.domain.audit.redacted import NAME_CHARS, TEXT_CHARS, redacted

DIGEST = "0123456789abcdef" * 4
PAYLOADS = typing.get_args(typing.get_args(audit.Payload)[0])
AROUND = st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "Z"]), max_size=40)


def filled(hint: Any, text: str) -> Any:
    """A value of a type with the text wherever a text may stand."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    plain = {str: text, bool: True, int: 1, float: 0.5, Any: {"deep": [text, {text: text}]}}
    if origin is typing.Annotated:
        value = constrained(hint, filled(arguments[0], text))
    elif origin in {typing.Union, types.UnionType}:
        value = filled(next(one for one in arguments if one is not type(None)), text)
    elif origin is typing.Literal:
        value = arguments[0]
    elif origin is tuple:
        value = (filled(arguments[0], text), filled(arguments[0], text))
    elif origin is dict:
        value = {text: filled(arguments[1], text)}
    elif hint not in plain and issubclass(hint, Message):
        value = message_of(hint, text)
    else:
        value = plain[hint] if hint in plain else next(iter(hint))
    return value


def constrained(hint: Any, value: Any) -> Any:
    """The value as its type allows it: of a fixed form, or cut."""
    constraints = [one for one in hint.__metadata__ if isinstance(one, StringConstraints)]
    if any(one.pattern for one in constraints):
        return DIGEST
    limits = [one.max_length for one in constraints if one.max_length]
    return value[: min(limits)] if limits else value


def message_of(model: type[Message], text: str) -> Message:
    """A message of this type with the text in each of its texts; not validated, as code may build it."""
    hints = typing.get_type_hints(model, include_extras=True)
    return model.model_construct(**{name: filled(hints[name], text) for name in model.model_fields})


class Note(Message):
    """A part of an event that nobody has thought of."""

    words: str = ""


class Invented(Message):
    """An event that nobody has thought of."""

    digest: Sha256
    said: typing.Annotated[str, StringConstraints(max_length=500)] = ""
    by_name: dict[str, Any] = Field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    note: Note | None = None


@pytest.mark.parametrize("model", [*PAYLOADS, Invented], ids=lambda model: model.__name__)
@given(form=st.sampled_from(sorted(FORMS)), before=AROUND, after=AROUND)
def test_no_secret_gets_into_any_event(model, form, before, after):
    mint = Mint(form)
    secret = FORMS[form](mint)
    message = message_of(model, f"{before}\n{secret}\n{after}")
    shown = redacted(message).model_dump_json(warnings=False)
    assert not [window for spelled in spellings(shown) for window in mint.windows if window in spelled]


@pytest.mark.parametrize("model", [*PAYLOADS, Invented], ids=lambda model: model.__name__)
def test_every_text_is_bounded(model):
    shown = redacted(message_of(model, "word " * 10_000)).model_dump(mode="json", warnings=False)

    def check(value):
        if isinstance(value, dict):
            assert all(len(name) <= NAME_CHARS for name in value)
            value = list(value.values())
        for item in value if isinstance(value, list) else ():
            check(item)
        assert not isinstance(value, str) or len(value) <= TEXT_CHARS

    check(shown)


def test_a_value_may_be_a_secret_because_of_its_name():
    event = Invented(digest=DIGEST, by_name={"password": "hunter2", "name": "api"})
    shown = redacted(event)
    assert "hunter2" not in shown.model_dump_json()
    assert "api" == shown.by_name["name"]


def test_what_is_no_free_text_stays_as_it_is():
    ordinary = (
        Invented(digest=DIGEST, said="two pods of api-7d9 are not ready"),
        audit.RequestAccepted(kind="incident", subject="rca.request.incident.p1", request_digest=DIGEST),
        audit.RequestResumed(run="4f2a9c01b7d3", replayed_steps=3, deliveries=2, continues=DIGEST),
        audit.ResponseComplete(
            status="completed", workflow_id="restart-deployment-v1", confidence=0.9, result_sha256=DIGEST
        ),
        audit.ResponseFailed(reason="internal_error", error="ValueError: boom", result_sha256=DIGEST),
    )
    assert list(ordinary) == [redacted(event) for event in ordinary]
