"""`rca sandbox`: local servers that speak the real protocols, one by one or all together with a worker."""

from __future__ import annotations

import json
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from worker.app.cli.console import (
    Case,
    CaseCatalog,
    Json,
    asynchronous,
    listening_on,
    until_interrupted,
    waiting_for,
)

HOST = "127.0.0.1"

sandbox = typer.Typer(
    no_args_is_help=True,
    help="Start local servers that speak the real protocols: one of them, or all of them with a worker (up). They run "
    "until they are interrupted.",
)
Port = Annotated[int, typer.Option(help="Port on loopback; 0 lets the system choose.", min=0, max=65535)]


UP = """\
NATS        {nats}
cluster     {case}
kubeconfig  {kubeconfig}
model       {model}
worker      {worker}

In another terminal:
  export RCA_NATS__SERVERS={nats}
  rca submit {incident} --new-id
  rca watch
  rca show KEY    # the key that rca submit prints

Ctrl-C stops everything."""


@sandbox.command()
@asynchronous
async def up(case_dir: Case = None, *, catalog: CaseCatalog = None, json_output: Json = False) -> int:
    """Start NATS, a cluster of files and a worker, and print how to use them.

    The cluster reads the files of CASE at each request, so you may change them. RCA_LLM__MODEL chooses the
    model; without it, the offline analyst answers. With --json, the addresses are printed as one line of JSON.
    """
    from worker.app import health, logs
    from worker.app.embedded import EXAMPLE_CASE, CaseDirectory, open_case, open_services

    logs.configure("error", json_lines=False)
    case = CaseDirectory(case_dir or EXAMPLE_CASE)
    case.request()
    async with AsyncExitStack() as stack:
        async with waiting_for("NATS, the cluster and the worker"):
            services = await stack.enter_async_context(open_services())
            running = open_case(services, case, catalog=catalog)
            settings, worker = await stack.enter_async_context(running)
        http = health.serve(HOST, 0, checks=worker.checks, notices=worker.notices, metrics=worker.metrics)
        port = await stack.enter_async_context(http)
        facts = {
            "nats": services.nats_url,
            "case": str(case.directory),
            "incident": str(case.directory / "incident.json"),
            "kubeconfig": str(settings.kubernetes.kubeconfig),
            "model": "offline analyst (rules, no language model)" if services.offline else services.llm.model,
            "worker": f"http://{HOST}:{port}/readyz",
        }
        return await until_interrupted(json.dumps(facts) if json_output else UP.format(**facts))


@sandbox.command()
@asynchronous
async def nats(
    *, port: Port = 0, provisioned: Annotated[bool, typer.Option(help="Create the streams as well.")] = False
) -> int:
    """Start a real nats-server with JetStream in a temporary directory."""
    from worker.sandbox.nats_server import nats_server

    _require_free(port)
    async with nats_server(port=port or -1) as server:
        if provisioned:
            await _provision(server.url)
        return await until_interrupted(json.dumps({"url": server.url}))


async def _provision(url: str) -> None:
    from worker.app.provisioning import connected, provision_all
    from worker.app.settings.environment import load
    from worker.app.settings.groups import NatsSettings

    settings = load().model_copy(update={"nats": NatsSettings(servers=(url,))})
    async with connected(settings.nats) as nc:
        await provision_all(nc, settings)


@sandbox.command()
@asynchronous
async def cluster(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="YAML manifests in cluster/, logs in logs/.")
    ],
    *,
    port: Port = 0,
    kubeconfig: Annotated[Path | None, typer.Option(help="Write its kubeconfig to this file.")] = None,
) -> int:
    """Serve a read-only Kubernetes API over a directory of manifests and logs."""
    from worker.sandbox.cluster_server import serve, write_kubeconfig

    _require_free(port)
    async with serve(directory, port=port) as url:
        if kubeconfig is not None:
            write_kubeconfig(kubeconfig, url)
            return await until_interrupted(json.dumps({"url": url, "kubeconfig": str(kubeconfig)}))
        return await until_interrupted(json.dumps({"url": url}))


@sandbox.command()
@asynchronous
async def analyst(*, port: Port = 0) -> int:
    """Start the offline analyst, which answers OpenAI chat completions by rules.

    It prints its URL: set RCA_LLM__BASE_URL to it.
    """
    from worker.sandbox.analyst.server import serve

    _require_free(port)
    async with serve(port=port) as url:
        return await until_interrupted(json.dumps({"url": url}))


def _require_free(port: int) -> None:
    """Raise ReportedError if the port is taken.

    The message is one line; the server itself would print its whole log.
    """
    with listening_on(HOST, port, "choose another with --port"):
        socket.create_server((HOST, port)).close()
