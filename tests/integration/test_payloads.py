"""Every request body of the corpus through a real server: a result or a rejection, never silence, a loop or a crash."""

import asyncio

from schemas.analysis import AnalysisResult
from schemas.failure import ValidationFailure
from schemas.taxonomy import RequestKind
from tests.corpus_files import corpus_path, payload_rows
from tests.drills.accounts import until
from tests.fakes.llm_server import Said
from tests.pipeline import final, running

CASE = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
NOTHING_TO_DO = {
    "root_cause_analysis": {
        "summary": "A test of the alerting.",
        "severity": "low",
        "affectedResource": {"kind": "Deployment", "name": "ml-worker", "namespace": "ml-batch"},
    },
    "selected_workflow": None,
    "investigation_outcome": "not_actionable",
    "rationale": "nothing is wrong",
}


def nothing_to_do(request, number) -> Said:
    return final(NOTHING_TO_DO)


async def outcome_of(run, row):
    kind = RequestKind.RECOVERY if row.is_recovery else RequestKind.INCIDENT
    body = corpus_path(f"payloads/{row.file}").read_bytes()
    async with run.client.waiting(kind, body) as waiter:
        submitted = await run.client.submit(body, kind)
        return await run.client.outcome(waiter, submitted, 120)


async def _nothing_waits(run):
    return 0 == (await run.nc.jetstream().stream_info("RCA_REQUESTS")).state.messages


async def test_every_body_of_the_corpus_is_answered_as_its_index_says(tmp_path):
    rows = [row for row in payload_rows() if row.strictness == "must"]
    async with running(nothing_to_do, CASE, tmp_path, slots=4) as run:
        outcomes = await asyncio.gather(*(outcome_of(run, row) for row in rows))
        assert await until(lambda: _nothing_waits(run), 60)
        letters = await run.nc.jetstream().stream_info("RCA_DLQ")
    wanted = {row.file: AnalysisResult if row.accepted else ValidationFailure for row in rows}
    assert wanted == {row.file: type(outcome) for row, outcome in zip(rows, outcomes, strict=True)}
    assert all(outcome.errors for outcome in outcomes if isinstance(outcome, ValidationFailure))
    assert 0 == letters.state.messages
    assert 40 <= len(rows)


async def test_bodies_that_are_a_choice_are_answered_too(tmp_path):
    rows = [row for row in payload_rows() if row.strictness != "must"]
    async with running(nothing_to_do, CASE, tmp_path, slots=4) as run:
        outcomes = await asyncio.gather(*(outcome_of(run, row) for row in rows))
    assert all(isinstance(outcome, (AnalysisResult, ValidationFailure)) for outcome in outcomes)
