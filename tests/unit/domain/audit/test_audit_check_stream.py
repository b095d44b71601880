"""What configuration and counters of the stream say about events that are gone, or came from elsewhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.fakes.messages import NOON
from worker.domain.audit.check import TrailStream, stream_findings
from worker.domain.audit.findings import ChainProblem

AGE = timedelta(days=90)
WANT = {"subjects": ["rca.audit.>"], "max_age": 90, "discard": "new"}
OLD = TrailStream(NOON - 2 * AGE, 10, 101, 110, NOON, 0, {**WANT, "max_msgs": -1, "allow_rollup_hdrs": False})
YOUNG = replace(OLD, created=NOON - timedelta(days=1))
EMPTY = {"messages": 0, "first": 111}


def problems(have, archived=0):
    found = stream_findings(have, WANT, max_age=AGE, now=NOON, archived=archived)
    return [finding.problem for finding in found]


@pytest.mark.parametrize(
    "have",
    [
        OLD,
        replace(YOUNG, first=1),
        replace(YOUNG, messages=0, first=1, last=0, last_at=None),  # never used
        replace(OLD, **EMPTY, last_at=NOON - AGE),  # all have expired
        replace(OLD, config={**OLD.config, "max_age": 91}),
        replace(OLD, config={**OLD.config, "max_bytes": 1}),  # with discard new: refuses, deletes nothing
    ],
)
def test_a_stream_that_lost_nothing_before_its_time(have):
    assert [] == problems(have)


@pytest.mark.parametrize(
    ("have", "archived"),
    [
        (YOUNG, 0),  # nothing can have expired
        (YOUNG, 99),
        (replace(YOUNG, **EMPTY), 109),
        (replace(OLD, **EMPTY), 0),
        (replace(OLD, **EMPTY, last_at=NOON - AGE + timedelta(seconds=1)), 0),
    ],
)
def test_events_that_are_gone_before_their_time_unless_an_archive_has_them(have, archived):
    assert [ChainProblem.STREAM_EMPTIED] == problems(have, archived)
    assert [] == problems(have, have.first - 1)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"sources": [{"name": "X"}]}, ChainProblem.STREAM_FEED),
        ({"mirror": {"name": "X"}}, ChainProblem.STREAM_FEED),
        ({"subject_transform": {"src": "x", "dest": "rca.audit.x"}}, ChainProblem.STREAM_FEED),
        ({"subjects": ["rca.audit.>", "x"]}, ChainProblem.STREAM_FEED),
        ({"subjects": []}, ChainProblem.STREAM_FEED),
        ({"max_age": 1}, ChainProblem.STREAM_LIMITS),
        ({"max_msgs": 1}, ChainProblem.STREAM_LIMITS),
        ({"max_msgs_per_subject": 1}, ChainProblem.STREAM_LIMITS),
        ({"discard": "old"}, ChainProblem.STREAM_LIMITS),
        ({"allow_rollup_hdrs": True}, ChainProblem.STREAM_LIMITS),
        ({"allow_msg_ttl": True}, ChainProblem.STREAM_LIMITS),
    ],
)
def test_a_configuration_that_deletes_events_or_takes_those_of_others(config, problem):
    assert [problem] == problems(replace(OLD, config={**OLD.config, **config}))


def test_single_deletions():
    assert [ChainProblem.STREAM_DELETED] == problems(replace(OLD, deleted=3))
