"""Which container of a pod is the interesting one, and how much of its log is shown."""

from __future__ import annotations

from collections.abc import Callable

from worker.domain.cluster.pods import ContainerState
from worker.domain.cluster.rendering.compact import Rendered
from worker.domain.cluster.rendering.log_text import render_log

MAX_REDACTED = 48 * 1024  # characters that are redacted; only the middle of more is lost


def redacted(lines: list[str], redact: Callable[[str], str]) -> list[str]:
    """The lines without secrets, redacted as one text: a key may span lines. The middle of very long logs is lost."""
    bounded = _bounded(lines)
    return redact("\n".join(bounded)).split("\n") if bounded else []


def log_excerpt(lines: list[str], max_tokens: int, total: int) -> Rendered:
    """Redacted lines folded and cut to the budget. `total` is how many lines the log had."""
    shown = render_log(lines, max_tokens)
    missing = total - shown.shown
    note = f"{missing} of {total} lines; use grep or a smaller tail_lines" if missing > 0 else ""
    return Rendered(shown.body, note)


def _bounded(lines: list[str]) -> list[str]:
    if sum(map(len, lines)) + len(lines) <= MAX_REDACTED:
        return lines
    head, tail, room = list[str](), list[str](), MAX_REDACTED // 6
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        head.append(line)
    room = MAX_REDACTED * 5 // 6
    for line in reversed(lines[len(head) :]):
        room -= len(line) + 1
        if room < 0:
            break
        tail.append(line)
    return [*head, *reversed(tail)]


def most_interesting(found: list[ContainerState]) -> ContainerState:
    """The container whose log tells most: one that fails, an init container at work, one that crashed, an app."""
    apps = [c for c in found if c.kind == "app"] or found
    failing = [c for c in found if c.failing]
    at_work = [c for c in found if c.kind == "init" and c.running]
    crashed = [c for c in found if c.ran_before]
    return next(iter([*failing, *at_work, *crashed, *apps]))
