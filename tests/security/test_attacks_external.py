"""Mounted servers that lie, or talk to the model: nothing they say is believed, and what they plant costs autonomy."""

from __future__ import annotations

import pytest

from schemas.analysis import HumanReviewReason, Status
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_external import MemoryExternal
from tests.fakes.memory_model import MemoryModel, calls, final
from tests.fakes.scripted import (
    LOGS,
    World,
    answer,
    assert_checked,
    cause,
    incident,
    nothing,
    recovered,
    shop,
)
from tests.fakes.third_party_mcp import LIE, PLANTED
from tests.unit.domain.journal.test_resume import die_at
from worker.domain.untrusted.injection import suspicious_lines
from worker.domain.values.errors import ClusterReason, ExternalToolError

ASKED = ("docs_search", {"query": "api"})
GHOST = {"kind": "Deployment", "name": "ghost", "namespace": "shop"}


def world(says, *said, **ports):
    return World.saying(calls(ASKED), *said, external=MemoryExternal(answers={"search": says}), **ports)


async def result_of(made):
    result = await made.analyse()
    assert_checked(result)
    assert 1 == len(made.external.asked)
    return result


async def test_an_object_that_only_a_server_knows_does_not_exist():
    result = await result_of(world(LIE, *[final(cause(affectedResource=GHOST))] * 3))
    assert (Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.RCA_INCOMPLETE) == (
        result.status,
        result.human_review_reason,
    )
    assert all("shop/ghost" in str(a.errors) for a in result.validation_attempts)


@pytest.mark.parametrize("says", ["Deployment shop/ghost not found", "Deployment ghost was deleted"])
async def test_a_server_cannot_prove_that_an_object_is_gone(says):
    result = await result_of(world(says, *[final(cause(affectedResource=GHOST))] * 3))
    assert HumanReviewReason.RCA_INCOMPLETE == result.human_review_reason


async def test_an_object_that_only_a_server_has_shown_was_not_seen():
    """It exists, but nothing in the cluster brought the model to it."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-9"}}
    blamed = final(cause(affectedResource={"kind": "Node", "name": "worker-9"}))
    cluster = MemoryCluster([*shop(), node], LOGS)
    result = await result_of(world("look at Node worker-9", *[blamed] * 3, cluster=cluster))
    assert not any(attempt.is_valid for attempt in result.validation_attempts)
    assert HumanReviewReason.RCA_INCOMPLETE == result.human_review_reason


@pytest.mark.parametrize(
    "said", [PLANTED, ExternalToolError(PLANTED), ExternalToolError(PLANTED, passing=True)]
)
async def test_what_a_server_says_does_not_decide_whether_an_incident_is_over(said):
    healthy = MemoryCluster(recovered(), LOGS)
    result = await result_of(
        world(said, final(nothing("problem_resolved", confidence=0.99)), cluster=healthy)
    )
    assert Status.RESOLVED == result.status
    assert any("reads like instructions" in warning for warning in result.warnings)
    sick = await result_of(world(said, final(nothing("problem_resolved", confidence=0.99))))
    assert Status.NEEDS_HUMAN_REVIEW == sick.status


async def test_the_same_answer_is_believed_when_the_server_says_nothing_of_the_kind():
    healthy = MemoryCluster(recovered(), LOGS)
    result = await result_of(
        world("nothing is known", final(nothing("problem_resolved", confidence=0.99)), cluster=healthy)
    )
    assert Status.RESOLVED == result.status


async def test_planted_text_is_reported():
    assert [] != suspicious_lines(PLANTED)
    result = await result_of(world(PLANTED, final(answer())))
    assert Status.COMPLETED == result.status
    assert "reads like instructions" in " ".join(result.warnings)


async def test_without_planted_text_the_policy_decides():
    result = await result_of(world("restart the queue", final(answer())))
    assert "reads like instructions" not in " ".join(result.warnings)
    assert "mcp:docs" in [item.source for item in result.evidence]


async def test_a_server_that_fails_does_not_end_the_run():
    made = world(ExternalToolError("the connection was lost", passing=True), final(answer()))
    result = await result_of(made)
    assert Status.COMPLETED == result.status
    [turn] = [turn for turn in made.model.requests[1].turns if hasattr(turn, "results")]
    assert "\nerror: docs: the connection was lost\n" in turn.results[0].content
    assert not turn.results[0].ok


async def test_a_successor_does_not_call_a_server_again():
    whole = await world("restart the queue", final(answer())).analyse()
    made = world("restart the queue", final(answer()))
    opening_claim_reply_tools = 4
    assert await die_at(made, incident(), opening_claim_reply_tools) is True
    made.external.answers = {"search": ExternalToolError(PLANTED)}
    made.model = MemoryModel([final(answer())])
    result = await made.analyse(run="run-2")
    assert 1 == len(made.external.asked)
    assert whole.model_dump_json() == result.model_dump_json()


async def test_nothing_of_a_server_that_is_not_configured_is_offered():
    made = World.saying(calls(ASKED), final(answer()))
    await made.analyse()
    [turn] = [turn for turn in made.model.requests[1].turns if hasattr(turn, "results")]
    assert "unknown tool docs_search" in turn.results[0].content


async def test_a_cluster_that_says_nothing_is_not_made_up_for_by_a_server():
    made = world(LIE, *[final(cause(affectedResource=GHOST))] * 3)
    made.cluster.fail(ClusterReason.FORBIDDEN)
    result = await result_of(made)
    assert Status.COMPLETED != result.status
