"""Places of bits; what labels decide is tested with the index of workflows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.domain.catalog.label_bits import PIECE_BITS, places_of


@given(st.sets(st.integers(0, 8 * PIECE_BITS), max_size=60))
def test_the_places_of_bits_are_those_that_were_set_lowest_first(places):
    assert sorted(places) == list(places_of(sum(1 << place for place in places)))
