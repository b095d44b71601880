"""Configuration by environment: prefix `RCA_`, groups nested by `__` (`RCA_NATS__SERVERS`).

The models are the documentation: `rca worker --help` and the README's table are made from the fields below. Unknown
`RCA_` names are errors that name the nearest known one, except what Kubernetes injects for a Service called `rca-...`
(service links: `RCA_WORKER_PORT`, `RCA_NATS_SERVICE_HOST` and the like).
"""

from worker.app.settings.environment import ConfigurationError, documentation, load, unknown_names
from worker.app.settings.groups import (
    AuditSettings,
    CatalogSettings,
    Group,
    HistorySettings,
    HttpSettings,
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
from worker.app.settings.settings import PREFIX, Settings

__all__ = [
    "PREFIX",
    "AuditSettings",
    "CatalogSettings",
    "ConfigurationError",
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
    "Settings",
    "ShadowSettings",
    "WorkerSettings",
    "documentation",
    "load",
    "unknown_names",
]
