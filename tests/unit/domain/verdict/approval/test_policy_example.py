from __future__ import annotations

import json
from dataclasses import replace

from worker.domain.verdict.approval.policy import (
    EXAMPLE,
    example_input,
    missing_fields,
    policy_input,
    unknown_fields,
)


def test_the_example_is_what_a_policy_is_asked():
    asked = example_input()
    assert json.loads(json.dumps(asked, allow_nan=False)) == asked
    assert ([], []) == (unknown_fields(asked), missing_fields(asked))


def test_what_nobody_knows_may_be_missing():
    asked = policy_input(replace(EXAMPLE, estimated_downtime_seconds=None))
    assert [] == missing_fields(asked)


def test_misspelt_fields_are_found_at_any_depth():
    asked = example_input() | {"enviroment": "dev", "custom_labels": {"anything": []}}
    asked["action"] = {"action": "x", "riskLevel": "low"}
    asked["detected_labels"] = {"gitOpsManged": True, "hpaEnabled": False}
    assert [
        "detected_labels.gitOpsManged (did you mean detected_labels.gitOpsManaged?)",
        "action.riskLevel (did you mean action.risk_level?)",
        "enviroment (did you mean environment?)",
    ] == unknown_fields(asked)
    assert ["action.risk_level"] == missing_fields(asked)


def test_of_a_missing_object_only_its_name_is_reported():
    asked = example_input()
    del asked["target_resource"], asked["priority"]
    assert ["target_resource", "priority"] == missing_fields(asked)


def test_a_track_record_that_is_not_known_is_no_mistake():
    unknown = {**example_input(), "track_record": None}
    assert ([], []) == (unknown_fields(unknown), missing_fields(unknown))
    assert ["track_record"] == missing_fields({k: v for k, v in unknown.items() if k != "track_record"})
