from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.taxonomy import SEVERITY_ALIASES, Severity, SignalType, normalize_severity
from worker.domain.catalog.search import (
    EXAMPLE,
    FORM,
    MAX_KEYWORDS,
    BadQueryError,
    TiedWorkflows,
    best_matches,
    match_quality,
    parse_query,
    undecided,
)
from worker.domain.catalog.selection import CAUSE_WEIGHT, LabelFit
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import SelectionContext


@pytest.mark.parametrize(
    ("text", "signal_type", "severity", "keywords"),
    [
        ("OOMKilled critical", "OOMKilled", Severity.CRITICAL, ()),
        ("ImagePullBackOff medium", "ImagePullBackOff", Severity.MEDIUM, ()),
        ("OOMKilled critical deployment memory", "OOMKilled", Severity.CRITICAL, ("deployment", "memory")),
        ("  oomkilled\tCRITICAL \n", "OOMKilled", Severity.CRITICAL, ()),
        ("CrashLoopBackoff, high, out-of-memory", "CrashLoopBackOff", Severity.HIGH, ("out-of-memory",)),
        ("Evicted warning", "Evicted", Severity.MEDIUM, ()),
        ("Evicted unknown", "Evicted", Severity.UNKNOWN, ()),
        ("KubePodCrashLooping high", "KubePodCrashLooping", Severity.HIGH, ()),
        ("hpamaxedout low", "HPAMaxedOut", Severity.LOW, ()),
        ("OOMKilled critical recovery", "OOMKilled", Severity.CRITICAL, ("recovery",)),
    ],
)
def test_a_query_is_signal_type_severity_and_keywords(text, signal_type, severity, keywords):
    expected = SearchQuery(signal_type, severity, keywords)
    assert expected == parse_query(text, ["HPAMaxedOut"])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "the query is empty"),
        (" \n ", "the query is empty"),
        ("OOMKilled", 'the second word must be a severity (critical, high, medium, low, unknown), not ""'),
        (
            "OOMKilled urgent",
            'the second word must be a severity (critical, high, medium, low, unknown), not "urgent"',
        ),
        ("critical OOMKilled", 'the signal type comes first: "OOMKilled critical"'),
        ("high", "the signal type comes first"),
        ("memory issue", "the first word must be a signal type (OOMKilled, CrashLoopBackOff, "),
        ("pod keeps crashing due to memory", "the first word must be a signal type"),
        ("pod high", "the first word must be a signal type"),
        ("Find workflows for OOMKilled", "the second word must be a severity"),
        ('{"signal_type": "OOMKilled", "severity": "critical"}', 'a query is plain words, without "{"'),
        ("signal_type=OOMKilled critical", 'a query is plain words, without "="'),
        ("OOMKilled critical namespace: shop", 'a query is plain words, without ":"'),
        ("OOMKilled critical ; drop", 'a query is plain words, without ";"'),
        ("OOMKilled critical api-7d9f8c6b54-x2x4z", 'leave "api-7d9f8c6b54-x2x4z" out'),
        ("OOMKilled critical shop/api", 'leave "shop/api" out'),
        ("OOMKilled critical P0", 'leave "P0" out'),
        ("OOMKilled critical Production", 'leave "Production" out'),
        ("OOMKilled critical payment-service", 'leave "payment-service" out'),
        (f"OOMKilled critical {'word ' * (MAX_KEYWORDS + 1)}", f"at most {MAX_KEYWORDS} keywords"),
        ("OOMKilled critical " + "x" * 300, "a query has at most 256 characters"),
        ("🔥 critical", "the first word must be a signal type"),
    ],
)
def test_a_bad_query_is_answered_with_how_to_write_it(text, wrong):
    with pytest.raises(BadQueryError) as raised:
        parse_query(text, names=["production", "payment-service"])
    said = str(raised.value)
    assert wrong == said[: len(wrong)]
    assert FORM in said
    assert EXAMPLE in said


def test_the_example_is_a_query():
    assert EXAMPLE == str(parse_query(EXAMPLE))


WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Z"]), max_size=40)


@given(st.one_of(st.text(max_size=400), st.lists(WORDS, max_size=6).map(" ".join)))
def test_any_text_is_a_query_that_reads_back_as_itself_or_is_refused(text):
    outcome = read(text)
    if isinstance(outcome, SearchQuery):
        assert outcome == read(str(outcome))
    else:
        assert FORM in outcome
        assert len(outcome) < 500


