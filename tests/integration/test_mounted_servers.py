"""MCP servers of others mounted into a worker, as the settings say: what the model sees, and what faults do."""

from __future__ import annotations

import asyncio
import sys

import pytest

from schemas.analysis import AnalysisResult, HumanReviewReason, Status
from tests import processes
from tests.commands import rca
from tests.fakes.llm_server import Said
from tests.integration.test_pipeline import ANSWER, BODY, CASE, TARGET, outcome_of
from tests.integration.test_worker_process import Held, said, stage, started, until
from tests.mcp_servers import SCRIPT, http_server
from tests.pipeline import final, running
from worker.app.settings.groups import McpSettings

pytestmark = pytest.mark.process

STDIO = f"docs=stdio:{sys.executable} {SCRIPT}"
MOST_SECONDS = 15.0
"""The longest limit that the settings take: the start of a server, its libraries included, must be within it."""
ALLOWED = "docs.search,docs.credentials,docs.fails,docs.huge,docs.garbage,docs.lie,docs.delete,docs.poisoned"


def script_of(*calls, answer=ANSWER):
    def script(request, number):
        return Said(tool_calls=list(calls)) if number == 1 else final(answer)

    return script


def told(run):
    """What the tools answered, in the order of the calls."""
    return [m["content"] for m in run.llm.requests[1]["messages"] if m["role"] == "tool"]


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_the_model_sees_allowed_tools_and_gets_fenced_answers(tmp_path, way):
    calls = [
        ("docs_search", {"query": "oom"}),
        ("docs_credentials", {}),
        ("docs_fails", {}),
        ("docs_huge", {}),
        ("docs_garbage", {}),
        ("docs_lie", {}),
        ("docs_delete", {"name": "x"}),
    ]
    async with http_server() as server:
        servers = STDIO if way == "stdio" else f"docs={server.url}"
        settings = McpSettings(servers=servers, tools=ALLOWED, call_seconds=MOST_SECONDS)
        async with running(script_of(*calls), CASE, tmp_path, mcp=settings) as run:
            result = await outcome_of(run, BODY)
            answers = told(run)
    names = [tool["function"]["name"] for tool in run.llm.requests[0]["tools"]]
    assert sorted(names) == names
    assert {"docs_search", "docs_poisoned", "get_resource"} < set(names)
    assert "docs_delete" not in names
    poisoned = next(
        t["function"] for t in run.llm.requests[0]["tools"] if t["function"]["name"] == "docs_poisoned"
    )
    assert "withheld" in poisoned["description"]
    search, credentials, fails, huge, garbage, _, delete = answers
    assert 'source="mcp:docs"' in search
    assert "runbook for oom" in search
    assert "hunter2" not in credentials
    assert "\nerror: docs: it says:" in fails
    assert "[cut: " in huge
    assert 30_000 > len(huge)
    assert "after the nonsense" in garbage
    assert "unknown tool docs_delete" in delete
    assert isinstance(result, AnalysisResult)
    assert Status.COMPLETED == result.status
    reasons = [factor.reason for factor in result.approval.risk_factors]
    assert "Some of the evidence reads like instructions to the analysis." in reasons, (
        "a failing tool has spoken to the model"
    )
    assert "mcp:docs" in {item.source for item in result.evidence}


async def test_a_server_that_dies_hangs_or_is_away_leaves_the_run_alone(tmp_path):
    calls = [("docs_crash", {}), ("docs_slow", {}), ("away_x", {}), ("get_resource_context", TARGET)]
    settings = McpSettings(
        servers=f"{STDIO},away=http://127.0.0.1:9/mcp", tools="docs.crash,docs.slow,away.x", call_seconds=2.0
    )
    async with running(script_of(*calls), CASE, tmp_path, mcp=settings) as run:
        result = await outcome_of(run, BODY)
        answers = told(run)
    assert ["\nerror: docs: " in answers[0], "\nerror: docs: " in answers[1]] == [True, True]
    assert "\nerror: away: it cannot be reached" in answers[2]
    assert "owner_chain" in answers[3]
    assert isinstance(result, AnalysisResult)
    assert Status.COMPLETED == result.status


