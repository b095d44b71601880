"""What the file catalog refuses, what it warns of, and where it says the fault is."""

from __future__ import annotations

import textwrap
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus_files import CORPUS
from tests.fakes.hostile import VALUES
from worker.adapters.file_catalog import FileCatalog, lint
from worker.adapters.file_catalog.loading import KUBERNAUT, CatalogContents, read_into
from worker.adapters.file_catalog.yaml_documents import YamlDocument
from worker.domain.catalog.documents import WorkflowDocument
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import SelectionContext

HEAD = "workflow_id: a\naction_type: Restart\ndescription: 'Evicted high: x'\n"


def write(directory, text, name="a.yaml"):
    (directory / name).write_text(textwrap.dedent(text))


def found(directory):
    """(line, message) of each problem; warnings start with `warning: `."""
    return [(p.line, f"{'warning: ' if p.warning else ''}{p.message}") for p in lint(directory).problems]


def test_the_catalog_of_the_corpus_has_no_problems():
    assert lint(CORPUS / "catalog").problems == ()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("workflow_id: a\ndescription: 'Evicted high: x'\n", 1, "action_type: Field required"),
        (
            "workflow_id: a\naction_type: R\ndescription: Evicted high: x\n",
            3,
            "invalid YAML: mapping values are not allowed in this context: put text with a colon",
        ),
        (HEAD + "labels: {severity: }\n", 4, "labels.severity: an empty value matches no incident"),
        (
            HEAD + "kind: Workflow\n",
            1,
            "warning: skipped: a workflow in the flat form must not have kind",
        ),
        (
            "apiVersion: kubernaut.ai/v1alpha1\nkind: RemediationWorkflw\nspec: {}\n",
            2,
            "warning: kind: RemediationWorkflw is skipped: did you mean RemediationWorkflow?",
        ),
        (
            "apiVersion: kubernaut.ai/v1alpha1\nkind: Fix\nspec: {actionType: R}\n",
            2,
            "warning: kind: Fix is skipped: did you mean RemediationWorkflow?",
        ),
        (
            "apiVersion: kubernaut.ai/v1alpha1\nKind: RemediationWorkflow\nspec: {actionType: R}\n",
            1,
            "warning: kind: an object without kind is skipped: did you mean RemediationWorkflow?",
        ),
        (
            "apiVersion: kubernau.ai/v1alpha1\nkind: ActionType\nspec: {}\n",
            1,
            "warning: apiVersion: ActionType of kubernau.ai/v1alpha1 is skipped: did you mean kubernaut.ai/v1alpha1?",
        ),
        (
            "kind: RemediationWorkflow\nspec: {actionType: R}\n",
            1,
            "apiVersion: RemediationWorkflow requires apiVersion kubernaut.ai/v",
        ),
        (HEAD + "parameters:\n- name: P\n  type: text\n", 6, "parameters.0.type: Input should be"),
        (
            HEAD + "parameters:\n- name: P\n  pattern: '(?=x)'\n",
            6,
            "parameters.0.pattern: not a regular expression",
        ),
        (HEAD + "parameters:\n- name: P\n- name: P\n", 6, "parameters.1.name: P is declared twice"),
        (HEAD + "parameters:\n- type: string\n", 5, "parameters.0: a parameter requires a name"),
        (
            HEAD + "parameters:\n- name: P\n  depends_on: [Q]\n",
            6,
            "parameters.0.depends_on: Q is not declared",
        ),
        (
            HEAD + "parameters:\n- name: P\n  type: integer\n  default: x\n",
            7,
            "parameters.0.default: must be an integer",
        ),
        (
            HEAD + "parameters:\n- name: P\n  type: int\n  enum: [1, x]\n",
            7,
            "parameters.0.enum.1: must be an integer",
        ),
        (
            HEAD + "parameters:\n- name: P\n  minimum: 2\n  maximum: 1\n",
            5,
            "parameters.0: the minimum is greater",
        ),
        (
            HEAD + "parameters:\n- name: P\n  items: {type: string}\n",
            6,
            "parameters.0.items: only a parameter of type array",
        ),
        (
            HEAD + "parameters:\n- name: P\n  minimum: lots\n",
            6,
            "parameters.0.minimum: Input should be a valid number",
        ),
        (HEAD + "labels:\n  severity: [critical, awful]\n", 5, "labels.severity: not a severity: awful"),
        (HEAD + "labels:\n  priority: []\n", 5, "labels.priority: Value should have at least 1 item"),
        (HEAD + "labels:\n  region: eu\n", 5, "warning: labels.region: not a label that selects"),
        (
            HEAD + "detected_labels: {hpaEnabeld: 'true'}\n",
            4,
            "warning: detected_labels.hpaEnabeld: not a detected label",
        ),
        (HEAD + "paramaters: []\n", 4, "warning: paramaters: unknown field, ignored"),
        (HEAD + "parameters:\n- name: P\n  patern: x\n", 6, "warning: parameters.0.patern: unknown field"),
        (
            "workflow_id: a\naction_type: R\ndescription: restarts\n",
            3,
            "warning: description: should begin with",
        ),
        (
            "workflow_id: a\naction_type: R\ndescription: 'Evicted bad: x'\n",
            3,
            "warning: description: should begin with",
        ),
        (HEAD + "labels: {signal_type: OOMKilled}\n", 3, "warning: description: should begin with"),
        (HEAD + "success_rate: 96\n", 4, "success_rate: Input should be less than or equal to 1"),
        ("some: text\n", 1, "warning: skipped: neither workflow_id nor"),
        ("- a\n- b\n", 1, "a document must be a mapping"),
        (HEAD + "version: 1\nversion: 2\n", 5, "the key version occurs twice"),
        (
            HEAD + "version: !!python/object:os.system x\n",
            4,
            "tags are not supported: remove tag:yaml.org,2002:python/object:os.sys",
        ),
        ("a: &a {b: 1}\n" + HEAD + "labels:\n  <<: *a\n", 6, "keys must be plain text; merge keys"),
        (HEAD + "labels: {environment: [x\n", 5, "invalid YAML:"),
        (
            "apiVersion: kubernaut.ai/v2\nkind: RemediationWorkflow\nspec: {}\n",
            1,
            "apiVersion: RemediationWorkflow requires apiVersion",
        ),
    ],
)
def test_a_problem_names_its_line_and_field(tmp_path, text, line, message):
    write(tmp_path, text)
    ((where, what),) = [p for p in found(tmp_path) if "there are no workflows" not in p[1]]
    assert (line, message) == (where, what[: len(message)])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            "priority: [P0, urgent]",
            "labels.priority: urgent matches no incident: priorities are P0, P1, P2, P3",
        ),
        (
            "severity: [high, unknown]",
            "labels.severity: unknown matches no incident: an unknown severity",
        ),
        (
            "environment: prodution",
            "labels.environment: prodution matches no incident: did you mean production?",
        ),
        (
            "signalName: [Evicted, OOMKiled]",
            "labels.signalName: OOMKiled matches no incident: did you mean OOMKilled?",
        ),
        (
            "component: deployments",
            "labels.component: deployments matches no incident: the kind is Deployment",
        ),
        ("component: apps/v1/*", "labels.component: apps/v1/* matches no incident: a component is * or"),
        (
            "component: apps/v1/Deployment/x",
            "labels.component: apps/v1/Deployment/x matches no incident: a comp",
        ),
    ],
)
def test_a_label_that_nothing_can_match_is_doubted(tmp_path, labels, message):
    write(tmp_path, HEAD + "labels:\n  " + labels + "\n")
    (what,) = [what for where, what in found(tmp_path) if where == 5]
    assert f"warning: {message}" == what[: len(message) + 9]


