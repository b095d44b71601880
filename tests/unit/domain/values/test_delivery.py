from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from schemas.subjects import EXHAUSTED
from worker.domain.values.delivery import Delivery, MessageId, retry, urgency_of


@pytest.mark.parametrize(
    ("durable", "urgency"), [("p0", 0), ("p1", 1), ("p2", 2), ("p3", 3), (EXHAUSTED, 2), ("", 2), ("P0", 2)]
)
def test_a_delivery_is_as_urgent_as_its_lane(durable, urgency):
    delivery = Delivery("rca.request.incident", "RCA_REQUESTS", durable, 1, 1, datetime.now(UTC))
    assert (urgency, urgency) == (delivery.urgency, urgency_of(durable))


def test_nothing_is_given_back_without_a_delay():
    assert [0.001, 0.001, 2.0] == [retry(seconds).after_seconds for seconds in (-1.0, 0.0, 2.0)]


def test_the_identity_of_a_message_survives_a_journal():
    message = MessageId(7, datetime(2026, 6, 4, 12, 0, 0, 123456, UTC))
    assert message == MessageId.from_notes(message.as_notes())
    assert (None, None) == (MessageId.from_notes({}), MessageId.from_notes({"message": "x"}))


@pytest.mark.parametrize(
    "notes", [{"message": 7}, {"message": 7, "stored_at": None}, {"message": 7, "stored_at": "x"}]
)
def test_a_journal_of_an_older_version_names_the_sequence_alone(notes):
    older, now = MessageId.from_notes(notes), MessageId(7, datetime.now(UTC))
    assert MessageId(7) == older
    assert (True, True, False) == (older.matches(now), now.matches(older), older.matches(MessageId(8)))


def test_the_same_sequence_at_another_time_is_another_message():
    stored_at = datetime(2026, 6, 4, tzinfo=UTC)
    assert not MessageId(7, stored_at).matches(MessageId(7, stored_at + timedelta(microseconds=1)))