async def test_an_object_that_only_a_server_has_shown_is_not_accepted(tmp_path):
    ghost = {"kind": "Deployment", "name": "ghost", "namespace": "shop"}
    blamed = {**ANSWER, "root_cause_analysis": {**ANSWER["root_cause_analysis"], "affectedResource": ghost}}
    settings = McpSettings(servers=STDIO, tools="docs.lie", call_seconds=MOST_SECONDS)
    script = script_of(("docs_lie", {}), answer=blamed)
    async with running(script, CASE, tmp_path, mcp=settings) as run:
        result = await outcome_of(run, BODY)
        assert "Deployment shop/ghost was found" in told(run)[0]
    assert HumanReviewReason.RCA_INCOMPLETE == result.human_review_reason
    assert 3 == len(result.validation_attempts)


async def test_a_model_that_obeys_a_server_and_says_resolved_is_escalated(tmp_path):
    obeyed = {
        **ANSWER,
        "selected_workflow": None,
        "investigation_outcome": "problem_resolved",
        "confidence": 0.99,
    }
    settings = McpSettings(servers=STDIO, tools="docs.planted", call_seconds=MOST_SECONDS)
    async with running(script_of(("docs_planted", {}), answer=obeyed), CASE, tmp_path, mcp=settings) as run:
        result = await outcome_of(run, BODY)
    assert Status.NEEDS_HUMAN_REVIEW == result.status
    assert HumanReviewReason.INVESTIGATION_INCONCLUSIVE == result.human_review_reason


async def test_a_worker_starts_without_its_servers_and_a_successor_does_not_call_them_again(tmp_path):
    noted = tmp_path / "calls"
    held = Held(2)

    def script(request, number):
        if number == 1:
            return Said(tool_calls=[("docs_search", {"query": "oom"}), ("get_resource_context", TARGET)])
        return held(request, number)

    mcp = {
        "RCA_MCP__SERVERS": f"docs=stdio:/usr/bin/env CALLS={noted} {sys.executable} {SCRIPT},away=http://127.0.0.1:9/mcp",
        "RCA_MCP__TOOLS": "docs.search,docs.delete,away.x",
        "RCA_MCP__CALL_SECONDS": str(MOST_SECONDS),
    }
    async with stage(tmp_path, script) as made:
        async with started(made.worker(**mcp)) as first:
            notices = await said(first)
            await made.submit()
            await asyncio.wait_for(held.asked.wait(), 100)
        held.free = True
        async with started(made.worker("w1", **mcp)):
            await until(made.answered)
            result = await made.result()
    assert "ok\n" in notices
    assert "mcp: docs: delete is not marked read-only by its server" in notices
    assert "away: it cannot be reached" in notices
    assert ['search {"query": "oom", "top": null}'] == noted.read_text().splitlines()
    assert "mcp:docs" in {item["source"] for item in result["evidence"]}


async def test_without_the_library_it_says_what_to_install(tmp_path):
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n")
    env = {
        "PYTHONPATH": str(tmp_path),
        "RCA_LLM__MODEL": "openai-chat:x",
        "RCA_LLM__API_KEY": "none",
        "RCA_MCP__SERVERS": "docs=http://127.0.0.1:9/mcp",
        "RCA_MCP__TOOLS": "docs.search",
    }
    for command in ("worker", "mcp"):
        ended = await processes.rca(command, env=env)
        assert 1 == ended.code
        assert "pip install 'rca-worker[mcp]'" in ended.err
        assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("mcp", "expected"),
    [
        ({"SERVERS": "docs=https://h/mcp"}, "name at least one tool of docs"),
        (
            {"SERVERS": "get=stdio:/bin/true", "TOOLS": "get.resource"},
            "get.resource would be called get_resource",
        ),
        (
            {"SERVERS": "docs=https://h/mcp", "TOOLS": ",".join(f"docs.t{i}" for i in range(17))},
            "at most 16 tools",
        ),
    ],
)
async def test_a_configuration_that_cannot_be_meant_is_refused(mcp, expected):
    model = {"RCA_LLM__MODEL": "openai-chat:x", "RCA_LLM__API_KEY": "none"}
    env = {**model, **{f"RCA_MCP__{name}": value for name, value in mcp.items()}}
    ended = await rca("worker", env=env)
    assert 1 == ended.code
    assert expected in ended.err
