"""`rca`: what a command does is imported when it is used, so that `--help` is quick."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from schemas.permissions import Role
from worker.app.cli.commands_audit import audit
from worker.app.cli.commands_catalog import catalog as catalog_commands
from worker.app.cli.commands_dlq import dlq
from worker.app.cli.commands_mcp import EPILOG as MCP_EPILOG
from worker.app.cli.commands_mcp import mcp
from worker.app.cli.commands_policy import policy
from worker.app.cli.commands_sandbox import sandbox
from worker.app.cli.console import Commands, Json, print_json, run, told
from worker.app.settings import documentation

TRY, RUN, REQUESTS, PREPARE = "Try it", "Run it", "Look after requests", "Prepare and check"
"""Groups of commands in `rca --help`, shown in the order in which their first commands are declared."""

app = typer.Typer(
    name="rca",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Root cause analysis of Kubernetes incidents over NATS JetStream.\n\n"
    "Start with [bold]rca demo[/bold]: it needs no cluster, no NATS and no API key. In production: "
    "[bold]rca provision[/bold] once, then [bold]rca worker[/bold].",
    epilog="Configuration comes from environment variables RCA_...; `rca settings` lists them all. "
    "Exit codes: 0 ok, 1 error, 2 usage, 3 dead letter, 4 timeout, 5 rejected, 130 interrupted, 141 pipe closed.",
)


@app.command(rich_help_panel=TRY)
def demo(
    case_dir: Annotated[
        Path | None,
        typer.Argument(
            help="A directory with incident.json, cluster/ and logs/; the shipped example by default."
        ),
    ] = None,
    *,
    recovery: Annotated[
        bool, typer.Option("--recovery", help="Analyse after a remediation that failed.")
    ] = False,
    catalog: Annotated[
        Path | None, typer.Option(help="Directory of workflows; the shipped one by default.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Where to write the run as JSON.")] = None,
    json_output: Json = False,
) -> None:
    """Analyse an example incident here and now: embedded NATS server, snapshot cluster, worker, and an analyst.

    Uses the model of RCA_LLM__MODEL if one is set, else the offline analyst (rules, no language model, no network).
    """
    from worker.app.cli.demo import demo as work

    run(work(case_dir, recovery=recovery, catalog=catalog, output=output, as_json=json_output))


@app.command(name="eval", rich_help_panel=TRY)
def evaluate(
    cases_dir: Annotated[
        Path, typer.Argument(help="Directory of cases, each with incident.json and expected.json.")
    ],
    *,
    catalog: Annotated[Path, typer.Option(help="Directory of workflows the cases expect.")],
    parallel: Annotated[int, typer.Option(help="Cases at once.", min=1, max=32)] = 4,
    json_output: Json = False,
) -> None:
    """Run every case through the whole pipeline and compare with the expected answers."""
    from worker.app.cli.evaluate import evaluate as work

    run(work(cases_dir, catalog=catalog, parallel=parallel, as_json=json_output))


@app.command(rich_help_panel=RUN)
def worker() -> None:
    """Analyse incidents from the request stream until a signal says stop.

    Needs RCA_LLM__MODEL, a NATS server that was provisioned, and read access to the cluster.
    """
    from worker.app.cli.worker import work

    run(work())


@app.command(rich_help_panel=RUN)
def provision(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only report what differs; exit 1 if anything does.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Create or update streams, consumers and buckets. Never deletes or shrinks anything."""
    from worker.app.cli.provision import provision as work

    run(work(check=check, as_json=json_output))


@app.command(rich_help_panel=REQUESTS)
def submit(
    file: Annotated[Path, typer.Argument(help="A request as JSON; - reads standard input.", allow_dash=True)],
    *,
    recovery: Annotated[bool, typer.Option("--recovery", help="It is a recovery request.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for what becomes of it.")] = False,
    timeout: Annotated[float, typer.Option(help="With --wait: seconds.", min=1)] = 300.0,
    new_id: Annotated[bool, typer.Option("--new-id", help="Mint incident_id and remediation_id.")] = False,
    json_output: Json = False,
) -> None:
    """Publish a request, as a gateway would. Exit code with --wait: 0 result, 3 dead letter, 4 timeout, 5 rejected."""
    from worker.app.cli.submit import read_request
    from worker.app.cli.submit import submit as work

    with told():  # outside of the event loop: Ctrl-C ends the reading of a terminal
        body = read_request(file, new_id=new_id)
    run(work(body, recovery=recovery, wait_seconds=timeout if wait else None, as_json=json_output))


@app.command(rich_help_panel=REQUESTS)
def cancel(
    key: Annotated[
        str, typer.Argument(help="The request key: the remediation id, as `rca submit` prints it.")
    ],
    *,
    json_output: Json = False,
) -> None:
    """Stop a request: at its next step if it runs, without any step if it still waits. A person gets it."""
    from worker.app.cli.cancel import cancel as work

    run(work(key, as_json=json_output))


@app.command(rich_help_panel=PREPARE)
def permissions(
    role: Annotated[
        Role | None, typer.Argument(help="One role; all of them, with exports and imports, by default.")
    ] = None,
    *,
    prefix: Annotated[
        str | None, typer.Option(help="First part of the subjects; RCA_NATS__PREFIX by default.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Print who may do what on NATS, as a part of the server's configuration: deploy/nats/roles.conf for any prefix."""
    from worker.app.cli.permissions import show as work

    run(work(role, prefix, as_json=json_output))


@app.command(rich_help_panel=PREPARE)
def settings(*, json_output: Json = False) -> None:
    """List every environment variable with its default and meaning."""
    rows = documentation()
    if json_output:
        print_json([{"name": n, "default": d, "meaning": m} for n, d, m in rows])
        return
    for name, default, meaning in rows:
        typer.echo(f"{name}" + (f" [{default}]" if default else ""))
        typer.echo(textwrap.fill(meaning, 80, initial_indent="    ", subsequent_indent="    "))


app.add_typer(sandbox, name="sandbox", rich_help_panel=TRY)
app.add_typer(catalog_commands, name="catalog", rich_help_panel=PREPARE)
app.add_typer(policy, name="policy", rich_help_panel=PREPARE)
app.add_typer(dlq, name="dlq", rich_help_panel=REQUESTS)
app.add_typer(audit, name="audit", rich_help_panel=REQUESTS)
app.command(epilog=MCP_EPILOG, rich_help_panel=RUN)(mcp)


if __name__ == "__main__":
    app()
