"""The webhook of Alertmanager, version 4 (Prometheus documentation, "Alerting: configuration", `webhook_config`)."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

MAX_ALERTS = 5_000


class InvalidWebhook(Exception):  # noqa: N818 - a state of the message
    """The body is not a webhook of version 4. The message names the first errors."""


class Alert(BaseModel):
    """One alert. Alertmanager gives an alert with the same labels the same fingerprint."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = Field(default_factory=dict)
    starts_at: AwareDatetime = Field(alias="startsAt")
    fingerprint: str = ""

    @property
    def name(self) -> str:
        """The name of the alerting rule."""
        return self.labels.get("alertname", "")

    @property
    def began(self) -> datetime:
        """When it began to fire."""
        return self.starts_at


class Webhook(BaseModel):
    """What is read of a notification. `truncated` alerts of the group were left out by Alertmanager (`max_alerts`)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal["4"]
    alerts: tuple[Alert, ...] = Field(max_length=MAX_ALERTS)
    truncated: int = Field(default=0, alias="truncatedAlerts", ge=0)
    receiver: str = ""


def read_webhook(body: bytes) -> Webhook:
    """Raises InvalidWebhook."""
    try:
        return Webhook.model_validate_json(body)
    except ValidationError as e:
        found = [f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in e.errors()[:3]]
        raise InvalidWebhook("; ".join(found)) from None
