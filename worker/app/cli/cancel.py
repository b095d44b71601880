"""`rca cancel`."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import typer

from worker.app.cli.console import EXIT_ERROR, print_json, waiting_for
from worker.app.cli.dlq import operations
from worker.app.operations import State

SAID = {
    State.WAITING: "cancelled {what}, which waits in the queue: its result will say operator_escalation",
    State.BEGUN: "cancelled {what}, which has begun: it stops at its next step, and its result will say "
    "operator_escalation",
    State.DONE: "{what} has ended meanwhile: its result says whether it was cancelled",
    State.UNKNOWN: "no request {key} is known: check the key, which `rca submit` prints. Should one come within 24 "
    "hours, it is cancelled",
}


async def cancel(key: str, *, as_json: bool) -> int:
    """Exit code 1 when there is nothing to cancel any more."""
    async with operations() as doing:
        stored = await doing.cancel(key, at=datetime.now(UTC), token=uuid.uuid4().hex)
        async with waiting_for("a look through the queue; the request is cancelled already"):
            state = State.DONE if stored else await doing.state(key)
    if as_json:
        status = stored.status if stored else None
        print_json({"key": key, "state": state, "cancelled": stored is None, "status": status})
    elif stored is None:
        typer.echo(SAID[state].format(key=key, what=_what(key)))
    else:
        why = f" ({stored.human_review_reason})" if stored.human_review_reason else ""
        when = f"{stored.completed_at:%Y-%m-%dT%H:%M:%SZ}"
        typer.echo(f"error: {key} has its result already: {stored.status}{why}, {when}", err=True)
    return EXIT_ERROR if stored else 0


def _what(key: str) -> str:
    stem, _, attempt = key.partition(".")
    return f"attempt {attempt} of the recovery {stem}" if attempt else f"the incident {stem}"
