"""Short texts of the sender outside of a fence: without secrets, on one line, bounded."""

from __future__ import annotations

from worker.domain.untrusted.evidence import one_line
from worker.domain.untrusted.redaction.redact import redact

WORD = 128
"""Characters of a free word that are shown."""


def word(text: str, limit: int = WORD) -> str:
    """The text as it may stand in a line of the prompt. What is far longer is cut before it is searched for secrets."""
    return one_line(redact(text[: 16 * WORD]), limit)
