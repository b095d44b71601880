"""A server with the shipped configuration (deploy/nats), and connections of its roles.

async with shipped_server(tmp_path) as server:
    async with speaking(server, Role.GATEWAY) as gateway: ...
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

from schemas.permissions import Access, Role, access
from schemas.subjects import DEFAULT_PREFIX, Subjects
from tests.nats_servers import PATIENCE_SECONDS
from worker.app.cli.permissions import configuration
from worker.app.settings.groups import NatsSettings
from worker.sandbox.nats_server import NatsServer

SHIPPED = Path(__file__).parent.parent / "deploy" / "nats"
PASSWORD = "FAKE-of-{role}"
SUBJECTS = Subjects()


class ShippedServer(NatsServer):
    """As deploy/nats configures it, but on free ports of loopback and with its data in the directory.

    Under another prefix it is changed as docs/nats.md says; `changes` are further replacements of text in nats.conf.
    """

    def __init__(
        self, directory: Path, prefix: str = DEFAULT_PREFIX, changes: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        self._subjects, self._changes = Subjects(prefix), changes or {}

    def _configuration(self) -> str:
        text = (SHIPPED / "nats.conf").read_text()
        if self._subjects.prefix == DEFAULT_PREFIX:
            roles = (SHIPPED / "roles.conf").read_text()
        else:
            roles = configuration(self._subjects)
            text = re.sub(r"\bRCA(?!_NATS)", self._subjects.stem, text)
        (self.directory / "roles.conf").write_text(roles)
        changes = {
            **self._changes,
            "http_port: 8222": "",
            "port: 4222": f"listen: 127.0.0.1:{self.port}",
            "/data": json.dumps(str(self.directory / "js")),
            "$RCA_NATS_SERVER_NAME": "n0",
        }
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        for role in Role:
            variable = f"$RCA_NATS_{role.upper().replace('-', '_')}_PASSWORD"
            text = text.replace(variable, PASSWORD.format(role=role))
        return text

    def violations(self) -> list[str]:
        """What it denied to anybody, from its log."""
        log = (self.directory / "nats.log").read_text()
        return re.findall(r"Permissions Violation.*|Import.*|Cycle.*", log)


@contextlib.asynccontextmanager
async def shipped_server(
    directory: Path, prefix: str = DEFAULT_PREFIX, changes: Mapping[str, str] | None = None
) -> AsyncIterator[ShippedServer]:
    server = ShippedServer(directory / "n0", prefix, changes)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def settings_of(server: NatsServer, role: Role, subjects: Subjects = SUBJECTS) -> NatsSettings:
    """How a process of the role is configured."""
    return NatsSettings(
        servers=(server.url,),
        prefix=subjects.prefix,
        user=role,
        password=PASSWORD.format(role=role),
        inbox_prefix=access(role, subjects).inbox_prefix,
        connect_seconds=PATIENCE_SECONDS,
    )


def environment_of(server: NatsServer, role: Role) -> dict[str, str]:
    """The same for a command."""
    settings = settings_of(server, role)
    return {
        "RCA_NATS__SERVERS": server.url,
        "RCA_NATS__USER": role,
        "RCA_NATS__PASSWORD": settings.password.get_secret_value(),
        "RCA_NATS__INBOX_PREFIX": settings.inbox_prefix,
        "RCA_NATS__API_PREFIX": access(role, SUBJECTS).api_prefix,
    }


@dataclass
class Speaker:
    """A connection of a role with nats-py alone, as a program in another language would have it."""

    nc: Client
    access: Access
    denials: list[str] = field(default_factory=list)

    @property
    def js(self) -> JetStreamContext:
        return self.nc.jetstream(timeout=PATIENCE_SECONDS, prefix=self.access.api_prefix)

    async def denied(self) -> list[str]:
        """What the server has said no to since the last time.

        Its errors come before its pong. Two round trips: nats-py sends the first ping ahead of what it holds back.
        """
        await self.nc.flush()
        await self.nc.flush()
        said, self.denials[:] = list(self.denials), []
        return said


@contextlib.asynccontextmanager
async def speaking(server: NatsServer, role: Role) -> AsyncIterator[Speaker]:
    denials: list[str] = []

    async def on_error(error: Exception) -> None:
        denials.append(str(error))

    rights = access(role, SUBJECTS)
    nc = await nats.connect(
        server.url,
        user=role,
        password=PASSWORD.format(role=role),
        inbox_prefix=rights.inbox_prefix,
        connect_timeout=PATIENCE_SECONDS,
        allow_reconnect=False,
        error_cb=on_error,
    )
    try:
        yield Speaker(nc, rights, denials)
    finally:
        await nc.close()
