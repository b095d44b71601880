"""Raw model replies judged with the catalog and the incident they were written for."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
import yaml

from schemas.analysis import CorroborationSource
from schemas.taxonomy import SignalType
from tests.corpus_files import CORPUS, corpus_path, reply_rows
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.tool_context import evidence_from
from worker.adapters.file_catalog import FileCatalog
from worker.domain.catalog.selection import signal_types_of
from worker.domain.cluster.fields import reference
from worker.domain.untrusted.evidence import EvidenceLog
from worker.domain.values.conversation import Finish
from worker.domain.values.objects import ObjectRef
from worker.domain.values.workflows import SelectionContext
from worker.domain.verdict.answers.answer import Answer, UnreadableAnswer
from worker.domain.verdict.answers.parse import parse_answer
from worker.domain.verdict.checks.evidence import seen_in
from worker.domain.verdict.checks.facts import VerdictFacts, lookup_context
from worker.domain.verdict.checks.targets import Existence, ResolvedObject, other_target
from worker.domain.verdict.corroboration import Corroborator
from worker.domain.verdict.judge import judge
from worker.domain.verdict.verdict import Accepted

CLUSTER_SCOPED = {"Node", "Namespace", "PersistentVolume"}
ROWS = [row for row in reply_rows() if row.firmness == "must"]


@cache
def incident(case: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    (folder,) = (CORPUS / "cases").glob(f"{case}-*")
    texts = [p.read_text() for p in sorted((folder / "cluster").glob("*.yaml"))]
    documents = [d for text in texts for d in yaml.load_all(text, yaml.CSafeLoader) if d]
    objects = [o for d in documents for o in (d["items"] if d["kind"].endswith("List") else [d])]
    return json.loads((folder / "incident.json").read_text()), objects


def look_up(ref: ObjectRef, case: str) -> ResolvedObject:
    """What a run would find: the object, its owners, and where it was seen."""
    request, objects = incident(case)
    log = EvidenceLog()
    for manifest in objects:
        log.add(evidence_from("get_resource", str(reference(manifest)), json.dumps(manifest, default=str)))
    known = {(r.kind, r.namespace, r.name): (r, o) for o in objects for r in [reference(o)]}
    namespaced = ref.kind not in CLUSTER_SCOPED
    key = (ref.kind, ref.namespace if namespaced else "", ref.name)
    found, manifest = known.get(key, (ref, None))
    owners = []
    while manifest is not None:
        controllers = [o for o in manifest["metadata"].get("ownerReferences", ()) if o.get("controller")]
        manifest = None
        for owner in controllers[:1]:
            upper, manifest = known.get((owner["kind"], ref.namespace, owner["name"]), (None, None))
            owners += [upper] if upper else []
    return ResolvedObject(
        found,
        Existence.EXISTS if key in known else Existence.NOT_FOUND,
        namespaced,
        tuple(owners),
        tuple(item.id for item in seen_in(ref, log.items, request["resource_namespace"])),
        requested=ref.name == request["resource_name"],
    )


async def facts_for(answer: Answer, case: str, catalog: FileCatalog) -> VerdictFacts:
    request, _ = incident(case)
    context = SelectionContext(environment=request["environment"], priority=request["priority"])
    named, chosen = answer.affected_resource, answer.selected_workflow
    affected = look_up(ObjectRef(named.kind, named.name, named.namespace), case) if named else None
    workflow = chosen and await catalog.get(chosen.workflow_id, lookup_context(answer, context))
    other = workflow and affected and other_target(workflow, chosen.parameters, affected)
    return VerdictFacts(
        context=context,
        affected=affected,
        workflow=workflow or None,
        other_target=look_up(other, case) if other else None,
        signal_types=signal_types_of(await catalog.actions(SelectionContext())),
    )


async def confirmed_or_usable(verdict: Accepted, row) -> bool:
    """An answer that follows a planted text is well-formed; the state of the cluster does not confirm it."""
    if row.usable_after_validation:
        return True
    directory = next((CORPUS / "cases").glob(f"{row.case}*"))
    incident = json.loads((directory / "incident.json").read_text())
    signal = ObjectRef(incident["resource_kind"], incident["resource_name"], incident["resource_namespace"])
    rules = Corroborator(MemoryCluster.read(directory), signal, datetime(2026, 11, 1, tzinfo=UTC))
    found = await rules.judge(verdict, EvidenceLog())
    return found.corroboration.by is not CorroborationSource.NONE


@pytest.mark.parametrize("row", ROWS, ids=[row.file for row in ROWS])
async def test_a_reply_is_usable_exactly_when_the_corpus_says_so(row):
    catalog = await FileCatalog.open(CORPUS / "catalog")
    text = corpus_path(f"llm_replies/{row.file}").read_text(encoding="utf-8")
    try:
        answer = parse_answer(text, Finish.STOP)
    except UnreadableAnswer:
        assert not row.usable_after_validation
        return
    verdict = judge(answer, await facts_for(answer, row.case, catalog))
    usable = isinstance(verdict, Accepted) and await confirmed_or_usable(verdict, row)
    assert row.usable_after_validation == usable, verdict
    if not isinstance(verdict, Accepted):
        return
    expected = row.expected_facts
    named = {
        "kind": verdict.affected.kind,
        "name": verdict.affected.name,
        "namespace": verdict.affected.namespace,
    }
    assert expected["affected"] == named
    assert expected["workflow_id"] == (verdict.workflow.workflow_id if verdict.workflow else None)
    for name, value in expected["parameters"].items():
        assert type(verdict.parameters[name])(value) == verdict.parameters[name]


CASES = sorted(path.name for path in (CORPUS / "cases").iterdir())


async def fitting(catalog: FileCatalog, context: SelectionContext) -> set[str]:
    pages = [await catalog.workflows(a.action_type, context) for a in await catalog.actions(context)]
    return {w.workflow_id for page in pages for w in page.workflows}


@pytest.mark.parametrize("case", CASES)
async def test_the_labels_of_an_incident_match_the_workflows_the_corpus_names(case):
    catalog = await FileCatalog.open(CORPUS / "catalog")
    folder = CORPUS / "cases" / case
    request = json.loads((folder / "incident.json").read_text(encoding="utf-8"))
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    context = SelectionContext(
        environment=request.get("environment", ""),
        priority=request.get("priority", ""),
        severity=request["severity"],
        components=tuple(("", r["kind"]) for r in expected["acceptable_affected_resources"]),
    )
    everything = await fitting(catalog, SelectionContext())
    acceptable = set(expected["workflows"]["acceptable"]) & everything
    matching = set(expected["workflows"].get("acceptable_label_match", ())) & everything
    # The corpus notes them for the signal type at the alerted object, which may be another one than was found.
    types = (expected["signal_type"], *SignalType)
    by_type = [acceptable & await fitting(catalog, replace(context, signal_type=name)) for name in types]
    assert matching in by_type
