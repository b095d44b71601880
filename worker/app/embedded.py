"""Everything a worker needs on one machine: a NATS server, a snapshot cluster and an analyst.

It needs no configuration.

The parts speak the real protocols, so what runs on them is the production path. If no model is configured,
the offline analyst answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import SecretStr

from worker.app.provisioning import connected, provision_all
from worker.app.settings.environment import Settings, load
from worker.app.settings.groups import (
    CatalogSettings,
    KubernetesSettings,
    LlmSettings,
    NatsSettings,
    WorkerSettings,
)
from worker.app.wiring import Worker, open_worker
from worker.domain.values.errors import ReportedError
from worker.sandbox.analyst.respond import NAME as ANALYST
from worker.sandbox.analyst.server import serve as serve_analyst
from worker.sandbox.cluster_server import serve as serve_cluster
from worker.sandbox.cluster_server import write_kubeconfig
from worker.sandbox.nats_server import nats_server

EXAMPLE_CASE = Path(str(files("worker") / "examples" / "incident"))
"""The shipped example incident."""


@dataclass(frozen=True, slots=True)
class CaseDirectory:
    """An incident with the cluster it happened in. Not every case has a `recovery.json`."""

    directory: Path

    @property
    def name(self) -> str:
        """Its directory's name."""
        return self.directory.name

    def request(self, *, recovery: bool = False) -> bytes:
        """The request as a gateway would publish it. Raises ReportedError."""
        path = self.directory / ("recovery.json" if recovery else "incident.json")
        if not path.is_file():
            raise ReportedError(f"{path} is missing: a case holds incident.json, cluster/*.yaml and logs/")
        return path.read_bytes()


@dataclass(frozen=True, slots=True)
class Services:
    """The services that all cases share: the server and the model."""

    nats_url: str
    llm: LlmSettings
    offline: bool


@asynccontextmanager
async def open_services() -> AsyncIterator[Services]:
    """A NATS server in a temporary directory, and the configured model or the offline analyst."""
    configured = load().llm
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(nats_server())
        if configured.model:
            yield Services(server.url, configured, offline=False)
            return
        url = await stack.enter_async_context(serve_analyst())
        analyst = configured.model_copy(
            update={"model": f"openai-chat:{ANALYST}", "base_url": url, "api_key": SecretStr("none")}
        )
        yield Services(server.url, analyst, offline=True)


@asynccontextmanager
async def open_case(
    services: Services, case: CaseDirectory, *, catalog: Path | None, prefix: str = "rca"
) -> AsyncIterator[tuple[Settings, Worker]]:
    """Run a worker for the case under the prefix while the context is open. Yields its settings, too."""
    with TemporaryDirectory(prefix="rca-case-") as directory:
        async with AsyncExitStack() as stack:
            url = await stack.enter_async_context(serve_cluster(case.directory))
            kubeconfig = Path(directory) / "kubeconfig"
            write_kubeconfig(kubeconfig, url)
            settings = Settings(
                # Without byte limits: there are many prefixes on one server.
                nats=NatsSettings(servers=(services.nats_url,), prefix=prefix, store_mebibytes=0),
                kubernetes=KubernetesSettings(kubeconfig=kubeconfig),
                llm=services.llm,
                catalog=CatalogSettings(path=catalog),
                worker=WorkerSettings(slots=1, drain_seconds=1.0),
            )
            async with connected(settings.nats) as nc:
                await provision_all(nc, settings)
            worker = await stack.enter_async_context(open_worker(settings))
            await stack.enter_async_context(worker.intake.running())
            yield settings, worker
