"""JSON inside a string, where an answer has an object or a list: some models encode parts of an answer once more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from worker.domain.verdict.answers.fields import plain
from worker.domain.verdict.answers.json_text import JsonFault, read_value

MAX_LAYERS: Final = 4
"""How often one value may be encoded."""
OBJECTS: Final = frozenset({
    "rootcauseanalysis", "rca", "rootcause", "currentrca", "affectedresource", "affectedobject", "affectedresources",
    "remediationtarget", "targetresource", "selectedworkflow", "recommendedworkflow", "chosenworkflow", "workflow",
    "alternativeworkflows", "alternatives", "strategies", "recommendations", "remediationrecommendations",
    "causalchain", "causalclaims", "chainofcauses", "evidence", "contextused", "recoveryanalysis",
    "previousattemptassessment", "recoverystrategy", "approval", "humanreview",
})  # fmt: skip
"""Fields that hold objects, or lists of objects."""
VALUES: Final = frozenset({"parameters", "params", "contributingfactors", "warnings"})
"""Fields that hold an object or a list whose items are left as they are: a parameter may be a text of JSON."""


def embedded(text: str) -> Any:
    """The object or list that a text is the JSON of, however often it was encoded; the text itself when it is none."""
    value: Any = text
    for _ in range(MAX_LAYERS):
        if not isinstance(value, str) or value.lstrip()[:1] not in {"{", "[", '"'}:
            break
        try:
            read = read_value(value, len(value) - len(value.lstrip()))
        except JsonFault:
            return text
        if value[read.end :].strip():
            return text
        value = read.value
    return value if isinstance(value, dict | list) else text


def unwrapped(value: Any, *, holds_objects: bool = False) -> Any:
    """The answer with every object and list that was written as a string in its place. Texts stay as they are."""
    if holds_objects and isinstance(value, str):
        value = embedded(value)
    if isinstance(value, list):
        return [unwrapped(item, holds_objects=holds_objects) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _field(plain(key), item) for key, item in value.items()}


def _field(name: str, item: Any) -> Any:
    if name in VALUES:
        return embedded(item) if isinstance(item, str) else item
    return unwrapped(item, holds_objects=name in OBJECTS)
