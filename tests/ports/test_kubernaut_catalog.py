"""A catalog in the form of Kubernaut's own documents (ADR-043) loads as it is."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
import yaml

from schemas.taxonomy import Severity
from worker.adapters.file_catalog import FileCatalog, lint
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import Parameter, ParameterType, SelectionContext

DIRECTORY = Path(__file__).parent / "kubernaut_catalog"
DEPLOYMENT = SelectionContext(
    environment="production", priority="P1", components=(("apps/v1", "Deployment"),), detected_labels={}
)


async def by_title():
    return {workflow.title: workflow for workflow in await FileCatalog.open(DIRECTORY)}


def test_there_is_nothing_to_complain_about():
    assert lint(DIRECTORY).problems == ()


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


def exported(kind, version):
    """The documents of DIRECTORY as one list, as an API server would have changed them."""
    found = []
    for path in sorted(DIRECTORY.iterdir()):
        for document in yaml.safe_load_all(path.read_text()):
            document["metadata"] |= {"uid": "1", "managedFields": [{"manager": "kubectl"}]}
            found.append(document)
    return {"apiVersion": version, "kind": kind, "items": found, "metadata": {"resourceVersion": ""}}


async def test_an_export_of_kubectl_is_read_item_by_item(tmp_path):
    (tmp_path / "export.json").write_text(json.dumps(exported("List", "v1")))
    catalog = await FileCatalog.open(tmp_path)
    assert await by_title() == {workflow.title: workflow for workflow in catalog}
    expected = await (await FileCatalog.open(DIRECTORY)).actions(DEPLOYMENT)
    assert expected == await catalog.actions(DEPLOYMENT)
    assert lint(tmp_path).problems == ()


async def test_items_of_a_list_of_one_kind_need_not_repeat_it(tmp_path):
    whole = exported("RemediationWorkflowList", "kubernaut.ai/v1alpha1")
    whole["items"] = [
        {"metadata": item["metadata"], "spec": item["spec"]}
        for item in whole["items"]
        if item["kind"] == "RemediationWorkflow"
    ]
    (tmp_path / "export.yaml").write_text(yaml.safe_dump(whole))
    assert await by_title() == {workflow.title: workflow for workflow in await FileCatalog.open(tmp_path)}


ITEMS = """
    apiVersion: v1
    kind: List
    items:
    - apiVersion: v1
      kind: ConfigMap
    - apiVersion: kubernaut.ai/v1alpha1
      kind: RemediationWorkflow
      metadata: {name: broken}
      spec:
        workflowId: broken
        actionType: Restart
        labels:
          severity: [terrible]
    - not an object
"""


def test_problems_of_items_have_the_lines_of_the_file(tmp_path):
    (tmp_path / "export.yaml").write_text(textwrap.dedent(ITEMS))
    assert [
        (14, "spec.labels.severity: not a severity: terrible; use critical, high, medium, low or *"),
        (15, "a document must be a mapping of names to values"),
    ] == [(p.line, p.message) for p in lint(tmp_path).problems]


@pytest.mark.parametrize(
    "text",
    [
        "{apiVersion: v1, kind: List}",
        "{apiVersion: v1, kind: List, items: 7}",
        "{apiVersion: v1, kind: List, items: {a: b}}",
        "{apiVersion: v1, kind: ConfigMapList, items: [{spec: {}}]}",
        "{apiVersion: kubernaut.ai/v1alpha1, kind: RemediationRequestList, items: [{spec: {}}]}",
    ],
)
def test_lists_of_nothing_and_of_other_kinds_are_skipped(tmp_path, text):
    (tmp_path / "export.yaml").write_text(text)
    assert ["there are no workflows"] == [p.message for p in lint(tmp_path).problems]


@pytest.mark.parametrize(("depth", "refused"), [(12, False), (20, True)])
def test_lists_in_lists_have_an_end(tmp_path, depth, refused):
    head, tail = "{apiVersion: v1, kind: List, items: [", "]}"
    text = f"{head * depth}{{workflow_id: a, action_type: B, description: 'Evicted high: x'}}{tail * depth}"
    (tmp_path / "export.yaml").write_text(text)
    assert refused == bool(lint(tmp_path).problems)
