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
    """Longest acceptable downtime; absent means no limit was given."""
    requires_approval: Flag = False
    """A human must approve, whatever the policy says."""
    allowed_actions: Words | None = None
    """Anything else needs approval; absent means no list was given."""
    forbidden_actions: Words = ()
    """Never to be done."""
    allowed_action_types: Annotated[None, Removed("allowed_actions")] = Field(default=None, exclude=True)
    forbidden_action_types: Annotated[None, Removed("forbidden_actions")] = Field(default=None, exclude=True)


class Dependency(Message):
    """A service that suffers when this one does."""

    service: Word
    """Its name."""
    impact: Word = ""
    """How much, an open value such as `critical`."""


class RegoPolicy(SafetyMessage):
    """Which policy the sender applied."""

    version: Word = ""
    """Version of the policy."""
    rules: Words = ()
    """Names of its rules."""
    dry_run: Flag = False
    """Nothing may run without approval."""


class SafetyContext(Message):
    """Constraints and risk around the incident. Everything is optional.

    The verbose form of the same document is refused, and so is a limit in another place or spelling: it must
    not be lost silently. Other unknown fields are ignored, as everywhere.
    """

    investigation_id: Word = ""
    """The sender's id of the investigation."""
    priority: PriorityWord | None = None
    """Priority as the safety rules saw it."""
    criticality: Word = ""
    """How critical the service is, an open value such as `high`."""
    environment: Word = ""
    """Environment as the safety rules saw it."""
    service: Word = ""
    """The service concerned."""
    safety_constraints: SafetyConstraints = SafetyConstraints()
    """What may be done, and what not."""
    dependencies: Annotated[tuple[Dependency, ...], AtMost(MAX_ITEMS)] = ()
    """Services that depend on this one."""
    data_criticality: Word = ""
    """An open value such as `high`."""
    user_impact: Word = ""
    """An open value such as `critical`."""
    alert: Annotated[dict[str, Any] | None, Unused()] = None
    """The alert as the sender saw it. Not used: the signal fields of the request count."""
    kubernetes: Annotated[dict[str, Any] | None, Unused()] = None
    """Cluster facts as the sender saw them. Not used: the worker reads the cluster itself."""
    monitoring: Annotated[dict[str, Any] | None, Unused()] = None
    """Trends as the sender saw them. Not used."""
    scope: Annotated[dict[str, Any] | None, Unused()] = None
    """How far to look. Not used: budgets are the worker's own."""
    rego_policy: RegoPolicy = RegoPolicy()
    """The policy behind the constraints."""
    task: LongText = ""
    """An instruction by the sender. Never reaches the model."""
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
