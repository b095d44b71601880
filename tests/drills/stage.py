"""Everything a drill plays on: a nats-server, the counting model, a snapshot cluster, workers and requests."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from nats.aio.client import Client
from nats.errors import Error as NatsError

from schemas.subjects import Lane, Subjects
from schemas.taxonomy import RequestKind
from tests.corpus_files import corpus_path
from tests.drills.accounts import (
    Account,
    Call,
    JournalRecorder,
    JournalStep,
    read_ledger,
    take_account,
    until,
)
from tests.drills.model import Plan, as_json
from tests.drills.workers import Worker
from tests.fakes.faulty_api import Fault, FaultyApi
from tests.nats_servers import connect
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.sandbox.cluster_server import serve_api, shipped_rights, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot
from worker.sandbox.nats_server import NatsServer

ROOT = Path(__file__).parents[2]
CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
CATALOG = corpus_path("catalog/restart-deployment-v1.yaml").parent
REQUEST = json.loads((CASE / "incident.json").read_text())
PUBLISH_SECONDS = 2.0


def body(key: str, **fields: Any) -> bytes:
    """An incident under a request key of its own."""
    message = f"{REQUEST['error_message']} drill key {key}."
    return json.dumps(
        {**REQUEST, "incident_id": f"inc-{key}", "remediation_id": key, "error_message": message, **fields}
    ).encode()


@dataclass
class Ground:
    """What all drills share: the model's process, the cluster, a directory."""

    directory: Path
    model_url: str
    api: FaultyApi
    kubeconfig: Path
    tell: Callable[[str], None] = lambda _: None

    def ledger(self, drill: str) -> Path:
        return self.directory / f"{drill}.ledger"


@asynccontextmanager
async def ground(directory: Path, tell: Callable[[str], None] = lambda _: None) -> AsyncIterator[Ground]:
    """Starts what is shared."""
    async with AsyncExitStack() as stack:
        api = FaultyApi(Snapshot.read(CASE), rights=shipped_rights())
        url = await stack.enter_async_context(serve_api(api))
        kubeconfig = directory / "kubeconfig"
        write_kubeconfig(kubeconfig, url)
        model = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.drills.model",
            str(directory),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert model.stdout is not None
        try:
            line = await asyncio.wait_for(model.stdout.readline(), 60)
            yield Ground(directory, json.loads(line)["url"], api, kubeconfig, tell)
        finally:
            if model.returncode is None:
                model.terminate()
            await model.wait()


