from __future__ import annotations

from datetime import UTC, datetime

import pytest

from schemas.subjects import EXHAUSTED
from worker.domain.values.delivery import Delivery, retry, urgency_of


@pytest.mark.parametrize(
    ("durable", "urgency"), [("p0", 0), ("p1", 1), ("p2", 2), ("p3", 3), (EXHAUSTED, 2), ("", 2), ("P0", 2)]
)
def test_a_delivery_is_as_urgent_as_its_lane(durable, urgency):
    delivery = Delivery("rca.request.incident", "RCA_REQUESTS", durable, 1, 1, datetime.now(UTC))
    assert (urgency, urgency) == (delivery.urgency, urgency_of(durable))


def test_nothing_is_given_back_without_a_delay():
    assert [0.001, 0.001, 2.0] == [retry(seconds).after_seconds for seconds in (-1.0, 0.0, 2.0)]
