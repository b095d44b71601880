"""One Kubernetes object as compact JSON on one line, shrunk to a budget without losing its shape.

Long values are shrunk from the inside: long texts keep head and tail, long arrays their first and last
elements, deep objects become a mark. A mark names the path that returns the missing part (`get_resource` with
argument `path`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from worker.domain.cluster.fields import dig, text
from worker.domain.cluster.rendering.prune import prune
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.objects import Manifest
from worker.domain.values.tokens import cut_middle, fits

MAX_PATH = 512
MAX_WHOLE = 24_000  # characters of one text that are redacted when it is shown whole
MAX_SLICED = 200_000  # characters of one text that slices may reach
HUGE = 200_000  # characters; objects beyond are shrunk at once
STEP = re.compile(
    r"""\.?(?:
      \[(?P<start>\d{0,9}):(?P<stop>\d{0,9})\]
    | \[(?P<index>\d{1,9})\]
    | \[(?P<key>name=)?['"]?(?P<quoted>[^'"\]]+)['"]?\]
    | (?P<word>[^.\[\]]+)
    )""",
    re.VERBOSE,
)
SPARED = (
    frozenset(
        ("securityContext", "startTime", "podIP", "qosClass", "observedGeneration", "serviceAccountName")
    ),
    frozenset(
        ("volumeMounts", "tolerations", "ports", "finalizers", "podCIDR", "podCIDRs", "nodeInfo", "addresses")
    ),
    frozenset(("affinity", "annotations", "topologySpreadConstraints", "strategy", "updateStrategy")),
)
"""Fields that are left out first where an object is too long, step by step."""
MARK = 60  # characters of a mark; cutting less than this saves nothing
LEVELS: tuple[tuple[int, int, int], ...] = (
    (4000, 60, 16),
    (1600, 40, 14),
    (800, 24, 12),
    (400, 14, 11),
    (200, 10, 10),
    (120, 8, 9),
    (80, 6, 8),
    (60, 4, 6),
    (40, 3, 4),
)
"""Longest text, longest array and greatest depth shown, tried in this order until the object fits."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Text that is within its budget; `cut` says what is missing and how to get it."""

    body: str
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Text that is within its budget, and how many of how many objects, events or lines it shows."""

    body: str
    shown: int
    total: int

    @property
    def left_out(self) -> int:
        """How many are not shown."""
        return self.total - self.shown


class NoSuchPath(Exception):  # noqa: N818 - an answer, not a fault
    """The object has no value at the path. The message names the existing keys."""


def render_object(manifest: Manifest, max_tokens: int, *, path: str = "") -> Rendered:
    """The object, or the part of it at `path`, as one line of JSON of at most `max_tokens`.

    Raises NoSuchPath. Whoever shows the line redacts it: here, only texts are redacted whose secrets would
    not be recognised in it.
    """
    return render_value(at_path(prune(manifest), path), max_tokens, path=path)


def render_value(value: Any, max_tokens: int, *, path: str | None = None) -> Rendered:
    """Any JSON value as one line of at most `max_tokens`, redacted as `render_object` does.

    `path` is the place of the value in an object, if it has one: then cut marks name paths.
    """
    value = _redacted(value)
    full = to_json(value)
    if fits(full, max_tokens):
        return Rendered(full)
    if len(full) > HUGE:
        value = _shrink(value, path, LEVELS[2], 0)
    dropped: list[str] = []
    for fields in SPARED if path is not None else ():
        if dig(value, "metadata", "deletionTimestamp"):
            fields -= {"finalizers"}
        value, found = _without(value, fields)
        dropped += sorted(found - set(dropped))
        leaner = to_json(value)
        if fits(leaner, max_tokens):
            return Rendered(
                leaner, f"left out: {', '.join(dropped)}; use path=... (such as path=spec) to see them"
            )
    for level in LEVELS:
        shrunk = to_json(_shrink(value, path, level, 0))
        if fits(shrunk, max_tokens):
            return Rendered(shrunk, f"parts of {len(full)} characters{_how_to_get(path)}")
    cut = cut_middle(full, max_tokens)
    return Rendered(cut.text, f"{cut.missing} of {len(full)} characters{_how_to_get(path)}")


def _how_to_get(path: str | None) -> str:
    return "" if path is None else " missing; use path=... (as marked, or such as path=spec) for a part"


def _without(value: Any, fields: frozenset[str]) -> tuple[Any, set[str]]:
    """The value without fields of these names, at any depth, and the names that were found."""
    if isinstance(value, list):
        parts = [_without(item, fields) for item in value]
        return [part for part, _ in parts], {name for _, found in parts for name in found}
    if not isinstance(value, dict):
        return value, set()
    found = {key for key in value if key in fields}
    kept: dict[str, Any] = {}
    for key, item in value.items():
        if key not in fields:
            kept[key], more = _without(item, fields)
            found |= more
    return kept, found


def to_json(value: Any) -> str:
    """Compact JSON. Never raises: values that JSON cannot represent become text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str, skipkeys=True)


def at_path(value: Any, path: str) -> Any:
    """The value at a path such as `spec.containers[0].args`.

    Other forms are `data["app.yaml"]`, `spec.containers[name=app]` and `log[100:200]`.

    Keys that hold dots are found without quotes too. A text is redacted before a slice is taken from it: half
    a secret would not be recognised. Raises NoSuchPath.
    """
    steps = _steps(path)
    here = ""
    while steps:
        if isinstance(value, str) and steps[0]["start"] is not None:
            value = redact(_bounded(value, MAX_SLICED))
        value, used = _descend(value, steps, here)
        here += "".join(_spelled(step) for step in steps[:used])
        steps = steps[used:]
    return value


