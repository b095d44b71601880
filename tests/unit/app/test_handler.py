"""What becomes of one message, over ports in memory: its settlement, and what was published before it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
import structlog

from schemas.analysis import AnalysisResult, HumanReviewReason, Status
from schemas.failure import EXCERPT_BYTES, ValidationCode
from tests.corpus_files import corpus_path, payload_rows
from tests.fakes.desk import Desk, body
from tests.fakes.dying_run import Killed
from tests.fakes.memory_model import MemoryModel, final
from tests.fakes.scripted import DELIVERY, World, answer, chosen, incident, recovery
from worker.domain.values.delivery import ACK, Fate
from worker.domain.values.errors import Retry, RetryReason, Unavailable
from worker.domain.values.step_kinds import FINISHED, RESULT

DOWN = Retry(RetryReason.MODEL_UNAVAILABLE, "503")
SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"


@pytest.fixture(autouse=True)
def logged():
    """What is logged: event names and fields."""
    with structlog.testing.capture_logs() as entries:
        yield entries


# -- What is read


async def test_a_request_is_analysed_published_and_acked():
    desk = Desk()
    assert ACK == await desk.take()
    assert (Status.COMPLETED, "rr-1") == (desk.result.status, desk.result.remediation_id)
    assert desk.world.model.calls == 1
    assert desk.count("rca_results_total", kind="incident", status="completed", reason="none") == 1
    assert desk.count("rca_running") == 0


async def test_a_recovery_is_told_by_its_subject():
    desk = Desk(World.saying(final(chosen(workflow_id="rollback-v1"))))
    assert ACK == await desk.take(body(recovery()), "rca.request.recovery.P0")
    assert [("recovery", "rr-1.1")] == list(desk.world.events.results)


async def test_a_body_that_cannot_be_read_is_published_with_its_errors_and_never_comes_again():
    desk = Desk()
    settled = await desk.take(body(severity="terrible", priority="P9"))
    assert (Fate.TERMINATE, "rejected: schema") == (settled.fate, settled.reason)
    [failure] = desk.world.events.rejections
    assert ValidationCode.SCHEMA is failure.code
    assert {"severity", "priority"} == {error.path for error in failure.errors}
    assert ("RCA_REQUESTS", 7, "rr-1", "rr-1", "inc-1", None) == (
        failure.origin_stream,
        failure.origin_sequence,
        failure.request_key,
        failure.remediation_id,
        failure.incident_id,
        failure.attempt,
    )
    assert (0, {}, {}) == (desk.world.model.calls, desk.world.events.results, desk.world.journal.steps)
    assert desk.count("rca_rejected_requests_total", code="schema") == 1


@pytest.mark.parametrize("row", [row for row in payload_rows() if not row.accepted], ids=lambda row: row.file)
async def test_no_bad_payload_is_dropped_silently(row):
    desk = Desk()
    subject = "rca.request.recovery" if row.is_recovery else "rca.request.incident"
    settled = await desk.take(corpus_path(f"payloads/{row.file}").read_bytes() or b"\x00", subject)
    published = desk.world.events.rejections or desk.world.events.results
    assert bool(published) is True
    assert settled.fate in {Fate.TERMINATE, Fate.DONE}


@pytest.mark.parametrize(
    "junk", [b"", b"\xff\xfe", b"{", b"[" * 100_000, b'{"remediation_id": NaN}', b"null", b"\x1f\x8b\x08"]
)
async def test_junk_is_rejected(junk):
    desk = Desk()
    settled = await desk.handler(
        junk, {"reply_to": "evil"}, replace(DELIVERY, stored_at=desk.world.clock.now())
    )
    assert settled.fate is Fate.TERMINATE
    assert len(desk.world.events.rejections) == 1


async def test_secrets_of_a_rejected_body_are_not_published():
    desk = Desk()
    await desk.take(body(severity=SECRET, description=f"x {SECRET}", priority=7))
    assert "FAKE" not in desk.world.events.rejections[0].model_dump_json()


async def test_a_secret_is_not_shown_by_half_where_the_excerpt_ends():
    for shift in range(0, len(SECRET), 3):
        desk = Desk()
        await desk.take(b"x " * ((EXCERPT_BYTES - shift) // 2) + SECRET.encode() + b" tail")
        excerpt = desk.world.events.rejections[0].excerpt
        assert "FAKE" not in excerpt
        assert len(excerpt.encode()) <= EXCERPT_BYTES


async def test_another_cluster_is_rejected_where_one_is_set():
    desk = Desk(rules={"cluster_name": "east"})
    settled = await desk.take(body(incident(cluster_name="west")))
    assert (Fate.TERMINATE, ValidationCode.WRONG_CLUSTER) == (
        settled.fate,
        desk.world.events.rejections[0].code,
    )
    assert ACK == await desk.take(body(incident(cluster_name="east")))


async def test_ids_of_any_kind_have_their_own_journal_and_result():
    desk = Desk()
    for remediation_id in ("rr.1", "rr%2E1", "rr *>", "ünï", "rr=2E1"):
        assert ACK == await desk.take(body(incident(remediation_id=remediation_id)))
    assert len(desk.world.events.results) == len(desk.world.journal.steps) == desk.world.model.calls == 5


# -- What was answered before


async def test_a_request_with_a_result_is_acked_without_a_call():
    desk = Desk()
    await desk.take()
    assert ACK == await desk.take()
    assert (1, []) == (desk.world.model.calls, desk.world.events.rejections)


async def test_the_journal_of_an_answered_request_is_deleted_but_for_a_tombstone():
    desk = Desk()
    await desk.take()
    assert [FINISHED] == desk.kept
    desk.world.events.results.clear()  # as when the stream of results was emptied
    assert ACK == await desk.take()
    assert (1, {}) == (desk.world.model.calls, desk.world.events.results)


@pytest.mark.parametrize("moment", ["append", "delete"])
async def test_a_redelivery_finishes_what_a_process_that_died_after_publishing_left(moment):
    desk = Desk()

    def die(at):
        if at == moment:
            raise Killed

    desk.world.journal.on_finish = die
    with pytest.raises(Killed):
        await desk.take()
    assert RESULT in desk.kept
    events, desk.world.journal.on_finish = list(desk.world.events.audits), lambda _: None
    desk.new_process()
    assert ACK == await desk.take()
    assert [FINISHED] == desk.kept
    assert (1, 1, events) == (desk.world.model.calls, len(desk.world.events.told), desk.world.events.audits)


async def test_a_request_whose_result_was_deleted_can_be_sent_again():
    desk = Desk()
    await desk.take()
    desk.world.events.results.clear()
    desk.says(final(answer()))
    assert ACK == await desk.take(sequence=8)
    assert (1, [FINISHED]) == (desk.world.model.calls, desk.kept)
    chains = {event.chain for event in desk.world.events.audits}
    assert len(chains) == 2


async def test_a_finished_request_keeps_its_key_from_others():
    desk = Desk()
    await desk.take()
    desk.world.events.results.clear()
    await desk.take(body(severity="low"), sequence=8)
    assert [ValidationCode.KEY_CONFLICT] == [failure.code for failure in desk.world.events.rejections]


async def test_a_journal_that_cannot_be_deleted_keeps_nobody_from_the_answer(logged):
    desk = Desk()

    def fail(_):
        raise Unavailable("full")

    desk.world.journal.on_finish = fail
    assert ACK == await desk.take()
    assert "journal_not_deleted" in [entry["event"] for entry in logged]


async def test_the_same_question_at_another_time_is_the_same_question():
    desk = Desk()
    await desk.take()
    assert ACK == await desk.take(body(incident(received_time="2026-06-04T15:40:00Z")))
    assert desk.world.model.calls == 1


async def test_another_question_under_the_same_id_is_a_conflict_and_not_answered_with_the_old_result():
    desk = Desk()
    await desk.take()
    first = desk.result
    settled = await desk.take(body(description="another one"), sequence=8)
    assert (Fate.TERMINATE, "rejected: key_conflict") == (settled.fate, settled.reason)
    [failure] = desk.world.events.rejections
    assert (ValidationCode.KEY_CONFLICT, "remediation_id", 8) == (
        failure.code,
        failure.path,
        failure.origin_sequence,
    )
    assert (1, first) == (desk.world.model.calls, desk.result)


async def test_another_question_does_not_go_on_with_the_journal_of_the_first():
    desk = Desk(World.saying(DOWN))
    await desk.take()
    desk.says(final(answer()))
    settled = await desk.take(body(description="another one"), sequence=8)
    assert (Fate.TERMINATE, "rejected: key_conflict") == (settled.fate, settled.reason)
    assert desk.world.model.calls == 0
    assert ACK == await desk.take()
    assert desk.result.status is Status.COMPLETED


async def test_another_question_leaves_the_one_that_is_being_analysed_alone():
    desk = Desk()
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow(MemoryModel):
        async def ask(self, request):
            asked.set()
            await go.wait()
            return await super().ask(request)

    desk.world.model = Slow([final(answer())])
    desk.new_process()
    first = asyncio.create_task(desk.take())
    await asked.wait()
    settled = await desk.take(body(description="another one"), sequence=8)
    assert "rejected: key_conflict" == settled.reason
    go.set()
    assert ACK == await first
    assert (Status.COMPLETED, 1) == (desk.result.status, desk.world.model.calls)


async def test_fields_that_were_not_read_are_in_the_audit_trail():
    desk = Desk()
    await desk.take(body(ownerChain=[], x={"y": 1}))
    assert ("ownerChain", "x") == desk.world.events.audits[0].payload.ignored_fields


async def test_a_conflict_that_is_found_when_publishing_is_one_too():
    desk = Desk()
    other = AnalysisResult.model_validate_json(
        (await World().analyse(incident(description="x"))).model_dump_json()
    )

    def publish_first(request, number):
        desk.world.events.results["incident", "rr-1"] = other.model_dump_json().encode()
        return final(answer())

    desk.says()
    desk.world.model = MemoryModel(publish_first)
    desk.new_process()
    settled = await desk.take()
    assert "rejected: key_conflict" == settled.reason
    assert other == desk.result


# -- What comes too late


@pytest.mark.parametrize(("seconds", "expired"), [(-1, True), (0, True), (1, False)])
async def test_a_decision_that_nobody_waits_for_costs_nothing(seconds, expired):
    desk = Desk()
    expires_at = (desk.world.clock.now() + timedelta(seconds=seconds)).isoformat()
    assert ACK == await desk.take(body(incident(expires_at=expires_at)))
    assert (0 if expired else 1) == desk.world.model.calls
    assert expired is (desk.result.human_review_reason is HumanReviewReason.DECISION_EXPIRED)
