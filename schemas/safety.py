"""What an operator allows for this incident (safety-aware investigation, self-documenting form)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AliasChoices, ConfigDict, Field

from schemas.fields import MAX_ITEMS, AtMost, Count, Flag, LongText, Message, Removed, Unused, Word
from schemas.taxonomy import PriorityWord

Words = Annotated[tuple[Word, ...], AtMost(MAX_ITEMS)]


LIMITS_ELSEWHERE = (
    "safetyConstraints",
    "constraints",
    "actionConstraints",
    "max_downtime_seconds",
    "maxDowntimeSeconds",
    "requires_approval",
    "requiresApproval",
    "allowed_actions",
    "allowedActions",
    "forbidden_actions",
    "forbiddenActions",
)
"""Fields in which senders put limits by mistake."""


class SafetyMessage(Message):
    """Refuses unknown fields: a limit in another spelling must not be lost silently."""

    model_config = ConfigDict(extra="forbid")


class SafetyConstraints(SafetyMessage):
    """Hard limits on what may be done.

    A pattern matches an action type as a whole, by its first word, or as a glob (`delete_*`).
    """

    max_downtime_seconds: Count | None = None
    """Longest acceptable downtime in seconds; no limit if absent."""
    requires_approval: Flag = False
    """Whether a human must approve, whatever the policy says."""
    allowed_actions: Words | None = None
    """Actions that are allowed; any other requires approval. No restriction if absent."""
    forbidden_actions: Words = ()
    """Actions that must never be taken."""
    allowed_action_types: Annotated[None, Removed("allowed_actions")] = Field(default=None, exclude=True)
    forbidden_action_types: Annotated[None, Removed("forbidden_actions")] = Field(default=None, exclude=True)


class Dependency(Message):
    """A service that suffers when this one does."""

    service: Word
    """Name of the service."""
    impact: Word = ""
    """How badly it suffers: an open value such as `critical`."""


class RegoPolicy(SafetyMessage):
    """Which policy the sender applied."""

    version: Word = ""
    """Version of the policy."""
    rules: Words = ()
    """Names of the rules that applied."""
    dry_run: Flag = False
    """If true, nothing may run without approval."""


class SafetyContext(Message):
    """Constraints and risk around the incident. Everything is optional.

    The verbose form of the same document is refused, and so is a limit in another place or spelling: it must
    not be lost silently. Other unknown fields are ignored, as everywhere.
    """

    investigation_id: Word = ""
    """The sender's id of the investigation."""
    priority: PriorityWord | None = None
    """Priority according to the safety rules."""
    criticality: Word = ""
    """How critical the service is: an open value such as `high`."""
    environment: Word = ""
    """Environment according to the safety rules."""
    service: Word = ""
    """Name of the affected service."""
    safety_constraints: SafetyConstraints = SafetyConstraints()
    """Which actions are allowed, and under which limits."""
    dependencies: Annotated[tuple[Dependency, ...], AtMost(MAX_ITEMS)] = ()
    """Services that depend on this one."""
    data_criticality: Word = ""
    """How critical the data is: an open value such as `high`."""
    user_impact: Word = ""
    """How badly users are affected: an open value such as `critical`."""
    alert: Annotated[dict[str, Any] | None, Unused()] = None
    """The alert as the sender saw it. Not used: the signal fields of the request take precedence."""
    kubernetes: Annotated[dict[str, Any] | None, Unused()] = None
    """Cluster facts as the sender saw them. Not used: the worker reads the cluster itself."""
    monitoring: Annotated[dict[str, Any] | None, Unused()] = None
    """Trends as the sender saw them. Not used."""
    scope: Annotated[dict[str, Any] | None, Unused()] = None
    """How far to investigate. Not used: the worker has its own budgets."""
    rego_policy: RegoPolicy = RegoPolicy()
    """The policy from which the constraints result."""
    task: LongText = ""
    """An instruction of the sender. It never reaches the model."""
    limits_elsewhere: Annotated[None, Removed("safety_constraints")] = Field(
        default=None, exclude=True, validation_alias=AliasChoices(*LIMITS_ELSEWHERE)
    )
    policy_elsewhere: Annotated[None, Removed("rego_policy")] = Field(
        default=None, exclude=True, validation_alias=AliasChoices("regoPolicy", "dry_run", "dryRun")
    )
    action_constraints: Annotated[None, Removed("safety_constraints")] = Field(default=None, exclude=True)
    risk_factors: Annotated[None, Removed("dependencies, data_criticality and user_impact")] = Field(
        default=None, exclude=True
    )
    rego_policy_context: Annotated[None, Removed("rego_policy")] = Field(default=None, exclude=True)
