"""`rca catalog lint|list|search`: a directory of workflows, before it is given to a worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from worker.adapters.file_catalog import CatalogProblem, FileCatalog
from worker.adapters.file_catalog import lint as problems_of
from worker.app.cli.console import waiting_for
from worker.app.settings import load
from worker.app.wiring.embedders import open_embedder
from worker.domain.evidence import one_line
from worker.domain.search import parse_query
from worker.domain.search_results import shown_search
from worker.domain.selection import label_name, signal_types_of
from worker.domain.workflow import BUSINESS_LABELS, SelectionContext, Workflow

EVERYTHING = SelectionContext()
LINE_CHARS = 110
EXIT_USAGE = 2


async def lint(directory: Path, *, as_json: bool, strict: bool) -> int:
    """Print every problem with file and line. Exit code 1 when there are errors; with `strict` for warnings too."""
    found = problems_of(directory)
    errors = sum(not p.warning for p in found)
    if as_json:
        typer.echo(json.dumps([_document(p) for p in found], ensure_ascii=False, indent=2))
    else:
        for problem in found:
            typer.echo(str(problem))
        typer.echo(f"{errors} errors, {len(found) - errors} warnings", err=True)
    return int(bool(errors) or (strict and bool(found)))


async def list_workflows(directory: Path, *, as_json: bool) -> int:
    """Print all workflows by type of action."""
    catalog = await FileCatalog.open(directory)
    found = sorted(catalog, key=lambda w: (w.action_type, w.workflow_id))
    if as_json:
        rows = [
            {"workflow_id": w.workflow_id, "version": w.version, "action_type": w.action_type} for w in found
        ]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    for workflow in found:
        typer.echo(_line(workflow.action_type, workflow))
    typer.echo(f"{len(found)} workflows", err=True)
    return 0


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
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=2))
        return 0
    for match in page.matches:
        typer.echo(_line(f"{match.confidence:.3f}", match.workflow))
    for label, count in page.excluded.items() if not page.matches else ():
        alone = page.excluded_alone.get(label, 0)
        typer.echo(f"{label} leaves out {count}, {alone} of them alone")
    for note in shown.get("notes", ()):
        typer.echo(note, err=True)
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


def _line(first: str, workflow: Workflow) -> str:
    return one_line(f"{first}  {workflow.workflow_id} {workflow.version}  {workflow.description}", LINE_CHARS)


def _document(problem: CatalogProblem) -> dict[str, str | int]:
    return {
        "file": problem.file,
        "line": problem.line,
        "level": "warning" if problem.warning else "error",
        "message": problem.message,
    }
