"""Drills in which the broker dies, stays away, or hands the same request out again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import replace

from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from schemas.taxonomy import RequestKind
from tests.drills.accounts import stream_messages, until
from tests.drills.stage import Ground, Stage, body, stage
from tests.drills.table import Outcome, lost_and_twice
from tests.nats_servers import three_servers
from worker.domain.values.step_kinds import BEGIN
from worker.sandbox.nats_server import NatsServer

READY = 200
LAME_DUCK = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "5s"'
"""The shortest that the server takes."""


class Producer:
    """Publishes one request after the other; keeps at it while the server is away."""

    def __init__(self, s: Stage, per_second: float) -> None:
        self._s, self._pause = s, 1.0 / per_second
        self._numbers = itertools.count()
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._stopping.is_set():
            await self._s.publish(f"load-{next(self._numbers)}", patience_seconds=120)
            await asyncio.sleep(self._pause)

    async def stop(self) -> int:
        """How many were acknowledged."""
        self._stopping.set()
        await self._task
        return len(self._s.accepted)


async def broker_killed(ground: Ground, *, kills: int = 20, pause_seconds: float = 3.0) -> Outcome:
    """SIGKILL of the only server while requests come in and results go out."""
    async with stage(ground, "broker", ack_wait_seconds=4.0, slots=6) as s:
        await s.plan(latency_seconds=0.2)
        await s.start(2)
        producer = Producer(s, 8)
        for number in range(kills):
            await asyncio.sleep(pause_seconds)
            await s.servers[0].kill()
            await asyncio.sleep(0.5)
            await s.servers[0].start()
            s.tell(f"server kill {number + 1} of {kills}, {len(s.accepted)} accepted")
        await asyncio.sleep(1.0)
        accepted = await producer.stop()
        settled = await s.settled(accepted, 180)
        account = await s.account()
    return Outcome(
        settled and account.clean and not account.dead,
        f"acknowledged {accepted}, {lost_and_twice(account)}, journaled steps paid again {account.journaled_paid_again}",
    )


async def broker_away(ground: Ground, *, away_seconds: float = 60.0, incidents: int = 8) -> Outcome:
    """No server for a minute, with requests in flight and in the queue."""
    async with stage(ground, "away", ack_wait_seconds=4.0, slots=4) as s:
        await s.plan(latency_seconds=1.0, looks=2)
        [worker] = await s.start(1)
        await s.publish_all(f"away-{n}" for n in range(incidents))
        await until(lambda: len(s.calls()) >= 4, 30)
        await s.servers[0].kill()
        began = time.monotonic()

        async def is_ready() -> bool:
            return await worker.readiness() == READY

        async def is_not_ready() -> bool:
            return await worker.readiness() != READY

        noticed = await until(is_not_ready, min(30.0, away_seconds), every=0.1)
        red = time.monotonic() - began
        await asyncio.sleep(max(0.0, away_seconds - red))
        busy = worker.cpu_seconds()
        stayed_red = not await is_ready()
        await s.servers[0].start()
        began = time.monotonic()
        back = await until(is_ready, 60, every=0.1)
        green = time.monotonic() - began
        settled = await s.settled(incidents, 120)
        account = await s.account()
        s.tell(f"cpu of the worker until then {busy:.1f} s")
    return Outcome(
        noticed and stayed_red and back and red <= 10 and green <= 10 and settled and account.clean,
        f"not ready after {red:.1f} s, back after {green:.1f} s, {lost_and_twice(account)}",
    )


async def runs_outlive_the_broker(
    ground: Ground, *, away_seconds: float = 45.0, incidents: int = 16, workers: int = 2
) -> Outcome:
    """The broker is away for longer than ack_wait and the patience of a write, while all runs are in flight."""
    async with stage(ground, "outlive", ack_wait_seconds=4.0, slots=incidents // workers) as s:
        await s.plan(latency_seconds=2.0, looks=2)
        await s.start(workers)
        await s.publish_all(f"outlive-{n}" for n in range(incidents))
        await until(lambda: len(s.calls()) >= incidents, 30)
        await s.servers[0].kill()
        await asyncio.sleep(away_seconds)
        await s.servers[0].start()
        began = time.monotonic()
        settled = await s.settled(incidents, 120)
        took = time.monotonic() - began
        account, journal = await s.account(), await s.journal_steps()
    begins = [step for steps in journal.values() for step in steps if step.kind == BEGIN]
    alone = sum(bool(step.notes.get("alone")) for step in begins)
    return Outcome(
        settled and account.clean and not account.dead and not alone and took <= 60,
        f"runs in isolation {alone}, all done {took:.0f} s after the broker is back, outstanding calls paid again "
        f"{account.outstanding_paid_again}, {lost_and_twice(account)}",
    )


async def stopped_while_away(
    ground: Ground, *, away_seconds: float = 16.0, incidents: int = 8, drain_seconds: float = 12.0
) -> Outcome:
    """A worker is asked to stop while the broker is away, which returns when the drain is over and the grace is not."""
    drain = {"RCA_WORKER__DRAIN_SECONDS": str(drain_seconds)}
    async with stage(ground, "stop-away", ack_wait_seconds=4.0, slots=incidents, **drain) as s:
        await s.plan(latency_seconds=2.0, looks=2)
        [stopped] = await s.start(1)
        await s.publish_all(f"stop-{n}" for n in range(incidents))
        await until(lambda: len(s.calls()) >= incidents, 30)
        await s.servers[0].kill()
        stopped.send(signal.SIGTERM)
        fresh = s.worker()  # as a Deployment starts one in its place
        await fresh.start()
        await asyncio.sleep(away_seconds)
        await s.servers[0].start()
        code = await stopped.ended(60)
        settled = await s.settled(incidents, 120)
        account, journal = await s.account(), await s.journal_steps()
    begins = [step for steps in journal.values() for step in steps if step.kind == BEGIN]
    alone = sum(bool(step.notes.get("alone")) for step in begins)
    return Outcome(
        settled and code == 0 and account.clean and not account.dead and not alone,
        f"exit {code}, runs in isolation {alone}, outstanding calls paid again {account.outstanding_paid_again}, "
        f"{lost_and_twice(account)}",
    )


async def same_id(ground: Ground, *, times: int = 10, window_seconds: float = 1.0) -> Outcome:
    """The same message again: inside the duplicate window, outside it, while it runs and after its result."""
    async with stage(ground, "same", ack_wait_seconds=5.0) as s:
        await s.plan(latency_seconds=1.0)
        await s.start(1)
        js, subject = s.nc.jetstream(timeout=5), s.subjects.request(RequestKind.INCIDENT)
        config = (await js.stream_info(s.subjects.requests_stream)).config
        await js.update_stream(replace(config, duplicate_window=window_seconds))
        payload, stored = body("same"), set()
        for number in range(times):
            ack = await js.publish(subject, payload, headers={"Nats-Msg-Id": "same"})
            stored.add(ack.seq)
            if number % 2:
                await asyncio.sleep(1.5 * window_seconds)
        s.accepted.append("same")
        settled = await s.settled(1, 60)
        account, calls = await s.account(), len(s.calls())
    return Outcome(
        settled and account.clean and calls == 2 and len(stored) == times // 2,
        f"results {1 - len(account.lost)}, {lost_and_twice(account)}; published {times}, stored {len(stored)}, "
        f"LLM calls {calls} (one run needs 2)",
    )


async def deliveries_exhausted(ground: Ground, *, requests: int = 5, max_deliver: int = 3) -> Outcome:
    """Requests that are handed out and never settled, until the server gives them out no more."""
    async with stage(ground, "exhausted", ack_wait_seconds=5.0, max_deliver=max_deliver) as s:
        await s.publish_all(f"gone-{n}" for n in range(requests))
        lane = await s.nc.jetstream(timeout=5).pull_subscribe_bind("p2", s.subjects.requests_stream)
        for _ in range(max_deliver):
            for message in await lane.fetch(requests, timeout=30):
                await message.nak(delay=0.2)
            await asyncio.sleep(0.5)
        with_advisory = await until(lambda: _advised(s, lane, requests), 60, every=0.5)
        await lane.unsubscribe()
        await s.start(1)
        began = time.monotonic()

        async def dead_lettered() -> bool:
            letters = [
                m async for m in stream_messages(s.nc, s.subjects.dlq_stream, s.subjects.dead_letter(">"))
            ]
            return len(letters) >= requests

        found = await until(dead_lettered, 60, every=0.5)
        took = time.monotonic() - began
        emptied = await s.settled(requests, 60)
        stranded = await s.count(s.subjects.requests_stream)
        account = await s.account()
    return Outcome(
        with_advisory and found and emptied and not stranded and account.clean and account.dead == requests,
        f"{account.dead} of {requests} in the DLQ after {took:.1f} s, stranded {stranded}, {lost_and_twice(account)}",
    )


async def _advised(s: Stage, lane: JetStreamContext.PullSubscription, requests: int) -> bool:
    """The server says so only when somebody asks for the message once more."""
    with contextlib.suppress(NatsError, TimeoutError):
        await lane.fetch(1, timeout=0.5)
    pattern = s.subjects.max_deliveries_advisory()
    return len([m async for m in stream_messages(s.nc, s.subjects.dlq_stream, pattern)]) >= requests


async def leader_killed(ground: Ground, *, kills: int = 20) -> Outcome:
    """Three servers, three copies; the leader of the queue or of the results is killed under load."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(three_servers(ground.directory / "three"))
        s = await stack.enter_async_context(stage(ground, "three", servers=servers, ack_wait_seconds=6.0))
        await s.plan(latency_seconds=0.2)
        await s.start(2)
        producer = Producer(s, 4)
        for number in range(kills):
            await asyncio.sleep(1.0)
            stream = s.subjects.requests_stream if number % 2 else s.subjects.results_stream
            victim = await _leader(s, servers, stream)
            await victim.kill()
            await asyncio.sleep(1.0)
            await victim.start()
            await until(lambda stream=stream: _whole(s, stream), 60, every=0.3)
            s.tell(f"leader kill {number + 1} of {kills} ({stream}), {len(s.accepted)} accepted")
        accepted = await producer.stop()
        settled = await s.settled(accepted, 180)
        account = await s.account()
    return Outcome(
        settled and account.clean and not account.dead,
        f"acknowledged {accepted}, {lost_and_twice(account)}, journaled steps paid again {account.journaled_paid_again}",
    )


