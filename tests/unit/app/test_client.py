"""How the outcome of a submitted request is told from everything else on its subjects; the wire is tested elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.analysis import AnalysisResult, Status
from schemas.subjects import Lane, Subjects
from schemas.taxonomy import RequestKind
from tests.fakes.messages import dead, refused, review_result
from worker.app.client import DeadLettered, RequestClient, Submitted, Waiter, lane_of, readable_key

INCIDENT, RECOVERY = RequestKind.INCIDENT, RequestKind.RECOVERY
OURS, OTHERS = "a" * 64, "b" * 64
NAMES = Subjects()
SUBMITTED = Submitted("rca.request.incident", "RCA_REQUESTS", 7, duplicate=False, key="rr-1")


@dataclass
class Message:
    """What a subscription hands over."""

    subject: str
    data: bytes
    headers: dict[str, str] | None = None


def result(digest=OURS, **fields):
    return review_result("rr-1", request_digest=digest, **fields)


def failed():
    return result(status=Status.FAILED, human_review_detail="the request was dead-lettered: boom")


def waiter(*, submitted=SUBMITTED, digest=OURS, key="rr-1"):
    return Waiter(NAMES, INCIDENT, key, digest, submitted=submitted)


async def hear(listening, *messages):
    for message in messages:
        await listening.on_message(message)
    return listening.found()


def published(made):
    return Message(NAMES.result(INCIDENT, "rr-1"), made.model_dump_json().encode())


def rejection(sequence=7, **fields):
    return Message(NAMES.validation_request(), refused(sequence, **fields).model_dump_json().encode())


def letter(sequence=7):
    made = dead(sequence)
    return Message(NAMES.dead_letter(made.reason), b"raw", made.headers())


# -- Keys and lanes


@pytest.mark.parametrize(
    ("body", "kind", "key"),
    [
        (b'{"remediation_id": "rr-1"}', INCIDENT, "rr-1"),
        (b'{"remediation_id": "rr.1"}', INCIDENT, "rr%2E1"),
        (b'{"remediation_id": "rr-1", "recovery_attempt_number": 2}', RECOVERY, "rr-1.2"),
        (b'{"remediation_id": "rr-1"}', RECOVERY, None),
        (b'{"remediation_id": 7}', INCIDENT, None),
        (b'{"remediation_id": null}', INCIDENT, None),
        (b"{}", INCIDENT, None),
        (b"[1]", INCIDENT, None),
        (b"null", INCIDENT, None),
        (b"junk", INCIDENT, None),
        (b"\xff", INCIDENT, None),
        (b"", INCIDENT, None),
        (b"[" * 100_000, INCIDENT, None),
        (b'{"remediation_id": "\\ud800"}', INCIDENT, None),
    ],
)
def test_the_key_of_a_body(body, kind, key):
    assert key == readable_key(body, kind)


@pytest.mark.parametrize(
    ("body", "lane"),
    [
        (b'{"priority": "P0"}', Lane.P0),
        (b'{"priority": "p3"}', Lane.P3),
        (b'{"priority": "P9"}', None),
        (b'{"priority": 1}', None),
        (b'{"priority": null}', None),
        (b"{}", None),
        (b"[]", None),
        (b"junk", None),
    ],
)
def test_the_lane_of_a_body(body, lane):
    assert lane == lane_of(body)


@given(st.binary(max_size=200), st.sampled_from(RequestKind))
def test_any_body_has_a_key_and_a_lane_or_none(body, kind):
    readable_key(body, kind)
    lane_of(body)


# -- Telling outcomes apart


def test_the_subjects_of_a_request():
    subjects = waiter().subjects()
    assert [NAMES.validation_request(), NAMES.dead_letter(">"), "rca.result.incident.rr-1"] == subjects


def test_without_a_key_only_rejections_are_waited_for():
    assert [NAMES.validation_request(), NAMES.dead_letter(">")] == waiter(key=None).subjects()


async def test_a_rejected_outcome_with_the_same_sequence_is_no_answer():
    assert await hear(waiter(), rejection(origin_stream="RCA_OUTCOMES")) is None
    assert await hear(waiter(), rejection()) is not None


async def test_a_result_is_the_outcome():
    assert result() == await hear(waiter(), published(result()))


async def test_the_result_of_another_request_under_the_same_key_is_none():
    assert await hear(waiter(), published(result(OTHERS))) is None


async def test_a_rejection_of_the_submitted_message_is_the_outcome():
    assert await hear(waiter(), rejection(sequence=8)) is None
    found = await hear(waiter(), rejection(sequence=7))
    assert found.origin_sequence == 7


async def test_a_rejection_that_came_before_the_sequence_was_known_counts():
    early = waiter(submitted=None)
    assert await hear(early, rejection(sequence=7)) is None
    early.submitted = SUBMITTED
    assert early.found().origin_sequence == 7


async def test_a_dead_letter_is_the_outcome_and_says_more_than_the_failed_result_before_it():
    listening = waiter()
    assert await hear(listening, published(failed())) is None
    assert await hear(listening, letter(sequence=8)) is None
    assert DeadLettered(reason="internal_error", error="boom") == await hear(listening, letter(sequence=7))


async def test_a_failed_result_alone_is_the_last_word():
    listening = waiter()
    await hear(listening, published(failed()))
    assert DeadLettered(reason="failed", error="the request was dead-lettered: boom") == listening.found(
        last_word=True
    )


async def test_a_newer_result_replaces_a_failed_one():
    assert result() == await hear(waiter(), published(failed()), published(result()))


async def test_listeners_are_woken():
    listening = waiter()
    assert not listening.changed.is_set()
    await hear(listening, rejection(sequence=99))
    assert listening.changed.is_set()


# -- Waiting


class Client(RequestClient):
    """A client whose stored result a test decides about."""

    def __init__(self, *stored: AnalysisResult | None) -> None:
        super().__init__(None, NAMES)
        self.stored = list(stored)

    async def stored_result(self, key):
        return self.stored.pop(0) if self.stored else None


async def test_a_result_that_was_there_before_is_the_outcome():
    assert result() == await Client(result()).outcome(waiter(), SUBMITTED, 5.0)


async def test_a_failed_result_that_was_there_before_is_the_outcome_too():
    assert DeadLettered(reason="failed", error=failed().human_review_detail) == await Client(
        failed()
    ).outcome(waiter(), SUBMITTED, 5.0)


async def test_nothing_within_the_time_is_no_outcome():
    assert await Client().outcome(waiter(), SUBMITTED, 0.0) is None
    assert await Client(result(OTHERS)).outcome(waiter(), SUBMITTED, 0.01) is None


async def test_what_comes_while_waiting_is_the_outcome():
    listening = waiter()
    waiting = asyncio.create_task(Client().outcome(listening, SUBMITTED, 30.0))
    await asyncio.sleep(0)
    await hear(listening, rejection(sequence=99), published(result()))
    assert result() == await waiting


def test_a_dead_letter_as_json():
    letter = DeadLettered(reason="r", error="e")
    assert {"reason": "r", "error": "e"} == letter.model_dump(mode="json")
