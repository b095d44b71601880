"""The Catalog port: the same workflows answer alike, wherever they are kept."""

from __future__ import annotations

import functools
import textwrap
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from schemas.taxonomy import Severity
from tests.fakes import datastorage
from tests.fakes.datastorage_catalog import record_of
from tests.fakes.memory_catalog import MemoryCatalog, labels, workflow
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.postgres_catalog import PostgresCatalog, push
from worker.domain.catalog.selection import signal_types_of
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import ActionText, Parameter, ParameterType, SelectionContext

KUBERNAUT = """
    apiVersion: kubernaut.ai/v1alpha1
    kind: ActionType
    metadata: {name: rollback-deployment}
    spec:
      name: RollbackDeployment
      description:
        what: Returns a Deployment to an earlier revision.
        whenToUse: A change of the pod template broke it.
    ---
    apiVersion: kubernaut.ai/v1alpha1
    kind: RemediationWorkflow
    metadata: {name: rollback}
    spec:
      workflowId: rollback-v2
      version: 2.10
      actionType: RollbackDeployment
      description:
        what: Rolls back.
        whenToUse: The revision before was healthy.
        whenNotToUse: The ConfigMap changed.
        preconditions: An earlier revision exists.
      labels:
        signalName: CrashLoopBackOff
        severity: [Critical, HIGH]
        component: apps/v1/Deployment
        environment: [Production]
        priority: "*"
      detectedLabels: {gitOpsManaged: "true", gitOpsTool: argocd}
      customLabels: {team: [payments, checkout]}
      execution:
        engine: tekton
        bundle: registry.example.com/rollback
        bundleDigest: sha256:00ff
        serviceAccountName: rollback-runner
      parameters:
        - {name: TO_REVISION, type: integer, required: false, minimum: 1, dependsOn: [REASON]}
        - {name: REASON, type: string, required: true, minLength: 3, maxLength: 80}
    ---
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: not-a-workflow}
    data: {workflow_id: nothing}
"""
FLAT = """
    workflow_id: rollback-v1
    version: 1.10
    action_type: RollbackDeployment
    description: "CrashLoopBackOff critical: rolls back."
    labels:
      signal_type: [CrashLoopBackOff, ProgressDeadlineExceeded]
      severity: [critical, info]
      component: [Deployment]
      environment: ["*"]
      priority: [P0, P1]
    estimated_downtime_seconds: 30
    parameters:
      - name: FACTOR
        type: number
        default: 2
        enum: [1.5, 2]
"""
IN_MEMORY = [
    workflow(
        "rollback-v2",
        "RollbackDeployment",
        version="2.10",
        title="rollback",
        description="Rolls back.",
        when_to_use="The revision before was healthy.",
        when_not_to_use="The ConfigMap changed.",
        preconditions="An earlier revision exists.",
        labels=labels(
            signal_type="CrashLoopBackOff",
            severity=["Critical", "HIGH"],
            component="apps/v1/Deployment",
            environment="Production",
            priority="*",
        ),
        detected_labels={"gitops_managed": True, "gitops_tool": "argocd"},
        custom_labels={"team": ("payments", "checkout")},
        parameters=(
            Parameter("TO_REVISION", ParameterType.INTEGER, minimum=1, depends_on=("REASON",)),
            Parameter("REASON", required=True, min_length=3, max_length=80),
        ),
        container_image="registry.example.com/rollback@sha256:00ff",
        engine="tekton",
        service_account="rollback-runner",
    ),
    workflow(
        "rollback-v1",
        "RollbackDeployment",
        version="1.10",
        description="CrashLoopBackOff critical: rolls back.",
        labels=labels(
            signal_type=["CrashLoopBackOff", "ProgressDeadlineExceeded"],
            severity=["critical", "info"],
            component="Deployment",
            environment="*",
            priority=["P0", "P1"],
        ),
        estimated_downtime_seconds=30,
        container_image="",
        parameters=(Parameter("FACTOR", ParameterType.NUMBER, default=2, enum=(1.5, 2)),),
    ),
]
ACTIONS = {
    "RollbackDeployment": ActionText(
        "Returns a Deployment to an earlier revision.", "A change of the pod template broke it.", ""
    )
}
CONTEXT = SelectionContext(
    environment="production",
    priority="P1",
    severity="critical",
    signal_type="crashloopbackoff",
    components=(("apps/v1", "Deployment"),),
)


