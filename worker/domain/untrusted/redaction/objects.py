"""The data of Kubernetes Secret objects that stand in a text as YAML, as `kubectl get secret -o yaml` prints them."""

from __future__ import annotations

import re

KIND_SECRET = re.compile(r"kind:[ \t]*[\"']?Secret")
KIND = re.compile(r"(?P<lead>[ \t]*(?:- )?)kind:[ \t]*[\"']?Secret[\"']?[ \t]*")
DATA = re.compile(r"[\"']?(?:data|stringData)[\"']?:[ \t]*")
ENTRY = re.compile(r"(?P<key>[ \t]*[^\s:#][^:\n]{0,253}:)[ \t]*\S.*")

GAP = r"(?:\s|\\{1,15}n){1,64}"
FLAT_KIND = re.compile(r"kind: {1,4}Secret(?=\s|\\|\"|\Z)")
FLAT_DATA = re.compile(rf"(?:(?<![\w.-])|(?<=\\n))(?:data|stringData):(?={GAP})")
FLAT_ENTRY = re.compile(rf"{GAP}(?P<key>[\w.-]{{1,253}}):[ \t]{{1,8}}(?P<value>[^\s\\\"]+)")
BESIDE_DATA = frozenset({"apiVersion", "immutable", "kind", "metadata", "type"})


def mask_secret_documents(text: str) -> str:
    """The text with every value under `data` and `stringData` of a YAML Secret replaced; keys stay."""
    if KIND_SECRET.search(text) is None:
        return text
    lines = [_masked_flat(line) if "Secret" in line else line for line in text.split("\n")]
    result: list[str] = []
    seen = 0
    for number, line in enumerate(lines):
        match = KIND.fullmatch(line) if "Secret" in line else None
        if match is None or number < seen:
            continue
        column = len(match["lead"])
        first, last = _document(lines, number, column, seen)
        result += (*lines[seen:first], *_masked_document(lines[first:last], column))
        seen = last
    return "\n".join((*result, *lines[seen:]))


def _document(lines: list[str], number: int, column: int, floor: int) -> tuple[int, int]:
    """The lines of the mapping that the `kind` line belongs to."""
    first = number
    while first > floor and not _starts_item(lines[first], column) and _belongs(lines[first - 1], column):
        first -= 1
    last = number + 1
    while last < len(lines) and _belongs(lines[last], column) and not _starts_item(lines[last], column):
        last += 1
    return first, last


def _belongs(line: str, column: int) -> bool:
    return (
        not line.strip() or (_indent(line) >= column and line.strip() != "---") or _starts_item(line, column)
    )


def _starts_item(line: str, column: int) -> bool:
    return column >= 2 and line[column - 2 : column] == "- " and not line[: column - 2].strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _masked_document(lines: list[str], column: int) -> list[str]:
    result: list[str] = []
    inside = False
    depth = 0
    for line in lines:
        if line.strip() and (_indent(line) <= column or _starts_item(line, column)):
            inside, depth = DATA.fullmatch(line[column:]) is not None, 0
            result.append(line)
            continue
        if not inside or not line.strip():
            result.append(line)
            continue
        depth = depth or _indent(line)
        if _indent(line) == depth and (entry := ENTRY.fullmatch(line)):
            result.append(f"{entry['key']} [REDACTED:secret]")
    return result


def _masked_flat(line: str) -> str:
    """A document that stands in one line, its line ends escaped (a string of JSON) or replaced by spaces."""
    if FLAT_KIND.search(line) is None:
        return line
    parts: list[str] = []
    done = 0
    for data in FLAT_DATA.finditer(line):
        position = max(done, data.end())
        while (entry := FLAT_ENTRY.match(line, position)) and entry["key"] not in BESIDE_DATA:
            parts += (line[done : entry.start("value")], "[REDACTED:secret]")
            done = position = entry.end()
    return "".join((*parts, line[done:]))
