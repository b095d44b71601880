"""The MCP servers to mount, as the environment lists them.

For example `docs=https://host/mcp,runbooks=stdio:/usr/bin/server`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from worker.domain.values.external_tools import McpServer

STDIO = "stdio:"
SERVER_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
TOOL_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""Names of tools (MCP specification)."""
URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
"""Credentials do not belong in an address, because messages show it."""


def read_mounts(
    servers: Sequence[str], tools: Sequence[str], read_only_tools: Sequence[str], tokens: Sequence[str]
) -> tuple[McpServer, ...]:
    """The servers that the settings describe. Raises ValueError with every problem."""
    addresses, files = _pairs(servers), _pairs(tokens)
    allowed, vouched = _by_server(tools), _by_server(read_only_tools)
    problems = [
        *_malformed(servers, "servers", "NAME=https://HOST/PATH or NAME=stdio:COMMAND"),
        *_malformed(tokens, "tokens", "NAME=FILE"),
        *_bad_addresses(addresses),
        *(
            f"tools: {tool}: must be SERVER.TOOL, with the name of one of the servers"
            for tool in (*tools, *read_only_tools)
            if not _is_tool_of(tool, addresses)
        ),
        *(
            f"read_only_tools: {tool} is not one of the tools"
            for tool in read_only_tools
            if tool not in tools and _is_tool_of(tool, addresses)
        ),
        *(
            f"tools: name at least one tool of {name} that the model may use"
            for name in addresses
            if name not in allowed
        ),
        *(
            f"tokens: {name}: only a server over HTTP takes a token"
            for name in files
            if not URL.fullmatch(addresses.get(name, ""))
        ),
    ]
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return tuple(
        McpServer(
            name,
            tuple(dict.fromkeys(allowed[name])),
            url="" if address.startswith(STDIO) else address,
            command=tuple(shlex.split(address.removeprefix(STDIO))) if address.startswith(STDIO) else (),
            vouched=frozenset(vouched.get(name, ())),
            token_file=Path(files[name]) if name in files else None,
        )
        for name, address in addresses.items()
    )


def _pairs(values: Sequence[str]) -> dict[str, str]:
    return {name.strip(): rest.strip() for name, _, rest in (value.partition("=") for value in values)}


def _by_server(tools: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for tool in tools:
        server, _, name = tool.partition(".")
        found.setdefault(server, []).append(name)
    return found


def _is_tool_of(tool: str, servers: Mapping[str, str]) -> bool:
    server, _, name = tool.partition(".")
    return server in servers and TOOL_NAME.fullmatch(name) is not None


def _malformed(values: Sequence[str], setting: str, form: str) -> Iterator[str]:
    names = [value.partition("=")[0].strip() for value in values]
    for value, name in zip(values, names, strict=True):
        if not SERVER_NAME.fullmatch(name) or not value.partition("=")[2].strip():
            yield f"{setting}: {name[:40]}: must be {form}, with a name of at most 20 small letters, digits and -"
        elif names.count(name) > 1:
            yield f"{setting}: {name} is named twice"


def _bad_addresses(addresses: Mapping[str, str]) -> Iterator[str]:
    for name, address in addresses.items():
        if address.startswith(STDIO):
            try:
                words = shlex.split(address.removeprefix(STDIO))
            except ValueError as e:
                yield f"servers: {name}: the command cannot be read: {e}"
                continue
            if not words:
                yield f"servers: {name}: stdio: needs a command"
        elif not URL.fullmatch(address):
            yield f"servers: {name}: must be https://HOST/PATH without credentials or query, or stdio:COMMAND"