def _steps(path: str) -> list[re.Match[str]]:
    if len(path) > MAX_PATH:
        raise NoSuchPath(f"path is longer than {MAX_PATH} characters")
    path, found, position = path.strip().lstrip("$."), [], 0
    while position < len(path):
        step = STEP.match(path, position)
        if not step:
            raise NoSuchPath(f"path cannot be read from {path[position : position + 40]!r} on")
        found.append(step)
        position = step.end()
    return found


def _spelled(step: re.Match[str]) -> str:
    return f".{step['word']}" if step["word"] else step[0]


def _descend(value: Any, steps: list[re.Match[str]], here: str) -> tuple[Any, int]:
    step = steps[0]
    if step["start"] is not None and isinstance(value, str | list):
        return value[int(step["start"] or 0) : int(step["stop"] or len(value))], 1
    if isinstance(value, list):
        return _element(value, step, here), 1
    if isinstance(value, dict):
        return _member(value, steps, here)
    raise NoSuchPath(f"{here.lstrip('.') or 'the object'} is a single value")


def _element(value: list[Any], step: re.Match[str], here: str) -> Any:
    label = step["index"] or step["quoted"] or step["word"] or ""
    if label.isdecimal() and int(label) < len(value):
        return value[int(label)]
    found = [item for item in value if isinstance(item, dict)]
    for item in found:
        if label and label in {text(item.get("name")), text(item.get("type"))}:
            return item
    if any(label in item for item in found):
        return [{"name": text(item.get("name")), label: item[label]} for item in found if label in item]
    names = [text(item.get("name")) or text(item.get("type")) for item in found]
    known = ", ".join(name for name in names[:20] if name)
    raise NoSuchPath(
        f"{here.lstrip('.')} has no element {label!r}; it has {len(value)} elements{': ' + known if known else ''}"
    )


def _member(value: dict[str, Any], steps: list[re.Match[str]], here: str) -> tuple[Any, int]:
    for used in range(len(steps), 0, -1):  # keys may hold dots: the longest match wins
        key = ".".join(step["word"] or step["quoted"] or step["index"] or "" for step in steps[:used])
        if key in value:
            return value[key], used
    known = ", ".join(str(k) for k in list(value)[:40])
    raise NoSuchPath(
        f"{here.lstrip('.') or 'the object'} has no {_spelled(steps[0]).strip('.')!r}; it has: {known}"
    )


def _redacted(value: Any) -> Any:
    """Texts that JSON would escape are redacted here, on their own; the others with the whole line later."""
    if isinstance(value, dict):
        return {key: _redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    if isinstance(value, str) and any(c in value for c in '\n"\\\t'):
        return redact(_bounded(value, MAX_WHOLE))
    return value


def _bounded(value: str, most: int) -> str:
    if len(value) <= most:
        return value
    return f"{value[: most // 2]}…[{len(value) - most} characters cut]…{value[-(most // 2) :]}"


def _shrink(value: Any, path: str | None, level: tuple[int, int, int], depth: int) -> Any:
    longest, elements, deepest = level
    if isinstance(value, str):
        return value if len(value) <= longest + MARK else _short(value, path, longest)
    if isinstance(value, dict | list) and value and depth >= deepest:
        return f"[cut{_where(path, ': ')}]"
    if isinstance(value, dict):
        return _shrink_object(value, path, level, depth)
    if isinstance(value, list):
        parts = [_shrink(item, _joined(path, i), level, depth + 1) for i, item in _ends(value, elements)]
        if len(value) > elements:
            parts.insert(
                elements // 2 + elements % 2, f"[cut: {len(value) - elements} elements{_where(path)}]"
            )
        return parts
    return value


def _shrink_object(
    value: dict[str, Any], path: str | None, level: tuple[int, int, int], depth: int
) -> dict[str, Any]:
    most = level[1] * 2
    shown = {
        key: _shrink(item, _joined(path, key), level, depth + 1) for key, item in list(value.items())[:most]
    }
    if len(value) > most:
        shown["[cut]"] = f"{len(value) - most} more keys{_where(path)}"
    return shown


def _ends(value: list[Any], elements: int) -> list[tuple[int, Any]]:
    pairs = list(enumerate(value))
    if len(value) <= elements:
        return pairs
    tail = elements // 2
    return pairs[: elements - tail] + (pairs[-tail:] if tail else [])


def _joined(path: str | None, key: str | int) -> str | None:
    if path is None:
        return None
    if isinstance(key, int):
        return f"{path}[{key}]"
    if "." in key or "[" in key:
        return f"{path}['{key}']"
    return f"{path}.{key}" if path else key


def _where(path: str | None, before: str = ", ", part: str = "") -> str:
    return "" if path is None else f"{before}path={path or '<key>'}{part}"


def _short(value: str, path: str | None, longest: int) -> str:
    tail = longest // 2
    head = longest - tail
    where = _where(path, part=f"[{head}:{len(value) - tail}]")
    return f"{value[:head]}…[{len(value) - longest} characters cut{where}]…{value[-tail:]}"
