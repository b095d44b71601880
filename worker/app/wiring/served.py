"""What `rca mcp` serves: catalog, cluster and history as the settings name them."""

from __future__ import annotations

from contextlib import AsyncExitStack

from worker.app.settings import Settings
from worker.app.supervisor import Supervisor
from worker.app.wiring.clock import SystemClock
from worker.app.wiring.outside import open_catalog, open_cluster, open_datastorage, within_scope
from worker.domain.investigation.toolbox.served import ServedTools


async def open_served(settings: Settings, stack: AsyncExitStack) -> ServedTools:
    """The tools, ready to be called. Raises CatalogUnavailable, ClusterError."""
    catalog = await open_catalog(settings.catalog, stack, Supervisor())
    cluster = within_scope(await open_cluster(settings, stack), settings.kubernetes)
    history = await open_datastorage(settings.history, stack)
    return ServedTools(cluster, catalog.catalog, SystemClock(), history)
