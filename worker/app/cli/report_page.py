"""`rca report`: a finished request as one file, for a ticket or a chat."""

from __future__ import annotations

import asyncio
import enum
from pathlib import Path
from typing import Annotated

import typer

from worker.app.cli.console import asynchronous, progress, session
from worker.app.cli.requests import Key
from worker.domain.values.errors import ReportedError


class Format(enum.StrEnum):
    """How a report is written."""

    MARKDOWN = "md"
    HTML = "html"


@asynchronous
async def report(
    key: Key,
    *,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", help="Markdown or one self-contained HTML file; by default as the name of FILE ends."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file.", metavar="FILE")
    ] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline/--no-timeline", help="Include a timeline from the audit trail.")
    ] = True,
) -> int:
    """Write the result of a request as one file: verdict, cause, evidence, remediation, steps, cost.

    All text is escaped, secrets were removed before it was stored. Exit code 1 if there is no result.
    """
    from worker.app.auditing import Auditing
    from worker.app.operations import Operations, read_key
    from worker.app.pages import as_html, as_markdown, incident_page

    if output and not output.parent.is_dir():
        raise typer.BadParameter(f"{output.parent} is not a directory", param_hint="--output")
    key = read_key(key)
    async with session("rca-report") as opened:
        result = await Operations(opened.nc, opened.subjects).result(key)
        if result is None:
            raise ReportedError(f"{key} has no result (yet): `rca show {key}` prints its state")
        with progress("reading audit events") as show:
            auditing = Auditing(opened.nc, opened.subjects)
            events = await auditing.events_of(key, show) if timeline else []
    page = incident_page(key, result, events)
    written = as_html(page) if (form or _by_name(output)) is Format.HTML else as_markdown(page)
    if output:
        await asyncio.to_thread(output.write_text, written, encoding="utf-8")
        typer.echo(f"written to {output}", err=True)
    else:
        typer.echo(written, nl=False)
    return 0


def _by_name(output: Path | None) -> Format:
    return Format.HTML if output and output.suffix.lower() in {".html", ".htm"} else Format.MARKDOWN
