"""Evidence: everything a run has seen of the world, numbered, bounded and fenced.

A piece of evidence reaches the model between two fence lines that carry a random token of the run, so that
text from the cluster or the sender cannot close its own fence or open another one:

    <data-4f2a9c01b7d3 id="E3" source="get_pod_logs" scope="Pod shop/api-0 container app, previous, last 40
    lines"> ... </data-4f2a9c01b7d3>

Anything that looks like a fence inside the text is defused, and characters that change how text is displayed
or read (bidi controls, zero-width characters, other control characters) are made visible.
"""

from __future__ import annotations

import enum
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from worker.domain.untrusted.redaction.redact import redact

FENCE_LOOKALIKE = re.compile(r"<(\s*+(?:/\s*+)?data-)", re.IGNORECASE)
HIDDEN_CATEGORIES = {"Cc", "Cf", "Co", "Cs"}
KEPT_CONTROLS = {"\n", "\t"}
ENRICHMENT = "enrichment:"
"""The prefix of sources that were read before the model was asked."""
EXTERNAL = "mcp:"
"""The prefix of mounted servers. Their texts, including errors, come from outside."""


class EvidenceKind(enum.StrEnum):
    """The kind of a piece of evidence, and what it proves to the checks of an answer.

    Each tool names its kind (`ToolDef.shows`). Every kind but OTHER shows that the objects it names exist; the
    kinds also differ in the states that they report (worker/domain/verdict/checks/evidence.py).
    """

    OBJECT = "object"
    """One object of the cluster, whole or in part; the scope names it. Its status reports states."""
    OWNERS = "owners"
    """An object of the cluster, named by the scope, and its owners; a note names the owner that could not be
    read. Its status reports states.
    """
    TABLE = "table"
    """Objects of one kind, one a row; the scope begins with the kind and where they are. Its cells report
    states.
    """
    EVENTS = "events"
    """Events, one a line. Their reasons report states; their messages do not."""
    LOG = "log"
    """Lines of a container, written by a workload: they report no state."""
    FACTS = "facts"
    """Anything else that was read from the cluster. Status fields and table cells in it report states."""
    OTHER = "other"
    """Not from the cluster: it proves nothing about it. Metrics count here: a query can make up any label."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One piece of evidence.

    `id` is `E1`, `E2`, ... in the order of gathering (empty until it is numbered). `source` is the tool or
    the enrichment step, `scope` the part that was actually covered, `body` compact text, `cut` what is
    missing and how to get it, `seen_at` the time of reading.
    """

    source: str
    scope: str
    body: str
    cut: str = ""
    ok: bool = True
    id: str = ""
    kind: EvidenceKind = EvidenceKind.OTHER
    seen_at: datetime | None = None


class EvidenceLog:
    """All evidence of a run, in order.

    It is the only mutable state of evidence. It may begin with numbered `items`.

    `now` tells the time at which an item is seen.
    """

    def __init__(self, items: Iterable[Evidence] = (), now: Callable[[], datetime] | None = None) -> None:
        self._items, self._now = list(items), now

    def add(self, item: Evidence) -> Evidence:
        """Number the item and keep it. An item from the journal keeps its time."""
        seen_at = item.seen_at or (self._now() if self._now else None)
        numbered = replace(item, id=f"E{len(self._items) + 1}", seen_at=seen_at)
        self._items.append(numbered)
        return numbered

    @property
    def items(self) -> tuple[Evidence, ...]:
        """All items so far, oldest first."""
        return tuple(self._items)


def make_visible(text: str) -> str:
    r"""Replace hidden and control characters by `\u{...}`, keep tabs and line ends, drop carriage returns."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        c if c in KEPT_CONTROLS or unicodedata.category(c) not in HIDDEN_CATEGORIES else f"\\u{{{ord(c):x}}}"
        for c in text
    )


def one_line(text: str, limit: int) -> str:
    """Text for a heading or a bullet: visible, on one line, no fence, at most `limit` characters.

    Secrets are removed before anything is cut or folded, because the rest of a secret would not be
    recognised.
    """
    flat = _flat(text)
    if flat != text or len(flat) > limit:
        flat = _flat(redact(text))
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def _flat(text: str) -> str:
    return FENCE_LOOKALIKE.sub(r"‹\1", " ".join(make_visible(text).split()))


def fence(item: Evidence, token: str) -> str:
    """The item between its fence lines.

    `token` is random per run. The scope of enrichment explains itself.
    """
    scope = one_line(item.scope, 240).replace('"', "'").replace("<", "‹").replace(">", "›")
    body = FENCE_LOOKALIKE.sub(r"‹\1", make_visible(item.body))
    source = "" if item.source.startswith(ENRICHMENT) else f' source="{item.source}"'
    cut = f"\n[cut: {item.cut}]" if item.cut else ""
    number = f' id="{item.id}"' if item.id else ""
    return f'<data-{token}{number}{source} scope="{scope}">\n{body}{cut}\n</data-{token}>'
