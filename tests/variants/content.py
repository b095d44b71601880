"""The content of a case: incident, cluster, logs, catalog, and the judged answer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.corpus_files import CORPUS, GENERATED, corpus_path
from tests.eval_corroboration import load_catalog
from worker.domain.cluster.pods import pod_failing
from worker.domain.values.objects import Manifest
from worker.domain.values.workflows import Workflow
from worker.sandbox.cluster_admission import admitted
from worker.sandbox.cluster_files import find_logs, read_objects

SCENARIOS = Path(__file__).parents[1] / "analyst_scenarios"
MAX_LOG = 60_000
"""Bytes of the end of each log that are kept: no more of it is ever read."""
LogKey = tuple[str, str, str, bool]
"""Namespace, pod, container, previous."""
Place = tuple[str, str, str]
"""Kind, namespace, name."""


@dataclass(frozen=True)
class CaseContent:
    """One incident in memory. Mutations change a `copy` of it."""

    name: str
    incident: dict[str, Any]
    objects: list[Manifest]
    logs: dict[LogKey, bytes]
    expected: dict[str, Any]
    workflows: tuple[Workflow, ...]

    def copy(self) -> CaseContent:
        """A copy to change."""
        return replace(
            self,
            incident=copy.deepcopy(self.incident),
            objects=copy.deepcopy(self.objects),
            logs=dict(self.logs),
            expected=copy.deepcopy(self.expected),
        )

    @property
    def signal(self) -> Place:
        """What the alert is about."""
        given = self.incident
        return given["resource_kind"], given.get("resource_namespace") or "", given["resource_name"]

    def of(self, *kinds: str) -> list[Manifest]:
        """The objects of some kinds."""
        return [o for o in self.objects if o["kind"] in kinds]

    def find(self, place: Place) -> Manifest | None:
        """The object at a place."""
        return next((o for o in self.objects if place_of(o) == place), None)

    def owned_by(self, owner: Manifest, kind: str) -> list[Manifest]:
        """Objects of a kind whose owner references name the object."""
        return [
            o
            for o in self.of(kind)
            if namespace_of(o) == namespace_of(owner)
            and any(
                r["kind"] == owner["kind"] and r["name"] == name_of(owner)
                for r in o["metadata"].get("ownerReferences", ())
            )
        ]

    def pods_of(self, owner: Manifest) -> list[Manifest]:
        """The pods of a workload, directly or through ReplicaSets and Jobs; failing ones first."""
        if owner["kind"] == "Pod":
            return [owner]
        makers = [owner, *self.owned_by(owner, "ReplicaSet"), *self.owned_by(owner, "Job")]
        found = [pod for maker in makers for pod in self.owned_by(maker, "Pod")]
        return sorted(found, key=lambda pod: not pod_failing(pod))


def name_of(manifest: Manifest) -> str:
    """The name of an object."""
    return str(manifest["metadata"]["name"])


def namespace_of(manifest: Manifest) -> str:
    """The namespace of an object, empty when it is cluster-scoped."""
    return str(manifest["metadata"].get("namespace") or "")


def place_of(manifest: Manifest) -> Place:
    """Where an object is found."""
    return manifest["kind"], namespace_of(manifest), name_of(manifest)


def map_text(value: Any, change: Callable[[str], str], *, kept: frozenset[str] = frozenset()) -> Any:
    """The value with each text in it changed, except below the keys in `kept`. Keys stay as they are."""
    if isinstance(value, dict):
        return {k: item if k in kept else map_text(item, change, kept=kept) for k, item in value.items()}
    if isinstance(value, list):
        return [map_text(item, change, kept=kept) for item in value]
    return change(value) if isinstance(value, str) else value


def read_cases() -> Iterator[CaseContent]:
    """Every incident that has a judged answer: corpus, reports from the field, scenarios."""
    workflows = tuple(load_catalog().values())
    folders = [*(CORPUS / "cases").iterdir(), *(CORPUS / "reports").glob("*/*"), *SCENARIOS.iterdir()]
    for folder in sorted(folders):
        if not (folder / "expected.json").exists():
            continue
        logs = {key: path.read_bytes()[-MAX_LOG:] for key, path in find_logs(folder).items()}
        logs |= _generated_logs(folder)
        yield CaseContent(
            name=folder.name if folder.name != "case" else folder.parent.name,
            incident=json.loads((folder / "incident.json").read_text()),
            objects=list(admitted(read_objects(folder))),
            logs=logs,
            expected=json.loads((folder / "expected.json").read_text()),
            workflows=workflows,
        )


def _generated_logs(folder: Path) -> dict[LogKey, bytes]:
    found: dict[LogKey, bytes] = {}
    for relative in GENERATED:
        path = Path(relative)
        if path.suffix == ".log" and path.parts[1] == folder.name:
            namespace, pod, container = path.name.removesuffix(".log").removesuffix(".previous").split("_")
            key = namespace, pod, container, ".previous." in path.name
            found[key] = corpus_path(relative).read_bytes()[-MAX_LOG:]
    return found