def read(text):
    try:
        return parse_query(text)
    except BadQueryError as refused:
        return str(refused)


@given(
    st.sampled_from([*SignalType, "HPAMaxedOut", "etcdMembersDown"]),
    st.sampled_from([*Severity, *SEVERITY_ALIASES]),
    st.lists(st.sampled_from(["deployment", "memory", "rollback", "node", "disk"]), max_size=MAX_KEYWORDS),
    st.sampled_from([str.lower, str.upper, str]),
)
def test_queries_of_the_form_are_read_in_any_case(signal_type, severity, keywords, spell):
    text = " ".join([spell(str(signal_type)), spell(str(severity)), *keywords])
    query = parse_query(text, ["HPAMaxedOut", "etcdMembersDown"])
    assert (signal_type, normalize_severity(severity), tuple(keywords)) == (
        query.signal_type,
        query.severity,
        query.keywords,
    )


def test_a_query_replaces_what_the_context_says_about_the_cause():
    context = SelectionContext(environment="production", signal_type="Evicted", severity="low")
    applied = SearchQuery("OOMKilled", Severity.CRITICAL).applied_to(context)
    assert ("production", "OOMKilled", "critical") == (
        applied.environment,
        applied.signal_type,
        applied.severity,
    )


@pytest.mark.parametrize(
    ("exact", "place", "places", "expected"),
    [(2, 0, 1, 0.99), (2, 0, 3, 0.99), (2, 1, 3, 0.96), (2, 2, 3, 0.93), (1, 0, 2, 0.79), (0, 1, 2, 0.445)],
)
def test_match_quality_comes_in_tiers_that_the_place_refines(exact, place, places, expected):
    assert expected == match_quality(exact, place, places)


@given(st.integers(0, 2), st.integers(1, 5000), st.integers(0, 4999))
def test_no_place_lifts_a_match_into_the_next_tier(exact, places, place):
    quality = match_quality(exact, min(place, places - 1), places)
    assert (0.4, 0.7, 0.9)[exact] <= quality <= (0.49, 0.79, 0.99)[exact]


def fitting(*fits):
    """Workflows of these fits (exact causes, and a rank among those), best first, named by their places."""
    made = sorted((LabelFit(False, exact * CAUSE_WEIGHT, rank) for exact, rank in fits), reverse=True)
    groups = itertools.groupby(enumerate(made), lambda each: each[1])
    return [TiedWorkflows(fit, names(place for place, _ in same)) for fit, same in groups]


def names(places):
    return [f"w-{place:02}" for place in places]


def test_those_that_match_alike_have_the_same_quality_and_a_worse_one_is_behind_all_of_them():
    order = fitting((2, 1), (2, 1), (2, 0), (1, 0), (0, 0))
    found = best_matches(order, SearchQuery("Evicted", Severity.HIGH, min_confidence=0), {})
    assert tuple(zip(names(range(5)), (0.99, 0.99, 0.93, 0.79, 0.49), strict=True)) == found.shown
    assert (5, 0) == (found.total, found.weaker)


def test_all_are_counted_and_no_more_are_ordered_than_are_shown():
    order = fitting(*[(2, 3)] * 4, *[(2, 2)] * 4, *[(2, 1)] * 4, *[(0, 0)] * 2)
    query = SearchQuery("Evicted", Severity.HIGH, max_results=5)
    assert names(range(8)) == undecided(order, query)
    found = best_matches(order, query, {name: place for place, name in enumerate(names(range(8)))})
    assert (names([3, 2, 1, 0, 7]), 12, 2) == ([name for name, _ in found.shown], found.total, found.weaker)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=30),
    st.lists(st.integers(1, 3), min_size=30, max_size=30),
    st.sampled_from([0, 0.43, 0.7, 0.75, 0.93, 0.98]),
    st.integers(1, 10),
)
def test_what_is_not_ordered_makes_no_difference(fits, scores, min_confidence, max_results):
    query = SearchQuery("Evicted", Severity.HIGH, min_confidence=min_confidence, max_results=max_results)
    order, all_scores = fitting(*fits), dict(zip(names(range(30)), scores, strict=True))
    some = {name: all_scores[name] for name in undecided(order, query)}
    found = best_matches(order, query, some)
    assert best_matches(order, query, all_scores) == found
    assert some.keys() >= {name for name, _ in found.shown}
