"""`rca cancel`."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import typer

from worker.app.cli.dlq import operations


async def cancel(key: str) -> int:
    """Exit code 1 when there is nothing to cancel any more."""
    async with operations() as doing:
        stored = await doing.cancel(key, at=datetime.now(UTC), token=uuid.uuid4().hex)
    if stored is not None:
        typer.echo(
            f"{key} has its result already: {stored.status}, {stored.completed_at.isoformat()}", err=True
        )
        return 1
    stem, _, attempt = key.partition(".")
    what = f"attempt {attempt} of the recovery {stem}" if attempt else f"the incident {stem}"
    typer.echo(f"cancelled {what}: its result will say operator_escalation", err=True)
    return 0
