"""The whole production path on loopback: NATS server, snapshot cluster, a model from a script, a real worker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from pydantic import SecretStr

from schemas.subjects import Subjects
from tests.corpus_files import corpus_path
from tests.fakes.faulty_api import FaultyApi
from tests.fakes.llm_server import Said, Script, ScriptedLLM
from tests.fakes.llm_server import serve as serve_llm
from worker.app.client import RequestClient
from worker.app.provisioning import connected, provision_all
from worker.app.settings.environment import Settings
from worker.app.settings.groups import (
    CatalogSettings,
    KubernetesSettings,
    LlmSettings,
    NatsSettings,
    WorkerSettings,
)
from worker.app.wiring import Worker, open_worker
from worker.sandbox.cluster_server import serve_api, shipped_rights, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot
from worker.sandbox.nats_server import nats_server

CATALOG = corpus_path("catalog/restart-deployment-v1.yaml").parent


@dataclass
class Running:
    """A worker at work, and a connection of somebody else."""

    settings: Settings
    worker: Worker
    llm: ScriptedLLM
    nc: Client
    subjects: Subjects
    cluster: FaultyApi

    @property
    def client(self) -> RequestClient:
        return RequestClient(self.nc, self.subjects)


@asynccontextmanager
async def running(
    script: Script,
    case_directory: Path,
    temporary: Path,
    *,
    slots: int = 2,
    call_seconds: float = 60.0,
    model: Mapping[str, Any] | None = None,
    worker: Mapping[str, Any] | None = None,
    nats: NatsSettings | None = None,
    **groups: Any,
) -> AsyncIterator[Running]:
    """`model` and `worker` are further settings of these groups, `groups` further groups of settings.

    `nats` leads to a server that runs already; by default one is started.

    Faults of the cluster may be set at any time (`cluster.faults`).
    """
    async with AsyncExitStack() as stack:
        if nats is None:
            server = await stack.enter_async_context(nats_server())
            nats = NatsSettings(servers=(server.url,))
        llm = await stack.enter_async_context(serve_llm(script))
        cluster = FaultyApi(Snapshot.read(case_directory), rights=shipped_rights())
        url = await stack.enter_async_context(serve_api(cluster))
        kubeconfig = temporary / "kubeconfig"
        write_kubeconfig(kubeconfig, url)
        settings = Settings(
            nats=nats,
            kubernetes=KubernetesSettings(
                kubeconfig=kubeconfig, call_seconds=call_seconds, enrichment_seconds=60.0
            ),
            llm=LlmSettings(
                model="openai-chat:scripted",
                base_url=f"{llm.url}/v1",
                api_key=SecretStr("test-key"),
                **(model or {}),
            ),
            worker=WorkerSettings(**{"slots": slots, "drain_seconds": 1.0, **(worker or {})}),
            **{"catalog": CatalogSettings(path=CATALOG), **groups},
        )
        nc = await stack.enter_async_context(connected(settings.nats))
        await provision_all(nc, settings)
        opened = await stack.enter_async_context(open_worker(settings))
        await stack.enter_async_context(opened.intake.running())
        yield Running(settings, opened, llm, nc, Subjects(settings.nats.prefix), cluster)


def final(answer: dict[str, object], prose: str = "Found it.") -> Said:
    """A final answer in the required form."""
    return Said(text=f"{prose}\n```json\n{json.dumps(answer)}\n```")
