"""`rca catalog push`: the workflows of a directory into the database that workers read."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from worker.adapters.file_catalog import read_directory
from worker.app.cli.console import QUIET_SECONDS, print_json
from worker.app.settings import CatalogSettings, ConfigurationError, load
from worker.app.wiring.embedders import open_embedder
from worker.domain.values.errors import EmbedderUnavailable

if TYPE_CHECKING:  # asyncpg is optional
    from worker.adapters.postgres_catalog import Pushed

SHOWN_IDS = 50


async def push_directory(directory: Path, *, dry_run: bool, prune: bool, as_json: bool) -> int:
    """Exit code 1 when a worker would refuse the directory (the database is left alone then), or without all vectors."""
    from worker.adapters.postgres_catalog import push  # noqa: PLC0415 - asyncpg is optional

    settings = load().catalog
    url = settings.database_url.get_secret_value()
    if not url:
        raise ConfigurationError(
            "RCA_CATALOG__DATABASE_URL is not set: postgresql://user:password@host/database, as the tables' owner"
        )
    found = read_directory(directory)
    workflows = list(found.workflows.values())
    with _Bar("workflows") as bar:
        done = await push(url, workflows, found.actions, prune=prune, dry_run=dry_run, progress=bar.tell)
    if as_json:
        print_json({**asdict(done), "dry_run": dry_run})
    else:
        _print(done, dry_run=dry_run)
    return 0 if dry_run or not done.embeddings else await _embed(url, settings)


async def _embed(url: str, settings: CatalogSettings) -> int:
    from worker.adapters.postgres_catalog import embed  # noqa: PLC0415 - asyncpg is optional

    async with AsyncExitStack() as stack:
        embedder = await open_embedder(settings, stack)
        if embedder is None:
            return 0
        try:
            with _Bar("vectors") as bar:
                count = await embed(url, embedder, progress=bar.tell)
        except EmbedderUnavailable as error:
            typer.echo(f"{error}: words rank until a push has made all vectors", err=True)
            return 1
        typer.echo(f"{count} vectors of {embedder.name}", err=True)
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

    def __init__(self, what: str) -> None:
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task(what)
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
