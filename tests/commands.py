"""The `rca` command in this process, for all that does not depend on a process of its own: it starts much faster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping

import structlog
from typer.testing import CliRunner

from tests.processes import Ended, is_foreign
from worker.app.cli.main import app

ONE_AT_A_TIME = threading.Lock()
"""The runner exchanges the standard streams and the environment of the process."""


async def rca(*arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> Ended:
    """Run to the end, beside the loop of the test. The command makes a loop of its own."""
    return await asyncio.to_thread(run_rca, *arguments, env=env, stdin=stdin)


def run_rca(*arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> Ended:
    """Run to the end. What is not an orderly end is raised."""
    removed = {name: None for name in os.environ if is_foreign(name)}
    own = {**removed, "COLUMNS": "80", "TERM": "dumb", **(env or {})}
    with ONE_AT_A_TIME, _logging_kept():
        result = CliRunner().invoke(app, arguments, input=stdin or b"", env=own, catch_exceptions=False)
    return Ended(result.exit_code, result.stdout, result.stderr)


@contextlib.contextmanager
def _logging_kept() -> Iterator[None]:
    """Commands set up logging for the whole process, and a worker in it does not write into their output."""
    root, kept = logging.getLogger(), structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stdout))
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:], root.level = handlers, level
        structlog.reset_defaults()
        structlog.configure(**kept)
