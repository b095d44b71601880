"""`rca catalog push`: the workflows of a directory into the database that workers read."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from worker.adapters.file_catalog import read_directory
from worker.adapters.postgres_catalog import Pushed, push
from worker.app.settings import ConfigurationError, load

SHOWN_IDS = 50
QUIET_SECONDS = 1.0


async def push_directory(directory: Path, *, dry_run: bool, prune: bool, as_json: bool) -> int:
    """Exit code 1 when a worker would refuse the directory; then the database is left alone."""
    url = load().catalog.database_url.get_secret_value()
    if not url:
        raise ConfigurationError(
            "RCA_CATALOG__DATABASE_URL is not set: postgresql://user:password@host/database, as the tables' owner"
        )
    found = read_directory(directory)
    with _Bar() as bar:
        done = await push(
            url,
            list(found.workflows.values()),
            found.actions,
            prune=prune,
            dry_run=dry_run,
            progress=bar.tell,
        )
    if as_json:
        typer.echo(json.dumps({**asdict(done), "dry_run": dry_run}, ensure_ascii=False, indent=2))
    else:
        _print(done, dry_run=dry_run)
    return 0


def _print(done: Pushed, *, dry_run: bool) -> None:
    for name in done.migrations:
        typer.echo(f"tables     {name}")
    for what in ("added", "changed", "removed"):
        ids = getattr(done, what)
        for workflow_id in ids[:SHOWN_IDS]:
            typer.echo(f"{what:<10} {workflow_id}")
        if len(ids) > SHOWN_IDS:
            typer.echo(f"{what:<10} {len(ids) - SHOWN_IDS} more")
    counts = ", ".join(
        f"{len(getattr(done, what))} {what}" for what in ("added", "changed", "unchanged", "removed")
    )
    typer.echo(f"{counts}{'; nothing was written: --dry-run' if dry_run else ''}", err=True)
    if done.left:
        typer.echo(
            f"{len(done.left)} more in the database are not in the directory: --prune removes them", err=True
        )
    if not done.embeddings:
        typer.echo("the database cannot keep vectors (no pgvector): searches rank by text", err=True)


class _Bar:
    """A progress bar on a terminal, for what takes longer than a second."""

    def __init__(self) -> None:
        columns = (TextColumn("workflows"), BarColumn(), MofNCompleteColumn())
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("workflows")
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, done: int, total: int) -> None:
        """Done of total."""
        self._bar.update(self._task, completed=done, total=total)
        if time.monotonic() - self._since > QUIET_SECONDS:
            self._bar.start()
