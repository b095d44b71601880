"""Reads the fields of an answer, with keys in any spelling.

Texts and lists are bounded, and confidence may have any clear scale.

Some models encode parts of an answer once more: JSON inside a string, where the answer has an object or a
list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from worker.domain.untrusted.evidence import one_line
from worker.domain.verdict.answers.answer import Problem, ProblemKind
from worker.domain.verdict.answers.json_text import JsonFault, read_value

MAX_TEXT_CHARS = 4_000
MAX_ID_CHARS = 512
MAX_ITEMS = 20
MAX_KEYS = 50
MAX_TREE_DEPTH = 6

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBER = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,20})?|\.[0-9]{1,20})\s*(%|percent|/\s*(?:100|10|1(?:\.0)?))?")
_SCALES = {"%": 100.0, "percent": 100.0, "/100": 100.0, "/10": 10.0, "/1": 1.0, "/1.0": 1.0}
_NOTHING = frozenset({
    "none", "null", "nil", "na", "noworkflow", "nomatchingworkflow", "nomatchingworkflows", "nosuitableworkflow",
    "noworkflowselected", "noworkflowfound", "notapplicable", "noneselected",
})  # fmt: skip
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
"""Fields that hold an object or a list whose items are left as they are: a parameter may be a text of JSON.
"""


class Contradiction(Exception):  # noqa: N818 - a state of the answer
    """The answer gives two different values where one is needed. The message tells the model which."""


def plain(key: str) -> str:
    """A key without case, underscores, hyphens and spaces.

    `affectedResource` and `affected_resource` give the same.
    """
    return re.sub(r"[^a-z0-9]", "", key.lower())


def snake(key: str) -> str:
    """A key in snake_case."""
    return re.sub(r"[\s-]+", "_", _CAMEL.sub("_", key.strip())).lower()


def clean(text: str) -> str:
    """Text without outer white space; control characters and lone surrogates are replaced."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n")).strip()


def is_nothing(value: Any) -> bool:
    """True if a value says that there is none: null, empty, or a word for it."""
    if isinstance(value, str):
        return value.strip() in {"", "-"} or plain(value) in _NOTHING
    return value is None or (isinstance(value, dict | list) and not value)


def _as_text(value: Any) -> Any:
    """A value with its numbers as text, since models write `6` and `"6"` alike."""
    return json.loads(json.dumps(value), parse_int=str, parse_float=lambda number: number.removesuffix(".0"))


def single(value: Any, what: str) -> Any:
    """The item of a list with one item, None for an empty list, any other value as it is."""
    if not isinstance(value, list):
        return value
    if len(value) > 1:
        raise Contradiction(f"{what} is a list of {len(value)} values, but one value is needed")
    return value[0] if value else None


class Fields:
    """A JSON object whose keys are found in any spelling."""

    def __init__(self, value: Any) -> None:
        self._values: dict[str, list[tuple[str, Any]]] = {}
        for key, item in (value if isinstance(value, Mapping) else {}).items():
            self._values.setdefault(plain(key), []).append((key, item))

    def states(self, *names: str) -> bool:
        """True if one of the keys is there, even with null."""
        return any(name in self._values for name in names)

    def entries(self, *names: str) -> list[tuple[str, Any]]:
        """All of the keys that are there, as written, with their values."""
        return [entry for name in names for entry in self._values.get(name, [])]

    def get(self, *names: str) -> Any:
        """The one value of keys that mean the same, None without any. Raises Contradiction when they differ.

        A null beside a value is a place that was left empty.
        """
        return agreed_in([self], *names)


def agreed(entries: list[tuple[str, Any]]) -> Any:
    """The one value of several entries of one field, null included; None without any.

    Raises Contradiction when two of them differ.
    """
    for key, value in entries[1:]:
        first, known = entries[0]
        if _as_text(value) != _as_text(known):
            places = f"{_shown(known)} in `{one_line(first, 60)}`, {_shown(value)} in `{one_line(key, 60)}`"
            raise Contradiction(f"{places}; give one value")
    return entries[0][1] if entries else None


