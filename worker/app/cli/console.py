"""What all commands share: how one runs and waits, its exit code, and common options."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
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


@contextmanager
def told() -> Iterator[None]:
    """Known failures become one clear message, and exit code 1."""
    from worker.app.cli.failures import KNOWN, explain

    try:
        yield
    except BrokenPipeError:  # nobody reads what is printed; adapters have words of their own for connections
        raise
    except KNOWN as e:
        typer.echo(f"error: {explain(e)}", err=True)
        raise typer.Exit(EXIT_ERROR) from None


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run to the end and exit with what it returns; known failures are told."""
    try:
        with told():
            code = asyncio.run(work)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


@contextmanager
def listening_on(host: str, port: int, advice: str) -> Iterator[None]:
    """Raises OperationError with the advice when nobody can listen there."""
    from worker.app.operations import OperationError

    try:
        yield
    except OSError as e:
        # Python puts the address into the text. Those of unknown hosts have numbers of their own, below 0.
        why = os.strerror(e.errno) if e.errno and e.errno > 0 else str(e.strerror).partition(" (")[0]
        raise OperationError(f"cannot listen on {host}:{port}: {why}; {advice}") from e


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
