"""A catalog in a DataStorage through the production path: the corpus's workflows, served over HTTP."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from pydantic import SecretStr

from schemas.analysis import HumanReviewReason, Status
from tests.fakes import datastorage
from tests.fakes.datastorage_catalog import record_of
from tests.integration.test_history import CASE, look_then_answer, outcome_of, seen_by_tools
from tests.pipeline import CATALOG, running
from worker.adapters.file_catalog import FileCatalog
from worker.app.settings.groups import CatalogSettings
from worker.app.supervisor import Supervisor
from worker.app.wiring.outside import open_catalog
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import SelectionContext

LIST_ACTIONS = (("list_available_actions", {}),)


@asynccontextmanager
async def served():
    async with datastorage.serve() as storage:
        storage.catalog.records = [record_of(w) for w in await FileCatalog.open(CATALOG)]
        yield storage


async def test_a_workflow_of_a_datastorage_is_chosen(tmp_path):
    async with served() as storage:
        catalog = CatalogSettings(url=storage.url, token=SecretStr("t0ken"))
        script = look_then_answer(calls=LIST_ACTIONS)
        async with running(script, CASE, tmp_path, catalog=catalog) as run:
            result = await outcome_of(run, "rr-1")
            told = seen_by_tools(run)
    assert "IncreaseMemoryLimits" in told
    assert Status.COMPLETED is result.status
    assert "increase-memory-limits-v1" == result.selected_workflow.workflow_id
    assert "/api/v1/workflows/increase-memory-limits-v1" == storage.catalog.paths()[-1]
    assert {"Bearer t0ken"} == {headers.get("Authorization") for headers in storage.headers}


async def test_a_datastorage_that_is_down_leaves_the_choice_to_a_human(tmp_path):
    catalog = CatalogSettings(url="http://127.0.0.1:9")
    script = look_then_answer(calls=LIST_ACTIONS)
    async with running(script, CASE, tmp_path, catalog=catalog) as run:
        result = await outcome_of(run, "rr-1")
        told = seen_by_tools(run)
    away = "DataStorage at http://127.0.0.1:9: it "
    assert f"the workflow catalog cannot be read: {away}" in told
    assert Status.NEEDS_HUMAN_REVIEW is result.status
    assert result.needs_human_review
    assert HumanReviewReason.INVESTIGATION_INCONCLUSIVE is result.human_review_reason
    assert "catalog" in result.human_review_detail
    assert away in result.human_review_detail
    assert None is result.selected_workflow
    assert () == tuple(result.alternative_workflows)


async def test_readiness_tells_of_a_datastorage_that_is_away_and_back():
    async with AsyncExitStack() as stack, served() as storage:
        storage.answers = [503] * 20
        opened = await open_catalog(CatalogSettings(url=storage.url), stack, Supervisor())
        with pytest.raises(CatalogUnavailable):
            await opened.actions(SelectionContext())
        assert "it answered 503" in opened.problem
        storage.answers.clear()
        await opened.actions(SelectionContext())
        assert "" == opened.problem
