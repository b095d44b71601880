"""The file catalog follows its files: whole changes only, and never worse than what it had."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest

from tests.waiting import until
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.file_catalog.loading import fingerprint
from worker.domain.values.workflows import SelectionContext

EVERYTHING = SelectionContext()
LOOK_SECONDS = 0.005


def text(workflow_id, signal_type="Evicted"):
    return f"workflow_id: {workflow_id}\naction_type: Restart\ndescription: '{signal_type} high: restarts.'\n"


def replace_file(path, content):
    """As editors and deployments do it: never half a file."""
    new = path.with_suffix(".new")
    new.write_text(content)
    new.rename(path)


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "a.yaml").write_text(text("a"))
    return tmp_path


@contextlib.asynccontextmanager
async def following(directory):
    catalog = await FileCatalog.open(directory)
    task = asyncio.create_task(catalog.follow(LOOK_SECONDS))
    try:
        yield catalog
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def ids(catalog):
    page = await catalog.workflows("Restart", EVERYTHING)
    return [w.workflow_id for w in page.workflows]


async def has(catalog, *expected):
    return list(expected) == await ids(catalog)


async def test_new_changed_and_removed_files_are_taken_over(directory):
    async with following(directory) as catalog:
        replace_file(directory / "b.yaml", text("b"))
        await until(lambda: has(catalog, "a", "b"))
        replace_file(directory / "a.yaml", text("z"))
        await until(lambda: has(catalog, "b", "z"))
        (directory / "b.yaml").unlink()
        await until(lambda: has(catalog, "z"))
        assert "" == catalog.problem


async def test_searches_follow_as_well(directory):
    from schemas.taxonomy import Severity
    from worker.domain.values.workflow_search import SearchQuery

    query = SearchQuery("OOMKilled", Severity.HIGH, min_confidence=0.4)
    async with following(directory) as catalog:
        replace_file(directory / "a.yaml", text("b", "OOMKilled"))
        await until(lambda: has(catalog, "b"))
        (match,) = (await catalog.search(query, EVERYTHING)).matches
        assert ("b", 0.49) == (match.workflow.workflow_id, match.confidence)


async def test_a_broken_change_keeps_what_was_there_and_is_reported(directory):
    async with following(directory) as catalog:

        async def complains():
            return bool(catalog.problem)

        replace_file(directory / "b.yaml", "workflow_id: b\n")
        await until(complains)
        assert f"{directory / 'b.yaml'}:1: action_type: Field required" in catalog.problem
        assert ["a"] == await ids(catalog)
        replace_file(directory / "b.yaml", text("b"))
        await until(lambda: has(catalog, "a", "b"))
        assert "" == catalog.problem


async def test_a_directory_that_is_away_for_a_while_is_told_and_forgotten(directory, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "catalog"
    async with following(directory) as catalog:

        async def complains():
            return "is not a directory" in catalog.problem

        async def is_well():
            return not catalog.problem

        directory.rename(elsewhere)
        await until(complains)
        assert ["a"] == await ids(catalog)
        elsewhere.rename(directory)
        await until(is_well)
        assert ["a"] == await ids(catalog)


async def test_a_config_map_is_swapped_as_a_whole(tmp_path):
    """The kubelet writes a new directory and moves a symlink; names and sizes of the files may stay the same."""

    def publish(version, workflow_id):
        data = tmp_path / f"..{version}"
        data.mkdir()
        (data / "a.yaml").write_text(text(workflow_id))
        os.utime(data / "a.yaml", (1, 1))
        (tmp_path / "..data_tmp").symlink_to(data)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    publish("2026_06_04", "a")
    (tmp_path / "a.yaml").symlink_to(tmp_path / "..data" / "a.yaml")
    async with following(tmp_path) as catalog:
        publish("2026_06_05", "b")
        await until(lambda: has(catalog, "b"))


async def test_files_that_change_between_looks_are_not_read_yet(directory):
    catalog = await FileCatalog.open(directory)
    before = fingerprint(directory)
    (directory / "b.yaml").write_text(text("b"))
    seen = await catalog._poll(directory, before)
    assert ["a"] == await ids(catalog)
    assert seen == await catalog._poll(directory, seen)
    assert ["a", "b"] == await ids(catalog)


async def test_a_change_right_after_opening_is_not_missed(directory):
    catalog = await FileCatalog.open(directory)
    replace_file(directory / "a.yaml", text("b"))
    task = asyncio.create_task(catalog.follow(LOOK_SECONDS))
    await until(lambda: has(catalog, "b"))
    task.cancel()


async def test_a_catalog_without_files_has_nothing_to_follow():
    catalog = FileCatalog([])
    await catalog.follow(LOOK_SECONDS)
    assert (0, "") == (len(catalog), catalog.problem)
