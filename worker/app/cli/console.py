"""What all commands share: how one runs and waits, its exit code, and common options."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
"""128 and the number of SIGPIPE: what a shell says of any other command before `| head`."""
QUIET_SECONDS = 1.0

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, for scripts.")]


class Commands(TyperGroup):
    """All commands. One whose output is not read to its end stops without a word."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command and exit."""
        try:
            return super().main(*args, **kwargs)
        except SystemExit as exiting:
            if isinstance(exiting.__context__, BrokenPipeError):  # Typer and Rich silence it and exit with 1
                raise SystemExit(EXIT_CLOSED_PIPE) from None
            raise


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run to the end and exit with what it returns; known failures become one clear message."""
    from worker.app.cli.failures import KNOWN, explain

    try:
        code = asyncio.run(work)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:  # nobody reads what is printed; adapters have words of their own for connections
        raise
    except KNOWN as e:
        typer.echo(f"error: {explain(e)}", err=True)
        code = EXIT_ERROR
    raise typer.Exit(code)


def print_json(document: Any) -> None:
    """For scripts. Only ASCII, so that nothing in it can speak to the terminal, and half a character is no error."""
    typer.echo(json.dumps(document, indent=2))


@asynccontextmanager
async def waiting_for(what: str) -> AsyncIterator[None]:
    """Say on standard error what is waited for, once that takes longer than a second."""
    task = asyncio.create_task(_tell(what))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _tell(what: str) -> None:
    await asyncio.sleep(QUIET_SECONDS)
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        typer.echo(f"waiting for {what}", err=True)
        return
    with console.status(f"waiting for {what}"):
        await asyncio.Event().wait()
