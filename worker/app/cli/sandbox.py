"""`rca sandbox`: stand-ins for the outside world. Each prints one JSON line when it is ready."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path
from typing import Annotated

import typer

from worker.app.cli.console import listening_on, run

HOST = "127.0.0.1"

sandbox = typer.Typer(
    no_args_is_help=True,
    help="Stand-ins for the outside world that speak the real protocols. Each prints one JSON line with its url when it "
    "is ready, and runs until it is interrupted.",
)
Port = Annotated[int, typer.Option(help="Port on loopback; 0 lets the system choose.", min=0, max=65535)]


@sandbox.command()
def nats(
    *, port: Port = 0, provisioned: Annotated[bool, typer.Option(help="Create the streams as well.")] = False
) -> None:
    """A real nats-server with JetStream in a temporary directory."""
    run(_nats(port, provisioned=provisioned))


async def _nats(port: int, *, provisioned: bool) -> int:
    from worker.sandbox.nats_server import nats_server

    _require_free(port)
    async with nats_server(port=port or -1) as server:
        if provisioned:
            await _provision(server.url)
        return await _until_interrupted(url=server.url)


async def _provision(url: str) -> None:
    from worker.app.provisioning import connected, provision_all
    from worker.app.settings import NatsSettings, load

    settings = load().model_copy(update={"nats": NatsSettings(servers=(url,))})
    async with connected(settings.nats) as nc:
        await provision_all(nc, settings)


@sandbox.command()
def cluster(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="YAML manifests in cluster/, logs in logs/.")
    ],
    *,
    port: Port = 0,
    kubeconfig: Annotated[Path | None, typer.Option(help="Write a kubeconfig for it to this file.")] = None,
) -> None:
    """A read-only Kubernetes API over a directory of manifests and logs."""
    run(_cluster(directory, port, kubeconfig))


async def _cluster(directory: Path, port: int, kubeconfig: Path | None) -> int:
    from worker.sandbox.cluster_server import serve, write_kubeconfig

    _require_free(port)
    async with serve(directory, port=port) as url:
        if kubeconfig is not None:
            write_kubeconfig(kubeconfig, url)
            return await _until_interrupted(url=url, kubeconfig=str(kubeconfig))
        return await _until_interrupted(url=url)


@sandbox.command()
def analyst(*, port: Port = 0) -> None:
    """The offline analyst: OpenAI chat completions answered by rules. Set RCA_LLM__BASE_URL to its url."""
    run(_analyst(port))


async def _analyst(port: int) -> int:
    from worker.sandbox.analyst.server import serve

    _require_free(port)
    async with serve(port=port) as url:
        return await _until_interrupted(url=url)


def _require_free(port: int) -> None:
    """Raises ReportedError, in one line: a server that cannot have its port reports it with its whole log."""
    with listening_on(HOST, port, "choose another with --port"):
        socket.create_server((HOST, port)).close()


async def _until_interrupted(**ready: str) -> int:
    typer.echo(json.dumps(ready))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    return 0
