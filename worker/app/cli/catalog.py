"""`rca catalog lint|list`: a directory of workflows, before it is given to a worker."""

from __future__ import annotations

from pathlib import Path

import typer

from worker.adapters.file_catalog import CatalogProblem, FileCatalog
from worker.adapters.file_catalog import lint as check
from worker.app.cli.console import print_json
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.workflows import Workflow

LINE_CHARS = 80


async def lint(directory: Path, *, as_json: bool, strict: bool) -> int:
    """Print every problem with file and line. Exit code 1 when there are errors; with `strict` for warnings too."""
    workflows, found = check(directory)
    errors = sum(not p.warning for p in found)
    if as_json:
        print_json([_document(p) for p in found])
    else:
        for problem in found:
            typer.echo(str(problem))
        typer.echo(f"{workflows} workflows, {errors} errors, {len(found) - errors} warnings", err=True)
    return int(bool(errors) or (strict and bool(found)))


async def list_workflows(directory: Path, *, as_json: bool) -> int:
    """Print all workflows by type of action."""
    catalog = await FileCatalog.open(directory)
    found = sorted(catalog, key=lambda w: (w.action_type, w.workflow_id))
    if as_json:
        rows = [
            {"workflow_id": w.workflow_id, "version": w.version, "action_type": w.action_type} for w in found
        ]
        print_json(rows)
        return 0
    for workflow in found:
        typer.echo(line_of(workflow.action_type, workflow))
    typer.echo(f"{len(found)} workflows", err=True)
    return 0


def line_of(first: str, workflow: Workflow) -> str:
    """A workflow on one line of a terminal, after `first`."""
    return one_line(f"{first} {workflow.workflow_id} {workflow.version} {workflow.description}", LINE_CHARS)


def _document(problem: CatalogProblem) -> dict[str, str | int]:
    return {
        "file": problem.file,
        "line": problem.line,
        "level": "warning" if problem.warning else "error",
        "message": problem.message,
    }
