"""MCP servers that the settings mount. Their library is an extra: imported only where there are any."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from worker.app.settings.environment import ConfigurationError, blamed_on
from worker.app.settings.groups import McpSettings
from worker.domain.investigation.toolbox.external import MAX_TOOLS
from worker.domain.investigation.toolbox.tools import NameClash, check_names

if TYPE_CHECKING:
    from worker.adapters.mcp_tools import McpTools

NEEDS_MCP = "needs the extra mcp: pip install 'rca-worker[mcp]'"


async def open_mcp(settings: McpSettings, stack: AsyncExitStack) -> McpTools | None:
    """The mounted servers, if there are any. A server that is away does not stop the worker.

    Raises ConfigurationError.
    """
    mounts = settings.mounts
    if not mounts:
        return None
    if sum(len(mount.tools) for mount in mounts) > MAX_TOOLS:
        raise ConfigurationError(
            f"RCA_MCP__TOOLS: at most {MAX_TOOLS} tools; each one costs tokens in every call"
        )
    with blamed_on("RCA_MCP__TOOLS", NameClash):
        check_names((mount.name, tool) for mount in mounts for tool in mount.tools)
    try:
        from worker.adapters.mcp_tools import McpTools  # noqa: PLC0415 - its library is an extra
    except ModuleNotFoundError as e:
        raise ConfigurationError(f"RCA_MCP__SERVERS {NEEDS_MCP}") from e
    return await stack.enter_async_context(McpTools(mounts, call_seconds=settings.call_seconds))
