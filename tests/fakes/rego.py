"""Policies as text: what the Policy suites share."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas.analysis import Approval, RiskFactor
from worker.adapters.rego_policy import Bounds, PolicyFiles, RegorusPolicy

RULES = """
package rca.approval
import rego.v1

default require_approval := false
require_approval if input.environment == "production"
reasons contains "it is production" if input.environment == "production"
risk_factors contains {"score": 40, "reason": "production"} if input.environment == "production"
risk_factors contains {"score": 10, "reason": "always"}
never := to_number("not a number") if input.environment == "broken"
require_approval := "no boolean" if input.environment == "odd"
"""
PATIENT = Bounds(cpu_seconds=10.0, answer_seconds=60.0, start_seconds=60.0)
"""For decisions that must come: a slow machine is no failure."""
LOW, HIGH = RiskFactor(score=10, reason="always"), RiskFactor(score=40, reason="production")


def in_python(asked: Mapping[str, Any]) -> Approval:
    """The same as RULES."""
    if asked["environment"] in {"broken", "odd"}:
        raise ValueError(asked["environment"])
    if asked["environment"] == "production":
        return Approval(required=True, reasons=("it is production",), risk_factors=(HIGH, LOW))
    return Approval(required=False, risk_factors=(LOW,))


def policy_files(*modules: str, data: Mapping[str, Any] | None = None) -> PolicyFiles:
    texts = {f"{number}.rego": text.encode() for number, text in enumerate(modules)}
    return PolicyFiles(texts, {} if data is None else {"data.json": json.dumps(data).encode()})


def rego(*modules: str, data: Mapping[str, Any] | None = None, **bounds: float) -> RegorusPolicy:
    files = policy_files(*modules, data=data)
    return RegorusPolicy(lambda: files, replace(PATIENT, **bounds))


def children() -> set[int]:
    """Processes of this one, dead ones that nobody waited for included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text("utf-8").rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found
