"""The `rca` command as a user starts it: a process of its own, with an environment of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

COMMAND = (sys.executable, "-m", "worker.app.cli.main")
PATIENCE_SECONDS = 150.0


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def is_foreign(name: str) -> bool:
    """Whether a variable is a setting or a key of the developer's."""
    return name.startswith(("RCA_", "OTEL_")) or name.endswith("_API_KEY")


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """The test's environment without any setting or key of the developer's."""
    own = {name: value for name, value in os.environ.items() if not is_foreign(name)}
    return {**own, "COLUMNS": "80", "TERM": "dumb", **more}


async def rca(*arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> Ended:
    """Run to the end."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        env=environment(env or {}),
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin), PATIENCE_SECONDS)
    return Ended(process.returncode or 0, out.decode(), err.decode())


@asynccontextmanager
async def ready(*arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator[dict[str, str]]:
    """A command that prints one JSON line when it is ready; interrupted at the end."""
    async with running(*arguments, env=env) as process:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
        yield json.loads(line)


@asynccontextmanager
async def running(
    *arguments: str, env: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command that runs until it is told to stop; it must then end with 0."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        env=environment(env or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert process.returncode == 0, (out, err)
