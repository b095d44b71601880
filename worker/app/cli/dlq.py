"""`rca dlq`: dead letters, that is requests that could not be served."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.app.cli.console import EXIT_ERROR, Json, asynchronous, one_line, print_json, session, waiting_for
from worker.domain.values.json_read import read_json

if TYPE_CHECKING:
    from worker.adapters.nats.stored import StoredLetter
    from worker.app.operations import Operations

LINE_CHARS = 72
SHOWN_CHARS = 1_000

dlq = typer.Typer(
    no_args_is_help=True, help="Inspect, replay and delete dead letters (requests that could not be served)."
)
LetterId = Annotated[int, typer.Argument(metavar="ID", help="The id that `rca dlq list` prints.", min=1)]
LetterIds = Annotated[
    list[int], typer.Argument(metavar="ID...", help="The ids that `rca dlq list` prints.", min=1)
]


@asynccontextmanager
async def open_operations() -> AsyncIterator[Operations]:
    """The operations of an operator, on the configured server."""
    from worker.app.operations import Operations

    async with session("rca-operator") as opened:
        yield Operations(opened.nc, opened.subjects)


@dlq.command(name="list")
@asynchronous
async def list_letters(*, json_output: Json = False) -> int:
    """List all dead letters with id, time, reason, remediation id and error, oldest first."""
    async with open_operations() as operations, waiting_for("the dead letters"):
        letters = await operations.letters()
    if json_output:
        print_json([_facts(letter) for letter in letters])
        return 0
    for letter in letters:
        when = f"{letter.stored_at:%Y-%m-%dT%H:%M:%SZ}"
        typer.echo(f"{letter.id:>6}  {when}  {_shown(letter.reason)}  {_shown(_remediation_id(letter))}")
        typer.echo(f"        {_shown(letter.error, LINE_CHARS)}")
    if not letters:
        typer.echo("no dead letters", err=True)
    return 0


@dlq.command()
@asynchronous
async def show(letter: LetterId, *, json_output: Json = False) -> int:
    """Print why a request could not be served, and the request as it was sent."""
    async with open_operations() as operations:
        found = await operations.letter(letter)
    facts = _facts(found)
    if json_output:
        try:
            body: dict[str, Any] = {"body": found.body.decode()}
        except UnicodeDecodeError:
            body = {"body_base64": base64.b64encode(found.body).decode()}
        print_json({**facts, **body})
        return 0
    for name, value in facts.items():
        typer.echo(f"{name}: {_shown(str(value))}")
    typer.echo(_body(found.body))
    return 0


@dlq.command()
@asynchronous
async def replay(letters: LetterIds, *, json_output: Json = False) -> int:
    """Publish requests again, after you have fixed the cause. The new result replaces the failed one."""
    return await _each(letters, lambda operations: operations.replay, "replayed", as_json=json_output)


@dlq.command()
@asynchronous
async def drop(letters: LetterIds, *, json_output: Json = False) -> int:
    """Delete dead letters. Their failed results stay."""
    return await _each(letters, lambda operations: operations.drop, "deleted", as_json=json_output)


async def _each(
    letter_ids: Sequence[int],
    operation: Callable[[Operations], Callable[[int], Awaitable[StoredLetter]]],
    done: str,
    *,
    as_json: bool,
) -> int:
    """Apply the operation to each letter, even if others fail. Returns exit code 1 if one failed."""
    from worker.app.operations import OperationError

    rows = list[dict[str, Any]]()
    async with open_operations() as operations:
        for letter_id in letter_ids:
            row = {"id": letter_id, "done": True, "remediation_id": "", "error": ""}
            try:
                letter = await operation(operations)(letter_id)
                row["remediation_id"] = _remediation_id(letter)
                line = f"{letter_id}: {done} ({_shown(letter.origin_subject)})"
            except OperationError as e:
                row |= {"done": False, "error": str(e)}
                line = f"error: {e}"
            rows.append(row)
            if not as_json:
                typer.echo(line, err=not row["done"])
    if as_json:
        print_json(rows)
    return 0 if all(row["done"] for row in rows) else EXIT_ERROR


def _facts(letter: StoredLetter) -> dict[str, Any]:
    facts = asdict(letter) | {"remediation_id": _remediation_id(letter), "bytes": len(letter.body)}
    del facts["body"]
    return facts | {"stored_at": letter.stored_at.isoformat()}


def _remediation_id(letter: StoredLetter) -> str:
    from worker.domain.cluster.fields import mapping

    found = mapping(read_json(letter.body)).get("remediation_id")
    return found if isinstance(found, str) else ""


def _shown(text: str, limit: int = SHOWN_CHARS) -> str:
    """Text for a terminal, which nothing that a sender wrote can control."""
    return one_line(text, limit).encode("utf-8", "replace").decode() or "-"


def _body(body: bytes) -> str:
    """Only ASCII, so that nothing in it can control the terminal."""
    try:
        return json.dumps(json.loads(body), indent=2)
    except (ValueError, RecursionError):
        return ascii(body)
