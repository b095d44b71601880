"""A worker that notes how many functions the longest stretch of its event loop calls: `watched_worker.py FILE`.

Startup is left out: the count begins with the first incident, when `FILE` exists.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from worker.app.cli.main import app

counted = longest = 0
run_handle = asyncio.Handle._run


def note(_frame: FrameType, event: str, _argument: Any) -> None:
    """A profile function (`sys.setprofile`)."""
    global counted  # noqa: PLW0603
    counted += event in {"call", "c_call"}


def watched(handle: asyncio.Handle) -> None:
    """Run one callback, or one step of a task."""
    global counted, longest  # noqa: PLW0603
    counted = 0
    run_handle(handle)
    longest = max(longest, counted if FILE.exists() else 0)


if __name__ == "__main__":
    FILE = Path(sys.argv.pop())
    atexit.register(lambda: FILE.write_text(str(longest)))
    asyncio.Handle._run = watched  # type: ignore[method-assign]
    sys.argv[1:] = ["worker"]
    sys.setprofile(note)
    app()
