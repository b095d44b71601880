"""Ctrl-C: a command that waits says what for, ends at once with 130 and without a traceback, and leaves no process."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.corpus_files import corpus_path
from tests.processes import COMMAND, PATIENCE_SECONDS, environment

CATALOG = Path(__file__).parents[1] / "analyst_scenarios/catalog"
WAITING = (
    "alertmanager", "audit export", "audit verify", "cancel rr-1", "catalog push DIR", "console", "dlq list", "dlq replay 1",
    "doctor", "outcomes report", "provision", "record rr-1", "report rr-1", "show rr-1", "submit REQUEST --wait", "watch",
)  # fmt: skip
EVAL = "eval CASES --catalog DIR"
TOGETHER = 4


@asynccontextmanager
async def mute_server():
    """It accepts connections, and never says anything."""

    async def listen(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def processes_of(session):
    """Processes of a session that have not ended, but for its leader."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(session) and fields[0] != "Z" and stat.parent.name != str(session):
            found.append(stat.parent.name)
    return found


async def interrupted(line, env):
    """What the command said first on standard error, how it ended, what it said then, and who is left."""
    words = {
        "DIR": str(CATALOG),
        "CASES": str(CATALOG.parent),
        "REQUEST": str(corpus_path("payloads/01-valid-full.json")),
    }
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *(words.get(word, word) for word in line.split()),
        env=environment(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            first = (await process.stderr.readline()).decode()
            process.send_signal(signal.SIGINT)
            rest = (await process.stderr.read()).decode()
            await process.wait()
        return line, first, process.returncode, rest, processes_of(process.pid)
    finally:
        for left in (*processes_of(process.pid), *([process.pid] if process.returncode is None else [])):
            os.kill(int(left), signal.SIGKILL)


@pytest.mark.process
async def test_commands_that_wait_say_so_and_end_at_once_when_they_are_interrupted():
    slots = asyncio.Semaphore(TOGETHER)
    async with mute_server() as port:
        env = {
            "RCA_NATS__SERVERS": f"nats://127.0.0.1:{port}",
            "RCA_NATS__CONNECT_SECONDS": "60",
            "RCA_CATALOG__DATABASE_URL": f"postgresql://user:FAKE@127.0.0.1:{port}/catalog",
        }

        async def one(line):
            async with slots:
                return await interrupted(line, env)

        found = await asyncio.gather(*map(one, WAITING))
    assert [(line, 130, "", []) for line in WAITING] == [(line, *ended) for line, _, *ended in found]
    silent = [line for line, first, *_ in found if not first.startswith(("waiting for ", "writing "))]
    assert [] == silent


@pytest.mark.process
async def test_an_interrupted_evaluation_leaves_no_process():
    _, first, *ended = await interrupted(EVAL, {})
    assert "running cases ...\n" == first
    assert [130, "", []] == ended
