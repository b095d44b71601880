from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.tokens import real_tokens
from worker.domain.cluster.rendering.compact import Rendered
from worker.domain.enrichment.evidence_pack import Piece, pack
from worker.domain.untrusted.evidence import EvidenceLog, fence
from worker.domain.values.tokens import cut_middle


def piece(words, rank, cap, name="x"):
    text = " ".join([name] * words)

    def render(tokens):
        cut = cut_middle(text, tokens)
        return Rendered(cut.text, f"{cut.missing} characters" if cut.missing else "")

    return Piece(name, f"scope of {name}", rank, cap, render)


def cost(packed):
    log = EvidenceLog()
    return sum(real_tokens(fence(log.add(item), "4f2a9c01b7d3")) for item in packed)


def test_what_fits_is_shown_whole_and_in_order():
    packed = pack([piece(50, 5, 100, "late"), piece(50, 0, 100, "early")], 1000)
    assert ["enrichment:late", "enrichment:early"] == [item.source for item in packed]
    assert ["", ""] == [item.cut for item in packed]


def test_room_that_is_left_goes_to_the_most_important():
    packed = pack([piece(500, 5, 100, "minor"), piece(500, 0, 100, "major")], 900)
    assert packed[0].cut
    assert not packed[1].cut


def test_without_room_the_least_important_piece_is_left_out():
    packed = pack([piece(200, 9, 200, "minor"), piece(200, 0, 200, "major")], 280)
    assert ["enrichment:major"] == [item.source for item in packed]


@given(
    st.lists(st.tuples(st.integers(1, 600), st.integers(0, 9), st.integers(20, 500)), max_size=12),
    st.integers(100, 2300),
)
def test_the_pack_fits_its_budget(sizes, budget):
    assert cost(pack([piece(*size, name="word") for size in sizes], budget)) <= budget


def test_a_budget_that_holds_nothing_leaves_all_out():
    assert () == pack([piece(200, 0, 100)], 50)
