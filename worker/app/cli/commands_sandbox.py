"""`rca sandbox`: stand-ins for the outside world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from worker.app.cli.console import run

sandbox = typer.Typer(
    no_args_is_help=True,
    help="Stand-ins for the outside world that speak the real protocols. Each prints one JSON line with its url when it "
    "is ready, and runs until it is interrupted.",
)
Port = Annotated[int, typer.Option(help="Port on loopback; 0 lets the system choose.", min=0, max=65535)]


@sandbox.command(name="nats")
def sandbox_nats(
    *, port: Port = 0, provisioned: Annotated[bool, typer.Option(help="Make the streams, too.")] = False
) -> None:
    """A real nats-server with JetStream in a temporary directory."""
    from worker.app.cli.sandbox import nats

    run(nats(port, provisioned=provisioned))


@sandbox.command(name="cluster")
def sandbox_cluster(
    directory: Annotated[Path, typer.Argument(help="YAML manifests below cluster/, logs below logs/.")],
    *,
    port: Port = 0,
    kubeconfig: Annotated[Path | None, typer.Option(help="Write a kubeconfig for it here.")] = None,
) -> None:
    """A read-only Kubernetes API over a directory of manifests and logs."""
    from worker.app.cli.sandbox import cluster

    run(cluster(directory, port, kubeconfig))


@sandbox.command(name="analyst")
def sandbox_analyst(*, port: Port = 0) -> None:
    """The offline analyst: OpenAI chat completions answered by rules. Set RCA_LLM__BASE_URL to its url."""
    from worker.app.cli.sandbox import analyst

    run(analyst(port))
