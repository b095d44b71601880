"""The ClusterRole and the code agree, both ways: nothing that code reads is missing, nothing is granted for nothing.

What code reads of its own accord is recorded over all incidents of the corpus. What only the model's tools read is what
the tools have columns for; everything else it may ask for, and is answered that the worker has no right to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.incident import IncidentRequest
from tests.corpus_files import CORPUS
from tests.fakes.analyst_scoring import NOW, AnalystModel, StillClock, analyse
from tests.fakes.memory_cluster import MemoryCluster
from worker.adapters.file_catalog import FileCatalog
from worker.domain.cluster.detected_labels import detect_labels
from worker.domain.cluster.kinds import WORKLOADS
from worker.domain.cluster.owners import owner_chain
from worker.domain.cluster.rendering.tables import COLUMNS
from worker.domain.diagnosis.claims import diagnose
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.examine import SPECIAL
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.enrichment.enrich import enrich
from worker.domain.intake.accepted import signal_resource
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import ObjectRef
from worker.sandbox.cluster_kinds import Resource, ResourceTable

TOP = Path(__file__).parent.parent.parent
CASES = sorted(p for p in (CORPUS / "cases").iterdir() if (p / "incident.json").exists())
REPORTS = sorted(path.parent for path in (CORPUS / "reports").glob("*/*/expected.json"))
SCENARIOS = sorted(
    p for p in (TOP / "tests" / "analyst_scenarios").iterdir() if (p / "incident.json").exists()
)
ONLY_TOOLS = {"ControllerRevision", "Event", "LimitRange"}
"""Kinds without columns of their own: what a rollout changed, what has a tool, what explains refused pods."""

Right = tuple[str, str, str]
"""API group, resource, verb."""


def granted(role: str, file: str = "rbac.yaml") -> set[Right]:
    text = (TOP / "deploy" / "kubernetes" / file).read_text()
    (found,) = (
        m for m in yaml.safe_load_all(text) if m["kind"] == "ClusterRole" and m["metadata"]["name"] == role
    )
    return {
        (group, resource, verb)
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


GRANTED = granted("rca-worker-core")
BUILT_IN = [resource for resource in ResourceTable([]) if resource.built_in]


class RecordingCluster(MemoryCluster):
    """Keeps the rights that were needed. With `limited`, those that are not granted are refused."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.needed: set[Right] = set()
        self.limited = False

    async def logs(self, query: Any) -> bytes:
        self.needed.add(("", "pods/log", "get"))
        return await super().logs(query)

    def _readable(self, method: str, query: Any, kind: str, api_version: str) -> Resource:
        resource = super()._readable(method, query, kind, api_version)
        if method == "logs":
            return resource
        right = (resource.group, resource.plural, method)
        self.needed.add(right)
        if self.limited and right not in GRANTED:
            raise ClusterError(ClusterReason.FORBIDDEN, f"no right to {method} {resource.plural}")
        return resource


def read_case(directory: Path) -> tuple[dict[str, Any], dict[str, Any], RecordingCluster]:
    incident = {"received_time": NOW.isoformat(), **json.loads((directory / "incident.json").read_text())}
    expected = json.loads((directory / "expected.json").read_text())
    cluster = RecordingCluster.read(directory)
    assert isinstance(cluster, RecordingCluster)
    return incident, expected, cluster


async def needed_by_code() -> set[Right]:
    needed: set[Right] = set()
    for directory in [*CASES, *SCENARIOS, *REPORTS]:
        incident, expected, cluster = read_case(directory)
        await enrich(IncidentRequest.model_validate(incident), cluster, StillClock())
        target = expected["affected_resource"]
        ref = ObjectRef(target["kind"], target["name"], target.get("namespace") or "")
        chain = await owner_chain(cluster, ref)
        await detect_labels(cluster, chain)
        request = IncidentRequest.model_validate(incident)
        facts = ClusterFacts(now=request.received_time)
        await Investigator(cluster).conclude(
            facts, lambda known, about=request: diagnose(known, signal_resource(about))
        )
        needed |= cluster.needed
    return {right for right in needed if any((r.group, r.plural) == right[:2] for r in BUILT_IN)}


def offered_by_tools() -> set[Right]:
    kinds = {*COLUMNS, *WORKLOADS, *ONLY_TOOLS}
    return {(r.group, r.plural, verb) for r in BUILT_IN for verb in ("get", "list") if r.kind in kinds} | {
        ("", "pods/log", "get")
    }


async def test_code_needs_no_right_that_is_not_granted():
    assert set() == await needed_by_code() - GRANTED - named_by_others()


def named_by_others() -> set[Right]:
    """Objects that a sender or the model named: asked for, and it is no harm when they are refused."""
    return {
        (r.group, r.plural, "get")
        for r in BUILT_IN
        if r.kind not in {*COLUMNS, *WORKLOADS, *ONLY_TOOLS, "Secret"}
    }


async def test_no_right_is_granted_that_nothing_needs():
    assert set() == GRANTED - await needed_by_code() - offered_by_tools()


def test_custom_resources_that_rules_examine_are_granted():
    built_in = {resource.kind for resource in BUILT_IN}
    named = {
        resource
        for _, resource, verb in granted("rca-worker-custom-owners", "custom-owners.yaml")
        if verb == "get"
    }
    assert set() == {kind for kind in SPECIAL if kind not in built_in and f"{kind.lower()}s" not in named}


LISTED = {"rollouts", "certificates", "challenges", "externalsecrets"}
"""Custom resources that rules list."""


def test_custom_resources_that_rules_list_are_granted():
    rights = granted("rca-worker-custom-owners", "custom-owners.yaml")
    assert LISTED <= {resource for _, resource, verb in rights if verb == "list"}


def test_what_tools_show_best_is_granted():
    assert set() == offered_by_tools() - GRANTED


@pytest.mark.parametrize("directory", CASES, ids=lambda p: p.name[:3])
async def test_the_granted_rights_are_enough_for_the_same_answer(directory):
    catalog = await FileCatalog.open(CORPUS / "catalog")
    results = []
    for limited in (False, True):
        incident, _, cluster = read_case(directory)
        cluster.limited = limited
        result = await analyse(incident, cluster, catalog, AnalystModel())
        chosen = result.selected_workflow.workflow_id if result.selected_workflow else None
        results.append((result.affected_resource, chosen))
    assert results[0] == results[1]
