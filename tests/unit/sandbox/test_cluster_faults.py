from __future__ import annotations

from pathlib import Path

import pytest

from worker.sandbox.cluster_faults import Fault, FaultPlan, parse_fault, read_faults


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


def test_from_a_command_line() -> None:
    expected = Fault(path="/api/v1/pods*", status=429, retry_after_seconds=2, times=3)
    assert expected == parse_fault("path=/api/v1/pods*, status=429,retry_after_seconds=2,times=3")
    assert parse_fault("hang") == Fault(hang=True)


@pytest.mark.parametrize("text", ["status=200", "statu=500", "every=0", "delay_seconds=-1", "status=x"])
def test_rule_that_makes_no_sense(text: str) -> None:
    with pytest.raises(ValueError, match="Fault"):
        parse_fault(text)


def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('[{"path": "*/log", "drop": true}, {"delay_seconds": 0.5}]')
    assert read_faults(file) == [Fault(path="*/log", drop=True), Fault(delay_seconds=0.5)]
    file.write_text('{"drop": true}')
    with pytest.raises(ValueError, match="list"):
        read_faults(file)
