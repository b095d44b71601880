"""`rca mcp`: its declaration."""

from __future__ import annotations

from typing import Annotated

import typer

from worker.app.cli.console import run

EPILOG = """What an agent's configuration needs (most call the file mcp.json):

{"mcpServers": {"rca": {"command": "rca", "args": ["mcp"], "env": {"RCA_CATALOG__PATH": "/etc/rca/catalog"}}}}

and over HTTP:

{"mcpServers": {"rca": {"type": "http", "url": "https://HOST/mcp", "headers": {"Authorization": "Bearer TOKEN"}}}}"""


def mcp(
    *,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve streamable HTTP at /mcp on this address, such as 127.0.0.1:9000, and print its url; stdio by default. "
            "Another address than loopback needs RCA_MCP__TOKEN.",
        ),
    ] = None,
) -> None:
    """Serve catalog search and resource context to other agents (Model Context Protocol).

    Tools, all of them read-only: list_available_actions, list_workflows,
    get_workflow, search_workflow_catalog, get_resource_context. They read the
    catalog and the cluster that the settings name.

    Over stdio the agent starts this command itself, and ends it by closing
    its input. Logs go to standard error.
    """
    from worker.app.cli.mcp import serve

    run(serve(http))