def agreed_in(sources: Iterable[Fields], *names: str) -> Any:
    """The one value of a field that may stand in several objects, without nulls.

    Raises Contradiction when they differ.
    """
    entries = (entry for source in sources for entry in source.entries(*names))
    return agreed([(key, value) for key, value in entries if value is not None])


def _shown(value: Any) -> str:
    return one_line(json.dumps(value, ensure_ascii=False), 60)


class Reading:
    """Takes values out of an answer. Cuts are noted; values that cannot be used are problems."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.problems: list[Problem] = []

    def problem(self, kind: ProblemKind, path: str, message: str) -> None:
        """Add a problem for which the verdict will reject the answer."""
        self.problems.append(Problem(kind, path, message))

    def text(self, value: Any, what: str, limit: int = MAX_TEXT_CHARS) -> str:
        """Any value as text, at most `limit` characters and a mark of the cut."""
        if value is None:
            return ""
        content = clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        if len(content) <= limit:
            return content
        self.notes.append(f"{what} was cut at {limit} characters")
        return content[:limit] + "…"

    def prose(self, entries: Iterable[tuple[str, Any]], what: str) -> str:
        """The different texts of a field, joined: two wordings do not contradict each other."""
        texts = (self.text(value, what) for _, value in entries)
        return self.text(" ".join(dict.fromkeys(text for text in texts if text)), what)

    def name(self, value: Any, what: str) -> str:
        """A name or id. One that is too long keeps a mark, so that it can't match by its head."""
        return self.text(value, what, MAX_ID_CHARS)

    def texts(self, value: Any, what: str) -> tuple[str, ...]:
        """A list of texts; a single text is a list of one."""
        if is_nothing(value):
            return ()
        texts = (self.text(item, what) for item in self.items(value, what))
        return tuple(text for text in texts if text)

    def items(self, value: Any, what: str) -> list[Any]:
        """The first items of a list; any other value is the only item."""
        items = value if isinstance(value, list) else [value]
        if len(items) > MAX_ITEMS:
            self.notes.append(f"{what} was cut at {MAX_ITEMS} items")
        return items[:MAX_ITEMS]

    def confidence(self, value: Any, path: str) -> float | None:
        """A confidence from 0 to 1, or None. An unclear scale is a problem, too."""
        if is_nothing(value):
            return None
        confidence = clear_confidence(value)
        if confidence is None:
            shown = self.text(value, path, 60)
            self.problem(ProblemKind.UNREADABLE, path, f"is {shown!r}: give one number from 0.0 to 1.0.")
        return confidence

    def tree(self, value: Any, what: str, depth: int = 1) -> Any:
        """A JSON value with keys in snake_case, within bounds of depth, size and text."""
        if isinstance(value, str):
            return self.text(value, what)
        if not isinstance(value, dict | list):
            return value
        limit = MAX_KEYS if isinstance(value, dict) else MAX_ITEMS
        if depth > MAX_TREE_DEPTH or len(value) > limit:
            self.notes.append(f"{what} was cut: too deep or too many entries")
        if depth > MAX_TREE_DEPTH:
            return None
        if isinstance(value, list):
            return [self.tree(item, what, depth + 1) for item in value[:limit]]
        return {snake(key): self.tree(item, what, depth + 1) for key, item in list(value.items())[:limit]}


def clear_confidence(value: Any) -> float | None:
    """0..1 from a number or text such as `0.85`, `"85%"`, `"8/10"` or 85.

    A scale of 100 is the only one that fits 85.

    A plain number above 1 and up to 10 fits two scales, and is None like everything out of range.
    """
    unit = ""
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value.strip().lower())
        if match is None:
            return None
        number, unit = float(match.group(1)), re.sub(r"\s", "", match.group(2) or "")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    else:
        return None
    if not unit and 10 < number <= 100:
        unit = "%"
    scaled = round(number / _SCALES.get(unit, 1.0), 6)
    return scaled if 0 <= scaled <= 1 else None


def embedded(text: str) -> Any:
    """The object or list that a text encodes, however often; the text itself if it encodes neither."""
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
    """The answer with every encoded object and list decoded in its place. Other texts stay as they are."""
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
