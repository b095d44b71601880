"""Evidence: what the run has seen of the world, numbered, bounded and fenced.

A piece of evidence reaches the model between two fence lines that carry a random token of the run, so that text from
the cluster or the sender cannot close its own fence or open another one:

    <data-4f2a9c01b7d3 id="E3" source="get_pod_logs" scope="Pod shop/api-0 container app, previous, last 40 lines">
    ...
    </data-4f2a9c01b7d3>

Whatever looks like a fence inside the text is defused, and characters that change how text is displayed or read
(bidi controls, zero-width characters, other control characters) are made visible.
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
"""How sources begin that were read before the model was asked."""
EXTERNAL = "mcp:"
"""How sources begin that are mounted servers. What they say, their errors too, is from outside."""


class EvidenceKind(enum.StrEnum):
    """What a piece of evidence is. Whatever checks an answer takes from an item follows from this, never from a tool."""

    OBJECT = "object"
    """One object of the cluster, whole or in part; the scope names it."""
    OWNERS = "owners"
    """An object of the cluster, named by the scope, and its owners; a note names the owner that could not be read."""
    TABLE = "table"
    """Objects of one kind, one a row; the scope begins with the kind and where they are."""
    EVENTS = "events"
    LOG = "log"
    FACTS = "facts"
    """Anything else that was read from the cluster."""
    OTHER = "other"
    """Not from the cluster: it proves nothing about it. Metrics count here: a query can make up any label."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing that was seen.

    `id` is `E1`, `E2`, ... in the order of gathering (empty until it is numbered). `source` is the tool or the
    enrichment step, `scope` what was really covered, `body` compact text, `cut` what is missing and how to get it, `seen_at`
    when it was read.
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
    """Everything a run has seen, in order. The only state of the evidence. It may begin with numbered `items`.

    `now` tells the time at which an item is seen.
    """

    def __init__(self, items: Iterable[Evidence] = (), now: Callable[[], datetime] | None = None) -> None:
        self._items, self._now = list(items), now

    def add(self, item: Evidence) -> Evidence:
        """Number the item and keep it. One from the journal keeps its time."""
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

    Secrets go before anything is cut or folded: of what is left of them, nobody could tell that it was one.
    """
    flat = _flat(text)
    if flat != text or len(flat) > limit:
        flat = _flat(redact(text))
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def _flat(text: str) -> str:
    return FENCE_LOOKALIKE.sub(r"‹\1", " ".join(make_visible(text).split()))


def fence(item: Evidence, token: str) -> str:
    """The item between its fence lines. `token` is random per run. The scope of enrichment says what it is."""
    scope = one_line(item.scope, 240).replace('"', "'").replace("<", "‹").replace(">", "›")
    body = FENCE_LOOKALIKE.sub(r"‹\1", make_visible(item.body))
    source = "" if item.source.startswith(ENRICHMENT) else f' source="{item.source}"'
    cut = f"\n[cut: {item.cut}]" if item.cut else ""
    number = f' id="{item.id}"' if item.id else ""
    return f'<data-{token}{number}{source} scope="{scope}">\n{body}{cut}\n</data-{token}>'
