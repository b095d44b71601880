"""The webhook of Alertmanager, version 4 (`webhook_config` in the documentation of Prometheus)."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator

FINGERPRINT = re.compile(r"[0-9A-Za-z]{1,64}", re.ASCII)
EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)
ERROR_CHARS = 300


class InvalidWebhook(Exception):  # noqa: N818 - a state of the message
    """The body is not a webhook of version 4. The message names the first errors."""


class Alert(BaseModel):
    """One alert. Alertmanager gives an alert with the same labels the same fingerprint."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = Field(default_factory=dict)
    began: AwareDatetime = Field(alias="startsAt")
    """When it began to fire."""
    fingerprint: str = ""

    @field_validator("began")
    @classmethod
    def _a_real_date(cls, value: datetime) -> datetime:
        if not EARLIEST < value < LATEST:
            raise ValueError("a date between 1970 and 9998")
        return value

    @property
    def mark(self) -> str:
        """The fingerprint, or a hash of the labels if it is missing or odd."""
        if FINGERPRINT.fullmatch(self.fingerprint):
            return self.fingerprint
        labels = "\n".join(f"{name}={value}" for name, value in sorted(self.labels.items()))
        return hashlib.sha256(labels.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def name(self) -> str:
        """The name of the alerting rule."""
        return self.labels.get("alertname", "")


class _Notification(BaseModel):
    version: Literal["4"]
    alerts: tuple[Any, ...]
    truncated: int = Field(default=0, alias="truncatedAlerts", ge=0)


@dataclass(frozen=True, slots=True)
class Webhook:
    """The fields that are read of a notification.

    `invalid`: why the other alerts cannot be read. `truncated` alerts of the group were left out by
    Alertmanager (`max_alerts`).
    """

    alerts: tuple[Alert, ...]
    invalid: tuple[str, ...] = ()
    truncated: int = 0


def read_webhook(body: bytes) -> Webhook:
    """Read a notification. Raises InvalidWebhook, also if it has alerts of which none can be read."""
    try:
        read = _Notification.model_validate_json(body)
    except ValidationError as e:
        raise InvalidWebhook(_errors(e)) from None
    alerts, invalid = list[Alert](), list[str]()
    for number, alert in enumerate(read.alerts):
        try:
            alerts.append(Alert.model_validate(alert))
        except ValidationError as e:
            invalid.append(_errors(e, f"{number}."))
    if invalid and not alerts:
        raise InvalidWebhook(invalid[0])
    return Webhook(tuple(alerts), tuple(invalid), read.truncated)


def _errors(error: ValidationError, prefix: str = "") -> str:
    found = [f"{prefix}{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors()[:3]]
    return "; ".join(found)[:ERROR_CHARS]
