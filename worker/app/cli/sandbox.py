"""`rca sandbox nats|cluster|analyst`: one JSON line when ready, then until interrupted."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path

import typer

from worker.app.cli.console import listening_on
from worker.app.provisioning import connected, provision_all
from worker.app.settings import NatsSettings, load
from worker.sandbox.analyst.server import serve as serve_analyst
from worker.sandbox.cluster_server import serve as serve_cluster
from worker.sandbox.cluster_server import write_kubeconfig
from worker.sandbox.nats_server import nats_server

HOST = "127.0.0.1"


async def _until_interrupted(**ready: str) -> int:
    typer.echo(json.dumps(ready))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    return 0


def _check(port: int) -> None:
    """A server that cannot have its port says so with its whole log; this is one line."""
    with listening_on(HOST, port, "--port names another"):
        socket.create_server((HOST, port)).close()


async def nats(port: int, *, provisioned: bool) -> int:
    """A nats-server, with the streams if asked for."""
    _check(port)
    async with nats_server(port=port or -1) as server:
        if provisioned:
            settings = load().model_copy(update={"nats": NatsSettings(servers=(server.url,))})
            async with connected(settings.nats) as nc:
                await provision_all(nc, settings)
        return await _until_interrupted(url=server.url)


async def cluster(directory: Path, port: int, kubeconfig: Path | None) -> int:
    """A snapshot cluster."""
    _check(port)
    async with serve_cluster(directory, port=port) as url:
        if kubeconfig is not None:
            write_kubeconfig(kubeconfig, url)
            return await _until_interrupted(url=url, kubeconfig=str(kubeconfig))
        return await _until_interrupted(url=url)


async def analyst(port: int) -> int:
    """The offline analyst."""
    _check(port)
    async with serve_analyst(port=port) as url:
        return await _until_interrupted(url=url)
