"""What the worker has said against earlier answers, read from its corrections."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LINE = re.compile(r"^- (?P<path>[A-Za-z_][\w.\[\]-]*): (?P<message>.+)$", re.MULTILINE)
ONE_OF = re.compile(r"use one of (?P<names>[\w, -]+)")


@dataclass(frozen=True, slots=True)
class Objections:
    """What must be different next time. `rounds` counts the answers that were refused.

    `signal_types` are the only names allowed, empty when nothing was said about them.
    """

    rounds: int = 0
    target: bool = False
    workflow: bool = False
    parameters: frozenset[str] = frozenset()
    signal_type: bool = False
    signal_types: tuple[str, ...] = ()
    text: str = ""


def read(corrections: Iterable[str]) -> Objections:
    """All objections so far, taken together."""
    texts = list(corrections)
    text = "\n".join(texts)
    target = workflow = signal = False
    parameters: set[str] = set()
    names: tuple[str, ...] = ()
    for match in LINE.finditer(text):
        path = match["path"]
        if path.startswith("selected_workflow.parameters."):
            parameters.add(path.removeprefix("selected_workflow.parameters."))
        elif path.startswith("selected_workflow"):
            workflow = True
        elif path.endswith("signal_type"):
            signal = True
            listed = ONE_OF.search(match["message"])
            names = tuple(n.strip() for n in listed["names"].split(",")) if listed else ()
        elif "affectedResource" in path:
            target = True
    return Objections(len(texts), target, workflow, frozenset(parameters), signal, names, text)
