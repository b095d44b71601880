"""Sets of workflows as numbers, and their order by weights."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_catalog import labels, workflow
from worker.domain.catalog.label_index import Kind, LabelMatch, Places, by_weight, index_of, keys_for
from worker.domain.values.workflows import SelectionContext

SETS = st.sets(st.integers(0, 200), max_size=20)
CONTEXT = SelectionContext(environment="staging", detected_labels={"gitops_managed": True})


@given(SETS, st.integers(-5, 205))
def test_places_are_the_bits_that_are_set(places, place):
    found = Places.of(places)
    assert (sorted(places), len(places), place in places) == (list(found), len(found), place in found)


@given(SETS, st.lists(st.tuples(SETS, st.integers(1, 4)), max_size=4))
def test_members_are_ordered_by_the_sum_of_their_weights(members, terms):
    sums = {place: sum(weight for term, weight in terms if place in term) for place in members}
    expected = [(total, {p for p in members if sums[p] == total}) for total in sorted({*sums.values()})[::-1]]
    found = by_weight(Places.of(members).bits, [(Places.of(term).bits, weight) for term, weight in terms])
    assert expected == [(total, set(Places(bits))) for total, bits in found]


def test_the_entries_of_a_context_are_enough_to_match_it():
    known = [
        workflow("a", labels=labels(environment="production")),
        workflow("b", labels=labels(environment="*")),
        workflow("c", labels=labels(environment="*"), detected_labels={"gitops_managed": True}),
    ]
    whole = index_of(known)
    asked = {kind: {} for kind in Kind}
    for kind, label, value in keys_for(CONTEXT):
        if (label, value) in whole[kind]:
            asked[kind][label, value] = whole[kind][label, value]
    one, other = LabelMatch(whole, CONTEXT), LabelMatch(asked, CONTEXT)
    assert (one.size, one.ordered(-1), one.counts()) == (other.size, other.ordered(-1), other.counts())
    assert (3, {"environment": 1}) == (one.size, one.counts_alone())
