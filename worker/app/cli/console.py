"""What all commands share: how one runs, its exit code, and common options."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, for scripts.")]


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run to the end and exit with what it returns; known failures become one clear message."""
    from worker.app.cli.failures import KNOWN, explain

    try:
        code = asyncio.run(work)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except KNOWN as e:
        typer.echo(f"error: {explain(e)}", err=True)
        code = EXIT_ERROR
    raise typer.Exit(code)
