"""`rca catalog search`: what a search of a directory of workflows would find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from worker.adapters.file_catalog import FileCatalog
from worker.app.cli.catalog import line_of
from worker.app.cli.console import print_json, waiting_for
from worker.app.settings import load
from worker.app.wiring.embedders import open_embedder
from worker.domain.catalog.search import parse_query
from worker.domain.catalog.search_results import shown_search
from worker.domain.catalog.selection import label_name, signal_types_of
from worker.domain.values.workflow_search import SearchPage
from worker.domain.values.workflows import BUSINESS_LABELS, SelectionContext

EVERYTHING = SelectionContext()
EXIT_USAGE = 2


async def search(
    directory: Path,
    text: str,
    *,
    labels: Mapping[str, str],
    min_confidence: float,
    max_results: int,
    as_json: bool,
) -> int:
    """Print what a search finds, or which labels leave workflows out. Exit code 2 for a bad query or label."""
    async with AsyncExitStack() as stack:
        embedder = await open_embedder(load().catalog, stack)
        catalog = await FileCatalog.open(directory, embedder=embedder)
        known = signal_types_of(await catalog.actions(EVERYTHING))
        try:
            query = parse_query(text, known)
            context = context_of(labels)
        except ValueError as error:
            typer.echo(f"error: {error}", err=True)
            return EXIT_USAGE
        query = replace(query, min_confidence=min_confidence, max_results=max_results)
        async with waiting_for(f"vectors of {len(catalog)} workflows"):
            await catalog.learn()
        page = await catalog.search(query, context)
    if catalog.meaning_problem:
        typer.echo(f"ranked by words: {catalog.meaning_problem}", err=True)
    shown = shown_search(query, page, [], sorted(known))
    if as_json:
        print_json(shown)
    else:
        _print(page, shown.get("notes", ()))
    return 0


def context_of(labels: Mapping[str, str]) -> SelectionContext:
    """The context of an incident with these labels. Raises ValueError for a name that is no label."""
    values: dict[str, Any] = {}
    for name, value in labels.items():
        label = label_name(name)
        if label == "component":
            api_version, _, kind = value.rpartition("/")
            values["components"] = ((api_version, kind),)
        elif label in BUSINESS_LABELS:
            values[label] = value
        else:
            raise ValueError(f"{name} is no label; there are component, {', '.join(BUSINESS_LABELS)}")
    return SelectionContext(**values)


def _print(page: SearchPage, notes: Sequence[str]) -> None:
    for match in page.matches:
        typer.echo(line_of(f"{match.confidence:.3f}", match.workflow))
    for label, count in page.excluded.items() if not page.matches else ():
        typer.echo(f"{label} leaves out {count}, {page.excluded_alone.get(label, 0)} of them alone")
    for note in notes:
        typer.echo(note, err=True)
