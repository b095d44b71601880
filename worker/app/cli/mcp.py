"""`rca mcp`: catalog and context tools for other agents."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import socket
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from worker.app.cli.console import asynchronous, listening_on
from worker.domain.values.errors import ReportedError

if TYPE_CHECKING:
    from worker.app.settings.groups import McpSettings

LOOPBACK_HOSTS = ["127.0.0.1:*", "localhost:*", "[::1]:*"]
EPILOG = """The configuration of the agent (often a file mcp.json) needs:

{"mcpServers": {"rca": {"command": "rca", "args": ["mcp"], "env": {"RCA_CATALOG__PATH": "/etc/rca/catalog"}}}}

or, over HTTP:

{"mcpServers": {"rca": {"type": "http", "url": "https://HOST/mcp", "headers": {"Authorization": "Bearer TOKEN"}}}}"""


@asynchronous
async def mcp(
    *,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve streamable HTTP at /mcp on this address, such as 127.0.0.1:9000, and print its URL; stdio by default. "
            "An address other than loopback needs RCA_MCP__TOKEN.",
        ),
    ] = None,
) -> int:
    """Serve catalog search and resource context to other agents (Model Context Protocol).

    The tools are read-only: list_available_actions, list_workflows, get_workflow, search_workflow_catalog and
    get_resource_context. They read the catalog and the cluster that the settings name.

    Over stdio, the agent starts this command itself and ends it by closing its input. Logs go to standard
    error.
    """
    from worker.app import logs
    from worker.app.settings.environment import ConfigurationError, load
    from worker.app.wiring.mounted import NEEDS_MCP
    from worker.app.wiring.outside import open_served

    try:
        from worker.app import mcp_server
    except ModuleNotFoundError as e:
        raise ConfigurationError(f"rca mcp {NEEDS_MCP}") from e
    settings = load()
    logs.configure(settings.log.level, json_lines=settings.log.json_lines)
    async with AsyncExitStack() as stack:
        if http is None:
            with contextlib.redirect_stdout(sys.stderr):  # until the protocol takes it over
                tools = await open_served(settings, stack)
            await mcp_server.serve_stdio(mcp_server.make_server(tools))
            return 0
        host, port = read_address(http)
        hosts = allowed_hosts(settings.mcp, host, port)
        with listening_on(host, port, "choose another with --http"):
            listening = stack.enter_context(_listen(host, port))
        server = mcp_server.make_server(await open_served(settings, stack))
        await mcp_server.serve_http(
            server,
            listening,
            token=settings.mcp.token.get_secret_value(),
            hosts=hosts,
            ready=lambda: typer.echo(json.dumps({"url": _url(host, listening)})),
        )
    return 0


def allowed_hosts(settings: McpSettings, host: str, port: int) -> list[str]:
    """Values of the Host header that are accepted.

    Raises ConfigurationError if the address needs more settings.
    """
    from worker.app.settings.environment import ConfigurationError

    own, address = list(settings.hosts), _ip_address(host)
    if host == "localhost" or (address and address.is_loopback):
        return [*LOOPBACK_HOSTS, *own]
    if not settings.token.get_secret_value():
        raise ConfigurationError(
            f"{host} can be reached from elsewhere: set RCA_MCP__TOKEN to the bearer token that clients must send, "
            "or listen on 127.0.0.1"
        )
    if address and address.is_unspecified and not own:
        raise ConfigurationError(
            f"{host} is every address of this machine: set RCA_MCP__HOSTS to the hosts by which clients reach it, such as "
            f"rca-mcp.rca.svc:{port}"
        )
    return own or [f"[{host}]:*" if ":" in host else f"{host}:*"]


def read_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 address is in brackets. Raises ReportedError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ReportedError(f"--http {text}: must be HOST:PORT, such as 127.0.0.1:9000")
    return host, int(port)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _url(host: str, listening: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}/mcp"


def _ip_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
