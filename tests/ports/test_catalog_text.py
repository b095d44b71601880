"""How well text ranks workflows: by words, by parts of names, and on the incidents of the corpus."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog_queries import incidents, missed
from tests.corpus_files import CORPUS
from tests.fakes.many_workflows import many_workflows, some_contexts
from tests.fakes.memory_catalog import labels, workflow
from worker.adapters.file_catalog import FileCatalog
from worker.domain.catalog.search import parse_query
from worker.domain.catalog.selection import mismatches
from worker.domain.catalog.similarity import TextIndex

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


async def test_signal_type_and_severity_rank_an_acceptable_workflow_first():
    searches = incidents()
    wrong = await missed(await FileCatalog.open(CORPUS / "catalog"), searches)
    assert len(searches) >= 15
    assert len(wrong) <= 0.1 * len(searches), wrong


async def test_among_thousands_the_best_come_first():
    large = FileCatalog(many_workflows(await FileCatalog.open(CORPUS / "catalog"), 2_000))
    for context in some_contexts(20):
        query = parse_query(f"{context.signal_type} {context.severity}")
        unmanaged = replace(context, detected_labels={"gitops_managed": False})
        page = await large.search(query, unmanaged)
        qualities = [m.confidence for m in page.matches]
        assert sorted(qualities, reverse=True) == qualities
        assert all(not mismatches(m.workflow, query.applied_to(unmanaged)) for m in page.matches)
