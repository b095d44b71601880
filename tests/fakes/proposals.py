"""Stored results that propose a workflow, and outcomes of its execution."""

from __future__ import annotations

import json
from typing import Any

from schemas.analysis import Approval
from tests.fakes import samples

ACTION, WORKFLOW = "IncreaseMemoryLimits", "increase-memory-v1"
PASSES = Approval(required=False)


def result(**fields: Any) -> bytes:
    """A result that proposes a workflow in staging, corroborated by rules, and passes without approval."""
    values = {"environment": "staging", "approval": PASSES, **fields}
    return samples.COMPLETED.model_copy(update=values).model_dump_json().encode()


def outcome(**fields: Any) -> bytes:
    """An execution of that workflow that resolved the signal."""
    values = samples.OUTCOME.model_dump(mode="json")
    helped = {"outcome": "completed", "signal_resolved": True, "effectiveness_score": 0.9}
    return json.dumps({**values, **helped, **fields}).encode()
