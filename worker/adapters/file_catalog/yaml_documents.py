"""YAML files as plain data with line numbers.

Scalars stay text: the declared type of a field decides what `1.10`, `on` or `"5"` mean, not YAML's guesses.
Size, depth and the number of nodes after the expansion of aliases are bounded. Tags and merge keys are
rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from worker.domain.untrusted.evidence import one_line

MAX_FILES = 5000
MAX_FILE_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 100_000
MAX_MESSAGE_CHARS = 500
SUFFIXES = {".yaml", ".yml", ".json"}
NULL = "tag:yaml.org,2002:null"
UNQUOTED = "mapping values are not allowed in this context"

Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class CatalogProblem:
    """An error or a warning about a catalog file.

    `line` counts from 1; 0 means the whole file. Warnings do not stop loading.
    """

    file: str
    line: int
    message: str
    warning: bool = False

    def __str__(self) -> str:
        """`catalog/scale.yaml:12: ...`, as editors read it."""
        level, line = "warning: " if self.warning else "", f":{self.line}" if self.line else ""
        return f"{self.file}{line}: {level}{one_line(self.message, MAX_MESSAGE_CHARS)}"

    @property
    def level(self) -> str:
        """`error` or `warning`."""
        return "warning" if self.warning else "error"


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One YAML document: strings, None, lists and dicts, and the line of every value."""

    file: str
    value: Any
    lines: Mapping[Location, int] = field(default_factory=dict)

    def line(self, location: Location) -> int:
        """The line of the value, or of the nearest enclosing value that the file has."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 0)

    def problem(self, location: Location, message: str, *, warning: bool = False) -> CatalogProblem:
        """A problem at this value."""
        where = ".".join(str(part) for part in location)
        text = f"{where}: {message}" if where else message
        return CatalogProblem(self.file, self.line(location), text, warning)


def items_of(document: YamlDocument, inherited: Mapping[str, Any]) -> list[YamlDocument]:
    """The items of a Kubernetes list as documents of their own.

    They keep their line numbers and inherit the fields of the list.
    """
    values = document.value.get("items")
    items = values if isinstance(values, list) else []
    lines: list[dict[Location, int]] = [{} for _ in items]
    for location, line in document.lines.items():
        match location:
            case ("items", int(number), *inner):
                lines[number][tuple(inner)] = line
    whole = [{**inherited, **item} if isinstance(item, dict) else item for item in items]
    return [YamlDocument(document.file, item, lines[n]) for n, item in enumerate(whole)]


class RejectedYamlError(Exception):
    """The YAML uses features that a catalog must not use, or too many values."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def catalog_files(directory: Path) -> list[Path]:
    """Regular YAML and JSON files below the directory, sorted by name.

    Hidden files are skipped, because mounted ConfigMaps contain some.
    """
    found = []
    for path in directory.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(directory).parts)
        if not hidden and path.suffix.lower() in SUFFIXES and path.is_file():
            found.append(path)
    return sorted(found)


def read_documents(text: str, file: str) -> tuple[list[YamlDocument], list[CatalogProblem]]:
    """All documents of a file, or why it cannot be read."""
    try:
        _check_shape(text)
        nodes = list(yaml.compose_all(text, Loader=yaml.CSafeLoader))
        return [_document(node, file) for node in nodes if node.tag != NULL], []
    except RejectedYamlError as rejected:
        return [], [CatalogProblem(file, rejected.line, rejected.message)]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        said = getattr(error, "problem", None) or str(error)
        hint = ": put text with a colon and a space into quotes" if said == UNQUOTED else ""
        return [], [CatalogProblem(file, line, f"invalid YAML: {said}{hint}")]


def _check_shape(text: str) -> None:
    """Limit depth and size on the flat stream of events, before anything recursive runs."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise RejectedYamlError(line, f"more than {MAX_NODES} values, or nested deeper than {MAX_DEPTH}")


def _document(node: yaml.Node, file: str) -> YamlDocument:
    lines: dict[Location, int] = {}
    return YamlDocument(file, _plain(node, (), lines), lines)


def _plain(node: yaml.Node, location: Location, lines: dict[Location, int]) -> Any:
    line = node.start_mark.line + 1
    if len(lines) >= MAX_NODES or len(location) > MAX_DEPTH:
        raise RejectedYamlError(
            line,
            f"more than {MAX_NODES} values, or nested deeper than {MAX_DEPTH}, once its aliases are expanded",
        )
    if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
        raise RejectedYamlError(line, f"tags are not supported: remove {node.tag[:60]}")
    lines[location] = line
    if isinstance(node, yaml.MappingNode):
        return dict(_members(node, location, lines))
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*location, n), lines) for n, item in enumerate(node.value)]
    return None if node.tag == NULL else node.value


def _members(
    node: yaml.MappingNode, location: Location, lines: dict[Location, int]
) -> Iterator[tuple[str, Any]]:
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
            raise RejectedYamlError(line, "keys must be plain text; merge keys are not supported")
        if (*location, key.value) in lines:
            raise RejectedYamlError(line, f"the key {key.value[:60]} occurs twice")
        yield key.value, _plain(value, (*location, key.value), lines)