@dataclass
class Stage:
    """One drill's own servers, workers and requests. `accepted` are keys whose storage the server has confirmed."""

    name: str
    ground: Ground
    servers: Sequence[NatsServer]
    nc: Client
    env: dict[str, str]
    subjects: Subjects = field(default_factory=Subjects)
    workers: list[Worker] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    api: FaultyApi | None = None
    """The cluster of this drill, when it has one of its own."""

    def __post_init__(self) -> None:
        self.journal = JournalRecorder(self.subjects)

    @property
    def ledger(self) -> Path:
        return self.ground.ledger(self.name)

    def calls(self, event: str = "asked") -> list[Call]:
        """Calls of the model so far."""
        return [call for call in read_ledger(self.ledger) if call.event == event]

    def tell(self, text: str) -> None:
        """Progress for whoever watches."""
        self.ground.tell(f"{self.name}: {text}")

    async def plan(self, **fields: Any) -> None:
        """How the model behaves from now on."""
        async with (
            aiohttp.ClientSession() as session,
            session.put(f"{self.ground.model_url}/{self.name}", json=as_json(Plan(**fields))) as response,
        ):
            assert response.status == 200

    def worker(self, *command: str, **env: str) -> Worker:
        """Another worker, not started yet, by default by its usual command. Settings go over those of the stage."""
        name = f"w{len(self.workers)}"
        base_url = f"{self.ground.model_url}/{self.name}/{name}/v1"
        made = Worker(name, {**self.env, "RCA_LLM__BASE_URL": base_url, **env}, self.servers[0].directory)
        made.command = command or made.command
        self.workers.append(made)
        return made

    async def start(self, count: int, **env: str) -> list[Worker]:
        """So many workers, ready."""
        made = [self.worker(**env) for _ in range(count)]
        for worker in made:
            await worker.start()
        for worker in made:
            await worker.ready()
        return made

    async def publish(
        self, key: str, lane: Lane | None = None, *, patience_seconds: float = 60.0, **fields: Any
    ) -> None:
        """As a producer does: the same message id again until the server confirms."""
        subject = self.subjects.request(RequestKind.INCIDENT, lane)
        js, end = self.nc.jetstream(timeout=PUBLISH_SECONDS), time.monotonic() + patience_seconds
        payload = body(key, **fields)
        while True:
            try:
                await js.publish(subject, payload, headers={"Nats-Msg-Id": f"drill-{key}"})
            except (NatsError, TimeoutError):
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.1)
            else:
                self.accepted.append(key)
                return

    async def publish_all(self, keys: Iterable[str], lane: Lane | None = None, *, at_once: int = 20) -> None:
        """Many of them."""
        gate = asyncio.Semaphore(at_once)

        async def one(key: str) -> None:
            async with gate:
                await self.publish(key, lane)

        await asyncio.gather(*(one(key) for key in keys))

    async def count(self, stream: str) -> int:
        """Messages in a stream, 0 while the server does not say."""
        try:
            return int((await self.nc.jetstream(timeout=10).stream_info(stream)).state.messages)
        except (NatsError, TimeoutError):
            return 0

    async def settled(self, results: int, seconds: float) -> bool:
        """Whether so many results and dead letters are there and the queue is empty, in time."""
        told = time.monotonic()

        async def done() -> bool:
            nonlocal told
            there, queued = (
                await self.count(self.subjects.results_stream),
                await self.count(self.subjects.requests_stream),
            )
            if time.monotonic() - told > 5:
                told = time.monotonic()
                self.tell(f"{there}/{results} results, {queued} queued")
            return there >= results and not queued

        return await until(done, seconds, every=0.2)

    async def account(self) -> Account:
        """What became of everything that was accepted."""
        calls = read_ledger(self.ledger)
        return await take_account(self.nc, self.subjects, self.accepted, calls, self.journal)

    async def provision(
        self, ack_wait_seconds: float, *, max_deliver: int = 50, store_bytes: int = 0
    ) -> None:
        """Create or update all streams, and follow the journal."""
        items = wanted(
            self.subjects,
            replicas=len(self.servers),
            ack_wait_seconds=ack_wait_seconds,
            max_deliver=max_deliver,
            store_bytes=store_bytes,
        )
        await provision(self.nc, items)
        await self.journal.follow(self.nc)

    async def journal_steps(self) -> dict[str, list[JournalStep]]:
        """Steps per request, also of those that are finished."""
        return await self.journal.steps(self.nc)


@asynccontextmanager
async def stage(
    ground: Ground,
    name: str,
    *,
    servers: Sequence[NatsServer] = (),
    ack_wait_seconds: float = 5.0,
    max_deliver: int = 50,
    store_mebibytes: int = 0,
    slots: int = 4,
    faults: Iterable[Fault] = (),
    **env: str,
) -> AsyncIterator[Stage]:
    """A server of its own (or the given ones), provisioned. `env` are settings of all its workers."""
    async with AsyncExitStack() as stack:
        if not servers:
            server = NatsServer(ground.directory / name, temporary=True)
            await server.start()
            stack.push_async_callback(server.stop)
            servers = [server]
        kubeconfig, api = ground.kubeconfig, None
        if faults:
            api = FaultyApi(ground.api.snapshot, faults=faults, rights=shipped_rights())
            kubeconfig = ground.directory / f"{name}.kubeconfig"
            write_kubeconfig(kubeconfig, await stack.enter_async_context(serve_api(api)))
        settings = {
            "RCA_NATS__SERVERS": ",".join(server.url for server in servers),
            "RCA_KUBERNETES__KUBECONFIG": str(kubeconfig),
            "RCA_LLM__MODEL": "openai-chat:drill",
            "RCA_LLM__API_KEY": "drill",
            "RCA_CATALOG__PATH": str(CATALOG),
            "RCA_WORKER__SLOTS": str(slots),
            "RCA_WORKER__ACK_WAIT_SECONDS": str(ack_wait_seconds),
        }
        nc = await connect(servers, errors=[])
        stack.push_async_callback(nc.close)
        made = Stage(name, ground, servers, nc, {**settings, **env}, api=api)
        await made.provision(ack_wait_seconds, max_deliver=max_deliver, store_bytes=store_mebibytes << 20)
        await made.plan()
        try:
            yield made
        finally:
            await asyncio.gather(*(worker.kill() for worker in made.workers))
