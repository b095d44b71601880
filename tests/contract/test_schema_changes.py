"""No schema breaks the ones that were released, and the check that says so finds what breaks."""

from __future__ import annotations

import copy

import pytest

from schemas.export import MODELS, RECEIVED, schema_of
from tests.contract.schema_changes import breaking, released

OBJECT = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "maxLength": 5},
        "count": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "level": {"$ref": "#/$defs/Level"},
        "inner": {"$ref": "#/$defs/Inner"},
    },
    "$defs": {
        "Level": {"enum": ["low", "high"], "type": "string"},
        "Inner": {
            "type": "object",
            "properties": {"again": {"$ref": "#/$defs/Inner"}, "x": {"type": "number"}},
        },
    },
}


def changed(path, value):
    schema = copy.deepcopy(OBJECT)
    *parents, last = path
    node = schema
    for part in parents:
        node = node[part]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return schema


@pytest.mark.parametrize("name", MODELS)
def test_nothing_that_was_released_breaks(name):
    assert [] == breaking(released()[name], schema_of(name), received=name in RECEIVED)


def test_every_released_schema_is_still_there():
    assert released().keys() <= MODELS.keys()


@pytest.mark.parametrize(
    ("path", "value", "breaks_senders", "breaks_readers"),
    [
        (("properties", "new"), {"type": "string"}, False, False),
        (("required",), ["id", "level"], True, False),
        (("required",), [], False, True),
        (("properties", "level"), None, True, True),
        (("properties", "id", "maxLength"), 4, True, False),
        (("properties", "id", "maxLength"), 6, False, True),
        (("properties", "id", "pattern"), "a", True, False),
        (("properties", "id", "type"), "integer", True, True),
        (("properties", "count"), {"type": "integer", "minimum": 1}, True, False),
        (
            ("properties", "id"),
            {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
            False,
            True,
        ),
        (("$defs", "Level", "enum"), ["low"], True, False),
        (("$defs", "Level", "enum"), ["low", "high", "top"], False, True),
        (("$defs", "Inner", "properties", "x", "type"), "integer", True, False),
        (("$defs", "Inner", "properties", "x"), None, True, True),
        (("additionalProperties",), False, True, False),
    ],
)
def test_a_change_breaks_senders_or_readers_as_listed(path, value, breaks_senders, breaks_readers):
    new = changed(path, value)
    assert breaks_senders == bool(breaking(OBJECT, new, received=True))
    assert breaks_readers == bool(breaking(OBJECT, new, received=False))


def test_events_of_a_new_type_break_nobody():
    old = schema_of("audit-event")
    one = schema_of("audit-event")
    first = old["properties"]["payload"]["oneOf"][0]["$ref"].rpartition("/")[2]
    one["$defs"]["New"] = copy.deepcopy(one["$defs"][first])
    one["$defs"]["New"]["properties"]["event_type"]["const"] = "new.one"
    one["properties"]["payload"]["oneOf"].append({"$ref": "#/$defs/New"})
    assert [] == breaking(old, one, received=False)
    one["$defs"][first]["properties"]["kind"] = {"type": "integer"}
    assert breaking(old, one, received=False)


def test_a_schema_does_not_break_itself():
    for received in (True, False):
        assert [] == breaking(OBJECT, copy.deepcopy(OBJECT), received=received)
