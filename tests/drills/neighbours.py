"""Drills about what an analysis needs beside NATS, the model and the cluster: the policy process and the catalog."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from schemas.analysis import AnalysisResult
from schemas.audit import EventType
from tests.drills.accounts import stored_results, stream_messages, until
from tests.drills.stage import CATALOG, Ground, Stage, stage
from tests.drills.table import Outcome, lost_and_twice
from tests.drills.workers import Worker
from tests.postgres_server import postgres_server
from tests.processes import COMMAND, environment
from worker.adapters.rego_policy.evaluator import PROGRAM

SLOW_POLICY = """
package rca.approval
import rego.v1

pairs := count([1 | some a in numbers.range(1, 300); some b in numbers.range(1, 200); a * b == 600])
default require_approval := true
require_approval := false if pairs > 0
"""
"""A decision takes long enough that a signal often meets one."""
UNDECIDED = "policy_failed"


async def policy_process_lost(
    ground: Ground, *, incidents: int = 80, workers: int = 2, away_seconds: float = 10.0
) -> Outcome:
    """The policy process is killed or frozen while it decides or is idle; then it is killed whenever it begins."""
    path = ground.directory / "slow.rego"
    path.write_text(SLOW_POLICY)
    policy = {"RCA_POLICY__PATH": str(path), "RCA_POLICY__TIMEOUT_SECONDS": "5"}
    async with stage(ground, "policy", ack_wait_seconds=5.0, slots=4, **policy) as s:
        await s.plan(latency_seconds=0.2)
        await s.start(workers)
        async with _signals(s, random.Random(3), lambda chosen: chosen.uniform(0.1, 0.8)) as lost:
            await s.publish_all(f"policy-{n}" for n in range(incidents))
            settled = await s.settled(incidents, 300)
        decided = await _undecided(s)
        async with _signals(s, random.Random(4), lambda _: 0.01, kinds=(signal.SIGKILL,)):
            await s.publish_all(f"policy-away-{n}" for n in range(workers * 4))
            settled = settled and await s.settled(incidents + workers * 4, 120)
            noticed = await until(lambda: _says_policy(s, undecided=True), 30)
            await asyncio.sleep(away_seconds)
        back = await until(lambda: _says_policy(s, undecided=False), 30)
        missing = set(s.accepted) - await _checked(s)
        left = [len(list(_evaluators(worker))) for worker in s.workers]
        account, away = await s.account(), await _undecided(s) - decided
    return Outcome(
        settled
        and account.clean
        and not missing
        and noticed
        and back
        and max(left) <= 1
        and decided <= incidents // 8,
        f"{len(lost)} processes lost, undecided {decided} of {incidents} results; while none could run {away} of "
        f"{workers * 4}, said {'yes' if noticed else 'NO'}, and not afterwards {'yes' if back else 'NO'}; not checked "
        f"{len(missing)}, processes left {max(left)} per worker, {lost_and_twice(account)}",
    )


@asynccontextmanager
async def _signals(
    s: Stage,
    chosen: random.Random,
    pause: Callable[[random.Random], float],
    *,
    kinds: Sequence[signal.Signals] = (signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP),
) -> AsyncIterator[list[int]]:
    """Send signals to the policy processes of all workers until the end of the context. Yields whom."""
    hit: list[int] = []

    async def run() -> None:
        while True:
            await asyncio.sleep(pause(chosen))
            for worker in s.workers:
                for pid in _evaluators(worker):
                    with suppress(ProcessLookupError):
                        os.kill(pid, chosen.choice(kinds))
                        hit.append(pid)

    sending = asyncio.create_task(run())
    try:
        yield hit
    finally:
        sending.cancel()


def _evaluators(worker: Worker) -> Iterator[int]:
    """The policy processes of a worker, also those that nobody has waited for."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = stat.with_name("cmdline").read_bytes() if parent == worker.pid else b"other"
            if not command or PROGRAM.name.encode() in command:
                yield int(stat.parent.name)


async def _undecided(s: Stage) -> int:
    """How many results need approval because the policy gave no decision."""
    return sum(_is_undecided(result) for result in await stored_results(s.nc, s.subjects))


def _is_undecided(result: AnalysisResult) -> bool:
    return any(factor.code == UNDECIDED for factor in result.approval.factors)


async def _checked(s: Stage) -> set[str]:
    """The requests about which the policy has decided, or was seen to give no decision."""
    subject = s.subjects.audit(EventType.POLICY_DECIDED)
    found = stream_messages(s.nc, s.subjects.audit_stream, subject)
    bodies = [message.data.decode() async for message in found]
    return {key for key in s.accepted if any(f'"{key}"' in body for body in bodies)}


async def _says_policy(s: Stage, *, undecided: bool) -> bool:
    """Whether all workers say that the policy gives no decision, or none does."""
    said = [await worker.reason() for worker in s.workers]
    return all(("policy:" in reason) is undecided for reason in said)


async def catalog_restarted(
    ground: Ground, *, incidents: int = 60, restarts: int = 6, away_seconds: float = 3.0
) -> Outcome:
    """PostgreSQL is stopped or crashes again and again, for some seconds each, while the catalog is read."""
    with postgres_server() as server:
        url = await server.new_database()
        await _push(url)
        async with stage(ground, "catalog", slots=4, RCA_CATALOG__DATABASE_URL=url) as s:
            del s.env["RCA_CATALOG__PATH"]
            await s.plan(latency_seconds=0.5)
            await s.start(1)
            publishing = asyncio.create_task(_steadily(s, incidents))
            for number in range(restarts):
                await asyncio.sleep(random.Random(number).uniform(1.0, 3.0))
                how = signal.SIGQUIT if number % 2 else signal.SIGINT
                await asyncio.to_thread(server.stop, how)
                await asyncio.sleep(away_seconds)
                await asyncio.to_thread(server.start)
            await publishing
            settled, account = await s.settled(incidents, 120), await s.account()
            results = await stored_results(s.nc, s.subjects)
    escalated = sum(result.needs_human_review for result in results)
    return Outcome(
        settled and account.clean and not account.dead and not escalated,
        f"{restarts} times away for {away_seconds:.0f} s, escalated {escalated} of {len(results)}, {lost_and_twice(account)}",
    )


async def _push(url: str) -> None:
    command = (*COMMAND, "catalog", "push", str(CATALOG))
    pushing = await asyncio.create_subprocess_exec(
        *command, env=environment({"RCA_CATALOG__DATABASE_URL": url}), stdout=asyncio.subprocess.DEVNULL
    )
    assert await pushing.wait() == 0


async def _steadily(s: Stage, incidents: int) -> None:
    for number in range(incidents):
        await s.publish(f"catalog-{number}")
        await asyncio.sleep(0.5)
