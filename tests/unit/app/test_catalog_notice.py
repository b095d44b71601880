"""What is told of the catalog when a worker opens it."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from structlog.testing import capture_logs

from worker.app.settings.groups import CatalogSettings
from worker.app.supervisor import Supervisor
from worker.app.wiring.outside import catalog_advice, open_catalog

GOOD = "workflow_id: a\naction_type: Restart\ndescription: 'Evicted high: restarts.'\n"


@pytest.fixture
async def opened():
    """Opens a catalog: it, and the events that were logged."""
    async with AsyncExitStack() as stack:

        async def open_one(**settings):
            with capture_logs() as events:
                return await open_catalog(CatalogSettings(**settings), stack, Supervisor()), events

        yield open_one


async def test_the_shipped_example_is_told_in_the_log_and_beside_readiness(opened):
    catalog, (event, warning) = await opened()
    assert ("catalog_opened", "shipped example") == (event["event"], event["source"])
    assert 0 < event["workflows"]
    assert ("catalog_example_in_use", "warning") == (warning["event"], warning["log_level"])
    assert warning["advice"] == catalog_advice(CatalogSettings())
    assert "RCA_CATALOG__PATH" in warning["advice"]
    assert "" == catalog.problem


async def test_a_catalog_of_your_own_is_told_by_source_and_size(opened, tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    catalog, events = await opened(path=tmp_path)
    told = {"event": "catalog_opened", "log_level": "info", "source": str(tmp_path), "workflows": 1}
    assert [told] == events
    assert ("", "") == (catalog.problem, catalog_advice(CatalogSettings(path=tmp_path)))


async def test_a_catalog_elsewhere_is_told_by_its_address(opened):
    _, events = await opened(url="http://127.0.0.1:9")
    assert ("catalog_opened", "http://127.0.0.1:9") == (events[0]["event"], events[0]["source"])