@asynccontextmanager
async def in_memory(request):
    yield MemoryCatalog(IN_MEMORY, ACTIONS)


@asynccontextmanager
async def in_files(request):
    directory = request.getfixturevalue("tmp_path")
    (directory / "nested").mkdir()
    (directory / "nested" / "kubernaut.yaml").write_text(textwrap.dedent(KUBERNAUT))
    (directory / "flat.yml").write_text(textwrap.dedent(FLAT))
    (directory / ".hidden.yaml").write_text("workflow_id: hidden")
    (directory / "notes.txt").write_text("not a catalog file")
    yield await FileCatalog.open(directory)


@asynccontextmanager
async def in_postgres(request):
    url = await request.getfixturevalue("postgres").new_database()
    await push(url, IN_MEMORY, ACTIONS)
    async with PostgresCatalog(url) as opened:
        yield opened


@asynccontextmanager
async def in_datastorage(request, *, strict=False):
    async with datastorage.serve() as storage:
        storage.catalog.strict = strict
        storage.catalog.records, storage.catalog.texts = [record_of(w) for w in IN_MEMORY], ACTIONS
        async with datastorage.catalog_of(storage.url) as opened:
            yield opened


IMPLEMENTATIONS = {
    "memory": in_memory,
    "files": in_files,
    "postgres": in_postgres,
    "DataStorage": in_datastorage,
    "strict DataStorage": functools.partial(in_datastorage, strict=True),
}
"""How each one is opened with IN_MEMORY and ACTIONS in it. `request` is pytest's, for further fixtures."""


