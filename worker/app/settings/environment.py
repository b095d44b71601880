"""The environment as settings: `load` explains what is wrong, `documentation` says what there is."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsError

from worker.app.settings.groups import Group
from worker.app.settings.secret_files import read_secret_files, secrets
from worker.app.settings.settings import PREFIX, Settings
from worker.domain.values.errors import ReportedError

SERVICE_LINK = re.compile(
    r"RCA_(?:[A-Z0-9_]*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
SERVICE_PORT = re.compile(r"RCA_(?:[A-Z0-9_]*_)?PORT")
SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://")
"""What Kubernetes writes into `<NAME>_PORT`: with another value it is a setting that was misspelt."""

OWN_WORDS = "Value error, "
"""What pydantic puts before the message of a validator's ValueError."""


class ConfigurationError(ReportedError):
    """The environment does not make a valid configuration. The message lists every problem."""


def load() -> Settings:
    """Settings from the environment. Raises ConfigurationError with every problem at once."""
    problems = list(unknown_names(os.environ))
    from_files, unreadable = read_secret_files(os.environ)
    problems += unreadable
    try:
        settings = Settings(**from_files)  # type: ignore[arg-type]  # pydantic-settings merges it into the groups
    except ValidationError as e:
        # Between settings nothing is known to be wrong while a secret is missing only because of its file.
        errors = [error for error in e.errors() if error["loc"] or not unreadable]
        problems += [_told(error["loc"], error["msg"]) for error in errors]
    except SettingsError as e:
        problems.append(str(e))
    if problems:
        raise ConfigurationError("\n".join(problems))
    return settings


def unknown_names(environment: Mapping[str, str]) -> Iterator[str]:
    """One line for each `RCA_` variable that no setting reads, naming the nearest that one does."""
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


def documentation() -> list[tuple[str, str, str]]:
    """(variable, default, meaning) of every setting, in order: the source of `--help` and of the README's table."""
    rows = []
    by_variable = {secret.variable: secret.file_variable for secret in secrets()}
    for group_name, group_field in Settings.model_fields.items():
        group = group_field.annotation
        if not (isinstance(group, type) and issubclass(group, Group)):
            raise TypeError(f"{group_name} is not a group of settings")
        for name, field in group.model_fields.items():
            variable = f"{PREFIX}{group_name}__{name}".upper()
            meaning = " ".join((field.description or "").split())
            rows.append((variable, _shown_default(field.get_default()), meaning))
            if file_variable := by_variable.get(variable):
                rows.append((file_variable, "", f"File that holds `{name}`, in place of the variable."))
    return rows


def _shown_default(value: Any) -> str:
    if isinstance(value, SecretStr):
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _told(location: tuple[int | str, ...], message: str) -> str:
    """What a validator of ours says names the settings by itself: pydantic's prefix, and the group, would only hide that."""
    own = message.removeprefix(OWN_WORDS)
    return own if own != message and own.startswith(PREFIX) else f"{_variable(location)}: {own}"


def _variable(location: tuple[int | str, ...]) -> str:
    return PREFIX + "__".join(str(part) for part in location).upper() if location else "configuration"
