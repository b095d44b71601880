"""After the answer the cluster is asked whether it bears the answer out; without an answer, what it says by itself."""

import pytest

from schemas.analysis import CorroborationSource, ParameterOrigin, Status
from schemas.audit import CorroborationChecked, PolicyDecided
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_model import final, says
from tests.fakes.scripted import World, answer, chosen, incident, nothing, recovered, shop
from worker.domain.values.errors import ClusterReason
from worker.domain.verdict.outcome import Ending, Stop


def rolled_out():
    """The shop with the revision before: the Deployment became unavailable with the rollout."""
    made = shop()
    for item in made:
        if item["kind"] == "Deployment":
            item["status"]["conditions"] = [
                {"type": "Available", "status": "False", "lastTransitionTime": "2026-06-04T15:21:00Z"}
            ]
        if item["kind"] == "ReplicaSet":
            item["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "2"}
            newest = item
    old = {**newest, "metadata": {**newest["metadata"], "name": "api-5c6", "uid": "uid-api-5c6"}}
    old["metadata"] |= {
        "annotations": {"deployment.kubernetes.io/revision": "1"},
        "creationTimestamp": "2026-06-01T10:00:00Z",
    }
    [container] = newest["spec"]["template"]["spec"]["containers"]
    before = {**container, "image": "registry.example.com/api:2.4.0"}
    old["spec"] = {
        **newest["spec"],
        "replicas": 0,
        "template": {**newest["spec"]["template"], "spec": {"containers": [before]}},
    }
    return [*made, old]


BACK = chosen(workflow_id="rollback-v1", version="1.2.0")


def checked(world):
    return [e.payload for e in world.events.audits if isinstance(e.payload, CorroborationChecked)]


async def test_result_policy_and_audit_contain_the_corroboration():
    world = World.saying(final(BACK), cluster=MemoryCluster(rolled_out()))
    result = await world.analyse()
    found = result.corroboration
    assert found is not None
    assert (found.by, found.finding, found.doubt) == (CorroborationSource.RULES, "bad_rollout", "")
    assert (found.object.kind, found.object.name) == ("Deployment", "api")
    read = {item.id for item in result.evidence if item.source == "corroboration"}
    assert set(found.evidence) == read
    assert set(result.parameter_origins.values()) == {ParameterOrigin.CODE}
    assert result.diagnosis == ()
    [asked] = world.policy.asked
    assert (asked["corroboration"]["by"], asked["corroboration"]["finding"]) == ("rules", "bad_rollout")
    assert asked["corroboration"]["evidence"] == list(found.evidence) != []
    assert set(asked["parameter_origins"].values()) == {"code"}
    [event] = checked(world)
    assert (event.corroboration, event.reads) == (found, len(read))
    [decided] = [e.payload for e in world.events.audits if isinstance(e.payload, PolicyDecided)]
    assert (decided.corroboration, decided.parameters_of_model) == (found, ())


async def test_an_answer_that_is_not_confirmed_has_a_reason():
    result = await World.saying(final(answer()), cluster=MemoryCluster(shop())).analyse()
    found = result.corroboration
    assert (found.by, found.doubt) == (CorroborationSource.NONE, "action_does_not_fit")
    assert result.status is Status.COMPLETED


@pytest.mark.parametrize("reason", [ClusterReason.FORBIDDEN, ClusterReason.TIMEOUT])
async def test_an_unreadable_cluster_confirms_nothing(reason):
    cluster = MemoryCluster(rolled_out())
    cluster.fail(reason, kind="ReplicaSet")
    result = await World.saying(final(BACK), cluster=cluster).analyse()
    assert result.corroboration.by is CorroborationSource.NONE


async def test_an_answer_that_finds_nothing_to_do_is_not_checked():
    result = await World.saying(final(nothing("not_actionable"))).analyse()
    assert result.corroboration is None


async def test_without_a_model_the_result_holds_the_diagnosis_by_rules():
    world = World.saying(cluster=MemoryCluster(rolled_out()))
    result = await world.analysis().without_answer(
        await world.open(incident()), Ending(stop=Stop.MODELS_DOWN)
    )
    assert result.status is Status.NEEDS_HUMAN_REVIEW
    assert (result.diagnosis[0].cause, result.diagnosis[0].object.name) == ("bad_rollout", "api")
    assert result.corroboration is None
    assert {item.source for item in result.evidence} == {"corroboration"}
    assert result.root_cause_analysis is None
    assert checked(world)[0].causes == result.diagnosis


async def test_an_expired_request_gets_no_diagnosis():
    world = World.saying()
    result = await world.analysis().without_answer(await world.open(incident()), Ending(expired=True))
    assert result.diagnosis == ()


async def test_answers_that_do_not_hold_leave_the_diagnosis_by_rules():
    world = World.saying(says("no"), says("no"), says("no"), cluster=MemoryCluster(rolled_out()))
    result = await world.analyse()
    assert result.needs_human_review
    assert result.diagnosis[0].cause == "bad_rollout"


async def test_where_no_state_is_a_cause_the_diagnosis_says_so():
    world = World.saying(cluster=MemoryCluster(recovered()))
    result = await world.analysis().without_answer(
        await world.open(incident()), Ending(stop=Stop.MODELS_DOWN)
    )
    assert [cause.cause for cause in result.diagnosis] == ["none_stated"]


async def test_a_cause_that_the_cluster_states_speaks_against_nothing_to_do():
    made = recovered()
    for item in made:
        if item["kind"] == "Pod":
            [container] = item["spec"]["containers"]
            container["resources"] = {"limits": {"memory": "64Mi"}}
            [status] = item["status"]["containerStatuses"]
            ended = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-06-04T15:20:00Z"}
            status["lastState"] = {"terminated": ended}
    said = final(nothing("not_actionable", confidence=0.95))
    result = await World.saying(said, cluster=MemoryCluster(made)).analyse()
    assert result.needs_human_review
    assert "OOMKilled" in result.human_review_detail
