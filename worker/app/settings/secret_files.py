"""Secrets from files: in place of a secret `<NAME>`, `<NAME>_FILE` names a file that holds it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from pydantic import SecretStr

from worker.app.settings.groups import Group
from worker.app.settings.settings import PREFIX, Settings

SUFFIX = "_FILE"
MAX_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class SecretName:
    """A secret among the settings."""

    group: str
    field: str

    @property
    def variable(self) -> str:
        """The environment variable that holds it."""
        return f"{PREFIX}{self.group}__{self.field}".upper()

    @property
    def file_variable(self) -> str:
        """The one that names a file instead."""
        return self.variable + SUFFIX


class SecretFileError(Exception):
    """A file does not give a secret; the message names the variable, and never the content."""


def secrets() -> Iterator[SecretName]:
    """All settings that are secrets."""
    for group_name, group_field in Settings.model_fields.items():
        group = group_field.annotation
        if isinstance(group, type) and issubclass(group, Group):
            for name, field in group.model_fields.items():
                if SecretStr in {field.annotation, *get_args(field.annotation)}:
                    yield SecretName(group_name, name)


def read_secret_files(environment: Mapping[str, str]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """(secrets by group and field, problems)."""
    given = {name.upper(): value for name, value in environment.items() if value}
    found: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for secret in secrets():
        if secret.file_variable not in given:
            continue
        if secret.variable in given:
            problems.append(f"{secret.file_variable}: {secret.variable} is set as well; keep one of them")
            continue
        try:
            value = _read(Path(given[secret.file_variable]))
        except SecretFileError as e:
            problems.append(f"{secret.file_variable}: {e}")
        else:
            found.setdefault(secret.group, {})[secret.field] = value
    return found, problems


def _read(path: Path) -> str:
    """Without the line break that editors put at the end."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode().rstrip("\r\n")
    except OSError as e:
        raise SecretFileError(f"cannot read {path}: {e.strerror}") from None
    except UnicodeDecodeError:
        raise SecretFileError(f"{path} is no text") from None
    if not text:
        raise SecretFileError(f"{path} is empty")
    if len(content) > MAX_BYTES:
        raise SecretFileError(f"{path} is larger than {MAX_BYTES} bytes")
    return text
