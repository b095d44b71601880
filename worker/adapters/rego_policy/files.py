"""The files of a policy: reading them, telling versions apart, and their modules and data.

A `data` document is one object, in JSON or YAML, without duplicate keys. Two values for one limit are an
error and never "the last one wins": nobody could say which limit holds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from worker.domain.untrusted.evidence import one_line
from worker.domain.values.errors import ReportedError

MAX_FILES = 64
MAX_FILE_BYTES = 1024 * 1024
TESTS = "_test.rego"
"""The ending of files with tests for `opa test`. They decide nothing."""
VERSION_CHARS = 8
MAX_NAMES_CHARS = 200
MAX_DIRECTORIES, MAX_UNUSED = 256, 8
"""How deep below a directory unused policies are searched, and how many of them are named."""
SUFFIXES = frozenset({".json", ".yaml", ".yml"})


@dataclass(frozen=True, slots=True)
class PolicySources:
    """Rego modules by file, and the `data` document."""

    modules: Mapping[str, str]
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """The bytes of all files as they were at one moment, by path."""

    modules: Mapping[str, bytes]
    data: Mapping[str, bytes] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    """Paths of policies in subdirectories, which do not decide."""

    @property
    def version(self) -> str:
        """Eight hexadecimal digits that change with any byte.

        They are the start of `sha256sum FILE`, or of `sha256sum FILES... | sha256sum` for several files.

        The files are in order of their names, without their directories.
        """
        found = sorted((Path(path).name, _sha256(content)) for path, content in self._all())
        if len(found) == 1:
            return found[0][1][:VERSION_CHARS]
        listed = "".join(f"{digest}  {name}\n" for name, digest in found)
        return _sha256(listed.encode())[:VERSION_CHARS]

    @property
    def title(self) -> str:
        """Names and version, such as `rego:approval.rego@1a2b3c4d`."""
        names = ", ".join(sorted(Path(path).name for path, _ in self._all()))
        return f"rego:{one_line(names, MAX_NAMES_CHARS)}@{self.version}"

    @property
    def left_out(self) -> str:
        """The policies below the directory that do not decide, and why; empty if there are none."""
        if not self.unused:
            return ""
        names = one_line(", ".join(self.unused), MAX_NAMES_CHARS)
        return f"not used: {names}; only files directly in the directory are, not those of subdirectories"

    def sources(self) -> PolicySources:
        """The content of the files. Raises PolicyUnusable."""
        modules = {path: _text(path, content) for path, content in self.modules.items()}
        data = merged([(path, read_document(path, _text(path, c))) for path, c in self.data.items()])
        return PolicySources(modules, data)

    def _all(self) -> Iterable[tuple[str, bytes]]:
        return (*self.modules.items(), *self.data.items())


def read_files(path: Path | None = None, data: Sequence[Path] = ()) -> PolicyFiles:
    """The policy in a file or a directory; without a path, the shipped one.

    In a directory, modules are `*.rego`, and data documents `*.json` and `*.yaml`.

    `data` are more files with data. Raises PolicyUnusable.
    """
    try:
        if path is None:
            shipped = files("worker") / "policies" / "approval.rego"
            return PolicyFiles({"approval.rego": shipped.read_bytes()})
        inside = _inside(path) if path.is_dir() else [path]
        modules = [p for p in inside if p == path or _is_module(p.name)]
        documents = [*(p for p in inside if p != path and p.suffix.lower() in SUFFIXES), *data]
        if not modules:
            raise PolicyUnusable(f"{path}: no *.rego file in this directory")
        if len(modules) + len(documents) > MAX_FILES:
            raise PolicyUnusable(f"{path}: more than {MAX_FILES} files")
        read, unused = {str(p): _read(p) for p in modules}, tuple(islice(_below(path), MAX_UNUSED))
        return PolicyFiles(read, {str(p): _read(p) for p in documents}, unused)
    except OSError as e:
        raise PolicyUnusable(f"{e.filename or path}: {e.strerror or e}") from e


def _inside(directory: Path) -> list[Path]:
    """Regular files of the directory, by name. Hidden ones are left out (mounted ConfigMaps)."""
    return sorted(p for p in directory.iterdir() if p.is_file() and not p.name.startswith("."))


def _is_module(name: str) -> bool:
    return name.endswith(".rego") and not name.endswith(TESTS)


def _below(directory: Path) -> Iterator[str]:
    """Yield policies in subdirectories.

    Hidden ones are left out: in a mounted ConfigMap they contain the same files again.
    """
    for where, directories, names in islice(os.walk(directory), MAX_DIRECTORIES):
        directories[:] = sorted(d for d in directories if not d.startswith("."))
        if Path(where) != directory:
            yield from (str(Path(where, n)) for n in sorted(names) if _is_module(n) and not n.startswith("."))


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise PolicyUnusable(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    return content


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as e:
        raise PolicyUnusable(f"{path}: not UTF-8") from e


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class _DataLoader(yaml.CSafeLoader):
    """YAML whose keys are text and unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - its signature
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag not in {"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"}:
                raise _fault("keys are text: write it in quotes", key)
            if key.value in seen:
                raise _fault(f"the key {key.value[:60]} occurs twice", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _fault(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def read_document(path: str, text: str) -> dict[str, Any]:
    """The object in a file. Raises PolicyUnusable with `file:line: what is wrong`."""
    try:
        found = _json(text) if Path(path).suffix.lower() == ".json" else yaml.load(text, Loader=_DataLoader)  # noqa: S506 - a safe loader
        json.dumps(found, allow_nan=False)
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else 1
        raise PolicyUnusable(f"{path}:{line}: {e.problem or 'not YAML'}") from e
    except json.JSONDecodeError as e:
        raise PolicyUnusable(f"{path}:{e.lineno}: {e.msg}") from e
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, yaml.YAMLError) as e:
        raise PolicyUnusable(f"{path}: {one_line(str(e), 200) or type(e).__name__}") from e
    if not isinstance(found, dict):
        raise PolicyUnusable(f"{path}: a data document is an object; this is {type(found).__name__}")
    return found


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:60]} occurs twice in one object")
    return found


def merged(documents: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """All documents as one: objects join. Raises PolicyUnusable if two files set the same value."""
    whole: dict[str, Any] = {}
    for path, document in documents:
        _merge(whole, document, path, "data")
    return whole


def _merge(into: dict[str, Any], more: dict[str, Any], path: str, where: str) -> None:
    for name, value in more.items():
        if name not in into:
            into[name] = value
        elif isinstance(value, dict) and isinstance(into[name], dict):
            _merge(into[name], value, path, f"{where}.{name}")
        else:
            raise PolicyUnusable(f"{path}: {where}.{name} is set in another file, too")


class PolicyUnusable(ReportedError):  # noqa: N818 - a state, not a fault of the caller
    """The policy cannot be read or loaded, or decides nothing. The message says where and why."""
