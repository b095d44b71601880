"""`rca dlq`: requests that could not be served."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import typer

from schemas.subjects import Subjects
from worker.adapters.nats.stored import StoredLetter
from worker.app.cli.connection import connection
from worker.app.cli.console import EXIT_ERROR, print_json
from worker.app.operations import OperationError, Operations
from worker.app.settings import load
from worker.domain.untrusted.evidence import one_line

LINE_CHARS = 72
SHOWN_CHARS = 1_000


@asynccontextmanager
async def operations() -> AsyncIterator[Operations]:
    """On the configured server."""
    settings = load()
    async with connection(settings.nats, name="rca-operator") as nc:
        yield Operations(nc, Subjects(settings.nats.prefix))


async def show_all(*, as_json: bool) -> int:
    """Two lines for each, oldest first."""
    async with operations() as doing:
        letters = await doing.letters()
    if as_json:
        print_json([_facts(letter) for letter in letters])
        return 0
    for letter in letters:
        when = f"{letter.stored_at:%Y-%m-%dT%H:%M:%SZ}"
        typer.echo(f"{letter.id:>6}  {when}  {_shown(letter.reason)}  {_shown(_name(letter))}")
        typer.echo(f"        {_shown(letter.error, LINE_CHARS)}")
    if not letters:
        typer.echo("no dead letters", err=True)
    return 0


async def show(letter_id: int, *, as_json: bool) -> int:
    """Everything about one, with its body."""
    async with operations() as doing:
        letter = await doing.letter(letter_id)
    facts = _facts(letter)
    if as_json:
        try:
            body: dict[str, Any] = {"body": letter.body.decode()}
        except UnicodeDecodeError:
            body = {"body_base64": base64.b64encode(letter.body).decode()}
        print_json({**facts, **body})
        return 0
    for name, value in facts.items():
        typer.echo(f"{name}: {_shown(str(value))}")
    typer.echo(_body(letter.body))
    return 0


async def replay(letter_ids: Sequence[int], *, as_json: bool) -> int:
    """Send requests again."""
    async with operations() as doing:
        return await _each(letter_ids, doing.replay, "sent again to {letter.origin_subject}", as_json=as_json)


async def drop(letter_ids: Sequence[int], *, as_json: bool) -> int:
    """Delete letters."""
    async with operations() as doing:
        return await _each(letter_ids, doing.drop, "deleted", as_json=as_json)


async def _each(
    letter_ids: Sequence[int],
    do: Callable[[int], Awaitable[StoredLetter]],
    said: str,
    *,
    as_json: bool,
) -> int:
    """All of them, whatever becomes of one. Exit code 1 when one could not be done."""
    rows = list[dict[str, Any]]()
    for letter_id in letter_ids:
        row = {"id": letter_id, "done": True, "remediation_id": "", "error": ""}
        try:
            letter = await do(letter_id)
            row["remediation_id"] = _name(letter)
            line = f"{letter_id}: {said.format(letter=letter)}"
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
    return {
        "id": letter.id,
        "reason": letter.reason,
        "error": letter.error,
        "remediation_id": _name(letter),
        "origin_subject": letter.origin_subject,
        "origin_sequence": letter.origin_sequence,
        "deliveries": letter.deliveries,
        "stored_at": letter.stored_at.isoformat(),
        "bytes": len(letter.body),
    }


def _name(letter: StoredLetter) -> str:
    try:
        name = json.loads(letter.body)["remediation_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return name if isinstance(name, str) else ""


def _shown(text: str, limit: int = SHOWN_CHARS) -> str:
    """For a terminal: whatever a sender has put there, it moves no cursor."""
    return one_line(text, limit).encode("utf-8", "replace").decode() or "-"


def _body(body: bytes) -> str:
    """Only ASCII, so that nothing in it can speak to the terminal."""
    try:
        return json.dumps(json.loads(body), indent=2)
    except (ValueError, RecursionError):
        return ascii(body)
