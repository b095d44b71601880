"""What did not help before is not chosen again."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tests.corpus_files import CORPUS
from tests.fakes.analyst_scoring import run_case
from tests.unit.sandbox.analyst_requests import SCENARIOS
from worker.adapters.file_catalog import FileCatalog
from worker.sandbox.analyst import past
from worker.sandbox.analyst.respond import respond

HISTORY = re.compile(r'"remediation_history":(?:"[^"]*"|\{[^}]*\})')


def with_history(request: dict[str, Any], *warnings: str) -> dict[str, Any]:
    """The conversation as it would be with warnings in the history of the target."""
    told = '"remediation_history":' + json.dumps({"warnings": list(warnings)})
    messages = [
        {**m, "content": HISTORY.sub(lambda _: told, m["content"])} if m["role"] == "tool" else m
        for m in request["messages"]
    ]
    return {**request, "messages": messages, "tool_choice": "none"}


def chosen(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    text = respond(request)["choices"][0]["message"]["content"]
    answer = json.loads(text.rpartition("```json\n")[2].rpartition("```")[0])
    return (answer["selected_workflow"] or {}).get("workflow_id", ""), answer


@pytest.fixture(scope="module")
def request_with_choice() -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        catalog = await FileCatalog.open(CORPUS / "catalog")
        return (await run_case(SCENARIOS / "injection-in-log", catalog)).requests[-1]

    return asyncio.run(run())


def test_without_warnings_the_workflow_is_chosen(request_with_choice: dict[str, Any]) -> None:
    assert chosen(with_history(request_with_choice))[0] == "increase-memory-limits-v1"


@pytest.mark.parametrize(
    "warning",
    [
        "failed on this very spec: IncreaseMemoryLimits; choosing it again needs a rationale",
        "failed on this very spec: increase-memory-limits-v1; choosing it again needs a rationale",
        "repeated failure: IncreaseMemoryLimits completed 3 times for OOMKilled and never helped; do not select it",
    ],
)
def test_what_did_not_help_is_not_chosen(request_with_choice: dict[str, Any], warning: str) -> None:
    workflow, answer = chosen(with_history(request_with_choice, warning))
    assert workflow != "increase-memory-limits-v1"
    assert any("earlier remediations" in w for w in answer["warnings"])


def test_a_remediation_that_came_back_is_reported(request_with_choice: dict[str, Any]) -> None:
    warning = "recurring: IncreaseMemoryLimits completed 2 times for OOMKilled and it came back"
    workflow, answer = chosen(with_history(request_with_choice, warning))
    assert workflow == "increase-memory-limits-v1"
    assert f"earlier remediations: {warning}" in answer["warnings"]


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"remediation_history": "none in the last 90 days"},
        {"remediation_history": {"warnings": [1, None]}},
    ],
)
def test_no_history_bars_nothing(context: dict[str, Any]) -> None:
    assert past.futile_actions([context]) == frozenset()
