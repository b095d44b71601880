"""`rca doctor`: check everything that a worker with these settings depends on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from worker.app.cli.console import EXIT_ERROR, Json, asynchronous, counted, one_line, print_json, waiting_for

if TYPE_CHECKING:
    from worker.app.doctor import Examination

MARKS = {"ok": "✓", "warning": "!", "fault": "✗"}
AREA_CHARS, TEXT_CHARS = 11, 400


@asynchronous
async def doctor(*, json_output: Json = False) -> int:
    """Check everything that a worker with these settings needs, and say how to fix each fault.

    The checks cover NATS, cluster, model, catalog and policy.

    Changes nothing. Asks each configured model one short question. Exit code 1 if there is a fault.
    """
    from worker.app import logs
    from worker.app.doctor import Examination, Level, examine
    from worker.app.settings.environment import ConfigurationError, load

    logs.configure("critical", json_lines=False)
    rows = list[Examination]()
    try:
        settings = load()
    except ConfigurationError as e:
        rows.append(Examination("settings", Level.FAULT, str(e), "rca settings lists all of them"))
        if not json_output:
            _print(rows[0])
    else:
        areas = examine(settings)
        while True:
            async with waiting_for("the next check (up to 30 s for each server)"):
                examined = await anext(areas, None)
            if examined is None:
                break
            rows.append(examined)
            if not json_output:
                _print(examined)
    faults = sum(row.level is Level.FAULT for row in rows)
    if json_output:
        print_json([asdict(row) for row in rows])
    else:
        warnings = sum(row.level is Level.WARNING for row in rows)
        typer.echo(f"{counted(faults, 'fault')}, {counted(warnings, 'warning')}")
    return EXIT_ERROR if faults else 0


def _print(row: Examination) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    style = {"ok": "green", "warning": "yellow", "fault": "bold red"}[row.level]
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, width=AREA_CHARS)
    table.add_column(overflow="fold")
    table.add_row(Text(MARKS[row.level], style), row.area, Text(one_line(row.text, TEXT_CHARS)))
    if row.remedy:
        table.add_row("", "", Text(f"→ {row.remedy}", style="dim"))
    Console(highlight=False).print(table)
