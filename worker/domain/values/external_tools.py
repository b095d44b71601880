"""Tools of other servers: their names, arguments and answers (Model Context Protocol)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server to mount: `url` of a streamable HTTP endpoint, or the `command` that starts it.

    `tools` are the names of the tools that may be called, `vouched` those of them that the operator declares
    read-only, whatever the server says. `token_file` holds a bearer token for `url` and is read for each
    connection.
    """

    name: str
    tools: tuple[str, ...]
    url: str = ""
    command: tuple[str, ...] = ()
    vouched: frozenset[str] = frozenset()
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class ExternalTool:
    """A tool of a mounted server. `description` and `parameters` (a JSON Schema) are the server's own.

    Both are empty until the server has been reached; `reached` tells this apart from a server that gives
    none.
    """

    server: str
    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    reached: bool = True


@dataclass(frozen=True, slots=True)
class ExternalAnswer:
    """The text of a tool, not yet bounded. `left_out` says what else was in the answer."""

    text: str
    left_out: str = ""