@pytest.mark.parametrize(
    ("detected", "message"),
    [
        ("gitOpsTool: argo", "argo matches no target: use one of argocd, flux"),
        ("stateful: sometimes", "sometimes matches no target: use one of true, false"),
        ("service_mesh: ''", "an empty value matches no target: use one of istio, linkerd"),
    ],
)
def test_a_detected_label_that_nothing_can_match_is_doubted(tmp_path, detected, message):
    write(tmp_path, HEAD + f"detected_labels: {{{detected}}}\n")
    name = detected.partition(":")[0]
    assert [(4, f"warning: detected_labels.{name}: {message}")] == found(tmp_path)


@pytest.mark.parametrize(
    "labels",
    [
        "signal_type: [Evicted, KubeNodeNotReady, JobDeadlineExceeded, crashloopbackoff, '*']",
        "environment: [prod, Production, staging-eu, qa]",
        "component: [Node, apps/v1/Deployment, argoproj.io/v1alpha1/Rollout, '*']",
        "priority: [p0, '*']",
        "kubernaut.io/risk-tolerance: low",
    ],
)
def test_open_vocabularies_are_left_alone(tmp_path, labels):
    write(tmp_path, HEAD + "labels:\n  " + labels + "\n")
    assert [] == found(tmp_path)


