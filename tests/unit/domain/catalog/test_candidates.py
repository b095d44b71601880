"""Selecting among candidates; the answers of whole catalogs are tested in test_in_memory.py."""

from __future__ import annotations

from tests.fakes.memory_catalog import labels, workflow
from worker.domain.catalog.candidates import Candidates
from worker.domain.catalog.selection import declared
from worker.domain.values.workflows import SelectionContext

STAGING = SelectionContext(environment="staging")


def test_a_type_of_action_is_found_in_any_case_and_an_unknown_one_has_no_workflows():
    candidates = Candidates(
        [workflow("b", "Scale", labels={}), workflow("a", "scale"), workflow("c", "Drain")]
    )
    found = candidates.of_action(" SCALE ", STAGING)
    assert (3, ["b"], {"environment": 1}) == (len(candidates), found.ids, found.excluded)
    nothing = candidates.of_action("Restart", STAGING)
    assert ([], {}, {}) == (nothing.ids, nothing.excluded, nothing.excluded_alone)


def test_labels_of_equal_counts_keep_the_order_of_labels():
    candidates = Candidates([workflow("a", labels=labels(priority="P0", environment="production"))])
    context = SelectionContext(environment="staging", priority="P1")
    assert ["environment", "priority"] == list(candidates.select(context).excluded)


def test_workflows_that_declare_the_same_share_it():
    one, other = declared(workflow("a")), declared(workflow("b"))
    assert all(one[label] is other[label] for label in one)
