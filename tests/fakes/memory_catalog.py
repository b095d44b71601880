"""A catalog of workflows made in code, and the workflows the tests are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from worker.domain.errors import CatalogUnavailable
from worker.domain.selection import action_summaries, for_final_choice, mismatches, page_of
from worker.domain.workflow import (
    WILDCARD,
    ActionSummary,
    Parameter,
    SelectionContext,
    Workflow,
    WorkflowPage,
)


class MemoryCatalog:
    """The Catalog port over a list. `down` makes every method raise CatalogUnavailable."""

    def __init__(self, workflows: Iterable[Workflow], actions: Mapping[str, str] | None = None) -> None:
        self.all = list(workflows)
        self.descriptions = dict(actions or {})
        self.down = False

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        return action_summaries(self._up(), self.descriptions, context)

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        same = [w for w in self._up() if w.action_type.lower() == action_type.strip().lower()]
        return page_of(same, context, cursor)

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        fitting = (w for w in self._up() if not mismatches(w, for_final_choice(context)))
        return next((w for w in fitting if w.workflow_id == workflow_id.strip()), None)

    async def signal_types(self) -> frozenset[str]:
        values = (v for w in self._up() for v in w.labels.get("signal_type", ()))
        return frozenset(values) - {WILDCARD}

    def _up(self) -> list[Workflow]:
        if self.down:
            raise CatalogUnavailable("the catalog is down")
        return self.all


def target_parameters(*kinds: str) -> tuple[Parameter, ...]:
    """Name, kind and namespace of the target, as most workflows declare them."""
    return (
        Parameter("TARGET_RESOURCE_NAME", required=True, pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"),
        Parameter("TARGET_RESOURCE_KIND", required=True, enum=kinds),
        Parameter(
            "TARGET_RESOURCE_NAMESPACE", required=True, pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
        ),
    )


def labels(**values: str | Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Labels of a workflow; one text is a list of one."""
    return {name: (value,) if isinstance(value, str) else tuple(value) for name, value in values.items()}


def workflow(
    workflow_id: str = "restart-v1", action_type: str = "RestartWorkload", **fields: Any
) -> Workflow:
    """A workflow for Deployments in production."""
    values: dict[str, Any] = {
        "version": "1.2.0",
        "labels": labels(
            signal_type="CrashLoopBackOff",
            severity=["critical", "high"],
            component="apps/v1/Deployment",
            environment="production",
            priority="*",
        ),
        "parameters": target_parameters("Deployment"),
        "container_image": "registry.example.com/restart@sha256:00ff",
    }
    return Workflow(workflow_id, action_type, **{**values, **fields})
