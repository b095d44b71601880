"""Settings of everything that listens: probes and metrics, the receiver of alerts, the web pages."""

from __future__ import annotations

from pydantic import Field, SecretStr

from worker.app.settings.fields import Group


class AlertmanagerSettings(Group):
    """The receiver of Alertmanager's webhooks, `rca alertmanager`."""

    host: str = "127.0.0.1"
    """Address to listen on. Any address other than loopback needs a token."""
    port: int = Field(9095, ge=0, le=65535)
    """Port to listen on."""
    token: SecretStr = SecretStr("")
    """Bearer token that Alertmanager sends (`http_config.authorization`)."""
    environment: str = "unknown"
    """Environment of alerts without the label `environment` or `env`."""
    window_seconds: float = Field(300.0, gt=0)
    """Within this window, an object's alert is published once, and storms are detected."""
    storm_alerts: int = Field(20, ge=2)
    """Number of alerts with the same name in one namespace within the window that count as a storm."""
    storm_objects: int = Field(5, ge=2)
    """Number of objects with alerts of the same name within the window that count as a storm."""


class ConsoleSettings(Group):
    """The web pages of `rca console`."""

    host: str = "127.0.0.1"
    """Address to listen on.

    The pages have no TLS of their own: put a proxy in front of any address other than loopback.
    """
    port: int = Field(8090, ge=0, le=65535)
    """Port to listen on."""
    token: SecretStr = SecretStr("")
    """Login token. Without it, a new one is printed at each start."""


class HttpSettings(Group):
    """The server for `/livez`, `/readyz` and `/metrics`."""

    host: str = "0.0.0.0"  # noqa: S104 - probes come from outside the pod
    """Address to listen on."""
    port: int = Field(8080, ge=0, le=65535)
    """Port; 0 lets the system choose."""
