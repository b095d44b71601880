"""A catalog in the form of Kubernaut's own documents (ADR-043) loads as it is."""

from __future__ import annotations

from pathlib import Path

from schemas.taxonomy import Severity
from worker.adapters.file_catalog import FileCatalog, lint
from worker.domain.search import SearchQuery
from worker.domain.workflow import Parameter, ParameterType, SelectionContext

DIRECTORY = Path(__file__).parent / "kubernaut_catalog"
DEPLOYMENT = SelectionContext(
    environment="production", priority="P1", components=(("apps/v1", "Deployment"),), detected_labels={}
)


async def by_title():
    return {workflow.title: workflow for workflow in await FileCatalog.open(DIRECTORY)}


def test_there_is_nothing_to_complain_about():
    assert lint(DIRECTORY) == ()


async def test_every_document_is_read_and_other_kinds_are_skipped():
    catalog = await FileCatalog.open(DIRECTORY)
    actions = await catalog.actions(SelectionContext())
    assert [
        ("GrowMemory", "Gives containers more memory.", 2, ("OOMKilled",)),
        ("MovePods", "Moves pods away from a node.", 1, ("Evicted", "NodeNotReady")),
    ] == [
        (a.action_type, a.text.description, a.workflow_count, tuple(sorted(a.signal_types))) for a in actions
    ]


async def test_fields_come_in_the_spelling_of_the_worker():
    workflow = (await by_title())["grow-memory-gitops"]
    assert ("GrowMemory", "2.0.1", "tekton", "grow-memory-runner") == (
        workflow.action_type,
        workflow.version,
        workflow.engine,
        workflow.service_account,
    )
    assert workflow.container_image.endswith(
        "grow-memory-gitops@sha256:4fa6dd7fb7264213855d3dcf8541a97674acccfe12a8b097c93c7e5833d0d2ed"
    )
    assert {"gitops_managed": True, "gitops_tool": "argocd"} == workflow.detected_labels
    assert workflow.gitops_aware
    assert ("OOMKilled",) == workflow.labels["signal_type"]
    assert ("MEMORY_LIMIT",) == workflow.parameter("REVIEWERS").depends_on


async def test_types_of_parameters_decide_what_values_mean():
    workflows = await by_title()
    assert Parameter(
        "FACTOR",
        ParameterType.NUMBER,
        description="By how much the limit is multiplied",
        minimum=1.1,
        maximum=4,
        default=1.5,
    ) == workflows["grow-memory-job"].parameter("FACTOR")
    grace, force = (workflows["drain-with-ansible"].parameter(name) for name in ("GRACE_SECONDS", "FORCE"))
    assert ((30, 60, 300), 60, False) == (grace.enum, grace.default, force.default)


async def test_they_are_searched_like_any_other():
    catalog = await FileCatalog.open(DIRECTORY)
    query = SearchQuery("OOMKilled", Severity.CRITICAL)
    plain = await catalog.search(query, DEPLOYMENT)
    assert ["grow-memory-job", "grow-memory-gitops"] == [m.workflow.title for m in plain.matches]
    managed = {"gitops_managed": True, "gitops_tool": "argocd"}
    aware = await catalog.search(query, SelectionContext(environment="production", detected_labels=managed))
    assert "grow-memory-gitops" == aware.matches[0].workflow.title
    flux = await catalog.search(query, SelectionContext(detected_labels={"gitops_tool": "flux"}))
    assert {"signal_type": 1, "detected label gitops_tool": 1} == flux.excluded
