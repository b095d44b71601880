"""`rca worker`."""

from __future__ import annotations

import gc
from contextlib import AsyncExitStack

import structlog

from worker.app import health, logs
from worker.app.cli.console import listening_on
from worker.app.settings import load
from worker.app.wiring import open_worker

log = structlog.stdlib.get_logger(__name__)


async def work() -> int:
    """Until SIGTERM or SIGINT; then running incidents are finished or handed back."""
    settings = load()
    logs.configure(settings.log.level, json_lines=settings.log.json_lines)
    async with open_worker(settings) as worker:
        http = health.serve(
            settings.http.host,
            settings.http.port,
            checks=worker.checks,
            notices=worker.notices,
            metrics=worker.metrics,
        )
        async with AsyncExitStack() as stack:
            with listening_on(
                settings.http.host, settings.http.port, "RCA_HTTP__HOST and RCA_HTTP__PORT name another"
            ):
                port = await stack.enter_async_context(http)
            log.info("http_listening", port=port)
            gc.collect()
            gc.freeze()  # modules stay: without them a collection is cheap, and comes before much has gathered
            await worker.intake.run()
    log.info("worker_stopped")
    return 0
