"""Opens the model, catalog or policy that a replay uses instead of the recorded one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from worker.app.settings.environment import load
from worker.app.settings.groups import CatalogSettings, PolicySettings
from worker.app.supervisor import Supervisor
from worker.app.wiring.clock import SystemClock
from worker.app.wiring.models import open_models
from worker.app.wiring.outside import open_catalog, open_policy
from worker.app.wiring.rules import analysis_rules
from worker.domain.recording.bundle import MAX_BYTES, Bundle, decode
from worker.domain.recording.replay import Changes

SUFFIX = ".rca"
"""The extension of bundles."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """The changes that are wanted; none if all fields are empty."""

    model: str = ""
    catalog: Path | None = None
    policy: Path | None = None

    @property
    def names(self) -> dict[str, str]:
        """The changes by name."""
        given = {"model": self.model, "catalog": str(self.catalog or ""), "policy": str(self.policy or "")}
        return {name: value for name, value in given.items() if value}


@asynccontextmanager
async def open_changes(wanted: Alternative) -> AsyncIterator[Changes]:
    """Open the changes. With any change, the policy decides again, because its input differs.

    Raises ConfigurationError, CatalogUnavailable.
    """
    settings, clock = load(), SystemClock()
    async with AsyncExitStack() as stack:
        supervisor = Supervisor()
        model = catalog = policy = None
        if wanted.model:
            llm = settings.llm.model_copy(update={"model": wanted.model, "fallbacks": ()})
            model = open_models(settings.model_copy(update={"llm": llm}), clock, stack)
        if wanted.catalog:
            catalog = await open_catalog(CatalogSettings(path=wanted.catalog), stack, supervisor)
        if wanted.names:
            chosen = PolicySettings(path=wanted.policy) if wanted.policy else settings.policy
            policy = await open_policy(chosen, stack, supervisor)
        limits = analysis_rules(settings).limits if model else None
        yield Changes(clock=clock, model=model, limits=limits, catalog=catalog, policy=policy)


def read_bundle(path: Path) -> Bundle:
    """The bundle in a file. Raises BundleError, OSError."""
    with path.open("rb") as file:
        return decode(file.read(MAX_BYTES), str(path))