WITHOUT_ACTION_TEXTS = {"strict DataStorage"}
"""It tells types of action only to whoever filters by everything, and all workflows only by its plain list."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.process] if name == "postgres" else [])
        for name in IMPLEMENTATIONS
    ]
)
async def catalog(request):
    async with IMPLEMENTATIONS[request.param](request) as opened:
        yield opened


@pytest.mark.parametrize("expected", IN_MEMORY, ids=lambda w: w.workflow_id)
async def test_a_workflow_is_read_whole(catalog, expected):
    assert expected == await catalog.get(expected.workflow_id, CONTEXT)


async def test_actions_carry_description_and_count(catalog, request):
    (action,) = await catalog.actions(CONTEXT)
    assert (action.action_type, action.workflow_count) == ("RollbackDeployment", 2)
    silent = request.node.callspec.params["catalog"] in WITHOUT_ACTION_TEXTS
    assert (ActionText() if silent else ACTIONS["RollbackDeployment"]) == action.text


async def test_workflows_are_listed_best_fit_first(catalog):
    page = await catalog.workflows("rollbackdeployment", CONTEXT)
    assert [w.workflow_id for w in page.workflows] == ["rollback-v1", "rollback-v2"]
    managed = replace(CONTEXT, detected_labels={"gitOpsManaged": True, "gitOpsTool": "argocd"})
    page = await catalog.workflows("RollbackDeployment", managed)
    assert [w.workflow_id for w in page.workflows] == ["rollback-v2", "rollback-v1"]
    assert page.next_cursor == ""


async def test_a_list_shows_parameters_in_short(catalog):
    page = await catalog.workflows("RollbackDeployment", CONTEXT)
    assert [["FACTOR"], ["TO_REVISION", "REASON"]] == [[p.name for p in w.parameters] for w in page.workflows]


async def test_what_does_not_fit_is_left_out_and_counted(catalog):
    staging = replace(CONTEXT, environment="staging", priority="P3")
    page = await catalog.workflows("RollbackDeployment", staging)
    assert (page.workflows, page.excluded) == ((), {"environment": 1, "priority": 1})
    assert tuple(await catalog.actions(staging)) == ()


async def test_an_unknown_and_an_unfit_workflow_look_alike(catalog):
    assert None is await catalog.get("rollback-v9", CONTEXT)
    assert None is await catalog.get("rollback-v2", replace(CONTEXT, environment="staging"))


async def test_the_signal_type_does_not_gate_a_chosen_workflow(catalog):
    other = replace(CONTEXT, signal_type="Evicted")
    assert (await catalog.workflows("RollbackDeployment", other)).workflows == ()
    assert (await catalog.get("rollback-v2", other)).workflow_id == "rollback-v2"


async def test_an_unknown_action_type_has_no_workflows(catalog):
    page = await catalog.workflows("DeleteEverything", CONTEXT, "bm9uZQ")
    assert (page.workflows, page.next_cursor, page.excluded) == ((), "", {})


async def test_signal_types_are_those_of_all_labels(catalog):
    actions = await catalog.actions(SelectionContext())
    assert {"CrashLoopBackOff", "ProgressDeadlineExceeded"} == signal_types_of(actions)


async def test_actions_name_the_signal_types_of_what_fits(catalog):
    (action,) = await catalog.actions(replace(CONTEXT, priority="P3"))
    assert (1, ("CrashLoopBackOff",)) == (action.workflow_count, action.signal_types)


QUERY = SearchQuery("CrashLoopBackOff", Severity.CRITICAL)
BUSINESS = replace(CONTEXT, signal_type="", severity="")


async def test_a_search_finds_whole_workflows_best_match_first(catalog):
    page = await catalog.search(QUERY, BUSINESS)
    assert ["rollback-v1", "rollback-v2"] == [m.workflow.workflow_id for m in page.matches]
    assert await catalog.get("rollback-v2", CONTEXT) == page.matches[1].workflow
    assert all(0.9 <= m.confidence <= 0.99 for m in page.matches)
    assert (2, 0, {}, {}) == (page.total, page.weaker, page.excluded, page.excluded_alone)


async def test_a_search_goes_by_the_signal_type_and_severity_of_the_query(catalog):
    low = await catalog.search(replace(QUERY, severity=Severity.LOW), replace(BUSINESS, severity="critical"))
    assert ["rollback-v1"] == [m.workflow.workflow_id for m in low.matches]
    assert {"severity": 1} == low.excluded
    other = await catalog.search(replace(QUERY, signal_type="Evicted"), BUSINESS)
    assert ((), {"signal_type": 2}, {"signal_type": 2}) == (
        other.matches,
        other.excluded,
        other.excluded_alone,
    )


async def test_a_search_keeps_to_the_business_labels(catalog):
    page = await catalog.search(QUERY, replace(BUSINESS, environment="staging", priority="P3"))
    assert ((), {"environment": 1, "priority": 1}) == (page.matches, page.excluded)


async def test_keywords_decide_between_workflows_whose_labels_fit_alike(catalog):
    context = replace(BUSINESS, environment="", priority="")
    best = (await catalog.search(replace(QUERY, keywords=("progress", "deadline")), context)).matches[0]
    assert ("rollback-v1", 0.99) == (best.workflow.workflow_id, best.confidence)


async def test_a_search_can_ask_for_few_and_for_good_ones_only(catalog):
    few = await catalog.search(replace(QUERY, max_results=1), BUSINESS)
    assert (1, 2) == (len(few.matches), few.total)
    none = await catalog.search(replace(QUERY, min_confidence=1.0), BUSINESS)
    assert ((), 0, 2) == (none.matches, none.total, none.weaker)


async def test_a_catalog_that_is_down_says_so(tmp_path):
    down = MemoryCatalog(IN_MEMORY)
    down.down = True
    with pytest.raises(CatalogUnavailable):
        await down.get("rollback-v1", CONTEXT)
    with pytest.raises(CatalogUnavailable):
        await down.search(QUERY, BUSINESS)
    with pytest.raises(CatalogUnavailable):
        await FileCatalog.open(tmp_path / "missing")
