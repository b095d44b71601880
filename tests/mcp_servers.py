"""Third-party MCP servers as processes, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.nats_servers import free_ports

SCRIPT = Path(__file__).parent / "fakes" / "third_party_mcp.py"
COMMAND = (sys.executable, str(SCRIPT))
PATIENCE_SECONDS = 100.0


@dataclass
class HttpServer:
    """A server that can be stopped and started again at the same address."""

    port: int
    process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self, **env: str) -> None:
        """Returns when it takes connections."""
        self.process = await asyncio.create_subprocess_exec(
            *COMMAND, str(self.port), env={**os.environ, **env}, stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
        if self.process is not None:
            await self.process.wait()


@asynccontextmanager
async def http_server() -> AsyncIterator[HttpServer]:
    """One that runs, ended afterwards."""
    server = HttpServer(free_ports(1)[0])
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
