"""Configuration by environment: prefix `RCA_`, groups nested by `__` (`RCA_NATS__SERVERS`).

The models are the documentation: `rca settings` prints the docstrings of their fields. Unknown `RCA_` names are errors
that name the nearest known one, except what Kubernetes injects for a Service called `rca-...` (service links:
`RCA_WORKER_PORT`, `RCA_NATS_SERVICE_HOST` and similar ones).
"""

from worker.app.settings.environment import (
    PREFIX,
    ConfigurationError,
    Settings,
    documentation,
    group_titles,
    load,
    read_text,
)
from worker.app.settings.groups import (
    AuditSettings,
    CatalogSettings,
    Group,
    HistorySettings,
    KubernetesSettings,
    LlmSettings,
    LogSettings,
    McpSettings,
    NatsSettings,
    PolicySettings,
    PrometheusSettings,
    ShadowSettings,
    WorkerSettings,
)
from worker.app.settings.listeners import AlertmanagerSettings, ConsoleSettings, HttpSettings
from worker.app.settings.recording import RecordSettings

__all__ = [
    "PREFIX",
    "AlertmanagerSettings",
    "AuditSettings",
    "CatalogSettings",
    "ConfigurationError",
    "ConsoleSettings",
    "Group",
    "HistorySettings",
    "HttpSettings",
    "KubernetesSettings",
    "LlmSettings",
    "LogSettings",
    "McpSettings",
    "NatsSettings",
    "PolicySettings",
    "PrometheusSettings",
    "RecordSettings",
    "Settings",
    "ShadowSettings",
    "WorkerSettings",
    "documentation",
    "group_titles",
    "load",
    "read_text",
]
