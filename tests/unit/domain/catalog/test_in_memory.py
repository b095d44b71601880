from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from schemas.taxonomy import Severity
from tests.examples import examples
from tests.fakes.any_workflows import CONTEXTS, QUERIES, WORKFLOWS
from tests.fakes.memory_catalog import MemoryCatalog, labels, workflow
from worker.domain.catalog.in_memory import CatalogSnapshot
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import ActionText, SelectionContext

CONTEXT = SelectionContext(
    environment="production",
    priority="P1",
    severity="critical",
    signal_type="CrashLoopBackOff",
    components=(("v1", "Pod"), ("apps/v1", "ReplicaSet"), ("apps/v1", "Deployment")),
)


def ids(workflows):
    return [w.workflow_id for w in workflows]


def listed(workflows, context=CONTEXT):
    return ids(CatalogSnapshot(workflows).page("RestartWorkload", context).workflows)


def found(workflows, query, context=CONTEXT, scores=()):
    page = CatalogSnapshot(workflows).search(query, context, lambda _: dict(scores))
    return [(match.workflow.workflow_id, match.confidence) for match in page.matches]


# -- order


def test_exact_labels_come_before_wildcards_and_ids_decide_between_equals():
    exact = workflow("z-exact")
    wild = workflow("a-wild", labels={**exact.labels, "environment": ("*",)})
    also_exact = workflow("b-exact")
    assert ["b-exact", "z-exact", "a-wild"] == listed([wild, exact, also_exact])


def test_an_exact_cause_comes_before_any_number_of_exact_business_labels():
    cause = workflow("z", labels=labels(signal_type="CrashLoopBackOff", severity="critical"))
    business = workflow(
        "a",
        labels=labels(
            signal_type="*",
            severity="critical",
            environment="production",
            priority="P1",
            component="Deployment",
        ),
    )
    assert ["z", "a"] == listed([business, cause])


def test_the_target_itself_comes_before_its_owners():
    owner = workflow("a", labels=labels(component="apps/v1/Deployment"))
    itself = workflow("z", labels=labels(component="Pod"))
    assert ["z", "a"] == listed([owner, itself])


def test_custom_labels_rank_and_never_exclude():
    careful = workflow("a-bold", custom_labels={"risk_tolerance": ("high",)})
    fitting = workflow("z-careful", custom_labels={"risk_tolerance": ("low",)})
    plain = workflow("m-plain")
    context = replace(CONTEXT, risk_tolerance="low", custom_labels={"risk_tolerance": ["high"]})
    assert ["z-careful", "m-plain", "a-bold"] == listed([careful, plain, fitting], context)


def test_detected_labels_rank_by_fit():
    fitting = workflow("z", detected_labels={"stateful": True})
    any_mesh = workflow("b", detected_labels={"service_mesh": "*"})
    unfit = workflow("a", detected_labels={"hpa_enabled": True})
    context = replace(
        CONTEXT, detected_labels={"stateful": True, "hpaEnabled": False, "serviceMesh": "istio"}
    )
    assert ["z", "b", "m", "a"] == listed([unfit, workflow("m"), any_mesh, fitting], context)


def test_on_a_gitops_managed_target_aware_workflows_come_first():
    aware = workflow("z", labels={}, custom_labels={"gitops_aware": ("true",)})
    exact = workflow("a")
    managed = replace(CONTEXT, detected_labels={"gitOpsManaged": True})
    assert ["z", "a"] == listed([exact, aware], managed)
    assert ["a", "z"] == listed([exact, aware])


# -- pages and counts


def test_exclusions_count_workflows_by_label():
    workflows = [
        workflow("a", labels=labels(environment="staging")),
        workflow("b", labels=labels(environment="staging", severity="low")),
        workflow("c"),
    ]
    page = CatalogSnapshot(workflows).page("RestartWorkload", CONTEXT)
    assert ["c"] == ids(page.workflows)
    assert [("environment", 2), ("severity", 1)] == list(page.excluded.items())


def test_actions_are_counted_with_their_signal_types_and_those_without_a_fit_are_left_out():
    workflows = [
        workflow("a", "Scale", labels=labels(signal_type=["*", "OOMKilled"])),
        workflow("b", "Restart"),
        workflow("c", "Restart", labels={}),
        workflow("d", "Drain", labels=labels(environment="staging")),
    ]
    actions = CatalogSnapshot(workflows, {"Restart": ActionText("restarts")}).actions(CONTEXT)
    assert [
        ("Restart", ActionText("restarts"), 2, ("CrashLoopBackOff",)),
        ("Scale", ActionText(), 1, ("OOMKilled",)),
    ] == [(a.action_type, a.text, a.workflow_count, a.signal_types) for a in actions]


