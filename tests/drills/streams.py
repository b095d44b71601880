"""Drills in which streams are lost, wiped, stranded or full under running workers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import time
from dataclasses import replace
from pathlib import Path

from nats.errors import Error as NatsError
from nats.js.api import DiscardPolicy

from schemas.taxonomy import RequestKind
from tests.drills.accounts import stream_messages, until
from tests.drills.stage import Ground, Stage, stage
from tests.drills.table import Outcome, lost_and_twice
from tests.drills.workers import Worker
from worker.sandbox.nats_server import NatsServer

NOT_READY, READY = 503, 200
JOURNAL_LEFT_BYTES = 1_000
"""For a request that is answered."""
SEEN_SECONDS = 15.0
"""A fault is visible in readiness within this time."""
START_SECONDS = 10.0


async def queue_created_anew(ground: Ground, *, incidents: int = 4) -> Outcome:
    """The stream of requests is deleted and provisioned again while requests of the old one run."""
    async with stage(ground, "anew", ack_wait_seconds=5.0, slots=2 * incidents) as s:
        await s.plan(latency_seconds=3.0)
        await s.start(1)
        await s.publish_all(f"old-{n}" for n in range(incidents))
        await until(lambda: len(s.calls()) >= incidents, 30)
        js = s.nc.jetstream(timeout=10)
        await js.publish(s.subjects.request(RequestKind.INCIDENT), b"{")
        await until(lambda: _rejections(s, 1), 30)
        await js.delete_stream(s.subjects.requests_stream)
        await s.provision(5.0)
        await s.publish_all(f"new-{n}" for n in range(incidents))
        await js.publish(s.subjects.request(RequestKind.INCIDENT), b"{")
        settled = await s.settled(2 * incidents, 90)
        rejected = await until(lambda: _rejections(s, 2), 30)
        account = await s.account()
    return Outcome(
        settled and rejected and account.clean and not account.dead,
        f"results {account.expected - len(account.lost)} of {account.expected}, {lost_and_twice(account)}, "
        f"rejections with the same sequence {2 if rejected else 1} of 2",
    )


async def consumer_created_anew(ground: Ground, *, latency_seconds: float = 12.0) -> Outcome:
    """The consumer of a lane is deleted and provisioned again, first while a worker has free slots, then while none has."""
    async with stage(ground, "consumer", ack_wait_seconds=9.0, slots=2) as s:
        await s.plan(latency_seconds=latency_seconds)
        await s.start(1)
        await s.publish_all(["running-0", "running-1"])
        await until(lambda: len(s.calls()) == 2, 30)
        await s.start(1)
        await _delete_lane(s)
        await s.publish_all(["later-0", "later-1"])
        await until(lambda: len(s.calls()) >= 4, 60)
        await s.publish_all(["pending-0", "pending-1"])
        began = time.time()
        await _delete_lane(s)
        settled = await s.settled(6, 240)
        account = await s.account()
        calls, late = len(s.calls()), [c.at - began for c in s.calls() if c.key.startswith("pending")]
    return Outcome(
        settled and account.clean and not account.dead and calls == 12,
        f"LLM calls {calls} of 12, pending requests begin {min(late):.0f} s after the second deletion (running ones need "
        f"{2 * latency_seconds:.0f} s in all), {lost_and_twice(account)}",
    )


async def _delete_lane(s: Stage) -> None:
    await s.nc.jetstream(timeout=10).delete_consumer(s.subjects.requests_stream, "p2")
    await s.provision(9.0)


async def _rejections(s: Stage, number: int) -> bool:
    found = stream_messages(s.nc, s.subjects.validation_stream, s.subjects.validation_request())
    return len([message async for message in found]) >= number


async def store_wiped(ground: Ground, *, incidents: int = 4) -> Outcome:
    """The server comes back with an empty store under a running worker, and is provisioned again."""
    async with stage(ground, "wiped", ack_wait_seconds=5.0, slots=2 * incidents) as s:
        await s.plan(latency_seconds=3.0)
        [worker] = await s.start(1)
        await s.publish_all(f"old-{n}" for n in range(incidents))
        await until(lambda: len(s.calls()) >= incidents, 30)
        [server] = s.servers
        await server.kill()
        await asyncio.to_thread(shutil.rmtree, server.directory / "js")
        await server.start()
        await until(lambda: s.nc.is_connected, 30)
        seen = await seconds_until_said(worker, "rca provision")
        await s.provision(5.0)
        s.accepted.clear()  # what the old store held is gone with it
        await s.publish_all(f"new-{n}" for n in range(incidents))
        settled = await s.settled(incidents, 90)
        account = await s.account()
    return Outcome(
        seen <= SEEN_SECONDS and settled and not account.lost and not account.duplicates and not account.dead,
        f"readiness names the missing streams after {seen:.1f} s, results "
        f"{account.expected - len(account.lost)} of {account.expected} published afterwards, {lost_and_twice(account)}",
    )


async def seconds_until_said(worker: Worker, text: str, *, status: int = NOT_READY) -> float:
    """Until readiness answers with this status and says so, and the metric of its checks agrees."""
    began = time.monotonic()

    async def said() -> bool:
        if text not in await worker.reason() or await worker.readiness() != status:
            return False
        return status != NOT_READY or bool(await worker.complaints())

    await until(said, 2 * SEEN_SECONDS, every=0.1)
    return time.monotonic() - began


async def faults_seen(ground: Ground) -> Outcome:
    """Streams and a consumer are deleted, or refuse writes, one after the other; each is repaired before the next."""
    async with stage(ground, "seen", ack_wait_seconds=5.0) as s:
        [worker] = await s.start(1)
        names, js = s.subjects, s.nc.jetstream(timeout=10)
        journal = f"KV_{names.journal_bucket}"
        kept = (names.results_stream, journal, names.audit_stream, names.dlq_stream, names.validation_stream)
        seen: dict[str, float] = {}
        await js.delete_consumer(names.requests_stream, "p2")
        seen["lane deleted"] = await seconds_until_said(
            worker, f"{names.requests_stream}/p2 is not there yet"
        )
        await _repaired(s, worker)
        for name in (*kept, names.requests_stream):
            await js.delete_stream(name)
            seen[f"{name} deleted"] = await seconds_until_said(worker, f"{name} is not there yet")
            await _repaired(s, worker)
        for number, name in enumerate((names.results_stream, journal, names.audit_stream)):
            config = (await js.stream_info(name)).config
            await js.update_stream(replace(config, max_bytes=1, discard=DiscardPolicy.NEW))
            await s.publish(f"seen-{number}")
            seen[f"{name} refuses"] = await seconds_until_said(worker, f"streams: {name} ")
            await js.update_stream(config)
            await _repaired(s, worker)
        settled = await s.settled(len(s.accepted), 120)
        account = await s.account()
    late = [f"{fault} ({seconds:.0f} s)" for fault, seconds in seen.items() if seconds > SEEN_SECONDS]
    return Outcome(
        settled and not late and account.clean_results and not account.dead,
        f"{len(seen) - len(late)} of {len(seen)} seen, after {max(seen.values()):.1f} s at most"
        f"{f'; late: {chr(32).join(late)}' if late else ''}, {lost_and_twice(account)}",
    )


async def _repaired(s: Stage, worker: Worker) -> None:
    """What is missing is provisioned again, and the worker notices."""
    await s.provision(5.0)
    await worker.ready(60.0)


async def requests_stranded(ground: Ground, *, requests: int = 3, max_deliver: int = 2) -> Outcome:
    """Deliveries are exhausted while the DLQ stores neither advisories nor letters, and it is mended later."""
    async with stage(ground, "stranded", ack_wait_seconds=3.0, max_deliver=max_deliver) as s:
        js = s.nc.jetstream(timeout=10)
        config = (await js.stream_info(s.subjects.dlq_stream)).config
        await js.update_stream(replace(config, max_bytes=1))
        await s.publish_all(f"gone-{n}" for n in range(requests))
        lane = await js.pull_subscribe_bind("p2", s.subjects.requests_stream)
        for _ in range(max_deliver):
            for message in await lane.fetch(requests, timeout=30):
                await message.nak(delay=0.2)
            await asyncio.sleep(0.5)

        async def given_up() -> bool:
            with contextlib.suppress(NatsError, TimeoutError):
                await lane.fetch(1, timeout=0.5)
            return (await js.consumer_info(s.subjects.requests_stream, "p2")).num_ack_pending == 0

        await until(given_up, 30)
        await lane.unsubscribe()
        worker = s.worker()
        await worker.start()
        seen = await seconds_until_said(worker, "no longer delivered")
        await js.update_stream(config)
        settled = await s.settled(requests, 90)
        account = await s.account()
    return Outcome(
        settled and seen <= START_SECONDS + SEEN_SECONDS and account.clean and account.dead == requests,
        f"readiness says so {seen:.1f} s after the start of the worker, {account.dead} of {requests} in the DLQ once it "
        f"can store them, stranded {account.expected - account.dead}, {lost_and_twice(account)}",
    )


async def ack_wait_changed(ground: Ground, *, ack_wait_seconds: float = 3.0) -> Outcome:
    """The consumers wait for a shorter time than the settings of the worker say, and change it while it runs."""
    async with stage(ground, "ack-wait", ack_wait_seconds=2 * ack_wait_seconds) as s:
        await s.plan(latency_seconds=5 * ack_wait_seconds, looks=1)
        await s.start(1, RCA_WORKER__ACK_WAIT_SECONDS="300")
        await s.publish("before")
        await until(lambda: len(s.calls()) == 1, 30)
        js = s.nc.jetstream(timeout=10)
        config = (await js.consumer_info(s.subjects.requests_stream, "p2")).config
        await js.add_consumer(s.subjects.requests_stream, replace(config, ack_wait=ack_wait_seconds))
        await s.publish("after")
        settled = await s.settled(2, 120)
        account = await s.account()
        redelivered = (await js.consumer_info(s.subjects.requests_stream, "p2")).num_redelivered or 0
        calls = len(s.calls())
    return Outcome(
        settled and account.clean and calls == 4,
        f"setting 300 s, consumers {2 * ack_wait_seconds:.0f} s and then {ack_wait_seconds:.0f} s, calls of "
        f"{5 * ack_wait_seconds:.0f} s: redelivered {redelivered}, LLM calls {calls} of 4, {lost_and_twice(account)}",
    )


async def store_full(
    ground: Ground, *, requests: int = 56, store_mebibytes: int = 16, rounds: int = 3
) -> Outcome:
    """Again and again more requests than the store has room for, sent while no worker runs."""
    refused, said, settled = 0, "", True
    async with stage(ground, "full", ack_wait_seconds=10.0, store_mebibytes=store_mebibytes) as s:
        for turn in range(rounds):
            for number in range(requests):
                try:
                    await s.publish(f"full-{turn}-{number}", patience_seconds=0.0, description="x" * 300_000)
                except NatsError:
                    refused += 1
            [worker] = await s.start(1)
            settled = settled and await s.settled(len(s.accepted), 120)
            said = await worker.reason()
            await worker.stop()
        journal = (await s.nc.jetstream(timeout=10).stream_info(f"KV_{s.subjects.journal_bucket}")).state
        account, accepted = await s.account(), len(s.accepted)
    left = journal.bytes / max(1, accepted)
    return Outcome(
        settled
        and refused > 0
        and accepted >= rounds
        and left < JOURNAL_LEFT_BYTES
        and account.clean
        and not account.dead,
        f"{refused} of {rounds * requests} requests of 300 KB refused when published, {accepted} accepted and answered, "
        f"{left:.0f} bytes of journal left for each, readiness afterwards {one_word(said)}, {lost_and_twice(account)}",
    )


async def disk_full(ground: Ground, *, megabytes: int = 48, incidents: int = 4) -> Outcome:
    """The disk of the server is full while requests run. It is freed, and the server is restarted later."""
    disk = ground.directory / "full-disk"
    disk.mkdir()
    if not await _mount(disk, megabytes):
        return Outcome(passed=True, measured="not played: it needs the right to mount a file system (root)")
    server = NatsServer(disk / "server")
    try:
        await server.start()
        return await _without_space(ground, server, disk / "ballast", incidents)
    finally:
        await server.stop()
        await _run("umount", "--lazy", str(disk))


async def _without_space(ground: Ground, server: NatsServer, ballast: Path, incidents: int) -> Outcome:
    async with stage(ground, "disk", servers=[server], ack_wait_seconds=10.0, slots=incidents) as s:
        await s.plan(latency_seconds=3.0)
        [worker] = await s.start(1)
        await s.publish_all(f"disk-{n}" for n in range(incidents))
        await until(lambda: len(s.calls()) >= incidents, 30)
        filling = asyncio.create_task(_fill(ballast))
        seen = await seconds_until_said(worker, "restart the NATS server")
        logged = len(worker.events("stream_refuses_calls"))
        filling.cancel()
        await asyncio.to_thread(ballast.unlink)
        await asyncio.sleep(5.0)
        resumed = await worker.readiness() == READY
        await server.stop()
        await server.start()
        settled = await s.settled(incidents, 120)
        account = await s.account()
    return Outcome(
        seen <= SEEN_SECONDS and logged > 0 and settled and account.clean and not account.dead,
        f"readiness and log say after {seen:.1f} s that the server must be restarted, resumed without it "
        f"{'yes' if resumed else 'no'}, results afterwards {account.expected - len(account.lost)} of {account.expected}, "
        f"outstanding calls paid again {account.outstanding_paid_again}, {lost_and_twice(account)}",
    )


async def _mount(directory: Path, megabytes: int) -> bool:
    return await _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)) == 0


async def _run(*command: str) -> int:
    with contextlib.suppress(FileNotFoundError, PermissionError):
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        return await process.wait()
    return 1


async def _fill(path: Path) -> None:
    """Take all the space there is, and whatever becomes free."""
    with path.open("wb", buffering=0) as file:
        for size in itertools.cycle((1 << 20, 4096, 1)):
            with contextlib.suppress(OSError):
                file.write(bytes(size))
            await asyncio.sleep(0.001)


def one_word(said: str) -> str:
    """The first line of readiness."""
    return said.partition("\n")[0] or "no answer"
