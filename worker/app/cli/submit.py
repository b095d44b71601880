"""`rca submit`."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path

import typer

from schemas.failure import ValidationFailure
from schemas.subjects import Subjects
from schemas.taxonomy import RequestKind
from worker.app.cli.connection import connection
from worker.app.cli.console import print_json, waiting_for
from worker.app.client import DeadLettered, Outcome, RequestClient, Submitted
from worker.app.client import as_json as json_of
from worker.app.operations import OperationError
from worker.app.settings import load
from worker.domain.untrusted.evidence import one_line

ERROR_CHARS = 400
EXIT_RESULT, EXIT_DEAD_LETTER, EXIT_TIMEOUT, EXIT_REJECTED = 0, 3, 4, 5


def read_request(file: Path, *, new_id: bool) -> bytes:
    """The body as it is, or under new ids. Raises OSError, and OperationError when there is no object to put ids into."""
    body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    return with_new_ids(body) if new_id else body


async def submit(body: bytes, *, recovery: bool, wait_seconds: float | None, as_json: bool) -> int:
    """Publish; with `wait_seconds` say what became of it."""
    kind = kind_of(recovery=recovery)
    settings, submitted = load(), None
    try:
        async with connection(settings.nats, name="rca-submit") as nc:
            client = RequestClient(nc, Subjects(settings.nats.prefix))
            if wait_seconds is None:
                _say_submitted(await client.submit(body, kind), as_json=as_json)
                return EXIT_RESULT
            async with client.waiting(kind, body) as waiter:
                submitted = await client.submit(body, kind)
                _say_submitted(submitted, as_json=False)
                async with waiting_for(f"what becomes of it, for up to {wait_seconds:g} s"):
                    outcome = await client.outcome(waiter, submitted, wait_seconds)
    except asyncio.CancelledError:  # Ctrl-C
        if submitted is not None:
            typer.echo(f"interrupted; {_kept(submitted)}", err=True)
        raise
    if outcome is None:
        typer.echo(
            f"no outcome within {wait_seconds:g} s (is a worker running?); {_kept(submitted)}", err=True
        )
    elif as_json:
        print_json(json_of(outcome))
    else:
        print_outcome(outcome)
    return exit_code(outcome)


def kind_of(*, recovery: bool) -> RequestKind:
    """What the option `--recovery` says."""
    return RequestKind.RECOVERY if recovery else RequestKind.INCIDENT


def with_new_ids(body: bytes) -> bytes:
    """The same request under ids that were never used."""
    try:
        data = json.loads(body)
        data.update(incident_id=f"inc-{uuid.uuid4()}", remediation_id=f"rr-{uuid.uuid4()}")
    except (ValueError, AttributeError, RecursionError) as e:
        raise OperationError(f"--new-id needs a JSON object: {e}") from e
    return json.dumps(data).encode()


def _kept(submitted: Submitted) -> str:
    if submitted.key is None:
        return "it will be rejected: submit it again to see why"
    return f"the request is kept: submit it again to see its result, or `rca cancel {submitted.key}`"


def _say_submitted(submitted: Submitted, *, as_json: bool) -> None:
    if as_json:
        fields = ("subject", "stream", "sequence", "duplicate", "key")
        print_json({name: getattr(submitted, name) for name in fields})
        return
    again = " (already stored: published before)" if submitted.duplicate else ""
    typer.echo(
        f"submitted {submitted.key or '(no readable id: it will be rejected)'} to {submitted.subject}: {submitted.stream} sequence "
        f"{submitted.sequence}{again}",
        err=True,
    )


def exit_code(outcome: Outcome | None) -> int:
    """0 result, 3 dead letter, 4 no outcome in time, 5 rejected."""
    match outcome:
        case None:
            return EXIT_TIMEOUT
        case DeadLettered():
            return EXIT_DEAD_LETTER
        case ValidationFailure():
            return EXIT_REJECTED
        case _:
            return EXIT_RESULT


def print_outcome(outcome: Outcome) -> None:
    """For people: a result on standard output, anything else on standard error."""
    match outcome:
        case DeadLettered():
            typer.echo(f"dead letter ({outcome.reason}): {one_line(outcome.error, ERROR_CHARS)}", err=True)
        case ValidationFailure():
            typer.echo(f"rejected ({outcome.code}):", err=True)
            for error in outcome.errors:
                typer.echo(f"  {one_line(str(error), ERROR_CHARS)}", err=True)
        case _:
            from worker.app.cli.report import print_result  # noqa: PLC0415 - rich is slow to import

            print_result(outcome)
