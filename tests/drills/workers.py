"""`rca worker` as processes that can be killed, frozen, asked to stop, and watched."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tests.nats_servers import free_ports
from tests.processes import COMMAND, environment

START_SECONDS = 150.0
LOOK_SECONDS = 0.05
ANSWER_SECONDS = 20.0
READINESS_SECONDS = 1.0


class Worker:
    """One worker under one name. Started again it keeps its name, its port and its log file."""

    def __init__(
        self,
        name: str,
        env: Mapping[str, str],
        directory: Path,
        command: Sequence[str] = (*COMMAND, "worker"),
    ) -> None:
        self.name = name
        self.command = command
        self.port = free_ports(1)[0]
        self.log = directory / f"{name}.log"
        self._env = environment({**env, "RCA_HTTP__PORT": str(self.port), "RCA_HTTP__HOST": "127.0.0.1"})
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode if self._process else None

    async def start(self) -> None:
        """Begin; `ready` waits for the end of it."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command, env=self._env, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )

    async def ready(self, seconds: float = START_SECONDS) -> None:
        """Until readiness is green. An end before that is an error, with the end of its log."""
        end = time.monotonic() + seconds
        while await self.readiness() != 200:
            if self.exit_code is not None or time.monotonic() > end:
                raise AssertionError(f"{self.name}: not ready, exit code {self.exit_code}: {self.tail()}")
            await asyncio.sleep(LOOK_SECONDS)

    async def readiness(self) -> int:
        """Status of /readyz, 0 when nobody answers within a second."""
        try:
            return (await self._get("/readyz", READINESS_SECONDS))[0]
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return 0

    async def reason(self) -> str:
        """What /readyz says; empty when nobody answers."""
        try:
            return (await self._get("/readyz", READINESS_SECONDS))[1]
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return ""

    async def metrics(self) -> dict[str, float]:
        """Every series without labels."""
        _, text = await self._get("/metrics")
        lines = (line.rpartition(" ") for line in text.splitlines() if line[:1] != "#" and "{" not in line)
        return {name: float(value) for name, _, value in lines}

    async def complaints(self) -> set[str]:
        """Which checks of readiness complain, by the metric; empty when nobody answers."""
        try:
            _, text = await self._get("/metrics", READINESS_SECONDS)
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            return set()
        return set(re.findall(r'^rca_not_ready\{check="([a-z]+)"\} 1\.0$', text, re.MULTILINE))

    async def _get(self, path: str, seconds: float = ANSWER_SECONDS) -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"http://127.0.0.1:{self.port}{path}") as response,
        ):
            return response.status, await response.text()

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self, seconds: float = 60.0) -> int:
        """The exit code."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), seconds)

    async def kill(self) -> None:
        """SIGKILL, and until it is gone. One that has ended already is left alone."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self, seconds: float = 30.0) -> None:
        """SIGTERM, and until it is gone."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            await self.kill()

    def tail(self, size: int = 1_500) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of one event."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            if f'"{name}"' in line:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue  # cut by a kill
        return found

    def cpu_seconds(self) -> float:
        """User and system time."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
