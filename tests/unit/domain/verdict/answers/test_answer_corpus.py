"""Every recorded reply is read, or refused, as its index row says; all rows hold, whatever their firmness."""

from __future__ import annotations

import pytest

from tests.corpus_files import ReplyRow, corpus_path, reply_rows
from tests.fakes.answers import read, unreadable


def reply(row: ReplyRow) -> str:
    return corpus_path(f"llm_replies/{row.file}").read_text(encoding="utf-8")


READABLE = [row for row in reply_rows() if row.should_parse]
UNREADABLE = [row for row in reply_rows() if not row.should_parse]


@pytest.mark.parametrize("row", READABLE, ids=lambda row: row.file)
def test_a_recorded_answer_is_read_with_its_facts(row):
    answer = read(reply(row))
    workflow = answer.selected_workflow
    target = answer.affected_resource
    parameters = workflow.parameters if workflow else {}
    facts = row.expected_facts | {"human_review": None}

    assert facts == {
        "workflow_id": workflow.workflow_id if workflow else None,
        "confidence": workflow.confidence if workflow else answer.confidence,
        "affected": {"kind": target.kind, "name": target.name, "namespace": target.namespace},
        "human_review": None,
        "parameters": {name: value for name, value in parameters.items() if not name.startswith("TARGET_")},
    }
    assert answer.workflow_stated


@pytest.mark.parametrize("row", UNREADABLE, ids=lambda row: row.file)
def test_a_recorded_reply_without_one_answer_is_rejected(row):
    assert unreadable(reply(row))


def test_there_are_replies_of_both_kinds():
    assert (len(READABLE) > 40, len(UNREADABLE) > 5) == (True, True)
