"""`data` documents of a policy, in JSON or YAML: one object, in which nothing is said twice.

Two values for one limit are an error and never "the last one wins": nobody could say which limit holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from worker.adapters.rego_policy.unusable import PolicyUnusable
from worker.domain.untrusted.evidence import one_line

SUFFIXES = frozenset({".json", ".yaml", ".yml"})


class _DataLoader(yaml.CSafeLoader):
    """YAML in which keys are text and stand once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - its signature
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag not in {"tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"}:
                raise _fault("keys are text: write it in quotes", key)
            if key.value in seen:
                raise _fault(f"the key {key.value[:60]} stands here twice", key)
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
        raise ValueError(f"the key {twice[:60]} stands in one object twice")
    return found


def merged(documents: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """All documents as one: objects join. Raises PolicyUnusable where two files set the same."""
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
