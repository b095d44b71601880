"""Reads a snapshot from disk.

`cluster/*.yaml` holds objects of any kind, `logs/` what containers printed.

The files are the user's own, so mistakes are named exactly; their sizes are bounded all the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from worker.domain.cluster.fields import dig
from worker.domain.values.errors import ReportedError
from worker.domain.values.objects import Manifest

MAX_FILES = 5_000
MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_VALUES = 2_000_000
MAX_DEPTH = 100
SUFFIXES = {".yaml", ".yml", ".json"}

LogKey = tuple[str, str, str, bool]
"""Namespace, pod, container, previous."""


class SnapshotError(ReportedError, ValueError):
    """A snapshot that cannot be served; the message names the file."""


class _Loader(yaml.CSafeLoader):
    """Reads YAML as the Kubernetes tools do: times stay text, and so do `12:30` and `=`."""


_NUMBERS = re.compile(r"[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+|0o?[0-7]+)")
_DROPPED = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value", "tag:yaml.org,2002:int"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _DROPPED]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(f"^(?:{_NUMBERS.pattern})$"), list("-+0123456789")
)


def read_objects(
    directory: Path, *, max_file_bytes: int = MAX_FILE_BYTES, max_values: int = MAX_VALUES
) -> list[Manifest]:
    """Every object in `directory/cluster`, or in `directory` itself when there is no such folder.

    Lists (`kind: List`, `PodList`) are taken apart. `max_values` bounds what one file may expand to. Raises
    SnapshotError.
    """
    folder = directory / "cluster" if (directory / "cluster").is_dir() else directory
    if not folder.is_dir():
        raise SnapshotError(f"{directory}: no such directory")
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise SnapshotError(f"{folder}: no .yaml, .yml or .json file in it")
    _check_count(files, folder)
    for path in files:
        if path.stat().st_size > max_file_bytes:
            raise SnapshotError(f"{path}: larger than {max_file_bytes} bytes")
    return [manifest for path in files for manifest in objects_of(path, max_values)]


def find_logs(directory: Path) -> Mapping[LogKey, Path]:
    """Log files by container, named `<namespace>_<pod>_<container>[.previous].log`; others are left out.

    Raises SnapshotError.
    """
    folder = directory / "logs" if (directory / "cluster").is_dir() else directory.parent / "logs"
    if not folder.is_dir():
        return {}
    files = sorted(folder.glob("*.log"))
    _check_count(files, folder)
    return {key: path for path in files if (key := _log_key(path))}


def _check_count(files: list[Path], folder: Path) -> None:
    if len(files) > MAX_FILES:
        raise SnapshotError(f"{folder}: more than {MAX_FILES} files")


def _log_key(path: Path) -> LogKey | None:
    stem = path.name.removesuffix(".log")
    parts = stem.removesuffix(".previous").split("_")
    if len(parts) != 3 or not all(parts):
        return None
    return parts[0], parts[1], parts[2], stem.endswith(".previous")


def objects_of(path: Path, max_values: int = MAX_VALUES) -> Iterator[Manifest]:
    """Every object in a file. Raises SnapshotError."""
    try:
        documents = list(yaml.load_all(path.read_bytes(), Loader=_Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f" line {mark.line + 1}:" if mark else ""
        raise SnapshotError(f"{path}:{line} {str(problem or error)[:300]}") from error
    values = _JsonValues(path, max_values)
    for number, document in enumerate(documents, start=1):
        if document is not None:
            yield from _objects_in(values.of(document), f"{path}: document {number}")


def _objects_in(document: Any, where: str) -> Iterable[Manifest]:
    if not isinstance(document, dict):
        raise SnapshotError(f"{where} is not an object")
    kind, items = document.get("kind"), document.get("items")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
        for item in items:
            filled = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
            yield from _objects_in({**filled, **item} if isinstance(item, dict) else item, where)
        return
    name = dig(document, "metadata", "name")
    if not all(isinstance(part, str) and part for part in (document.get("apiVersion"), kind, name)):
        raise SnapshotError(f"{where} lacks apiVersion, kind or metadata.name")
    yield document


class _JsonValues:
    """Converts YAML values to JSON values. Aliases count each time they are used."""

    def __init__(self, path: Path, left: int) -> None:
        self._path = path
        self._left = left

    def of(self, value: Any, depth: int = 0) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise SnapshotError(f"{self._path}: too large or too deep")
        if isinstance(value, dict):
            return {_key(key): self.of(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of(item, depth + 1) for item in value]
        if value is None or isinstance(value, (str, bool, int)):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        return str(value)


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    return "null" if key is None else str(key)
