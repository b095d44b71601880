from __future__ import annotations

import pytest

from tests.fakes.manifests import event, pod
from worker.domain.cluster.events import happenings
from worker.domain.cluster.timeline import timeline

API = pod("api-0")


def start(reason, second, count=6):
    when = f"2026-06-04T15:20:{second:02}Z"
    return event(
        API, reason, f"{reason} it", type="Normal", count=count, first="2026-06-04T15:00:00Z", last=when
    )


def test_one_start_of_a_container_is_one_line():
    found = timeline(happenings([start("Pulled", 0), start("Created", 1), start("Started", 2)]), 2000)
    [line] = found.body.splitlines()
    head, message = line.split(" Pod shop/api-0: ")
    assert head == "2026-06-04T15:20:02Z Normal Pulled+Created+Started x6 (since 15:00:00Z)"
    assert message == "Pulled it; Created it; Started it"
    assert found.left_out == 0


@pytest.mark.parametrize("other", [start("Started", 30), start("Started", 2, count=5), start("Killing", 1)])
def test_other_events_are_not_joined_to_a_start(other):
    assert len(timeline(happenings([start("Pulled", 0), other]), 2000).body.splitlines()) == 2


def test_when_room_is_short_normal_and_old_events_go_first():
    noise = [
        event(API, "Pulled", f"image {i}", type="Normal", uid=f"n{i}", last=f"2026-06-04T15:2{i % 10}:00Z")
        for i in range(50)
    ]
    kept = timeline(happenings([event(API, "OOMKilling", "killed"), *noise]), 120)
    assert any("OOMKilling" in line for line in kept.body.splitlines())
    assert 51 == len(kept.body.splitlines()) + kept.left_out


def test_a_reason_may_have_a_plus():
    found = timeline(happenings([event(API, "Scaled+Moved", "done")]), 2000)
    assert (1, 0) == (len(found.body.splitlines()), found.left_out)
