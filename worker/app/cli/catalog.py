"""`rca catalog`: check, search and publish workflows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.app.cli import console

if TYPE_CHECKING:
    from worker.adapters.postgres_catalog import Pushed
    from worker.app.settings.groups import CatalogSettings
    from worker.domain.values.workflow_search import SearchPage
    from worker.domain.values.workflows import SelectionContext, Workflow

LINE_CHARS = 80
SHOWN_IDS = 50

catalog = typer.Typer(no_args_is_help=True, help="Check, search and publish a directory of workflows.")
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of workflows (YAML).")]


# -- lint and list


@catalog.command()
def lint(
    directory: Directory,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings as well.")] = False,
    json_output: console.Json = False,
) -> None:
    """Print every problem with file and line. Exit code 1 if a worker would refuse the catalog."""
    from worker.adapters.file_catalog import lint as check

    with console.reported():
        workflows, problems = check(directory)
    errors = sum(not problem.warning for problem in problems)
    if json_output:
        console.print_json(
            [{"file": p.file, "line": p.line, "level": p.level, "message": p.message} for p in problems]
        )
    else:
        for problem in problems:
            typer.echo(str(problem))
        counts = (console.counted(workflows, "workflow"), console.counted(errors, "error"))
        typer.echo(f"{', '.join(counts)}, {console.counted(len(problems) - errors, 'warning')}", err=True)
    raise typer.Exit(console.EXIT_ERROR if errors or (strict and problems) else 0)


@catalog.command(name="list")
@console.asynchronous
async def list_workflows(directory: Directory, *, json_output: console.Json = False) -> int:
    """List all workflows by action type."""
    from worker.adapters.file_catalog import FileCatalog

    found = sorted(await FileCatalog.open(directory), key=lambda w: (w.action_type, w.workflow_id))
    if json_output:
        fields = ("workflow_id", "version", "action_type")
        console.print_json([{name: getattr(workflow, name) for name in fields} for workflow in found])
        return 0
    for workflow in found:
        typer.echo(_line(workflow.action_type, workflow))
    typer.echo(console.counted(len(found), "workflow"), err=True)
    return 0


def _line(first: str, workflow: Workflow) -> str:
    """A workflow on one line of a terminal, after `first`."""
    return console.one_line(
        f"{first} {workflow.workflow_id} {workflow.version} {workflow.description}", LINE_CHARS
    )


# -- search


@catalog.command()
@console.asynchronous
async def search(
    directory: Directory,
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", help='Signal type, severity and keywords: "OOMKilled high memory".'),
    ],
    *,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A label of the incident, such as environment=production or component=Deployment.",
        ),
    ] = None,
    min_confidence: Annotated[float, typer.Option(help="Lowest match quality.", min=0, max=1)] = 0.7,
    max_results: Annotated[int, typer.Option(help="How many workflows to show.", min=1, max=100)] = 10,
    json_output: console.Json = False,
) -> int:
    """Search as the model does. If nothing matches, print how many workflows each label excludes."""
    from worker.adapters.file_catalog import FileCatalog
    from worker.app.settings.environment import load
    from worker.app.wiring.embedders import open_embedder
    from worker.domain.catalog.search import parse_query
    from worker.domain.catalog.selection import signal_types_of
    from worker.domain.investigation.toolbox.search_results import shown_search
    from worker.domain.values.workflows import SelectionContext

    async with AsyncExitStack() as stack:
        embedder = await open_embedder(load().catalog, stack)
        workflows = await FileCatalog.open(directory, embedder=embedder)
        known = signal_types_of(await workflows.actions(SelectionContext()))
        try:
            parsed, context = parse_query(query, known), _context(label or ())
        except ValueError as error:
            typer.echo(f"error: {error}", err=True)
            return console.EXIT_USAGE
        asked = replace(parsed, min_confidence=min_confidence, max_results=max_results)
        async with console.waiting_for(f"vectors of {console.counted(len(workflows), 'workflow')}"):
            await workflows.embed_missing()
        page = await workflows.search(asked, context)
    if workflows.meaning_problem:
        typer.echo(f"ranked by words: {workflows.meaning_problem}", err=True)
    shown = shown_search(asked, page, [], sorted(known))
    if json_output:
        console.print_json(shown)
    else:
        _print_page(page, shown.get("notes", ()))
    return 0


def _context(labels: Sequence[str]) -> SelectionContext:
    """The context of an incident with these labels (`name=value`). Raises ValueError for an unknown name."""
    from worker.domain.catalog.selection import label_name
    from worker.domain.values.workflows import BUSINESS_LABELS, SelectionContext

    values: dict[str, Any] = {}
    for name, _, value in (pair.partition("=") for pair in labels):
        label = label_name(name)
        if label == "component":
            api_version, _, kind = value.rpartition("/")
            values["components"] = ((api_version, kind),)
        elif label in BUSINESS_LABELS:
            values[label] = value
        else:
            raise ValueError(f"--label {name}: unknown label; use component, {', '.join(BUSINESS_LABELS)}")
    return SelectionContext(**values)


def _print_page(page: SearchPage, notes: Sequence[str]) -> None:
    for match in page.matches:
        typer.echo(_line(f"{match.confidence:.3f}", match.workflow))
    for label, count in page.excluded.items() if not page.matches else ():
        alone = page.excluded_alone.get(label, 0)
        typer.echo(f"{label} excludes {console.counted(count, 'workflow')}, {alone} of them alone")
    for note in notes:
        typer.echo(note, err=True)


# -- push


@catalog.command()
@console.asynchronous
async def push(
    directory: Directory,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would change.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Disable workflows without a file.")] = False,
    json_output: console.Json = False,
) -> int:
    """Write all workflows into the database of RCA_CATALOG__DATABASE_URL.

    Creates its tables if they are missing.

    Exit code 1 if a worker would refuse the directory (nothing is written then), or if vectors are missing.
    """
    from worker.adapters.file_catalog import read_directory
    from worker.adapters.postgres_catalog import push as write
    from worker.app.settings.environment import ConfigurationError, load

    settings = load().catalog
    url = settings.database_url.get_secret_value()
    if not url:
        raise ConfigurationError(
            "RCA_CATALOG__DATABASE_URL is not set: postgresql://user:password@host/database, as the tables' owner"
        )
    found = read_directory(directory)
    workflows = list(found.workflows.values())
    with console.progress("writing workflows") as show:
        done = await write(url, workflows, found.actions, prune=prune, dry_run=dry_run, progress=show)
    if json_output:
        console.print_json({**asdict(done), "dry_run": dry_run})
    else:
        _print_pushed(done, dry_run=dry_run)
    return 0 if dry_run or not done.embeddings else await _embed(url, settings)


async def _embed(url: str, settings: CatalogSettings) -> int:
    from worker.adapters.postgres_catalog import embed
    from worker.app.wiring.embedders import open_embedder
    from worker.domain.values.errors import EmbedderUnavailable

    async with AsyncExitStack() as stack:
        embedder = await open_embedder(settings, stack)
        if embedder is None:
            return 0
        try:
            with console.progress("computing vectors") as show:
                count = await embed(url, embedder, progress=show)
        except EmbedderUnavailable as error:
            typer.echo(
                f"error: {error}; workers rank by words until `rca catalog push` has written all vectors",
                err=True,
            )
            return console.EXIT_ERROR
        typer.echo(f"{console.counted(count, 'vector')} of {embedder.name}", err=True)
        return 0


def _print_pushed(done: Pushed, *, dry_run: bool) -> None:
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
        typer.echo("the database cannot store vectors (no pgvector): searches rank by words", err=True)
