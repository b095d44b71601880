"""Decides which configuration values may be shown: those that, by their form, cannot be credentials.

An unknown form is treated as a secret. Names that suggest a secret hide even harmless-looking values.
"""

from __future__ import annotations

import re

from worker.domain.untrusted.redaction.names import is_no_secret, secret_kind

HIDDEN_ENV = "[REDACTED:env]"
HIDDEN_VALUE = "[REDACTED:value]"
MAX_HARMLESS = 300  # characters; longer values are not judged

LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
HOST = rf"(?:{LABEL}\.)*{LABEL}\.?|\[[0-9a-f:.]+\]"
HARMLESS = re.compile(
    rf"""^(?:
      [-+]?\d{{1,12}}(?:\.\d{{1,6}})?                                    # number
    | (?:true|false|yes|no|on|off|enabled|disabled|none|null)
    | \d+(?:\.\d+)?(?:ns|us|ms|s|m|h|d)(?:\d+(?:ms|s|m|h))*              # duration
    | \d+(?:\.\d+)?(?:[kKMGTPE]i?B?|B|%)                                 # quantity
    | (?:/[\w.@+-]{{1,64}}){{1,12}}/?                                     # path
    | (?:[a-z][a-z0-9+.-]{{1,20}}://)(?:{HOST})(?::\d{{1,5}})?(?:/[\w.~+-]{{0,64}}){{0,10}}  # url without user or query
    | (?:{HOST}):\d{{1,5}}
    | \d{{1,3}}(?:\.\d{{1,3}}){{3}}(?:/\d{{1,2}})?
    )$""",
    re.VERBOSE | re.IGNORECASE,
)
IMAGE = re.compile(
    rf"^(?:{HOST})(?::\d{{1,5}})?(?:/[a-z0-9._-]{{1,80}}){{1,6}}(?::[\w.-]{{1,64}})?(?:@sha256:[0-9a-f]{{64}})?$"
)
RUNTIME_FLAG = re.compile(
    r"-X[a-z]{2,3}\d{1,9}[kmgKMG]?|-XX:[+-]?\w{1,60}(=[\w.%]{1,20})?|-javaagent:[\w./@+-]{1,200}"
    r"|--?[a-z][a-z-]{1,40}(=(\d{1,12}|true|false))?"
)
PLAIN_HOST = re.compile(rf"^(?:{HOST})$", re.IGNORECASE)
RANDOM_LOOK = re.compile(r"\d[a-z]+\d|[a-z]\d+[a-z]\d*[a-z]|[bcdfghjklmnpqrstvwxz]{6}", re.IGNORECASE)
MAX_PLAIN_LABEL = 24


def secret_value(name: str, value: str) -> bool:
    """True if this is the value of a variable or key whose name says that it holds a credential."""
    kind = secret_kind(name)
    return kind is not None and not is_no_secret(value, kind)


def harmless(name: str, value: str) -> bool:
    """True if a configuration value may be shown as it is.

    Harmless are empty values, numbers, booleans, durations, quantities, paths, host names with or without a
    port, URLs without credentials or a query, image names and memory flags of runtimes, unless the name
    suggests a secret.
    """
    if not value or value.lower() in {"true", "false"}:
        return True
    if len(value) > MAX_HARMLESS or secret_value(name, value):
        return False
    if HARMLESS.match(value) or _plain_host(value) or IMAGE.match(value):
        return True
    return all(RUNTIME_FLAG.fullmatch(flag) for flag in value.split())


def _plain_host(value: str) -> bool:
    if not PLAIN_HOST.match(value):
        return False
    return all(len(label) <= MAX_PLAIN_LABEL and not RANDOM_LOOK.search(label) for label in value.split("."))
