"""`rca`: one command a module, imported when it is used so that `--help` is quick."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from worker.app.settings import documentation

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="rca",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Root cause analysis of Kubernetes incidents over NATS JetStream.\n\n"
    "Start with [bold]rca demo[/bold]: it needs no cluster, no NATS and no API key. In production: "
    "[bold]rca provision[/bold] once, then [bold]rca worker[/bold].",
    epilog="Configuration comes from environment variables RCA_...; `rca settings` lists them all. "
    "Exit codes: 0 ok, 1 error, 2 usage, 3 dead letter, 4 timeout, 5 rejected.",
)
sandbox = typer.Typer(
    no_args_is_help=True,
    help="Stand-ins for the outside world that speak the real protocols. Each prints one JSON line with its url when it "
    "is ready, and runs until it is interrupted.",
)
app.add_typer(sandbox, name="sandbox")
catalog = typer.Typer(no_args_is_help=True, help="Check a directory of workflows before a worker uses it.")
app.add_typer(catalog, name="catalog")
dlq = typer.Typer(no_args_is_help=True, help="Requests that could not be served: look, send again, delete.")
app.add_typer(dlq, name="dlq")

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, for scripts.")]
LetterId = Annotated[int, typer.Argument(help="Its id, as `rca dlq list` shows it.", min=1)]
LetterIds = Annotated[list[int], typer.Argument(help="Their ids, as `rca dlq list` shows them.", min=1)]
Port = Annotated[int, typer.Option(help="Port on loopback; 0 lets the system choose.")]


def _run(work: Coroutine[Any, Any, int]) -> None:
    """Run to the end and exit with what it returns; known failures become one clear message."""
    from worker.app.cli.failures import KNOWN, explain

    try:
        code = asyncio.run(work)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except KNOWN as e:
        typer.echo(f"error: {explain(e)}", err=True)
        code = EXIT_ERROR
    raise typer.Exit(code)


@app.command()
def worker() -> None:
    """Analyse incidents from the request stream until a signal says stop.

    Needs RCA_LLM__MODEL, a NATS server that was provisioned, and read access to the cluster.
    """
    from worker.app.cli.worker import work

    _run(work())


@app.command()
def provision(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only report what differs; exit 1 if anything does.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Create or update streams, consumers and buckets. Never deletes or shrinks anything."""
    from worker.app.cli.provision import provision as run

    _run(run(check=check, as_json=json_output))


@app.command()
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
    from worker.app.cli.submit import submit as run

    try:
        body = read_request(file, new_id=new_id)
    except (OSError, ValueError) as e:
        typer.echo(f"error: {e}", err=True)
        raise typer.Exit(EXIT_ERROR) from None
    _run(run(body, recovery=recovery, wait_seconds=timeout if wait else None, as_json=json_output))


@app.command()
def cancel(
    key: Annotated[
        str, typer.Argument(help="The request key: the remediation id, as `rca submit` prints it.")
    ],
) -> None:
    """Stop a request: at its next step if it runs, without any step if it still waits. A person gets it."""
    from worker.app.cli.cancel import cancel as run

    _run(run(key))


@app.command()
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
    from worker.app.cli.demo import demo as run

    _run(run(case_dir, recovery=recovery, catalog=catalog, output=output, as_json=json_output))


@app.command(name="eval")
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
    from worker.app.cli.evaluate import evaluate as run

    _run(run(cases_dir, catalog=catalog, parallel=parallel, as_json=json_output))


@app.command()
def settings(*, json_output: Json = False) -> None:
    """List every environment variable with its default and meaning."""
    rows = documentation()
    if json_output:
        typer.echo(json.dumps([{"name": n, "default": d, "meaning": m} for n, d, m in rows], indent=2))
        return
    for name, default, meaning in rows:
        typer.echo(f"{name}" + (f" [{default}]" if default else ""))
        typer.echo(f"    {meaning}")


@sandbox.command(name="nats")
def sandbox_nats(
    *, port: Port = 0, provisioned: Annotated[bool, typer.Option(help="Make the streams, too.")] = False
) -> None:
    """A real nats-server with JetStream in a temporary directory."""
    from worker.app.cli.sandbox import nats

    _run(nats(port or -1, provisioned=provisioned))


@sandbox.command(name="cluster")
def sandbox_cluster(
    directory: Annotated[Path, typer.Argument(help="YAML manifests below cluster/, logs below logs/.")],
    *,
    port: Port = 0,
    kubeconfig: Annotated[Path | None, typer.Option(help="Write a kubeconfig for it here.")] = None,
) -> None:
    """A read-only Kubernetes API over a directory of manifests and logs."""
    from worker.app.cli.sandbox import cluster

    _run(cluster(directory, port, kubeconfig))


@sandbox.command(name="analyst")
def sandbox_analyst(*, port: Port = 0) -> None:
    """The offline analyst: OpenAI chat completions answered by rules. Set RCA_LLM__BASE_URL to its url."""
    from worker.app.cli.sandbox import analyst

    _run(analyst(port))


CatalogDirectory = Annotated[Path, typer.Argument(help="Directory of workflows (YAML).")]


@dlq.command(name="list")
def dlq_list(*, json_output: Json = False) -> None:
    """One line for each, oldest first: id, time, reason, remediation id, error."""
    from worker.app.cli.dlq import show_all

    _run(show_all(as_json=json_output))


@dlq.command(name="show")
def dlq_show(letter: LetterId, *, json_output: Json = False) -> None:
    """Why it could not be served, and the request as it was sent."""
    from worker.app.cli.dlq import show

    _run(show(letter, as_json=json_output))


@dlq.command(name="replay")
def dlq_replay(letters: LetterIds) -> None:
    """Send requests again, when the cause is mended. What comes out replaces the failed result."""
    from worker.app.cli.dlq import replay

    _run(replay(letters))


@dlq.command(name="drop")
def dlq_drop(letters: LetterIds) -> None:
    """Delete dead letters. Their failed results stay."""
    from worker.app.cli.dlq import drop

    _run(drop(letters))


@catalog.command(name="lint")
def catalog_lint(
    directory: CatalogDirectory,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for warnings as well.")] = False,
    json_output: Json = False,
) -> None:
    """Print every problem with file and line. Exit code 1 when a worker would refuse the catalog."""
    from worker.app.cli.catalog import lint

    _run(lint(directory, as_json=json_output, strict=strict))


@catalog.command(name="list")
def catalog_list(directory: CatalogDirectory, *, json_output: Json = False) -> None:
    """List all workflows by type of action."""
    from worker.app.cli.catalog import list_workflows

    _run(list_workflows(directory, as_json=json_output))


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
    from worker.app.cli.catalog import search

    pairs = dict(pair.partition("=")[::2] for pair in label or ())
    found = search(
        directory,
        query,
        labels=pairs,
        min_confidence=min_confidence,
        max_results=max_results,
        as_json=json_output,
    )
    _run(found)


if __name__ == "__main__":
    app()
