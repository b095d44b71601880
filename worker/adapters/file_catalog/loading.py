"""A directory of catalog files: reading all of it, checking it, and noticing that it changed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from worker.adapters.file_catalog.reading import Loaded, read_into
from worker.adapters.file_catalog.source import (
    MAX_FILE_BYTES,
    MAX_FILES,
    CatalogProblem,
    catalog_files,
    read_documents,
)
from worker.domain.values.errors import CatalogUnavailable

MAX_SHOWN_PROBLEMS = 50

Stamp = tuple[tuple[str, int, int, int, int], ...]
"""Name, device, inode, size and time of change of every file, symlinks followed."""


class Checked(NamedTuple):
    """How many workflows the files hold, and everything that is wrong or doubtful in them, by file and line."""

    workflows: int
    problems: tuple[CatalogProblem, ...]


def load(directory: Path) -> Loaded:
    """Everything in the files, with all problems. Raises CatalogUnavailable when they cannot be read."""
    loaded = Loaded()
    try:
        for path in _files(directory):
            _read_file(loaded, path)
    except OSError as error:
        raise CatalogUnavailable(f"the catalog {directory} cannot be read: {error.strerror}") from error
    return loaded


def fault(loaded: Loaded, directory: Path) -> str:
    """Why what was read is no catalog, every error in a line of its own; empty when it is one."""
    errors = [p for p in loaded.problems if not p.warning]
    if errors:
        shown = "\n".join(str(p) for p in errors[:MAX_SHOWN_PROBLEMS])
        return f"{len(errors)} problems in the catalog {directory}:\n{shown}"
    return "" if loaded.workflows else f"no workflows in the catalog {directory}"


def read_directory(directory: Path) -> Loaded:
    """Everything in the files. Raises CatalogUnavailable with every problem when one document is invalid."""
    loaded = load(directory)
    if wrong := fault(loaded, directory):
        raise CatalogUnavailable(wrong)
    return loaded


def lint(directory: Path) -> Checked:
    """What `read_directory` makes of the files: there is an error where it raises. Raises CatalogUnavailable without a directory."""
    loaded = load(directory)
    problems = sorted(loaded.problems, key=lambda p: (p.file, p.line))
    if fault(loaded, directory) and all(p.warning for p in problems):
        problems.append(CatalogProblem(str(directory), 0, "there are no workflows"))
    return Checked(len(loaded.workflows), tuple(problems))


def stamp(directory: Path) -> Stamp:
    """What differs after any change of the files. Raises CatalogUnavailable.

    A mounted ConfigMap is changed by swapping a symlink above the files: their inodes differ afterwards.
    """
    try:
        found = [(str(path), path.stat()) for path in _files(directory)]
    except OSError as error:
        raise CatalogUnavailable(f"the catalog {directory} cannot be read: {error.strerror}") from error
    return tuple((name, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in found)


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise CatalogUnavailable(f"the catalog {directory} is not a directory")
    files = catalog_files(directory)
    if len(files) > MAX_FILES:
        raise CatalogUnavailable(f"the catalog {directory} has more than {MAX_FILES} files")
    return files


def _read_file(loaded: Loaded, path: Path) -> None:
    with path.open("rb") as stream:
        raw = stream.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        loaded.problems.append(CatalogProblem(str(path), 0, f"larger than {MAX_FILE_BYTES} bytes"))
        return
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        loaded.problems.append(CatalogProblem(str(path), 0, "not UTF-8"))
        return
    documents, problems = read_documents(text, str(path))
    loaded.problems += problems
    for document in documents:
        read_into(loaded, document)
