"""Answers of a model as data, for tests that write them in many forms."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

from worker.domain.values.conversation import Finish
from worker.domain.verdict.answers.answer import Answer, Unreadable, UnreadableAnswer
from worker.domain.verdict.answers.parse import parse_answer

CANONICAL: dict[str, Any] = {
    "root_cause_analysis": {
        "summary": "The container is killed at its 512Mi limit; it holds {orders} in memory.",
        "severity": "high",
        "signal_type": "OOMKilled",
        "contributing_factors": ["limit lowered in revision 7", 'no swap, "hard" limit'],
        "affectedResource": {
            "kind": "Deployment",
            "name": "orders-api",
            "namespace": "shop",
            "apiVersion": "apps/v1",
        },
    },
    "confidence": 1.0,
    "selected_workflow": {
        "workflow_id": "raise-memory-v2",
        "version": "2.1.0",
        "confidence": 0.84,
        "rationale": "More memory ends the kills.",
        "estimated_risk": "low",
        "parameters": {"TARGET_NAMESPACE": "shop", "FACTOR": 2, "DRY_RUN": False, "NOTE": None},
    },
    "alternative_workflows": [{"workflow_id": "restart-v1", "confidence": 0.3, "rationale": "short relief"}],
    "investigation_outcome": "actionable",
    "warnings": ["memory may leak"],
    "context_used": {"cluster_state": "healthy", "blast_radius": "one service"},
}


def answer_with(**changes: Any) -> dict[str, Any]:
    """The canonical answer with other root fields; a change to `...` removes the field."""
    changed = copy.deepcopy(CANONICAL) | changes
    return {key: value for key, value in changed.items() if value is not ...}


def workflow_with(**changes: Any) -> dict[str, Any]:
    """The canonical answer with other fields of the workflow; a change to `...` removes the field."""
    workflow = copy.deepcopy(CANONICAL["selected_workflow"]) | changes
    return answer_with(selected_workflow={key: value for key, value in workflow.items() if value is not ...})


def read(reply: Any) -> Answer:
    """What is read from a reply: text, or an answer written as JSON."""
    return parse_answer(reply if isinstance(reply, str) else json.dumps(reply), Finish.STOP)


def content(answer: Answer) -> Answer:
    """What the answer says, without the prose around it and notes on its form."""
    return replace(answer, prose="", notes=())


def unreadable(reply: str | None, finish: Finish = Finish.STOP) -> Unreadable:
    """Why no answer could be read from a reply."""
    try:
        answer = parse_answer(reply, finish)
    except UnreadableAnswer as error:
        return error.reason
    raise AssertionError(f"was read: {answer}")


OTHER_CHOICE = workflow_with(workflow_id="restart-v1")
"""An answer that chooses otherwise."""
