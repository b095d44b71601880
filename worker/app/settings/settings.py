"""All groups together, and what must hold between them."""

from __future__ import annotations

from pydantic import model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from worker.app.settings.groups import (
    CatalogSettings,
    HistorySettings,
    HttpSettings,
    KubernetesSettings,
    LlmSettings,
    LogSettings,
    NatsSettings,
    PolicySettings,
    PrometheusSettings,
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
    catalog: CatalogSettings = CatalogSettings()
    history: HistorySettings = HistorySettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    policy: PolicySettings = PolicySettings()
    worker: WorkerSettings = WorkerSettings()
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        if self.nats.user and not self.nats.password.get_secret_value():
            raise ValueError("RCA_NATS__USER needs RCA_NATS__PASSWORD")
        if self.llm.call_seconds > self.llm.max_seconds:
            raise ValueError("RCA_LLM__CALL_SECONDS must not exceed RCA_LLM__MAX_SECONDS")
        return self
