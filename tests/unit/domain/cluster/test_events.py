from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.hostile import OBJECTS
from tests.fakes.manifests import NOW, event, pod
from worker.domain.cluster.events import happenings, since_moment
from worker.domain.cluster.timeline import timeline
from worker.domain.values.tokens import estimate_tokens

API = pod("api-0")


def lines(*events, tokens=2000):
    return timeline(happenings(events), tokens).body.splitlines()


def test_an_event_is_one_line_in_the_format():
    assert ["2026-06-04T15:20:00Z Warning BackOff x6 (since 15:00:00Z) Pod shop/api-0: restarting"] == lines(
        event(API, "BackOff", "restarting", count=6)
    )


def test_a_single_event_has_no_count_and_no_range():
    single = event(API, "Started", "Started container", type="Normal", first="2026-06-04T15:20:00Z")
    assert ["2026-06-04T15:20:00Z Normal Started Pod shop/api-0: Started container"] == lines(single)


def test_newest_is_last():
    found = lines(
        event(API, "B", "later", last="2026-06-04T15:10:00Z", first="2026-06-04T15:10:00Z"),
        event(API, "A", "earlier", last="2026-06-04T15:05:00Z", first="2026-06-04T15:05:00Z"),
    )
    assert ["earlier", "later"] == [line.rsplit(": ", 1)[1] for line in found]


def test_events_of_the_new_recorder_have_only_event_time_and_series():
    series = {
        **event(API, "FailedScheduling", "0/3 nodes", first=None, last=None, count=None),
        "eventTime": "2026-06-04T15:00:00.123456Z",
        "series": {"count": 7, "lastObservedTime": "2026-06-04T15:20:00.5Z"},
    }
    expected = "2026-06-04T15:20:00Z Warning FailedScheduling x7 (since 15:00:00Z) Pod shop/api-0: 0/3 nodes"
    assert [expected] == lines(series)


def test_both_views_of_one_stored_event_are_one_event():
    core = event(API, "BackOff", "restarting", count=6, uid="same")
    newer = {
        "metadata": core["metadata"],
        "type": "Warning",
        "reason": "BackOff",
        "note": "restarting",
        "regarding": core["involvedObject"],
        "deprecatedCount": 6,
        "deprecatedFirstTimestamp": core["firstTimestamp"],
        "deprecatedLastTimestamp": core["lastTimestamp"],
    }
    assert lines(core) == lines(core, newer) == lines(newer)


def test_events_that_differ_only_in_durations_and_uids_are_folded():
    one = event(API, "BackOff", "back-off 10s restarting (0fd1c5de-0000-4000-8000-0123456789ab)", uid="1")
    two = event(
        API, "BackOff", "back-off 5m0s restarting (0fd1c5de-0000-4000-8000-0123456789ab)", uid="2",
        last="2026-06-04T15:25:00Z",
    )  # fmt: skip
    assert [
        "2026-06-04T15:25:00Z Warning BackOff x2 (since 15:00:00Z) Pod shop/api-0: back-off 5m0s restarting"
    ] == [line.rstrip() for line in lines(one, two)]


def test_events_that_differ_only_in_the_id_of_a_container_are_folded():
    one, two = (
        event(
            API, "Killing", f"Stopping container {digit * 64}", uid=digit, last=f"2026-06-04T15:2{digit}:00Z"
        )
        for digit in "12"
    )
    assert 1 == len(lines(one, two))


def test_an_earlier_day_is_reported():
    early = event(API, "BackOff", "restarting", count=6, first="2026-06-03T15:00:00Z")
    assert " (since 2026-06-03T15:00:00Z) " in lines(early)[0]


def test_a_longer_name_that_begins_with_that_of_the_object_is_reported():
    said = "Preempted by shop/api-01 on node-1"
    assert lines(event(API, "Preempted", said))[0].endswith(said)


def test_the_name_of_the_object_is_not_told_twice():
    back_off = event(
        API,
        "BackOff",
        "Back-off restarting failed container app in pod api-0_shop(0fd1c5de-0000-4000-8000-0123456789ab)",
    )
    scheduled = event(API, "Scheduled", "Successfully assigned shop/api-0 to node-1", type="Normal")
    told = [line.split("Pod shop/api-0: ")[1] for line in lines(back_off, scheduled)]
    assert told == ["Back-off restarting failed container app", "Successfully assigned to node-1"]


def test_different_objects_are_not_folded():
    assert 2 == len(lines(event(API, "BackOff", "m"), event(pod("api-1"), "BackOff", "m")))


def test_an_event_without_any_time_says_so():
    unknown = event(API, "Odd", "m", first=None, last=None)
    assert ["unknown-time Warning Odd Pod shop/api-0: m"] == lines(unknown)


def test_a_message_cannot_start_a_line_of_its_own():
    assert 1 == len(
        "\n".join(lines(event(API, "Odd", "a\n2026-06-04T15:20:00Z Normal Fine Pod shop/x: b"))).split("\n")
    )


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("30m", datetime(2026, 6, 4, 15, 0, tzinfo=UTC)),
        ("2h", datetime(2026, 6, 4, 13, 30, tzinfo=UTC)),
        ("1d", datetime(2026, 6, 3, 15, 30, tzinfo=UTC)),
        ("2026-06-04T15:00:00Z", datetime(2026, 6, 4, 15, 0, tzinfo=UTC)),
        ("2026-06-04T17:00:00+02:00", datetime(2026, 6, 4, 15, 0, tzinfo=UTC)),
        ("yesterday", None),
        ("", None),
    ],
)
def test_since_counts_from_the_given_moment(since, expected):
    assert expected == since_moment(since, NOW)


@given(st.lists(OBJECTS, max_size=5), st.integers(min_value=10, max_value=300))
def test_any_objects_make_a_timeline_within_the_budget(events, budget):
    shown = timeline(happenings(events), budget)
    assert estimate_tokens(shown.body) <= budget
    assert all("\n" not in item.line() for item in happenings(events))


def test_many_alike_do_not_push_out_the_only_one_of_its_kind():
    crowd = [event(pod(f"aaa-{i}", namespace="busy"), "Noise", f"{i}", uid=f"n{i}") for i in range(200)]
    rare = event(API, "Evicted", "low on memory", first="2026-06-04T14:00:00Z", last="2026-06-04T14:00:00Z")
    shown = lines(*crowd, rare, tokens=200)
    assert "Evicted" in shown[0]
    assert "Noise" in shown[-1]


@pytest.mark.parametrize(
    "time", ["2026-13-45T00:00:00Z", "not a time at all", "2026-06-04T15:00:00", 7, None]
)
def test_a_time_of_any_form_makes_a_line(time):
    assert 1 == len(lines(event(API, "Odd", "m", first=time, last=time)))
