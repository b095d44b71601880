"""A server with the shipped configuration (deploy/nats), and connections of its roles.

async with shipped_server(tmp_path) as server:
    async with speaking(server, Role.GATEWAY) as gateway: ...
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext

from schemas.permissions import Access, Role, access
from schemas.subjects import Subjects
from worker.app.settings import NatsSettings
from worker.sandbox.nats_server import NatsServer

SHIPPED = Path(__file__).parent.parent / "deploy" / "nats"
PASSWORD = "FAKE-of-{role}"
SUBJECTS = Subjects()


class ShippedServer(NatsServer):
    """As deploy/nats configures it, but on free ports of loopback and with its data in the directory."""

    def _configuration(self) -> str:
        text = (SHIPPED / "nats.conf").read_text()
        (self.directory / "roles.conf").write_text((SHIPPED / "roles.conf").read_text())
        text = text.replace("port: 4222", f"listen: 127.0.0.1:{self.port}")
        text = text.replace("http_port: 8222", "").replace("/data", json.dumps(str(self.directory / "js")))
        passwords = {
            f"$RCA_NATS_{role.upper().replace('-', '_')}_PASSWORD": PASSWORD.format(role=role)
            for role in Role
        }
        for name, value in {**passwords, "$RCA_NATS_SERVER_NAME": "n0"}.items():
            text = text.replace(name, json.dumps(value))
        return text

    def violations(self) -> list[str]:
        """What it denied to anybody, from its log."""
        log = (self.directory / "nats.log").read_text()
        return re.findall(r"Permissions Violation.*|Import.*|Cycle.*", log)


@contextlib.asynccontextmanager
async def shipped_server(directory: Path) -> AsyncIterator[ShippedServer]:
    server = ShippedServer(directory / "n0")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def settings_of(server: NatsServer, role: Role) -> NatsSettings:
    """How a process of the role is configured."""
    return NatsSettings(
        servers=(server.url,),
        user=role,
        password=PASSWORD.format(role=role),
        inbox_prefix=access(role, SUBJECTS).inbox_prefix,
        connect_seconds=10,
    )


def environment_of(server: NatsServer, role: Role) -> dict[str, str]:
    """The same for a command."""
    settings = settings_of(server, role)
    return {
        "RCA_NATS__SERVERS": server.url,
        "RCA_NATS__USER": role,
        "RCA_NATS__PASSWORD": settings.password.get_secret_value(),
        "RCA_NATS__INBOX_PREFIX": settings.inbox_prefix,
    }


@dataclass
class Speaker:
    """A connection of a role with nats-py alone, as a program in another language would have it."""

    nc: Client
    access: Access
    denials: list[str] = field(default_factory=list)

    @property
    def js(self) -> JetStreamContext:
        return self.nc.jetstream(timeout=2, prefix=self.access.api_prefix)

    async def denied(self) -> list[str]:
        """What the server has said no to since the last time. A round trip: its errors come before its pong."""
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
        allow_reconnect=False,
        error_cb=on_error,
    )
    try:
        yield Speaker(nc, rights, denials)
    finally:
        await nc.close()
