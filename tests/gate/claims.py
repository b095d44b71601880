"""Incidents with answers in full: object, workflow and parameters, right ones and those that a model may mistake for right.

`claims.json` beside an incident has three lists: `right` answers that rules have to confirm, right ones that they leave
`unconfirmed` because no state shows the cause, and `wrong` ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.eval_corroboration import Case
from tests.gate.answers import Claimed
from worker.domain.values.objects import ObjectRef
from worker.sandbox.cluster_files import read_objects

INCIDENTS = sorted(p for p in (Path(__file__).parent / "incidents").iterdir() if p.is_dir())


@dataclass(frozen=True)
class ClaimedIncident:
    """One incident with the answers about it."""

    case: Case
    right: tuple[Claimed, ...]
    unconfirmed: tuple[Claimed, ...]
    wrong: tuple[Claimed, ...]


def read_incident(folder: Path) -> ClaimedIncident:
    """The incident of a folder."""
    incident, expected, claims = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("incident", "expected", "claims")
    )
    fields = ("resource_kind", "resource_name", "resource_namespace", "resource_api_version")
    signal = ObjectRef(*(incident.get(field) or "" for field in fields))
    case = Case(folder.name, signal, incident, expected, read_objects(folder), (), folder)
    lists = (tuple(_claimed(kind, claims[kind])) for kind in ("right", "unconfirmed", "wrong"))
    return ClaimedIncident(case, *lists)


def _claimed(kind: str, listed: list[dict[str, Any]]) -> Iterator[Claimed]:
    for entry in listed:
        yield Claimed(kind, ObjectRef(**entry["object"]), entry["workflow"], entry["parameters"])
