"""A container's log as text for the model: decoded, cleaned, repeats folded, cut to a budget.

The end of a log matters most, its beginning says what was started, and in between lines that report errors
matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from worker.domain.cluster.fields import moment
from worker.domain.cluster.pods import Container
from worker.domain.cluster.rendering.compact import Excerpt, Rendered
from worker.domain.untrusted.evidence import make_visible
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.tokens import cut_middle, estimate_tokens

MAX_LINE = 600  # characters
MAX_LINES = 20_000
MAX_BLOCK = 6  # lines of a repeated block
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
VARIABLE = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"  # date and time
    r"|\d{1,2}/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d(?: [+-]\d{4})?"
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
    r"|\[\d+\]|(?<=pid[ =:])\d+"
    r"|\b[0-9a-f]{16,64}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b1[5-9]\d{8}(?:\.\d+|\d{3})?\b"  # seconds or milliseconds since 1970
    r"|(?<=^[IWEF])\d{4}\b"  # the date of klog
)
TROUBLE = re.compile(
    r"error|fatal|panic|exception|traceback|fail|refused|denied|unauthori[sz]ed|forbidden|timed? ?out|timeout"
    r"|out of memory|oom|killed|cannot|can't|could not|unable|no such|not found|invalid|expired|x509|certificate"
    r"|too many|no space|exhausted|unreachable|reset by peer|corrupt|crash|abort|warn|caused by|deadlock|segfault",
    re.IGNORECASE,
)


def clean_lines(raw: bytes) -> list[str]:
    """The lines of a log, made visible and bounded.

    Invalid UTF-8 is replaced; colours and overwritten progress are removed.
    """
    lines = raw.decode("utf-8", "replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [_clean(line) for line in lines[-MAX_LINES:]]


def _clean(line: str) -> str:
    if len(line) > 8 * MAX_LINE:
        line = f"{line[: 4 * MAX_LINE]}…[{len(line) - 8 * MAX_LINE} characters cut]…{line[-4 * MAX_LINE :]}"
    line = ANSI.sub("", line).rstrip("\r")
    if "\r" in line:
        line = line.rsplit("\r", 1)[1] or line
    line = make_visible(line).replace("\n", " ").rstrip()
    if len(line) > MAX_LINE:
        head = MAX_LINE * 2 // 3
        line = f"{line[:head]}…[{len(line) - MAX_LINE} characters cut]…{line[head - MAX_LINE :]}"
    return line


def matching(lines: list[str], wanted: str) -> list[str]:
    """Lines that contain one of the texts of `a|b|c`, ignoring case.

    They are plain text, not patterns, so the search is linear.
    """
    needles = [part.strip().lower() for part in wanted.split("|") if part.strip()]
    return [line for line in lines if any(needle in line.lower() for needle in needles)]


TIME_IN_LINE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\d*(Z|[+-]\d\d:?\d\d)?")


class NoSuchPlace(Exception):  # noqa: N818 - a state of the log
    """No line has the requested time or text. The message is the request."""


def between(lines: list[str], after: str, before: str) -> list[str]:
    """The lines after one place and before another.

    A place is a time or a text in a line; an empty one sets no bound. `before` is searched for after `after`.
    Raises NoSuchPlace for a text that no line contains.
    """
    start, end = 0, len(lines)
    if after:
        at = moment(after)
        start = _first(lines, at) if at else _holding(lines, after) + 1
    if before:
        at = moment(before)
        end = _first(lines, at) if at else start + _holding(lines[start:], before, last=True)
    return lines[start:end]


def _first(lines: list[str], at: datetime) -> int:
    """The first line with a time at or after this one; the end when there is none."""
    for index, line in enumerate(lines):
        found = TIME_IN_LINE.search(line)
        written = moment(found[0].replace(" ", "T").replace(",", ".")) if found else None
        if written is not None and written >= at:
            return index
    return len(lines)


def _holding(lines: list[str], text: str, *, last: bool = False) -> int:
    wanted = text.strip().lower()
    found = [index for index, line in enumerate(lines) if wanted in line.lower()]
    if not found:
        raise NoSuchPlace(text)
    return found[-1] if last else found[0]


STATUS_CODE = r"""(?:(?<=["' ])|(?<=status[=:])|(?<=code[=:]))[1-5]\d\d(?=["' ,}]|$)"""
NUMBER = re.compile(rf"(?P<kept>{STATUS_CODE})|\d+(?:\.\d+)*")
"""Numbers. Possible status codes are kept apart."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A line as shown, and how many lines of the log it stands for."""

    text: str
    count: int = 1


def fold(lines: list[str]) -> list[Folded]:
    """Repeats of a line, or of a block of a few lines, that differ only in times and ids are shown once.

    A repeated line ends in `  (repeated 12 times)`; the newest of the repeats is the one shown.
    """
    return _folded([Folded(line) for line in lines], [VARIABLE.sub("~", line) for line in lines], "")


def fold_similar(items: list[Folded]) -> list[Folded]:
    """Neighbours that differ only in numbers (but for status codes) become one: for long logs."""
    keys = [
        f"{index}" if "  (repeated " in item.text or not item.count else NUMBER.sub(_number, item.text)
        for index, item in enumerate(items)
    ]
    return _folded(items, keys, ", with other numbers")


def _number(found: re.Match[str]) -> str:
    return found["kept"] or "~"


def _folded(items: list[Folded], keys: list[str], how: str) -> list[Folded]:
    folded: list[Folded] = []
    start = 0
    while start < len(items):
        size, times = _repeats(keys, start)
        block = items[start + size * (times - 1) : start + size * times]
        if times < 2:
            folded.append(items[start])
        elif size == 1:
            together = sum(item.count for item in items[start : start + times])
            folded.append(Folded(f"{block[0].text}  (repeated {times} times{how})", together))
        else:
            folded += [
                Folded(item.text, sum(i.count for i in items[start + n : start + size * times : size]))
                for n, item in enumerate(block)
            ]
            folded.append(Folded(f"  (the {size} lines above repeated {times} times{how})", 0))
        start += size * times
    return folded


def _repeats(keys: list[str], start: int) -> tuple[int, int]:
    """Size and number of the repeats that cover most lines from `start` on."""
    best = (1, 1)
    for size in range(1, MAX_BLOCK + 1):
        if start + 2 * size > len(keys):
            break
        block = keys[start : start + size]
        end = start + size
        while keys[end : end + size] == block:
            end += size
        times = (end - start) // size
        if times > 1 and size * times > best[0] * best[1]:
            best = (size, times)
        if times > 1 and size == 1:
            break
    return best


def render_log(lines: list[str], max_tokens: int) -> Excerpt:
    """Folded lines within the budget: the end first, then lines that report trouble, then the beginning."""
    folded = fold(lines)
    costs = [estimate_tokens(item.text) + 1 for item in folded]
    if sum(costs) > max_tokens:
        folded = fold_similar(folded)
        costs = [estimate_tokens(item.text) + 1 for item in folded]
    if sum(costs) <= max_tokens:
        return Excerpt("\n".join(f.text for f in folded), len(lines), len(lines))
    room = max_tokens - 10
    head_room, tail_room = int(room * 0.12), int(room * 0.55)
    shown: set[int] = set()
    room -= _take(range(len(folded) - 1, -1, -1), costs, tail_room, shown)
    room -= _take(range(len(folded)), costs, head_room, shown)
    trouble = [i for i in range(len(folded) - 1, -1, -1) if TROUBLE.search(folded[i].text)]
    _take_each(_first_of_each(trouble, folded), costs, room, shown)
    if not shown:
        return _one_line_only(folded, len(lines), max_tokens)
    return Excerpt(_joined(folded, sorted(shown)), sum(folded[i].count for i in shown), len(lines))


def _take(order: range, costs: list[int], room: int, shown: set[int]) -> int:
    spent = 0
    for index in order:
        if index in shown or spent + costs[index] > room:
            break
        shown.add(index)
        spent += costs[index]
    return spent


def _first_of_each(order: list[int], folded: list[Folded]) -> list[int]:
    """The same order with lines that differ only in numbers moved behind the first of their kind."""
    seen: dict[str, int] = {}
    for index in order:
        seen.setdefault(NUMBER.sub(_number, folded[index].text), index)
    first = set(seen.values())
    return [*seen.values(), *(index for index in order if index not in first)]


def _take_each(order: list[int], costs: list[int], room: int, shown: set[int]) -> None:
    for index in order:
        cost = costs[index] + 6  # and a mark for the gap before it
        if index not in shown and cost <= room:
            shown.add(index)
            room -= cost


def _joined(folded: list[Folded], shown: list[int]) -> str:
    parts: list[str] = []
    before = -1
    for index in [*shown, len(folded)]:
        gap = sum(f.count for f in folded[before + 1 : index])
        if gap:
            parts.append(f"[… {gap} lines cut …]")
        if index < len(folded):
            parts.append(folded[index].text)
        before = index
    return "\n".join(parts)


def _one_line_only(folded: list[Folded], total: int, max_tokens: int) -> Excerpt:
    mark = [f"[… {total - 1} lines cut …]"] if total > 1 else []
    room = max_tokens - sum(estimate_tokens(line) + 1 for line in mark)
    last = cut_middle(folded[-1].text, max(room, 1), tail_share=0.9).text
    return Excerpt("\n".join([*mark, last]), min(1, total), total)


MAX_REDACTED = 48 * 1024  # characters that are redacted; the middle of longer logs is dropped


def redacted(lines: list[str]) -> list[str]:
    """The lines without secrets, redacted as one text, because a key may span lines.

    The middle of very long logs is dropped.
    """
    bounded = _bounded(lines)
    return redact("\n".join(bounded)).split("\n") if bounded else []


def log_excerpt(lines: list[str], max_tokens: int, total: int) -> Rendered:
    """Redacted lines folded and cut to the budget. `total` is how many lines the log had."""
    shown = render_log(lines, max_tokens)
    missing = total - shown.shown
    note = (
        f"{missing} of {total} lines; use grep, or before and after with a smaller tail_lines"
        if missing > 0
        else ""
    )
    return Rendered(shown.body, note)


def _bounded(lines: list[str]) -> list[str]:
    if sum(map(len, lines)) + len(lines) <= MAX_REDACTED:
        return lines
    head = list(_first_within(MAX_REDACTED // 6, lines))
    tail = list(_first_within(MAX_REDACTED * 5 // 6, reversed(lines[len(head) :])))
    return [*head, *reversed(tail)]


def _first_within(room: int, lines: Iterable[str]) -> Iterator[str]:
    """Yield the first lines, as far as they fit into so many characters."""
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return
        yield line


def most_interesting(found: list[Container]) -> Container:
    """The container whose log to read first.

    It is a failing one, else a running init container, else a crashed one, else an app container.
    """
    apps = [c for c in found if c.kind == "app"] or found
    failing = [c for c in found if c.failing]
    at_work = [c for c in found if c.kind == "init" and c.running]
    crashed = [c for c in found if c.ran_before]
    return next(iter([*failing, *at_work, *crashed, *apps]))
