"""Writes worker/sandbox/status_fields.json: which fields the status of a built-in kind has, by the client's models.

Run `python -m tests.status_fields` after an update of the Kubernetes client.
"""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

from kubernetes.aio.client import models

from worker.domain.cluster.kinds import BUILT_IN
from worker.domain.values.objects import KindInfo

PATH = Path(__file__).parent.parent / "worker" / "sandbox" / "status_fields.json"


def status_fields() -> dict[str, Any]:
    """`kinds`: the type of the status by `api version/kind`; `types`: by field the type of its value, or empty."""
    types: dict[str, dict[str, str]] = {}
    kinds: dict[str, str] = {}
    for info, _ in BUILT_IN:
        status = _model(info).model_fields.get("status") if _model(info) else None
        if status and (found := _inner(status.annotation)):
            kinds[f"{info.api_version}/{info.kind}"] = found.__name__
            _add(found, types)
    return {"kinds": kinds, "types": types}


def _model(info: KindInfo) -> Any:
    version = info.api_version.rpartition("/")[2]
    return getattr(models, f"{version[0].upper()}{version[1:]}{info.kind}", None)


def _add(model: Any, types: dict[str, dict[str, str]]) -> None:
    if model.__name__ in types:
        return
    fields = types[model.__name__] = {}
    for name, field in model.model_fields.items():
        inner = _inner(field.annotation)
        fields[field.serialization_alias or name] = inner.__name__ if inner else ""
        if inner:
            _add(inner, types)


def _inner(annotation: Any) -> Any:
    """The model of a value or of the elements of an array; None for scalars and maps."""
    if hasattr(annotation, "model_fields"):
        return annotation
    if typing.get_origin(annotation) is dict:
        return None
    return next((found for each in typing.get_args(annotation) if (found := _inner(each))), None)


def text() -> str:
    """The file's content."""
    return json.dumps(status_fields(), indent=None, separators=(",", ":"), sort_keys=True) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="ascii")
