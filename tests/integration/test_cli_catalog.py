"""`rca catalog`: what a person sees who writes workflows."""

from __future__ import annotations

import pytest

from tests.commands import rca
from tests.pipeline import CATALOG

GOOD = "workflow_id: a\naction_type: Restart\ndescription: 'Evicted high: restarts.'\n"


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    return tmp_path


async def test_a_good_catalog_has_no_problems():
    ended = await rca("catalog", "lint", str(CATALOG), "--strict")
    assert (0, "", "23 workflows, 0 errors, 0 warnings\n") == (ended.code, ended.out, ended.err)


async def test_problems_are_told_with_file_and_line(directory):
    (directory / "b.yaml").write_text(GOOD)
    (directory / "c.yaml").write_text(GOOD.replace("a\n", "c\n", 1) + "labels: {priority: urgent}\n")
    ended = await rca("catalog", "lint", str(directory))
    assert 1 == ended.code
    first, second = ended.out.splitlines()
    assert (
        f"{directory / 'b.yaml'}:1: workflow_id: a is declared twice, first at {directory / 'a.yaml'}:1"
        == first
    )
    assert second.startswith(
        f"{directory / 'c.yaml'}:4: warning: labels.priority: urgent matches no incident"
    )
    assert "2 workflows, 1 error, 1 warning\n" == ended.err


async def test_problems_are_json_for_scripts_and_warnings_fail_only_when_asked(directory):
    (directory / "a.yaml").write_text(GOOD + "labels: {environment: prodution}\n")
    ended = await rca("catalog", "lint", str(directory), "--json")
    (problem,) = ended.json()
    assert (0, "warning", 4) == (ended.code, problem["level"], problem["line"])
    expected = "labels.environment: prodution matches no incident: did you mean production?"
    assert expected == problem["message"]
    assert 1 == (await rca("catalog", "lint", str(directory), "--strict")).code


async def test_a_directory_without_workflows_is_refused_as_by_a_worker(tmp_path):
    ended = await rca("catalog", "lint", str(tmp_path))
    told = f"{tmp_path}: there are no workflows\n"
    assert (1, told, "0 workflows, 1 error, 0 warnings\n") == (ended.code, ended.out, ended.err)
    (problem,) = (await rca("catalog", "lint", str(tmp_path), "--json")).json()
    assert ("error", "there are no workflows") == (problem["level"], problem["message"])


async def test_a_directory_that_is_not_there_is_a_clear_error(directory):
    ended = await rca("catalog", "lint", str(directory / "missing"))
    assert 1 == ended.code
    assert "is not a directory" in ended.err
    assert "Traceback" not in ended.err


async def test_all_workflows_are_listed(directory):
    ended = await rca("catalog", "list", str(directory), "--json")
    assert [{"workflow_id": "a", "version": "", "action_type": "Restart"}] == ended.json()
    assert "Restart a Evicted high: restarts." in (await rca("catalog", "list", str(directory))).out


async def test_a_search_shows_matches_best_first():
    asked = ("catalog", "search", str(CATALOG), "OOMKilled critical", "--label", "environment=production")
    ended = await rca(*asked, "--json")
    assert ["increase-memory-limits-v1", "graceful-restart-v1"] == [
        w["workflow_id"] for w in ended.json()["workflows"]
    ]
    assert (await rca(*asked)).out.startswith("0.990 increase-memory-limits-v1 ")


async def test_a_search_without_a_match_says_which_labels_leave_workflows_out(directory):
    (directory / "a.yaml").write_text(GOOD + "labels: {environment: production, signal_type: Evicted}\n")
    ended = await rca("catalog", "search", str(directory), "Evicted high", "--label", "environment=qa")
    assert (0, "environment excludes 1 workflow, 1 of them alone\n") == (ended.code, ended.out)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("the pod is dead",), "write <signal_type> <severity> [keywords]"),
        (
            ("Evicted high", "--label", "region=eu"),
            "--label region: unknown label; use component, environment",
        ),
    ],
)
async def test_a_search_that_cannot_be_run_is_a_usage_error(directory, asked, said):
    ended = await rca("catalog", "search", str(directory), *asked)
    assert 2 == ended.code
    assert said in ended.err
