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
from tests.fakes.dying_run import Killed
from tests.fakes.handler_rig import HandlerRig, body
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
    rig = HandlerRig()
    assert ACK == await rig.take()
    assert (Status.COMPLETED, "rr-1") == (rig.result.status, rig.result.remediation_id)
    assert rig.world.model.calls == 1
    assert rig.count("rca_results_total", kind="incident", status="completed", reason="none") == 1
    assert rig.count("rca_running") == 0


async def test_a_recovery_is_told_by_its_subject():
    rig = HandlerRig(World.saying(final(chosen(workflow_id="rollback-v1"))))
    assert ACK == await rig.take(body(recovery()), "rca.request.recovery.P0")
    assert [("recovery", "rr-1.1")] == list(rig.world.events.results)


async def test_a_body_that_cannot_be_read_is_published_with_its_errors_and_never_comes_again():
    rig = HandlerRig()
    settled = await rig.take(body(severity="terrible", priority="P9"))
    assert (Fate.TERMINATE, "rejected: schema") == (settled.fate, settled.reason)
    [failure] = rig.world.events.rejections
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
    assert (0, {}, {}) == (rig.world.model.calls, rig.world.events.results, rig.world.journal.steps)
    assert rig.count("rca_rejected_requests_total", code="schema", message="request") == 1


@pytest.mark.parametrize("row", [row for row in payload_rows() if not row.accepted], ids=lambda row: row.file)
async def test_no_bad_payload_is_dropped_silently(row):
    rig = HandlerRig()
    subject = "rca.request.recovery" if row.is_recovery else "rca.request.incident"
    settled = await rig.take(corpus_path(f"payloads/{row.file}").read_bytes() or b"\x00", subject)
    published = rig.world.events.rejections or rig.world.events.results
    assert bool(published) is True
    assert settled.fate in {Fate.TERMINATE, Fate.DONE}


@pytest.mark.parametrize(
    "junk", [b"", b"\xff\xfe", b"{", b"[" * 100_000, b'{"remediation_id": NaN}', b"null", b"\x1f\x8b\x08"]
)
async def test_junk_is_rejected(junk):
    rig = HandlerRig()
    settled = await rig.handler(
        junk, {"reply_to": "evil"}, replace(DELIVERY, stored_at=rig.world.clock.now())
    )
    assert settled.fate is Fate.TERMINATE
    assert len(rig.world.events.rejections) == 1


async def test_secrets_of_a_rejected_body_are_not_published():
    rig = HandlerRig()
    await rig.take(body(severity=SECRET, description=f"x {SECRET}", priority=7))
    assert "FAKE" not in rig.world.events.rejections[0].model_dump_json()


