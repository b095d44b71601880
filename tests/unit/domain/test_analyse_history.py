"""Past remediations and metrics in a whole analysis: what the model is shown, what is judged by, what is kept."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from schemas.analysis import HumanReviewReason, Status
from tests.fakes.memory_history import MemoryHistory
from tests.fakes.memory_metrics import MemoryMetrics
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import CONTEXT, RECEIVED, World, answer, chosen, incident, nothing, shop
from worker.domain.cluster.fields import reference
from worker.domain.cluster.spec_hash import composite, config_map_hash, fingerprint
from worker.domain.values.errors import ClusterReason, MetricsError
from worker.domain.values.ports import Series
from worker.domain.values.remediations import PastRemediation

API, CONFIG = (next(m for m in shop() if m["kind"] == kind) for kind in ("Deployment", "ConfigMap"))
HASH = composite(fingerprint(API), {"api-config": config_map_hash(CONFIG)})
PLACE = ("Deployment", "shop", "api")
QUERY = ("query_prometheus", {"query": "up", "since": "1h"})


def failed(**fields):
    values = {
        "id": "rr-0",
        "at": RECEIVED - timedelta(hours=2),
        "workflow_id": "restart-v1",
        "action_type": "RestartWorkload",
        "signal_type": "CrashLoopBackOff",
        "outcome": "failed",
        "pre_hash": HASH,
    }
    return PastRemediation(**{**values, **fields})


def world(*said, past=None, **ports):
    return World.saying(
        *said, history=MemoryHistory.of(reference(API), *([failed()] if past is None else past)), **ports
    )


def told(world):
    """Everything the model was told, by call."""
    return [json.dumps(request.turns, default=str) for request in world.model.requests]


async def test_history_is_shown_for_the_resource_the_model_names_and_not_before():
    made = world(calls(CONTEXT), final(answer()))
    await made.analyse()
    opening, second = told(made)
    line = "2026-06-04T13:33:05Z RestartWorkload (restart-v1) for CrashLoopBackOff: failed"
    assert "RestartWorkload" not in opening
    assert line in second
    assert "failed on this very spec: RestartWorkload" in second


async def test_without_a_look_no_history_reaches_the_model():
    made = world(final(answer()))
    await made.analyse()
    assert not any("RestartWorkload" in text for text in told(made))


async def test_the_hash_serves_the_look_up_only():
    made = world(calls(CONTEXT), final(answer()), past=(failed(post_hash=HASH),))
    result = await made.analyse()
    assert (PLACE, HASH) in made.history.asked
    shown = [*told(made), result.model_dump_json(), *(a.model_dump_json() for a in made.events.audits)]
    assert not any(HASH in text or HASH[7:23] in text for text in shown)


async def test_what_failed_here_needs_a_reason_and_then_a_human():
    silent, reasoned = chosen(rationale=""), answer()
    made = world(calls(CONTEXT), final(silent), final(reasoned))
    result = await made.analyse()
    assert [False, True] == [attempt.is_valid for attempt in result.validation_attempts]
    assert (
        "selected_workflow.rationale: is required: restart-v1 did not help this resource before"
        in told(made)[2]
    )
    assert Status.COMPLETED is result.status
    assert "did not help this resource before" in result.warnings[0]
    assert ["failed_before"] == [factor["code"] for factor in made.policy.asked[0]["approval_factors"]]


async def test_what_failed_here_and_is_never_explained_is_escalated():
    made = world(*[final(chosen(rationale=""))] * 3)
    result = await made.analyse()
    assert (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.OPERATOR_ESCALATION) == (
        result.status, result.human_review_reason,
    )  # fmt: skip


async def test_what_failed_with_another_spec_may_be_chosen():
    made = world(final(chosen(rationale="")), past=(failed(pre_hash=f"sha256:{'0' * 64}"),))
    result = await made.analyse()
    assert (Status.COMPLETED, ()) == (result.status, result.warnings)


async def test_a_history_that_cannot_be_read_is_told_and_ends_nothing():
    made = world(calls(CONTEXT), final(answer()))
    made.history.down = True
    result = await made.analyse()
    assert "unknown: the store is down; go on without it" in told(made)[1]
    assert Status.COMPLETED is result.status
    assert ["history_unknown"] == [f["code"] for f in made.policy.asked[0]["approval_factors"]]


async def test_a_spec_that_cannot_be_read_is_looked_up_without_its_hash():
    made = world(final(answer()))
    made.cluster.fail(ClusterReason.FORBIDDEN, kind="Deployment")
    await made.analyse()
    assert ("Deployment", "shop", "api") in [place for place, _ in made.history.asked]
    assert {""} == {spec_hash for _, spec_hash in made.history.asked}


# -- what is kept


async def test_a_result_is_kept_for_the_top_owner_with_the_hash_of_its_spec():
    made = world(final(answer()), past=())
    result = await made.analyse()
    [kept] = made.history.kept[PLACE].values()
    assert ("rr-1", "restart-v1", "RestartWorkload", "CrashLoopBackOff", HASH, "completed", "") == (
        kept.id, kept.workflow_id, kept.action_type, kept.signal_type, kept.pre_hash, kept.status, kept.outcome,
    )  # fmt: skip
    assert result.completed_at == kept.at


async def test_a_result_without_a_workflow_is_kept_too():
    made = world(final(nothing("inconclusive")), past=())
    await made.analyse()
    [kept] = made.history.kept[PLACE].values()
    assert ("", "needs_human_review") == (kept.workflow_id, kept.status)


async def test_without_a_cause_nothing_is_kept():
    made = world(*[final({"no": "answer"})] * 3, past=())
    await made.analyse()
    assert {PLACE: {}} == made.history.kept


async def test_a_store_that_cannot_be_written_costs_nothing_but_the_record():
    made = world(final(answer()), past=())
    made.history.down = True
    assert Status.COMPLETED is (await made.analyse()).status


async def test_a_successor_keeps_what_the_first_run_could_not():
    made = world(final(answer()), past=())
    made.history.down = True
    first = await made.analyse()
    made.history.down, made.model = False, MemoryModel([])
    again = await made.analyse(run="run-2")
    assert first == again
    assert [HASH] == [kept.pre_hash for kept in made.history.kept[PLACE].values()]


async def test_the_next_incident_sees_the_result_of_this_one():
    made = world(final(answer()), past=())
    await made.analyse()
    made.model = MemoryModel([calls(CONTEXT), final(answer())])
    await made.analyse(incident(remediation_id="rr-2"))
    assert "RestartWorkload (restart-v1) for CrashLoopBackOff: chosen, no outcome reported" in told(made)[1]


# -- metrics


@pytest.mark.parametrize("configured", [True, False])
async def test_metrics_are_offered_only_where_they_are_configured(configured):
    made = World.saying(final(answer()), metrics=MemoryMetrics() if configured else None)
    await made.analyse()
    names = [tool.name for tool in made.model.requests[0].tools]
    assert sorted(names) == names
    assert configured is ("query_prometheus" in names)


async def test_metrics_are_read_up_to_the_time_of_the_signal():
    series = [Series({"pod": "api-7d9-x2x"}, ((RECEIVED.timestamp(), 1.0),))]
    made = World.saying(calls(QUERY), final(answer()), metrics=MemoryMetrics(series))
    await made.analyse()
    assert ("up", RECEIVED - timedelta(hours=1), RECEIVED, 62) == made.metrics.asked[0]
    assert "min 1 max 1 last 1" in told(made)[1]


async def test_metrics_that_cannot_be_read_end_nothing():
    metrics = MemoryMetrics(error=MetricsError("parse error: unexpected }"))
    made = World.saying(calls(QUERY), final(answer()), metrics=metrics)
    result = await made.analyse()
    assert "parse error: unexpected }" in told(made)[1]
    assert Status.COMPLETED is result.status


async def test_a_tool_that_is_not_configured_is_unknown():
    made = World.saying(calls(QUERY), final(answer()))
    await made.analyse()
    assert "unknown tool query_prometheus" in told(made)[1]
