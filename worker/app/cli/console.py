"""Shared by all commands: how they run, wait, connect and fail, their exit codes and common options.

`rca --help` imports every module beside this one, so whatever is slow to import is imported inside the
function that needs it (tests/contract/test_imports.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer
from typer.core import TyperGroup

from worker.domain.values.errors import ClusterError, ReportedError, Unavailable, system_message

if TYPE_CHECKING:
    from nats.aio.client import Client

    from schemas.subjects import Subjects
    from worker.app.settings.environment import Settings

EXIT_ERROR, EXIT_USAGE = 1, 2
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141
"""128 plus SIGPIPE, as a shell reports for other commands before `| head`."""
QUIET_SECONDS, LINE_SECONDS = 1.0, 10.0
NO_STREAM = "err_code=10059"
"""JetStream's code for a stream that does not exist (nats-server, errors.json)."""

P = ParamSpec("P")
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, for scripts.")]
Case = Annotated[
    Path | None,
    typer.Argument(
        metavar="CASE",
        help="A directory with incident.json, cluster/ and logs/; the shipped example by default.",
    ),
]
CaseCatalog = Annotated[Path | None, typer.Option(help="Directory of workflows; the shipped one by default.")]


class Commands(TyperGroup):
    """The group of all commands. If the output is not read to its end, a command stops without a message."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command and exit."""
        try:
            return super().main(*args, **kwargs)
        except SystemExit as exiting:
            if isinstance(exiting.__context__, BrokenPipeError):  # Typer and Rich silence it and exit with 1
                raise SystemExit(EXIT_CLOSED_PIPE) from None
            raise


def run(work: Coroutine[Any, Any, int]) -> None:
    """Run the work to its end and exit with the code that it returns; see `reported`."""
    try:
        with reported():
            code = asyncio.run(work)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def asynchronous(command: Callable[P, Coroutine[Any, Any, int]]) -> Callable[P, None]:
    """Turn a coroutine function into a command; see `run`."""

    @functools.wraps(command)
    def started(*args: P.args, **kwargs: P.kwargs) -> None:
        run(command(*args, **kwargs))

    return started


@contextmanager
def reported() -> Iterator[None]:
    """Report a failure that the user can fix as one message on standard error, and exit with code 1."""
    try:
        yield
    except BrokenPipeError:  # nobody reads the output; adapters translate their own broken pipes
        raise
    except (ReportedError, OSError) as e:
        typer.echo(f"error: {_explain(e)}", err=True)
        raise typer.Exit(EXIT_ERROR) from None


def _explain(problem: BaseException) -> str:
    match problem:
        case ClusterError():
            return f"the cluster cannot be used: {problem.message}; check RCA_KUBERNETES__KUBECONFIG"
        case Unavailable() if NO_STREAM in str(problem):
            return f"NATS: {str(problem).partition(':')[0]}: there is no such stream; run `rca provision`"
        case Unavailable():
            return f"NATS: {problem}"
        case OSError(filename=str(name), strerror=why):
            return f"{name}: {why}"
        case OSError():
            return system_message(problem)
        case _:
            return str(problem)


@dataclass(frozen=True, slots=True)
class Session:
    """The settings, and a connection to the NATS server that they name."""

    settings: Settings
    nc: Client
    subjects: Subjects


@asynccontextmanager
async def session(name: str) -> AsyncIterator[Session]:
    """Connect under this name. Raises ConfigurationError, Unavailable."""
    from schemas.subjects import Subjects
    from worker.app.provisioning import connected
    from worker.app.settings.environment import load

    settings = load()
    where = f"NATS at {', '.join(settings.nats.servers)}, for up to {settings.nats.connect_seconds:g} s"
    async with contextlib.AsyncExitStack() as stack:
        async with waiting_for(where):
            nc = await stack.enter_async_context(connected(settings.nats, name=name))
        yield Session(settings, nc, Subjects(settings.nats.prefix))


@contextmanager
def listening_on(host: str, port: int, advice: str) -> Iterator[None]:
    """Raises ReportedError with the advice when the address cannot be listened on."""
    try:
        yield
    except OSError as e:
        raise ReportedError(f"cannot listen on {host}:{port}: {system_message(e)}; {advice}") from e


def counted(number: int, noun: str) -> str:
    """`1 error`, `2 errors`, `1,000 errors`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def one_line(text: str, limit: int) -> str:
    """A text from outside for a terminal: on one line, with nothing in it that can control the terminal."""
    from worker.domain.untrusted.evidence import one_line as shown

    return shown(text, limit)


def print_json(document: Any) -> None:
    """Print JSON for scripts.

    It is pure ASCII: nothing in it can control the terminal, and unpaired surrogates cause no error.
    """
    typer.echo(json.dumps(document, indent=2))


@asynccontextmanager
async def waiting_for(what: str) -> AsyncIterator[None]:
    """Say on standard error what the command waits for, once it has waited for a second."""
    task = asyncio.create_task(_show_waiting(what))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _show_waiting(what: str) -> None:
    await asyncio.sleep(QUIET_SECONDS)
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        typer.echo(f"waiting for {what}", err=True)
        return
    with console.status(f"waiting for {what}"):
        await asyncio.Event().wait()


@contextmanager
def progress(what: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int, int], None]]:
    """Yield `show(done, total)`, which reports progress and the remaining time on standard error.

    A bar on a terminal, a line every ten seconds elsewhere, nothing for what takes less than a second. `what`
    is what the command is doing, such as "reading events".
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task, began = bar.add_task(what, total=None), clock()
    begin = bar.start if bar.console.is_terminal else lambda: typer.echo(f"{what} ...", err=True)
    due = began + (QUIET_SECONDS if bar.console.is_terminal else LINE_SECONDS)

    def show(done: int, total: int) -> None:
        nonlocal due
        bar.update(task, completed=done, total=total)
        if (now := clock()) < due or not done:
            return
        if bar.console.is_terminal:
            bar.start()
        else:
            left, due = (now - began) * (total - done) / done, now + LINE_SECONDS
            typer.echo(f"{what}: {done:,} of {total:,}, about {left:,.0f} s left", err=True)

    timer = asyncio.get_running_loop().call_later(QUIET_SECONDS, begin)
    try:
        yield show
    finally:
        timer.cancel()
        if bar.console.is_terminal:  # else it prints an empty line
            bar.stop()


async def until_interrupted(ready: str) -> int:
    """Print what was started, and wait for SIGINT or SIGTERM. Returns the exit code."""
    typer.echo(ready)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    return 0
