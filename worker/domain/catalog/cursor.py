"""Cursors of pages: opaque text that names the last workflow of the page before."""

from __future__ import annotations

import base64
import binascii

MAX_CURSOR_CHARS = 1024


def cursor_after(workflow_id: str) -> str:
    """The cursor of the page that follows this workflow."""
    return base64.urlsafe_b64encode(workflow_id.encode()).decode().rstrip("=")


def workflow_of(cursor: str) -> str:
    """The workflow a cursor names; empty for one that was never given out."""
    if not cursor or len(cursor) > MAX_CURSOR_CHARS:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        return ""
