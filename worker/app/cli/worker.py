"""`rca worker` and `rca provision`: what runs in production."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from worker.app.cli.console import (
    EXIT_ERROR,
    Json,
    asynchronous,
    listening_on,
    print_json,
    session,
    waiting_for,
)

COLLECTED_AFTER_OBJECTS, THEN_OLDER_AFTER, THEN_ALL_AFTER = 5_000, 2, 2
"""How many new objects start a garbage collection, and how many collections come before one of the next
generation.

With the default of 700, collections take 3 % of the CPU. With the default of 10, what survived two
collections while its incident was analysed would stay in memory until a thousand more incidents are done.
"""


@asynchronous
async def worker() -> int:
    """Analyse incidents from the request stream until SIGTERM or SIGINT.

    Needs RCA_LLM__MODEL, a NATS server with the streams of `rca provision`, and read access to the cluster.
    When it stops, it finishes running analyses or returns their requests to the queue.
    """
    from worker.app.settings.environment import ConfigurationError, load

    settings = load()
    if not settings.llm.model:
        raise ConfigurationError(
            "RCA_LLM__MODEL is not set: name a model, such as openai-chat:gpt-5 or anthropic:claude-sonnet-4-6 "
            "(RCA_LLM__BASE_URL for a server of your own); `rca demo` needs none"
        )
    gc.disable()  # imported objects stay: collections would find nothing, and take a quarter of the start
    with _not_imported("rich", "uvicorn", "kubernetes_validate"):
        import structlog

        from worker.app import health, logs
        from worker.app.wiring import open_worker

    logs.configure(settings.log.level, json_lines=settings.log.json_lines)
    log = structlog.stdlib.get_logger(__name__)
    host, port = settings.http.host, settings.http.port
    async with open_worker(settings) as opened:
        http = health.serve(host, port, checks=opened.checks, notices=opened.notices, metrics=opened.metrics)
        async with AsyncExitStack() as stack:
            with listening_on(host, port, "choose another address with RCA_HTTP__HOST and RCA_HTTP__PORT"):
                port = await stack.enter_async_context(http)
            log.info("http_listening", port=port)
            gc.collect()
            gc.freeze()  # modules stay: without them a collection is cheap
            gc.collect()  # CPython puts off a full collection until the objects have grown by a quarter since the last one
            gc.set_threshold(COLLECTED_AFTER_OBJECTS, THEN_OLDER_AFTER, THEN_ALL_AFTER)
            gc.enable()
            await opened.intake.run()
    log.info("worker_stopped")
    return 0


@contextmanager
def _not_imported(*optional: str) -> Iterator[None]:
    """Import nothing that structlog, FastStream and the Kubernetes client load only if it is installed.

    A worker never uses them; they would cost it up to 25 MiB, and its start up to a second.
    """
    hidden: dict[str, Any] = {name: None for name in optional if name not in sys.modules}
    sys.modules.update(hidden)  # None makes an import fail (The import system, 5.3.1)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@asynchronous
async def provision(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only report differences; exit with 1 if there are any.")
    ] = False,
    monitoring_url: Annotated[
        str,
        typer.Option(
            help="Monitoring address of the NATS server, such as http://nats:8222; checks its `sync_interval`."
        ),
    ] = "",
    json_output: Json = False,
) -> int:
    """Create or update streams, consumers and buckets. Never deletes anything.

    Lowers a byte limit only if the stored messages fit. Exit code 1 if a difference was not corrected, or if
    the server does not have enough storage for the byte limits.
    """
    from worker.adapters.nats.provision import Action
    from worker.app.disk_sync import sync_advice
    from worker.app.provisioning import provision_all

    async with session("rca") as opened, waiting_for("the streams"):
        findings = await provision_all(opened.nc, opened.settings, apply=not check)
    if json_output:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            typer.echo(f"{finding.action:13} {finding.name} {finding.detail}".rstrip())
    is_new = any(finding.action == Action.CREATED for finding in findings)
    if (monitoring_url or is_new) and (advice := await sync_advice(monitoring_url)):
        typer.echo(f"warning: {advice}", err=True)
    different = {Action.DRIFT, Action.WOULD_CREATE, Action.WOULD_UPDATE}
    return EXIT_ERROR if any(finding.action in different for finding in findings) else 0
