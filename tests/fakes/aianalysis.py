"""A consumer of results, written from schemas/v1 and docs/consumers.md alone: it imports nothing of the worker.

It does what the AIAnalysis controller does with a result: it fills in the status of its resource, and what an executor needs.
The message is all it reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

V1 = Path(__file__).parents[2] / "schemas" / "v1"
VALIDATOR = Draft202012Validator(
    json.loads((V1 / "analysis-result.schema.json").read_text("utf-8")), format_checker=FormatChecker()
)
ESCALATED = {"needs_human_review", "failed"}
CLOSED = {"not_actionable", "resolved"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Handled:
    """What became of a result: `action` is execute, ask, escalate or close."""

    action: str
    status: Json
    execution: Json | None
    result: Json


async def next_result(nc: Client, wait_seconds: float) -> Handled:
    """Take one result from the durable `aianalysis`, act on it, acknowledge it."""
    config = ConsumerConfig(
        durable_name="aianalysis", ack_policy=AckPolicy.EXPLICIT, deliver_policy=DeliverPolicy.ALL
    )
    pulling = await nc.jetstream().pull_subscribe("", "aianalysis", stream="RCA_RESULTS", config=config)
    [message] = await pulling.fetch(1, timeout=wait_seconds)
    handled = act(json.loads(message.data))
    await message.ack_sync()
    return handled


def act(result: Json) -> Handled:
    """What docs/consumers.md says to do about a result."""
    VALIDATOR.validate(result)
    action = "escalate"
    if result["status"] == "completed":
        action = "ask" if result["approval"]["required"] else "execute"
    elif result["status"] in CLOSED:
        action = "close"
    execution = _execution(result) if result["status"] == "completed" else None
    return Handled(action, _status(result), execution, result)


def _status(result: Json) -> Json:
    """The status of an AIAnalysis, under the names of Kubernaut."""
    cause, chosen = result["root_cause_analysis"], result["selected_workflow"]
    return {
        "investigationID": result["incident_id"],
        "completedAt": result["completed_at"],
        "rootCause": cause and cause["summary"],
        "rootCauseAnalysis": cause
        and {
            "summary": cause["summary"],
            "severity": cause["severity"],
            "signalName": cause["signal_type"],
            "contributingFactors": cause["contributing_factors"],
            "causalChain": cause["causal_chain"],
            "affectedResource": cause["affected_resource"],
        },
        "confidence": result["confidence"],
        "selectedWorkflow": chosen
        and {name: chosen[name] for name in ("workflow_id", "confidence", "rationale")},
        "alternativeWorkflows": [item["workflow_id"] for item in result["alternative_workflows"]],
        "needsHumanReview": result["needs_human_review"],
        "humanReviewReason": result["human_review_reason"],
        "actionable": result["is_actionable"],
        "approvalRequired": result["approval"]["required"],
        "warnings": result["warnings"],
        "alignmentVerdict": result["alignment_verdict"] and result["alignment_verdict"]["result"],
        "validationAttempts": [
            (a["attempt"], a["is_valid"], a["timestamp"]) for a in result["validation_attempts"]
        ],
        "evidence": {item["id"]: item["excerpt"] for item in result["evidence"]},
    }


def _execution(result: Json) -> Json:
    """What a WorkflowExecution takes over, without asking the catalog."""
    chosen = result["selected_workflow"]
    return {
        "workflowId": chosen["workflow_id"],
        "version": chosen["version"],
        "actionType": chosen["action_type"],
        "executionBundle": chosen["execution_bundle"],
        "executionBundleDigest": chosen["execution_bundle_digest"],
        "executionEngine": chosen["execution_engine"],
        "serviceAccountName": chosen["service_account_name"],
        "dependencies": chosen["dependencies"],
        "parameters": {name: str(value) for name, value in chosen["parameters"].items()},
    }