def test_pages_follow_one_another_to_the_end():
    index = CatalogSnapshot([workflow(f"w-{n:02}") for n in range(25)])
    seen, cursor, sizes = [], "", []
    while True:
        page = index.page("restartworkload", CONTEXT, cursor)
        seen += ids(page.workflows)
        sizes.append(len(page.workflows))
        cursor = page.next_cursor
        if not cursor:
            break
    assert [10, 10, 5] == sizes
    assert [f"w-{n:02}" for n in range(25)] == seen


@given(st.text(max_size=60))
def test_a_cursor_nobody_issued_starts_again(cursor):
    index = CatalogSnapshot([workflow(f"w-{n:02}") for n in range(12)])
    assert index.page("RestartWorkload", CONTEXT, cursor).workflows[0].workflow_id == "w-00"


def test_an_empty_catalog_answers_with_nothing():
    index = CatalogSnapshot([])
    page = index.search(SearchQuery("Evicted", Severity.HIGH), CONTEXT, lambda _: {})
    assert ((), None, (), 0) == (index.actions(CONTEXT), index.get("a", CONTEXT), page.matches, page.total)


# -- search

EVERY = SearchQuery("CrashLoopBackOff", Severity.CRITICAL, min_confidence=0)


def test_match_quality_is_by_exactness_of_the_cause_and_then_by_text():
    both = workflow("both")
    one = workflow("one", labels=labels(signal_type="CrashLoopBackOff", severity="*"))
    undeclared = workflow("other", labels=labels(severity="critical"))
    none = workflow("none", labels=labels(signal_type="*"))
    assert [("both", 0.99), ("one", 0.79), ("other", 0.79), ("none", 0.49)] == found(
        [none, undeclared, one, both], EVERY
    )
    scores = {"both": 7.5, "other": 0.25, "none": 0.25}
    assert [("both", 0.99), ("other", 0.79), ("one", 0.745), ("none", 0.49)] == found(
        [none, undeclared, one, both], EVERY, scores=scores
    )


def test_text_decides_between_workflows_whose_labels_fit_alike():
    assert [("b", 0.99), ("a", 0.96), ("c", 0.93)] == found(
        [workflow("a"), workflow("b"), workflow("c")], EVERY, scores={"a": 1.0, "b": 2.0}
    )


def test_quality_falls_with_the_place_whatever_the_text_says():
    exact = workflow("exact")
    wild = workflow("wild", labels={**exact.labels, "environment": ("*",)})
    assert [("exact", 0.99), ("wild", 0.945)] == found([wild, exact], EVERY, scores={"wild": 9.0})


def test_a_search_is_bounded_and_says_what_else_there_is():
    weak = [workflow(f"w-{n}", labels=labels(signal_type="*")) for n in range(3)]
    good = [workflow(f"g-{n}") for n in range(5)]
    out = [
        workflow("o-1", labels=labels(environment="staging")),
        workflow("o-2", labels=labels(environment="staging", signal_type="Evicted")),
    ]
    query = replace(EVERY, min_confidence=0.7, max_results=2)
    page = CatalogSnapshot([*weak, *good, *out]).search(query, CONTEXT, lambda _: {})
    assert ["g-0", "g-1"] == [m.workflow.workflow_id for m in page.matches]
    assert (5, 3) == (page.total, page.weaker)
    assert ({"environment": 2, "signal_type": 1}, {"environment": 1}) == (page.excluded, page.excluded_alone)


def test_only_what_fits_is_ranked_by_text():
    asked = []
    workflows = [workflow("a"), workflow("b", labels=labels(priority="P0"))]
    CatalogSnapshot(workflows).search(EVERY, CONTEXT, lambda names: asked.extend(names) or {})
    assert ["a"] == asked


# -- the same answers as a walk over the list


@examples(300)
@given(WORKFLOWS, CONTEXTS)
async def test_lists_are_those_of_a_walk_over_all_workflows(workflows, context):
    plain, index = MemoryCatalog(workflows), CatalogSnapshot(workflows)
    assert list(index.actions(context)) == await plain.actions(context)
    cursor = ""
    for _ in range(3):
        page = index.page("RESTART", context, cursor)
        assert await plain.workflows("RESTART", context, cursor) == page
        cursor = page.next_cursor
    for w in workflows:
        assert await plain.get(w.workflow_id, context) == index.get(w.workflow_id, context)


@examples(300)
@given(WORKFLOWS, CONTEXTS, QUERIES)
async def test_searches_are_those_of_a_walk_over_all_workflows(workflows, context, query):
    plain = MemoryCatalog(workflows)
    page = CatalogSnapshot(workflows).search(query, context, lambda ids: plain.text_scores(query, ids))
    assert await plain.search(query, context) == page
