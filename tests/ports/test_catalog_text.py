"""How well text ranks workflows: by words, by parts of names, and on the incidents of the corpus."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus_files import CORPUS
from tests.fakes.many_workflows import many_workflows, some_contexts
from tests.fakes.memory_catalog import labels, workflow
from worker.adapters.file_catalog import FileCatalog
from worker.domain.search import parse_query
from worker.domain.selection import mismatches
from worker.domain.text_index import TextIndex
from worker.domain.workflow import SelectionContext

WORKFLOWS = [
    workflow("memory", title="Raise memory", description="OOMKilled critical: raises the memory limit."),
    workflow(
        "rollback", description="CrashLoopBackOff critical: rolls back a rollout.", when_to_use="A bad image."
    ),
    workflow(
        "drain", "DrainNode", labels=labels(signal_type=["NodeNotReady", "*"]), description="Moves pods."
    ),
]
EVERY = [w.workflow_id for w in WORKFLOWS]


@pytest.fixture(scope="module")
def index():
    return TextIndex(WORKFLOWS)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("OOMKilled", {"memory"}),
        ("oom", {"memory"}),
        ("raising limits", {"memory"}),
        ("NodeNotReady", {"drain"}),
        ("node", {"drain"}),
        ("rollouts", {"rollback"}),
        ("image", {"rollback"}),
        ("memory pods", {"memory", "drain"}),
        ("restart workload", {"memory", "rollback"}),
        ("", set()),
        ("!?", set()),
        ("nothing", set()),
    ],
)
def test_words_names_and_parts_of_names_are_found(index, query, found):
    assert found == set(index.scores(query, EVERY))


def test_rare_words_weigh_more_than_frequent_ones(index):
    scores = index.scores("critical rollout memory", EVERY)
    assert scores["memory"] > 0
    assert scores["rollback"] > 0
    more = index.scores("rollout memory limit", EVERY)
    assert more["memory"] > more["rollback"]


def test_only_what_is_asked_for_is_scored(index):
    assert {"rollback"} == set(index.scores("critical back", ["rollback", "drain"]))


def test_the_score_of_a_query_is_the_sum_of_those_of_its_words(index):
    one, two = index.scores("memory", EVERY), index.scores("rollout memory", EVERY)
    assert pytest.approx(one["memory"]) == two["memory"]


@given(st.text(max_size=200))
def test_any_text_can_be_scored(text):
    assert set(TextIndex(WORKFLOWS[:1]).scores(text, ["memory"])) <= {"memory"}


def dev_cases():
    """Incidents of the corpus for which its catalog has a workflow whose labels fit."""
    for folder in sorted((CORPUS / "cases").iterdir()):
        request = json.loads((folder / "incident.json").read_text(encoding="utf-8"))
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        if acceptable := expected["workflows"].get("acceptable_label_match"):
            places = [expected["affected_resource"], *expected["acceptable_affected_resources"]]
            context = SelectionContext(
                environment=request.get("environment", ""),
                priority=request.get("priority", ""),
                components=tuple(dict.fromkeys(("", place["kind"]) for place in places)),
            )
            yield folder.name, f"{expected['signal_type']} {request['severity']}", context, set(acceptable)


async def test_signal_type_and_severity_rank_an_acceptable_workflow_first():
    catalog = await FileCatalog.open(CORPUS / "catalog")
    missed = {}
    cases = list(dev_cases())
    for name, text, context, acceptable in cases:
        query = parse_query(text, [text.split()[0]])
        first = [m.workflow.workflow_id for m in (await catalog.search(query, context)).matches][:1]
        if not acceptable.intersection(first):
            missed[name] = first
    assert len(cases) >= 15
    assert 1 - len(missed) / len(cases) >= 0.9, missed


async def test_among_thousands_the_best_come_first():
    large = FileCatalog(many_workflows(await FileCatalog.open(CORPUS / "catalog"), 2_000))
    for context in some_contexts(20):
        query = parse_query(f"{context.signal_type} {context.severity}")
        unmanaged = replace(context, detected_labels={"gitops_managed": False})
        page = await large.search(query, unmanaged)
        qualities = [m.confidence for m in page.matches]
        assert sorted(qualities, reverse=True) == qualities
        assert all(not mismatches(m.workflow, query.applied_to(unmanaged)) for m in page.matches)
