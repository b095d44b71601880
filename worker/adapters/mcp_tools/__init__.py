"""Mounted MCP servers (Model Context Protocol).

Imported only where some are configured: the library is an extra.
"""

from worker.adapters.mcp_tools.tools import McpTools

__all__ = ["McpTools"]
