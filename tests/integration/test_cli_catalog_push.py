"""`rca catalog push`: from a directory into the database of a worker."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack

import pytest
from pydantic import SecretStr

from tests import processes
from tests.commands import rca
from tests.pipeline import CATALOG
from worker.adapters.file_catalog import FileCatalog
from worker.app.cli.catalog import push as push_command
from worker.app.settings.groups import CatalogSettings
from worker.app.supervisor import Supervisor
from worker.app.wiring.outside import open_catalog
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import SelectionContext

pytestmark = pytest.mark.process

GOOD = "workflow_id: a\naction_type: Restart\ndescription: 'Evicted high: restarts.'\n"


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    return tmp_path


@pytest.fixture
async def url(postgres):
    return await postgres.new_database()


@pytest.fixture
def push(url, directory, monkeypatch, capsys):
    """Into the database, in this process: exit code, output, errors."""
    monkeypatch.setenv("RCA_CATALOG__DATABASE_URL", url)

    async def run(source=directory, *, dry_run=False, prune=False, as_json=False):
        command = push_command.__wrapped__  # the coroutine function, without a process of its own
        code = await command(source, dry_run=dry_run, prune=prune, json_output=as_json)
        return code, *capsys.readouterr()

    return run


async def test_push_reports_what_it_changed(push, directory):
    assert (
        0,
        "tables     0001_catalog.sql\ntables     0002_offered.sql\nadded      a\n",
        "1 added, 0 changed, 0 unchanged, 0 removed\n",
    ) == await push()
    (directory / "a.yaml").write_text(GOOD.replace("workflow_id: a", "workflow_id: b"))
    assert (
        0,
        "added      b\nremoved    a\n",
        "1 added, 0 changed, 0 unchanged, 1 removed; nothing was written: --dry-run\n",
    ) == await push(dry_run=True, prune=True)
    _, _, told = await push()
    assert told.endswith("\n1 more in the database are not in the directory: --prune removes them\n")
    _, out, _ = await push(as_json=True)
    again = json.loads(out)
    assert ([], ["b"], ["a"], False) == (again["added"], again["unchanged"], again["left"], again["dry_run"])


async def test_push_lists_only_some_of_many_ids(push, directory):
    documents = [GOOD.replace("workflow_id: a", f"workflow_id: w-{n:03}") for n in range(60)]
    (directory / "a.yaml").write_text("---\n".join(documents))
    _, out, _ = await push()
    assert ["added      w-049", "added      10 more"] == out.splitlines()[-2:]


async def test_a_directory_that_a_worker_would_refuse_is_not_pushed(push, url, directory):
    (directory / "b.yaml").write_text(GOOD)
    with pytest.raises(CatalogUnavailable, match="a is declared twice") as caught:
        await push()
    assert f"{directory / 'b.yaml'}:1: " in str(caught.value)
    async with AsyncExitStack() as stack:
        with pytest.raises(CatalogUnavailable, match="run `rca catalog push DIR`"):
            await open_catalog(CatalogSettings(database_url=SecretStr(url)), stack, Supervisor())


async def test_a_worker_reads_what_was_pushed(push, url):
    await push(CATALOG)
    files, everything = await FileCatalog.open(CATALOG), SelectionContext()
    async with AsyncExitStack() as stack:
        opened = await open_catalog(CatalogSettings(database_url=SecretStr(url)), stack, Supervisor())
        assert list(await files.actions(everything)) == list(await opened.actions(everything))
        for w in files:
            assert w == await opened.get(w.workflow_id, everything)
        assert "" == opened.problem


async def test_without_asyncpg_push_says_what_to_install(tmp_path):
    (tmp_path / "asyncpg.py").write_text("raise ImportError")
    pythonpath = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    ended = await processes.rca("catalog", "push", str(CATALOG), env={"PYTHONPATH": pythonpath})
    assert (1, True) == (ended.code, "pip install 'rca-worker[postgres]'" in ended.err)
    assert "Traceback" not in ended.err


async def test_the_command_ends_with_a_clear_error():
    pushing = ("catalog", "push", str(CATALOG), "--dry-run")
    unset, down = await asyncio.gather(
        rca(*pushing),
        rca(*pushing, env={"RCA_CATALOG__DATABASE_URL": "postgresql://rca:secret@127.0.0.1:1/rca"}),
    )
    assert (1, True) == (unset.code, "RCA_CATALOG__DATABASE_URL is not set" in unset.err)
    assert (1, True) == (down.code, "PostgreSQL: cannot be reached" in down.err)
    assert "secret" not in down.err
    assert "Traceback" not in down.err