async def servers_upgraded(ground: Ground, *, rounds: int = 1) -> Outcome:
    """Each of three servers in turn sends its clients away (lame duck mode), ends and is started again, as in a rollout."""
    async with AsyncExitStack() as stack:
        directory = ground.directory / "upgrade"
        servers = await stack.enter_async_context(three_servers(directory, LAME_DUCK))
        s = await stack.enter_async_context(stage(ground, "upgrade", servers=servers, ack_wait_seconds=6.0))
        await s.plan(latency_seconds=1.0, looks=2)
        await s.start(2)
        producer = Producer(s, 4)
        for server in servers * rounds:
            os.kill(server.pid, signal.SIGUSR2)
            await until(lambda server=server: not server.running, 60)
            await server.start()
            await until(lambda: _whole(s, s.subjects.requests_stream), 60, every=0.3)
            s.tell(f"{server.name} is back, {len(s.accepted)} accepted")
        accepted = await producer.stop()
        settled = await s.settled(accepted, 180)
        account, journal = await s.account(), await s.journal_steps()
    begins = [step for steps in journal.values() for step in steps if step.kind == BEGIN]
    alone = sum(bool(step.notes.get("alone")) for step in begins)
    return Outcome(
        settled and account.clean and not account.dead and not alone,
        f"acknowledged {accepted}, runs in isolation {alone}, outstanding calls paid again "
        f"{account.outstanding_paid_again}, {lost_and_twice(account)}",
    )


async def _cluster(s: Stage, stream: str) -> dict[str, object]:
    reply = await s.nc.request(f"$JS.API.STREAM.INFO.{stream}", b"", timeout=2)
    return dict(json.loads(reply.data).get("cluster") or {})


async def _leader(s: Stage, servers: list[NatsServer], stream: str) -> NatsServer:
    names = {server.name: server for server in servers}
    while True:
        try:
            return names[str((await _cluster(s, stream))["leader"])]
        except (NatsError, TimeoutError, KeyError):
            await asyncio.sleep(0.2)


async def _whole(s: Stage, stream: str) -> bool:
    """Whether every copy of a stream is current."""
    try:
        replicas = (await _cluster(s, stream)).get("replicas", [])
    except (NatsError, TimeoutError):
        return False
    return len(replicas) == 2 and all(r.get("current") and not r.get("offline") for r in replicas)  # type: ignore[arg-type]
