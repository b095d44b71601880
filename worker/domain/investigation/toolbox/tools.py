"""The list of tools. Each is a `ToolDef` beside the function that runs it, in a module of this package.

The definition says what the evidence of the tool shows; those without `shows` prove nothing about the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

from worker.domain.investigation.toolbox.catalog import (
    GET_WORKFLOW,
    LIST_AVAILABLE_ACTIONS,
    LIST_WORKFLOWS,
    SEARCH_WORKFLOW_CATALOG,
)
from worker.domain.investigation.toolbox.cluster import (
    GET_EVENTS,
    GET_RESOURCE,
    GET_RESOURCE_CONTEXT,
    LIST_RESOURCES,
)
from worker.domain.investigation.toolbox.external import mounted_tools, shown_name
from worker.domain.investigation.toolbox.logs import GET_POD_LOGS
from worker.domain.investigation.toolbox.metrics import QUERY_PROMETHEUS
from worker.domain.investigation.toolbox.tool import ToolDef
from worker.domain.values.ports import ExternalTools, Metrics

TOOLS: tuple[ToolDef, ...] = (
    GET_EVENTS,
    GET_POD_LOGS,
    GET_RESOURCE,
    GET_RESOURCE_CONTEXT,
    GET_WORKFLOW,
    LIST_AVAILABLE_ACTIONS,
    LIST_RESOURCES,
    LIST_WORKFLOWS,
    SEARCH_WORKFLOW_CATALOG,
)
"""Offered in every investigation. Together their definitions cost at most 1,300 tokens of every prompt."""
OPTIONAL_TOOLS: tuple[ToolDef, ...] = (QUERY_PROMETHEUS,)
"""Offered only if what they read is configured."""
OWN_NAMES = frozenset(tool.name for tool in (*TOOLS, *OPTIONAL_TOOLS))


class NameClash(ValueError):  # noqa: N818 - says what it is
    """Two tools would have the same name for the model."""


def offered_tools(metrics: Metrics | None, external: ExternalTools | None) -> tuple[ToolDef, ...]:
    """The tools of one investigation, sorted by name, so that they can stand first in a cached prompt."""
    tools = list(TOOLS)
    if metrics is not None:
        tools.append(QUERY_PROMETHEUS)
    if external is not None:
        tools += mounted_tools(external)
    return tuple(sorted(tools, key=lambda tool: tool.name))


def tool_names(metrics: Metrics | None, external: ExternalTools | None) -> frozenset[str]:
    """The names of the tools of one investigation."""
    return frozenset(tool.name for tool in offered_tools(metrics, external))


def check_names(tools: Iterable[tuple[str, str]]) -> None:
    """Raises NameClash if a (server, name) would look like one of our own tools, or like another one."""
    owner: dict[str, str] = {}
    for server, name in tools:
        shown, full = shown_name(server, name), f"{server}.{name}"
        if shown in OWN_NAMES:
            raise NameClash(f"{full} would be called {shown}, like a built-in tool: rename the server")
        if shown in owner:
            raise NameClash(f"{owner[shown]} and {full} would both be called {shown}")
        owner[shown] = full
