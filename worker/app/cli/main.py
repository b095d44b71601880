"""The `rca` command: one module beside this one for each group of commands."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import typer

from worker.app.cli.audit import audit
from worker.app.cli.catalog import catalog
from worker.app.cli.console import Commands, Json, print_json
from worker.app.cli.demo import demo
from worker.app.cli.dlq import dlq
from worker.app.cli.doctor import doctor
from worker.app.cli.evaluate import evaluate
from worker.app.cli.listeners import alertmanager, console
from worker.app.cli.mcp import EPILOG as MCP_EPILOG
from worker.app.cli.mcp import mcp
from worker.app.cli.outcomes import outcomes
from worker.app.cli.permissions import permissions
from worker.app.cli.policy import policy
from worker.app.cli.replay import record, replay
from worker.app.cli.requests import cancel, report, results, show, submit
from worker.app.cli.sandbox import sandbox
from worker.app.cli.snapshot import snapshot
from worker.app.cli.spec_hash import spec_hash
from worker.app.cli.watch import watch
from worker.app.cli.worker import provision, worker

TRY, RUN, REQUESTS, PREPARE = "Try it", "Run it", "Look after requests", "Prepare and check"
"""Groups of commands in `rca --help`, shown in the order in which their first commands are declared."""

app = typer.Typer(
    name="rca",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Root cause analysis of Kubernetes incidents over NATS JetStream.\n\n"
    "Start with **rca demo**: it needs no cluster, no NATS and no API key. In production, run "
    "**rca provision** once, then **rca worker**.",
    epilog="The environment variables RCA_... configure every command; `rca settings` lists them all. "
    "Exit codes: 0 ok, 1 error, 2 usage, 3 dead letter, 4 timeout, 5 rejected, 130 interrupted, 141 pipe closed.",
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the value
    if wanted:
        from importlib.metadata import version

        typer.echo(f"rca {version('rca-worker')}")
        raise typer.Exit


@app.callback()
def rca(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Declare the options that come before a command."""


def settings(
    group: Annotated[
        str,
        typer.Argument(
            metavar="GROUP", help="Only one group, such as nats or llm; all by default.", show_default=False
        ),
    ] = "",
    *,
    json_output: Json = False,
) -> None:
    """List every environment variable with its default and meaning, group by group."""
    from worker.app.settings.environment import documentation, group_titles

    titles = {
        prefix: title for prefix, title in group_titles().items() if group.upper() in {"", _group(prefix)}
    }
    if not titles:
        known = ", ".join(_group(prefix).lower() for prefix in group_titles())
        raise typer.BadParameter(f"{group!r} is not a group; the groups are {known}", param_hint="GROUP")
    rows = [row for row in documentation() if row[0].startswith(tuple(titles))]
    if json_output:
        print_json([{"name": n, "default": d, "meaning": m} for n, d, m in rows])
        return
    for prefix, title in titles.items():
        typer.echo(textwrap.fill(f"{_group(prefix)}: {title}", 80))
        for name, default, meaning in (row for row in rows if row[0].startswith(prefix)):
            typer.echo(f"  {name}" + (f" [{default}]" if default else ""))
            typer.echo(textwrap.fill(meaning, 80, initial_indent="      ", subsequent_indent="      "))
        typer.echo()


def _group(prefix: str) -> str:
    return prefix.removeprefix("RCA_").removesuffix("__")


COMMANDS: Mapping[str, Sequence[Callable[..., object]]] = {
    TRY: (demo, replay, snapshot),
    RUN: (worker, provision, alertmanager),
    REQUESTS: (submit, watch, console, results, show, report, record, cancel),
    PREPARE: (doctor, settings, permissions),
}
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.command(name="eval", rich_help_panel=TRY)(evaluate)
app.command(rich_help_panel=RUN, epilog=MCP_EPILOG)(mcp)
app.command(name="spec-hash", rich_help_panel=PREPARE)(spec_hash)
app.add_typer(sandbox, name="sandbox", rich_help_panel=TRY)
app.add_typer(dlq, name="dlq", rich_help_panel=REQUESTS)
app.add_typer(audit, name="audit", rich_help_panel=REQUESTS)
app.add_typer(outcomes, name="outcomes", rich_help_panel=REQUESTS)
app.add_typer(catalog, name="catalog", rich_help_panel=PREPARE)
app.add_typer(policy, name="policy", rich_help_panel=PREPARE)


if __name__ == "__main__":
    app()
