"""`rca catalog`: workflows before a worker uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from worker.app.cli.console import Json, run

catalog = typer.Typer(no_args_is_help=True, help="Check a directory of workflows before a worker uses it.")
CatalogDirectory = Annotated[Path, typer.Argument(help="Directory of workflows (YAML).")]


@catalog.command(name="lint")
def catalog_lint(
    directory: CatalogDirectory,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for warnings as well.")] = False,
    json_output: Json = False,
) -> None:
    """Print every problem with file and line. Exit code 1 when a worker would refuse the catalog."""
    from worker.app.cli.catalog import lint

    run(lint(directory, as_json=json_output, strict=strict))


@catalog.command(name="list")
def catalog_list(directory: CatalogDirectory, *, json_output: Json = False) -> None:
    """List all workflows by type of action."""
    from worker.app.cli.catalog import list_workflows

    run(list_workflows(directory, as_json=json_output))


@catalog.command(name="search")
def catalog_search(
    directory: CatalogDirectory,
    query: Annotated[str, typer.Argument(help='"<signal_type> <severity> [keywords]"')],
    *,
    label: Annotated[
        list[str] | None,
        typer.Option(help="A label of the incident, such as environment=production or component=Deployment."),
    ] = None,
    min_confidence: Annotated[float, typer.Option(help="Lowest match quality.", min=0, max=1)] = 0.7,
    max_results: Annotated[int, typer.Option(help="How many at most.", min=1, max=100)] = 10,
    json_output: Json = False,
) -> None:
    """Search as the model does; when nothing fits, say which label leaves how many workflows out."""
    from worker.app.cli.catalog_search import search

    pairs = dict(pair.partition("=")[::2] for pair in label or ())
    found = search(
        directory,
        query,
        labels=pairs,
        min_confidence=min_confidence,
        max_results=max_results,
        as_json=json_output,
    )
    run(found)


@catalog.command(name="push")
def catalog_push(
    directory: CatalogDirectory,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Disable what is not in the directory.")] = False,
    json_output: Json = False,
) -> None:
    """Write all workflows into the database RCA_CATALOG__DATABASE_URL, whose tables are made when they are missing."""
    from worker.app.cli.catalog_push import push_directory

    run(push_directory(directory, dry_run=dry_run, prune=prune, as_json=json_output))
