"""The environment as settings: `load` reports every mistake in it, `documentation` lists what there is.

In place of a secret `<NAME>`, `<NAME>_FILE` may name a file that holds only the secret.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from worker.app.settings import groups, listeners, recording
from worker.domain.values.errors import ReportedError

PREFIX = "RCA_"
FILE_SUFFIX = "_FILE"
MAX_SECRET_BYTES = 65_536
SERVICE_LINK = re.compile(
    r"RCA_(?:[A-Z0-9_]*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
SERVICE_PORT = re.compile(r"RCA_(?:[A-Z0-9_]*_)?PORT")
SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://")
"""The form of `<NAME>_PORT` that Kubernetes sets. With another value, it is a misspelt setting."""

FIELD = re.compile(r"`(\w+)`")
OWN_WORDS = "Value error, "
"""The prefix that pydantic adds to the message of a validator's ValueError."""


class ConfigurationError(ReportedError):
    """The environment is not a valid configuration. The message lists every mistake."""


@contextmanager
def blamed_on(setting: str, *problems: type[Exception]) -> Iterator[None]:
    """Turn these problems into a ConfigurationError that names the setting."""
    try:
        yield
    except problems as e:
        raise ConfigurationError(f"{setting}: {e}") from e


class Settings(BaseSettings):
    """All groups together, and what must hold between them. `load` makes it from the environment."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    nats: groups.NatsSettings = groups.NatsSettings()
    kubernetes: groups.KubernetesSettings = groups.KubernetesSettings()
    llm: groups.LlmSettings = groups.LlmSettings()
    shadow: groups.ShadowSettings = groups.ShadowSettings()
    catalog: groups.CatalogSettings = groups.CatalogSettings()
    history: groups.HistorySettings = groups.HistorySettings()
    prometheus: groups.PrometheusSettings = groups.PrometheusSettings()
    alertmanager: listeners.AlertmanagerSettings = listeners.AlertmanagerSettings()
    console: listeners.ConsoleSettings = listeners.ConsoleSettings()
    mcp: groups.McpSettings = groups.McpSettings()
    policy: groups.PolicySettings = groups.PolicySettings()
    audit: groups.AuditSettings = groups.AuditSettings()
    record: recording.RecordSettings = recording.RecordSettings()
    worker: groups.WorkerSettings = groups.WorkerSettings()
    http: listeners.HttpSettings = listeners.HttpSettings()
    log: groups.LogSettings = groups.LogSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        nats, catalog = self.nats, self.catalog
        if bool(nats.user) != bool(nats.password.get_secret_value()):
            raise ValueError("RCA_NATS__USER and RCA_NATS__PASSWORD must be set together")
        if bool(nats.cert_file) != bool(nats.key_file):
            raise ValueError("RCA_NATS__CERT_FILE and RCA_NATS__KEY_FILE must be set together")
        _at_most_one(
            RCA_NATS__USER=nats.user,
            RCA_NATS__CREDENTIALS_FILE=nats.credentials_file,
            RCA_NATS__NKEY_FILE=nats.nkey_file,
        )
        _at_most_one(
            RCA_CATALOG__PATH=catalog.path,
            RCA_CATALOG__URL=catalog.url,
            RCA_CATALOG__DATABASE_URL=catalog.database_url.get_secret_value(),
        )
        for name, models in (("RCA_LLM", self.llm), ("RCA_SHADOW", self.shadow)):
            if models.model.startswith("azure:") and models.base_url:
                raise ValueError(
                    f"{name}__BASE_URL cannot be used with {models.model}: "
                    "set AZURE_OPENAI_ENDPOINT and OPENAI_API_VERSION instead"
                )
        if self.record.hours and 0 < nats.store_mebibytes <= 2 * self.record.mebibytes:
            raise ValueError("RCA_RECORD__MEBIBYTES must be less than half of RCA_NATS__STORE_MEBIBYTES")
        if self.llm.call_seconds > self.llm.max_seconds:
            raise ValueError("RCA_LLM__CALL_SECONDS must not exceed RCA_LLM__MAX_SECONDS")
        return self


def _at_most_one(**settings: object) -> None:
    names = [name for name, value in settings.items() if value]
    if len(names) > 1:
        raise ValueError(f"{' and '.join(names)} cannot be combined: keep one")


@dataclass(frozen=True, slots=True)
class SettingName:
    """A setting, by its group and its field."""

    group: str
    field: str

    @property
    def variable(self) -> str:
        """The environment variable that holds it."""
        return f"{PREFIX}{self.group}__{self.field}".upper()

    @property
    def file_variable(self) -> str:
        """For a secret: the variable that names a file instead."""
        return self.variable + FILE_SUFFIX


def load() -> Settings:
    """Settings from the environment. Raises ConfigurationError with every mistake at once."""
    problems = list(_unknown_names(os.environ))
    read, unreadable = read_secrets(os.environ)
    problems += unreadable
    try:
        settings = Settings(**read)  # type: ignore[arg-type]  # pydantic-settings merges it into the groups
    except ValidationError as e:
        # While a secret is missing only because of its file, errors between settings mean nothing.
        errors = [error for error in e.errors() if error["loc"] or not unreadable]
        problems += [_problem(error["loc"], error["msg"]) for error in errors]
    except SettingsError as e:
        problems.append(str(e))
    if problems:
        raise ConfigurationError("\n".join(problems))
    return settings


def documentation() -> list[tuple[str, str, str]]:
    """(variable, default, meaning) of every setting, in order: what `rca settings` prints."""
    rows = []
    for name, field in _fields():
        meaning = _with_variables(field.description or "", name)
        rows.append((name.variable, _shown(field.get_default()), meaning))
        if _is_secret(field):
            rows.append(
                (name.file_variable, "", f"File that holds {name.variable}, instead of the variable.")
            )
    return rows


def group_titles() -> dict[str, str]:
    """The purpose of each group of settings, by the prefix of its variables (`RCA_NATS__`)."""
    return {
        f"{PREFIX}{name.upper()}__": _with_variables(
            (described.annotation.__doc__ or "").split("\n\n")[0], SettingName(name, "")
        )
        for name, described in Settings.model_fields.items()
        if described.annotation is not None
    }


def _with_variables(docstring: str, described: SettingName) -> str:
    """Replace the names of other fields of the group by their variables; its own name is an ordinary word."""
    known = {n.field: n.variable for n, _ in _fields() if n.group == described.group and n != described}
    return FIELD.sub(lambda m: known.get(m[1], m[0]), " ".join(docstring.split()))


def _fields() -> Iterator[tuple[SettingName, Any]]:
    for group_name, described in Settings.model_fields.items():
        group: Any = described.annotation
        for name, field in group.model_fields.items():
            yield SettingName(group_name, name), field


def _is_secret(field: Any) -> bool:
    return SecretStr in {field.annotation, *get_args(field.annotation)}


def _shown(default: Any) -> str:
    if isinstance(default, SecretStr):
        return ""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "" if default is None else str(default)


# -- mistakes


def _unknown_names(environment: Mapping[str, str]) -> Iterator[str]:
    """One line for each `RCA_` variable that is not a setting, with the nearest one that is."""
    known = [name for name, _, _ in documentation()]
    for name, value in sorted(environment.items()):
        if not name.startswith(PREFIX) or name.upper() in known or _is_service_link(name, value):
            continue
        near = difflib.get_close_matches(name.upper(), known, n=1)
        yield f"{name}: unknown setting" + (f"; did you mean {near[0]}?" if near else "")


def _is_service_link(name: str, value: str) -> bool:
    if SERVICE_LINK.fullmatch(name):
        return True
    return bool(SERVICE_PORT.fullmatch(name) and SERVICE_ADDRESS.match(value))


def _problem(location: tuple[int | str, ...], message: str) -> str:
    """The problem with its setting. The messages of our own validators name the settings already."""
    own = message.removeprefix(OWN_WORDS)
    if own != message and own.startswith(PREFIX):
        return own
    return f"{PREFIX + '__'.join(map(str, location)).upper() if location else 'configuration'}: {own}"


# -- secrets


def secrets() -> Iterator[SettingName]:
    """All settings that are secrets."""
    return (name for name, field in _fields() if _is_secret(field))


def read_secrets(environment: Mapping[str, str]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Read the secrets from variables and files.

    Returns the secrets by group and field, and the problems. A line break at the end is not part of a secret.
    """
    given = {name.upper(): value for name, value in environment.items() if value}
    found: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for secret in secrets():
        value = given.get(secret.variable, "")
        if file := given.get(secret.file_variable):
            if value:
                problems.append(f"{secret.file_variable}: {secret.variable} is set as well; keep one of them")
                continue
            try:
                value = _read_secret(secret.file_variable, Path(file))
            except ConfigurationError as e:
                problems.append(str(e))
        if value := value.rstrip("\r\n"):
            found.setdefault(secret.group, {})[secret.field] = value
    return found, problems


def _read_secret(variable: str, path: Path) -> str:
    text = read_text(variable, path, MAX_SECRET_BYTES)
    if not text.rstrip("\r\n"):
        raise ConfigurationError(f"{variable}: {path} is empty")
    return text


def read_text(variable: str, path: Path, max_bytes: int) -> str:
    """The text of a file that a variable names.

    Raises ConfigurationError, which shows nothing of the content.
    """
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ConfigurationError(f"{variable}: {path} is larger than {max_bytes} bytes")
        return content.decode()
    except OSError as e:
        raise ConfigurationError(f"{variable}: cannot read {path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{variable}: {path} is not UTF-8 text") from None
