from __future__ import annotations

import pytest

from tests.fakes.faulty_api import Fault, FaultPlan


def _fires(plan: FaultPlan, path: str, times: int) -> list[bool]:
    return [plan.take(path) is not None for _ in range(times)]


def test_path_is_a_glob() -> None:
    plan = FaultPlan([Fault(path="/api/v1/namespaces/*/pods*", status=500)])
    assert _fires(plan, "/api/v1/namespaces/shop/pods/a/log", 1) == [True]
    assert _fires(plan, "/api/v1/nodes", 1) == [False]


def test_times() -> None:
    assert _fires(FaultPlan([Fault(times=2, status=500)]), "/x", 4) == [True, True, False, False]


def test_every() -> None:
    assert _fires(FaultPlan([Fault(every=2, times=2)]), "/x", 6) == [False, True, False, True, False, False]


def test_first_rule_that_fires_wins() -> None:
    first, second = Fault(status=500, times=1), Fault(status=503)
    plan = FaultPlan([first, second])
    assert [plan.take("/x"), plan.take("/x")] == [first, second]


@pytest.mark.parametrize("rule", [{"status": 200}, {"statu": 500}, {"every": 0}, {"delay_seconds": -1}])
def test_rule_that_makes_no_sense(rule: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="Fault"):
        Fault.model_validate(rule)
