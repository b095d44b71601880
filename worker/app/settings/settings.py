"""All groups together, and what must hold between them."""

from __future__ import annotations

from pydantic import model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from worker.app.settings.groups import (
    AuditSettings,
    CatalogSettings,
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

PREFIX = "RCA_"


class Settings(BaseSettings):
    """Everything. `load` builds it from the environment."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    nats: NatsSettings = NatsSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    llm: LlmSettings = LlmSettings()
    shadow: ShadowSettings = ShadowSettings()
    catalog: CatalogSettings = CatalogSettings()
    history: HistorySettings = HistorySettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    mcp: McpSettings = McpSettings()
    policy: PolicySettings = PolicySettings()
    audit: AuditSettings = AuditSettings()
    worker: WorkerSettings = WorkerSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        self._nats_fits_together()
        catalog = self.catalog
        given = {
            "RCA_CATALOG__PATH": catalog.path,
            "RCA_CATALOG__URL": catalog.url,
            "RCA_CATALOG__DATABASE_URL": catalog.database_url.get_secret_value(),
        }
        if len(names := [name for name, value in given.items() if value]) > 1:
            raise ValueError(f"keep one catalog, there are {' and '.join(names)}")
        if self.llm.call_seconds > self.llm.max_seconds:
            raise ValueError("RCA_LLM__CALL_SECONDS must not exceed RCA_LLM__MAX_SECONDS")
        return self

    def _nats_fits_together(self) -> None:
        nats = self.nats
        if bool(nats.user) != bool(nats.password.get_secret_value()):
            raise ValueError("RCA_NATS__USER and RCA_NATS__PASSWORD need each other")
        given = {
            "RCA_NATS__USER": nats.user,
            "RCA_NATS__CREDENTIALS_FILE": nats.credentials_file,
            "RCA_NATS__NKEY_FILE": nats.nkey_file,
        }
        if len(names := [name for name, value in given.items() if value]) > 1:
            raise ValueError(f"keep one kind of credentials, there are {', '.join(names)}")
        if bool(nats.cert_file) != bool(nats.key_file):
            raise ValueError("RCA_NATS__CERT_FILE and RCA_NATS__KEY_FILE need each other")