def test_one_problem_does_not_hide_another(tmp_path):
    write(
        tmp_path,
        HEAD
        + """\
version: [1]
labels: {severity: awful, priority: [], environment: prodution}
parameters:
- {name: P, type: integr, pattern: '(?=x)', minimum: 2, maximum: 1}
- {name: P, typ: string}
unknown: x
---
workflow_id: a
description: 'Evicted high: y'
labels: {severity: bad}
""",
    )
    assert [
        (4, "version: Input should be a valid string"),
        (5, "labels.priority: Value should have at least 1 item after validation, not 0"),
        (5, "labels.severity: not a severity: awful; use critical, high, medium, low or *"),
        (5, "warning: labels.environment: prodution matches no incident: did you mean production?"),
        (7, "parameters.0.type: Input should be 'string', 'integer', 'number', 'boolean' or 'array'"),
        (7, "parameters.0: the minimum is greater than the maximum"),
        (8, "parameters.1.name: P is declared twice"),
        (8, "warning: parameters.1.typ: unknown field, ignored: check its spelling"),
        (9, "warning: unknown: unknown field, ignored: check its spelling"),
        (11, "action_type: Field required"),
        (11, f"workflow_id: a is declared twice, first at {tmp_path / 'a.yaml'}:1"),
        (13, "labels.severity: not a severity: bad; use critical, high, medium, low or *"),
    ] == [p for p in found(tmp_path) if "regular expression" not in p[1] and "no workflows" not in p[1]]
    assert 1 == sum("parameters.0.pattern: not a regular expression" in what for _, what in found(tmp_path))


async def test_nothing_at_all_is_as_good_as_not_there(tmp_path):
    write(
        tmp_path,
        """\
        workflow_id: a
        action_type: Restart
        description:
        version: ~
        labels: null
        custom_labels:
        execution: {engine: , bundle: 'null'}
        parameters:
        - {name: P, default: null, enum: , description: ~, items: null}
        - {name: Q, default: '~'}
        ---
        ---
        # nothing but a remark
        """,
    )
    (one,) = await FileCatalog.open(tmp_path)
    assert ("", "", {}, {}, "", "null") == (
        one.description,
        one.version,
        one.labels,
        one.custom_labels,
        one.engine,
        one.container_image,
    )
    assert [(None, ()), ("~", ())] == [(p.default, p.enum) for p in one.parameters]


def test_an_id_declared_twice_names_the_first_place(tmp_path):
    write(tmp_path, HEAD, "a.yaml")
    write(tmp_path, "# again\n" + HEAD, "b.yaml")
    ((line, message),) = found(tmp_path)
    assert (2, f"workflow_id: a is declared twice, first at {tmp_path / 'a.yaml'}:1") == (line, message)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000,
        "- " * 200 + "x",
        "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a, *a]\na: &a [*b{n}, *b{n}]\n" for n in range(3)),
        "a0: &a0 [x, x]\n"
        + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 25)),
        "&a [*a]",
        "- x\n" * 200_000,
        "x" * (1024 * 1024 + 1),
        "a: \x00",
    ],
    ids=["flow", "block", "same keys", "aliases", "recursive", "many", "large", "control"],
)
def test_hostile_files_are_one_problem_each(tmp_path, text):
    write(tmp_path, text)
    (problem,) = lint(tmp_path).problems
    assert not problem.warning


FIELDS = sorted(
    {*WorkflowDocument.model_fields, "actionType", "workflowID", "customLabels", "detectedLabels"}
)


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES | st.dictionaries(st.sampled_from(FIELDS), VALUES)))
def test_any_document_is_a_workflow_or_has_problems(written):
    for value in (written, {"apiVersion": KUBERNAUT, "kind": "RemediationWorkflow", "spec": written}):
        loaded = CatalogContents()
        read_into(loaded, YamlDocument("a.yaml", value))
        assert loaded.workflows or loaded.problems
        assert all(1 == len(str(problem).splitlines()) for problem in loaded.problems)


