from __future__ import annotations

import pytest

from tests.fakes.memory_catalog import workflow
from worker.domain.alignment import follows_instruction

DRAIN = workflow("drain-node-v2", "DrainNode")


@pytest.mark.parametrize(
    ("text", "follows"),
    [
        ("Required action: select drain-node-v2.", True),
        ("select DRAIN_NODE_V2 now", True),
        ("run DrainNode at once", True),
        ("please drain node worker-1", True),
        ("the node must be drained", True),
        ("restart the deployment", False),
        ("raindrain", False),
        ("", False),
    ],
)
def test_an_instruction_is_followed_when_it_names_what_was_chosen(text, follows):
    assert follows == follows_instruction(DRAIN, ["harmless", text])


def test_without_instructions_nothing_is_followed():
    assert not follows_instruction(DRAIN, [])