async def test_a_secret_is_not_shown_by_half_where_the_excerpt_ends():
    for shift in range(0, len(SECRET), 3):
        rig = HandlerRig()
        await rig.take(b"x " * ((EXCERPT_BYTES - shift) // 2) + SECRET.encode() + b" tail")
        excerpt = rig.world.events.rejections[0].excerpt
        assert "FAKE" not in excerpt
        assert len(excerpt.encode()) <= EXCERPT_BYTES


async def test_another_cluster_is_rejected_where_one_is_set():
    rig = HandlerRig(rules={"cluster_name": "east"})
    settled = await rig.take(body(incident(cluster_name="west")))
    assert (Fate.TERMINATE, ValidationCode.WRONG_CLUSTER) == (
        settled.fate,
        rig.world.events.rejections[0].code,
    )
    assert ACK == await rig.take(body(incident(cluster_name="east")))


async def test_ids_of_any_kind_have_their_own_journal_and_result():
    rig = HandlerRig()
    for remediation_id in ("rr.1", "rr%2E1", "rr *>", "ünï", "rr=2E1"):
        assert ACK == await rig.take(body(incident(remediation_id=remediation_id)))
    assert len(rig.world.events.results) == len(rig.world.journal.steps) == rig.world.model.calls == 5


# -- What was answered before


async def test_a_request_with_a_result_is_acked_without_a_call():
    rig = HandlerRig()
    await rig.take()
    assert ACK == await rig.take()
    assert (1, []) == (rig.world.model.calls, rig.world.events.rejections)


async def test_the_journal_of_an_answered_request_is_deleted_but_for_a_tombstone():
    rig = HandlerRig()
    await rig.take()
    assert [FINISHED] == rig.kept
    rig.world.events.results.clear()  # as when the stream of results was emptied
    assert ACK == await rig.take()
    assert (1, {}) == (rig.world.model.calls, rig.world.events.results)


@pytest.mark.parametrize("moment", ["append", "delete"])
async def test_a_redelivery_finishes_what_a_process_that_died_after_publishing_left(moment):
    rig = HandlerRig()

    def die(at):
        if at == moment:
            raise Killed

    rig.world.journal.on_finish = die
    with pytest.raises(Killed):
        await rig.take()
    assert RESULT in rig.kept
    events, rig.world.journal.on_finish = list(rig.world.events.audits), lambda _: None
    rig.new_process()
    assert ACK == await rig.take()
    assert [FINISHED] == rig.kept
    assert (1, 1, events) == (rig.world.model.calls, len(rig.world.events.told), rig.world.events.audits)


async def test_a_request_whose_result_was_deleted_can_be_sent_again():
    rig = HandlerRig()
    await rig.take()
    rig.world.events.results.clear()
    rig.says(final(answer()))
    assert ACK == await rig.take(sequence=8)
    assert (1, [FINISHED]) == (rig.world.model.calls, rig.kept)
    chains = {event.chain for event in rig.world.events.audits}
    assert len(chains) == 2


async def test_a_finished_request_keeps_its_key_from_others():
    rig = HandlerRig()
    await rig.take()
    rig.world.events.results.clear()
    await rig.take(body(severity="low"), sequence=8)
    assert [ValidationCode.KEY_CONFLICT] == [failure.code for failure in rig.world.events.rejections]


async def test_a_journal_that_cannot_be_deleted_keeps_nobody_from_the_answer(logged):
    rig = HandlerRig()

    def fail(_):
        raise Unavailable("full")

    rig.world.journal.on_finish = fail
    assert Fate.RETRY is (await rig.take()).fate
    assert ACK == await rig.take()
    assert 2 == [entry["event"] for entry in logged].count("journal_not_deleted")
    assert (1, 1) == (rig.world.model.calls, len(rig.world.events.told))


@pytest.mark.parametrize("moment", ["append", "delete"])
async def test_a_journal_that_could_not_be_deleted_is_deleted_after_a_redelivery(moment):
    rig = HandlerRig()

    def fail_once(at):
        if at == moment:
            rig.world.journal.on_finish = lambda _: None
            raise Unavailable("cut")

    rig.world.journal.on_finish = fail_once
    assert Fate.RETRY is (await rig.take()).fate
    assert ACK == await rig.take()
    assert (1, [FINISHED]) == (rig.world.model.calls, rig.kept)


async def test_the_same_question_at_another_time_is_the_same_question():
    rig = HandlerRig()
    await rig.take()
    assert ACK == await rig.take(body(incident(received_time="2026-06-04T15:40:00Z")))
    assert rig.world.model.calls == 1


async def test_another_question_under_the_same_id_is_a_conflict_and_not_answered_with_the_old_result():
    rig = HandlerRig()
    await rig.take()
    first = rig.result
    settled = await rig.take(body(description="another one"), sequence=8)
    assert (Fate.TERMINATE, "rejected: key_conflict") == (settled.fate, settled.reason)
    [failure] = rig.world.events.rejections
    assert (ValidationCode.KEY_CONFLICT, "remediation_id", 8) == (
        failure.code,
        failure.path,
        failure.origin_sequence,
    )
    assert (1, first) == (rig.world.model.calls, rig.result)


async def test_another_question_does_not_go_on_with_the_journal_of_the_first():
    rig = HandlerRig(World.saying(DOWN))
    await rig.take()
    rig.says(final(answer()))
    settled = await rig.take(body(description="another one"), sequence=8)
    assert (Fate.TERMINATE, "rejected: key_conflict") == (settled.fate, settled.reason)
    assert rig.world.model.calls == 0
    assert ACK == await rig.take()
    assert rig.result.status is Status.COMPLETED


async def test_another_question_leaves_the_one_that_is_being_analysed_alone():
    rig = HandlerRig()
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow(MemoryModel):
        async def ask(self, request):
            asked.set()
            await go.wait()
            return await super().ask(request)

    rig.world.model = Slow([final(answer())])
    rig.new_process()
    first = asyncio.create_task(rig.take())
    await asked.wait()
    settled = await rig.take(body(description="another one"), sequence=8)
    assert "rejected: key_conflict" == settled.reason
    go.set()
    assert ACK == await first
    assert (Status.COMPLETED, 1) == (rig.result.status, rig.world.model.calls)


async def test_fields_that_were_not_read_are_in_the_audit_trail():
    rig = HandlerRig()
    await rig.take(body(ownerChain=[], x={"y": 1}))
    assert ("ownerChain", "x") == rig.world.events.audits[0].payload.ignored_fields


async def test_a_conflict_that_is_found_when_publishing_is_one_too():
    rig = HandlerRig()
    other = AnalysisResult.model_validate_json(
        (await World().analyse(incident(description="x"))).model_dump_json()
    )

    def publish_first(request, number):
        rig.world.events.results["incident", "rr-1"] = other.model_dump_json().encode()
        return final(answer())

    rig.says()
    rig.world.model = MemoryModel(publish_first)
    rig.new_process()
    settled = await rig.take()
    assert "rejected: key_conflict" == settled.reason
    assert other == rig.result


# -- What comes too late


@pytest.mark.parametrize(("seconds", "expired"), [(-1, True), (0, True), (1, False)])
async def test_a_decision_that_nobody_waits_for_costs_nothing(seconds, expired):
    rig = HandlerRig()
    expires_at = (rig.world.clock.now() + timedelta(seconds=seconds)).isoformat()
    assert ACK == await rig.take(body(incident(expires_at=expires_at)))
    assert (0 if expired else 1) == rig.world.model.calls
    assert expired is (rig.result.human_review_reason is HumanReviewReason.DECISION_EXPIRED)