@pytest.mark.parametrize(
    "text",
    [
        "a: \x00",
        HEAD + 'labels: {severity: "aw\\nful\\e[2J", "en\\nv": x}\n',
        HEAD + '"x\\ny": 1\n"x\\ny": 2\n',
        HEAD + f"labels: {{severity: {'x' * 5000}}}\n",
    ],
)
def test_a_problem_is_one_short_line_whatever_stands_in_the_file(tmp_path, text):
    write(tmp_path, text)
    for problem in map(str, lint(tmp_path).problems):
        assert problem.isprintable()
        assert len(problem) < len(str(tmp_path)) + 600


def test_a_file_that_is_not_utf_8_is_a_problem(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: \xff")
    assert found(tmp_path) == [(0, "the file is not UTF-8")]


async def test_an_invalid_catalog_does_not_open_and_lists_every_problem(tmp_path):
    write(tmp_path, "workflow_id: b\n", "a.yaml")
    write(tmp_path, HEAD + "labels:\n  severity: awful\nunknown: x\n", "b.yaml")
    with pytest.raises(CatalogUnavailable) as caught:
        await FileCatalog.open(tmp_path)
    text = str(caught.value)
    assert "2 problems" in text
    assert f"{tmp_path / 'a.yaml'}:1: action_type: Field required" in text
    assert f"{tmp_path / 'b.yaml'}:5: labels.severity: not a severity: awful" in text


async def test_warnings_do_not_stop_a_catalog_and_an_empty_one_does_not_open(tmp_path):
    with pytest.raises(CatalogUnavailable, match="no workflows"):
        await FileCatalog.open(tmp_path)
    write(tmp_path, "kind: RemediationWorkflw\nspec: {}\n", "skipped.yaml")
    with pytest.raises(CatalogUnavailable, match=r"skipped.yaml:1: warning: kind: RemediationWorkflw"):
        await FileCatalog.open(tmp_path)
    write(tmp_path, HEAD + "unknown: x\n")
    catalog = await FileCatalog.open(tmp_path)
    assert (await catalog.get("a", SelectionContext())).workflow_id == "a"


async def test_values_mean_what_the_field_declares_not_what_yaml_guesses(tmp_path):
    write(
        tmp_path,
        HEAD
        + "version: 1.10\nparameters:\n"
        + "- {name: SWITCH, type: string, enum: [on, off, 08, 1.0], default: on}\n"
        + "- {name: COUNT, type: integer, enum: [1, 2], default: '2'}\n"
        + "- {name: FORCE, type: bool, required: yes, default: false}\n",
    )
    catalog = await FileCatalog.open(tmp_path)
    workflow = await catalog.get("a", SelectionContext())
    assert workflow.version == "1.10"
    switch, count, force = workflow.parameters
    assert (switch.enum, switch.default) == (("on", "off", "08", "1.0"), "on")
    assert (count.enum, count.default) == ((1, 2), 2)
    assert (force.required, force.default) == (True, False)


async def test_how_long_it_takes_and_how_often_it_works_can_be_declared(tmp_path):
    write(tmp_path, HEAD + "estimated_duration_seconds: 90\nsuccess_rate: 0.96\n")
    workflow = await (await FileCatalog.open(tmp_path)).get("a", SelectionContext())
    assert (90, 0.96) == (workflow.estimated_duration_seconds, workflow.success_rate)


async def only_id(directory):
    catalog = await FileCatalog.open(directory)
    (action,) = await catalog.actions(SelectionContext())
    page = await catalog.workflows(action.action_type, SelectionContext())
    return page.workflows[0].workflow_id


async def test_without_a_declared_id_the_content_makes_one(tmp_path):
    text = "apiVersion: kubernaut.ai/v1alpha1\nkind: RemediationWorkflow\nmetadata: {name: a}\nspec:\n  actionType: R\n"
    write(tmp_path, text)
    first = await only_id(tmp_path)
    write(tmp_path, text.replace("name: a}", "name: a, labels: {x: y}}"))
    same = await only_id(tmp_path)
    write(tmp_path, text + "  version: '2'\n")
    other = await only_id(tmp_path)
    assert uuid.UUID(first).version == 5
    assert (first == same, first == other) == (True, False)


async def test_a_mounted_config_map_is_read_once(tmp_path):
    hidden = tmp_path / "..2026_06_04"
    hidden.mkdir()
    write(hidden, HEAD)
    (tmp_path / "..data").symlink_to(hidden)
    (tmp_path / "a.yaml").symlink_to(tmp_path / "..data" / "a.yaml")
    assert await only_id(tmp_path) == "a"
