"""Tools that are there only where they are configured: metrics, and those of mounted servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from worker.domain.investigation.toolbox.external import MountedTools
from worker.domain.investigation.toolbox.metrics import QUERY_PROMETHEUS, MetricTools
from worker.domain.investigation.toolbox.toolbox import Tool
from worker.domain.values.conversation import ToolSpec
from worker.domain.values.ports import ExternalTools, Metrics


@dataclass(frozen=True, slots=True)
class OptionalTools:
    """What the model is told of them, and what a toolbox takes in: the same names in both."""

    specs: Sequence[ToolSpec]
    tools: Mapping[str, Tool]


def optional_tools(metrics: Metrics | None, external: ExternalTools | None, now: datetime) -> OptionalTools:
    """The tools of one investigation. `now` is when the signal was received."""
    specs: list[ToolSpec] = []
    tools: dict[str, Tool] = {}
    if external is not None:
        mounted = MountedTools(external)
        specs, tools = mounted.specs, mounted.tools
    if metrics is not None:
        specs, tools = [*specs, QUERY_PROMETHEUS], {**tools, **MetricTools(metrics, now).tools}
    return OptionalTools(specs, tools)
