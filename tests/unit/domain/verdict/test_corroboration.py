"""What an answer states to the rules, and where the values of its parameters come from."""

from dataclasses import replace

import pytest

from schemas.analysis import Corroboration, CorroborationSource, ParameterOrigin
from worker.domain.diagnosis.causes import Cause, Diagnosis
from worker.domain.diagnosis.facts import ClusterFacts, Presence, Question
from worker.domain.values.objects import Listing, ObjectRef
from worker.domain.values.workflows import Parameter, ParameterType, Workflow
from worker.domain.verdict.answers.answer import Answer
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.corroboration import Corroborated, claim_of, told, without_settled_doubts
from worker.domain.verdict.origins import parameter_origins
from worker.domain.verdict.verdict import Accepted, Rejected

API = ObjectRef("Deployment", "api", "shop", "apps/v1")
BACK = Workflow(
    "rollback-v1",
    "RollbackDeployment",
    parameters=(
        Parameter("TARGET_RESOURCE_NAME"),
        Parameter("TO_REVISION", type=ParameterType.INTEGER),
        Parameter("FACTOR", type=ParameterType.NUMBER, default=2),
        Parameter("CONFIG"),
    ),
)
CHANGED = Diagnosis(
    Cause.BAD_ROLLOUT, API, "It fails.", also=(ObjectRef("ConfigMap", "conf", "shop"),), revision=3
)


def accepted(**parameters):
    given = Answer("It fails.", "high")
    return Accepted(
        given, "high", "CrashLoopBackOff", API, API, workflow=BACK, target=API, parameters=parameters
    )


@pytest.mark.parametrize(
    ("name", "value", "finding", "origin"),
    [
        ("TARGET_RESOURCE_NAME", "api", None, ParameterOrigin.CODE),
        ("TO_REVISION", 3, CHANGED, ParameterOrigin.CODE),
        ("TO_REVISION", 2, CHANGED, ParameterOrigin.MODEL),
        ("TO_REVISION", 3, None, ParameterOrigin.MODEL),
        ("CONFIG", "conf", CHANGED, ParameterOrigin.CODE),
        ("CONFIG", "other", CHANGED, ParameterOrigin.MODEL),
        ("FACTOR", 2, None, ParameterOrigin.CATALOG_DEFAULT),
        ("FACTOR", 5, CHANGED, ParameterOrigin.MODEL),
    ],
)
def test_origins(name, value, finding, origin):
    answer = accepted(**{name: value})
    assert parameter_origins(answer, finding, ClusterFacts()) == {name: origin}
    assert Corroborated(origins={name: origin}).of_model == (
        (name,) if origin is ParameterOrigin.MODEL else ()
    )


def test_an_answer_without_a_workflow_has_no_origins_and_no_action():
    answer = replace(accepted(), workflow=None)
    assert parameter_origins(answer, None, ClusterFacts()) == {}
    assert claim_of(answer).action is None


def test_a_revision_and_replicas_are_read_by_the_meaning_of_their_names():
    action = claim_of(accepted(TO_REVISION=3, SCALE_REPLICAS=0)).action
    assert (action.revision, action.replicas, action.targets) == (3, 0, (API,))
    assert claim_of(accepted(TO_REVISION=3, FROM_REVISION=4)).action.revision is None
    written = claim_of(accepted(TO_REVISION="3", REPLICAS="many")).action
    assert (written.revision, written.replicas) == (3, None)


def test_reads_are_told_in_one_line():
    question = Question("Pod", "shop")
    assert told(question, Listing(({}, {}))) == "Pod objects of namespace shop: 2"
    assert told(question, Listing((), complete=False)).endswith(", and more")
    assert told(Question("Pod", "shop", "a"), Presence.ABSENT) == "Pod shop/a: absent"
    assert told(Question("Pod", "shop", "a"), {}) == "Pod shop/a: present"


def test_a_second_view_confirms_only_what_was_judged():
    assert Corroborated().confirmed("x") == Corroborated()
    judged = Corroborated(Corroboration(by=CorroborationSource.NONE, doubt="ambiguous"))
    confirmed = judged.confirmed("the same").corroboration
    assert (confirmed.by, confirmed.doubt, confirmed.reason) == (
        CorroborationSource.SECOND_VIEW,
        "",
        "the same",
    )


DOUBTS = (
    factor(FactorCode.SIGNAL_TYPE_NOT_REPORTED, "CrashLoopBackOff"),
    factor(FactorCode.WORKFLOW_FOR_OTHER_SIGNAL, "OOMKilled, not CrashLoopBackOff"),
    factor(FactorCode.RESOURCE_UNVERIFIED, "forbidden"),
)


@pytest.mark.parametrize(
    ("signals", "kept"),
    [
        ((), DOUBTS),
        (("Evicted",), DOUBTS),
        (("crashloopbackoff", "Evicted"), DOUBTS[1:]),
        (("OOMKILLED",), (DOUBTS[0], DOUBTS[2])),
        (("CrashLoopBackOff", "OOMKilled"), DOUBTS[2:]),
    ],
)
def test_the_state_that_confirms_an_answer_settles_what_it_proves(signals, kept):
    doubted = replace(
        accepted(), workflow=replace(BACK, labels={"signal_type": ("OOMKilled",)}), approval_factors=DOUBTS
    )
    assert without_settled_doubts(doubted, Corroborated(signals=signals)).approval_factors == kept


def test_an_answer_without_a_signal_type_or_workflow_proves_nothing():
    silent = replace(accepted(), workflow=None, signal_type="", approval_factors=DOUBTS)
    assert without_settled_doubts(silent, Corroborated(signals=("OOMKilled",))) == silent
    for verdict in (None, Rejected(())):
        assert without_settled_doubts(verdict, Corroborated(signals=("OOMKilled",))) is verdict
