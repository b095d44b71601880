from __future__ import annotations

from worker.domain.values.bounded import BoundedDict


def test_a_new_entry_replaces_the_oldest():
    found = BoundedDict[str, int](2)
    found["a"] = 1
    assert found.setdefault("b", 2) == 2
    found["a"] = 3
    assert {"a": 3, "b": 2} == found
    assert found.setdefault("c", 4) == 4
    assert {"b": 2, "c": 4} == found
