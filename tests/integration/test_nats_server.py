from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.nats_servers import connect, one_server
from worker.sandbox.nats_server import NatsServer, NatsServerError, find_nats_server, nats_server

OWNER = """
import asyncio, sys
from worker.sandbox.nats_server import nats_server

async def main():
    async with nats_server() as server:
        print(server.pid, server.directory, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""

FORKING_OWNER = OWNER.replace(
    "        await asyncio.sleep(3600)",
    "        import os, time\n        time.sleep(3600) if os.fork() else print(os.getpid(), flush=True) or time.sleep(120)",
)


def alive(pid: int) -> bool:
    """A process that has ended but was not waited for yet counts as ended."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gone(pid: int, directory: Path, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) or directory.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def owner(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


async def test_takes_large_messages_and_picks_a_port():
    async with nats_server() as server:
        nc = await connect([server])
        assert nc.max_payload == 2 * 1024 * 1024
        assert f"nats://127.0.0.1:{server.port}" == server.url
        await nc.close()
    assert not alive(server.pid)


async def test_restart_keeps_port_and_data(tmp_path):
    async with one_server(tmp_path) as server:
        nc = await connect([server])
        js = nc.jetstream()
        await js.add_stream(name="KEPT", subjects=["kept"])
        await js.publish("kept", b"before")
        url, first = server.url, server.pid
        await server.kill()
        assert not server.running
        await server.start()
        assert (url, True) == (server.url, server.pid != first)
        assert (await js.get_last_msg("KEPT", "kept")).data == b"before"
        await nc.close()


@pytest.mark.process
@pytest.mark.parametrize("script", [OWNER, FORKING_OWNER], ids=["alone", "a fork keeps the pipe"])
def test_killed_owner_leaves_no_server_and_no_data(script):
    with owner(script) as process:
        assert process.stdout is not None
        pid, directory = process.stdout.readline().split()
        fork = int(process.stdout.readline()) if script is FORKING_OWNER else 0
        assert alive(int(pid))
        assert Path(directory, "js").exists()
        process.kill()
        assert gone(int(pid), Path(directory))
        if fork:
            os.kill(fork, signal.SIGKILL)


@pytest.mark.process
async def test_interrupt_for_the_owner_is_not_for_the_server(tmp_path):
    async with one_server(tmp_path) as server:
        assert os.getsid(server.pid) != os.getsid(0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(parent_of(server.pid), number)
        nc = await connect([server])
        await nc.flush()
        await nc.close()
        assert server.running


async def test_temporary_data_is_deleted_and_a_named_directory_kept(tmp_path):
    async with nats_server() as server:
        temporary = server.directory
        assert temporary.exists()
    assert not temporary.exists()
    mine = NatsServer(tmp_path / "mine")
    await mine.start()
    await mine.stop()
    assert (tmp_path / "mine" / "js").exists()


async def test_start_that_fails_says_why(tmp_path):
    async with one_server(tmp_path) as server:
        second = NatsServer(tmp_path / "second", port=server.port)
        with pytest.raises(NatsServerError, match="address already in use"):
            await second.start()
        assert not second.running
    broken = NatsServer(tmp_path / "broken", cluster="cluster {")
    with pytest.raises(NatsServerError, match="ended at once"):
        await broken.start()


def test_missing_executable_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("NATS_SERVER_BIN", str(tmp_path / "absent"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(NatsServerError, match="NATS_SERVER_BIN"):
        find_nats_server()
