"""Approval rules as Python functions: the Policy port without a process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from schemas.analysis import Approval
from worker.domain.values.ports import PolicyDecision
from worker.domain.verdict.approval.policy_answer import fail_closed

Rule = Callable[[Mapping[str, Any]], Approval]


class MemoryPolicy:
    """Decides by `rule`, keeps the inputs it was asked about, and fails closed like the real one."""

    def __init__(self, rule: Rule | None = None) -> None:
        self._rule = rule or (lambda _: Approval(required=False))
        self.asked: list[Mapping[str, Any]] = []

    async def decide(self, policy_input: Mapping[str, Any]) -> PolicyDecision:
        self.asked.append(policy_input)
        try:
            json.dumps(dict(policy_input), allow_nan=False)
            approval = self._rule(policy_input)
        except Exception as e:  # noqa: BLE001 - whatever a rule raises means that there is no decision
            approval = fail_closed(str(e))
        return PolicyDecision(approval, "memory")
