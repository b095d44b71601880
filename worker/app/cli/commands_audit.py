"""`rca audit`: the trail of what was done."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from worker.app.cli.console import Json, run

audit = typer.Typer(
    no_args_is_help=True, help="The trail of audit events: check that nobody touched it, keep it."
)
Request = Annotated[str, typer.Option(help="Only this request key.")]


@audit.command(name="verify")
def audit_verify(
    *,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            help="Public key (Ed25519, PEM or base64) that has to have signed every end; more than one after a change.",
            dir_okay=False,
        ),
    ] = None,
    request: Request = "",
    file: Annotated[
        Path | None, typer.Option(help="Exported events instead of the stream.", exists=True, dir_okay=False)
    ] = None,
    kept_since: Annotated[
        datetime | None,
        typer.Option(help="With --file: events from before (UTC) had expired when it was made."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Find events that were changed, dropped, moved, added or cut off, and results that are not those of the trail.

    Exit code 1 when there are any; each request is named with its first bad event.
    """
    from worker.app.cli.audit import verify

    since = kept_since.replace(tzinfo=UTC) if kept_since else None
    run(verify(key or [], request=request, file=file, kept_since=since, as_json=json_output))


@audit.command(name="export")
def audit_export(*, request: Request = "") -> None:
    """Print all events as they are stored, one a line: for an archive, which `verify --file` can check."""
    from worker.app.cli.audit import export

    run(export(request=request))
