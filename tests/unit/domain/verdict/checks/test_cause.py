from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.safety import RegoPolicy, SafetyConstraints, SafetyContext
from schemas.taxonomy import Severity
from tests.fakes.memory_catalog import workflow
from tests.fakes.verdicts import DEPLOYMENT, NODE, POD, REPLICA_SET, answer, resolved
from worker.domain.enrichment.enrich import FirstLook
from worker.domain.verdict.answers.answer import InvestigationOutcome
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.checks.cause import doubts
from worker.domain.verdict.verdict import Accepted, Rejected

SURE = Accepted(
    answer=answer(),
    severity=Severity.HIGH,
    signal_type="",
    affected=DEPLOYMENT,
    root_owner=DEPLOYMENT,
    outcome=InvestigationOutcome.PROBLEM_RESOLVED,
    confidence=0.9,
)
QUIET = FirstLook(chain=(DEPLOYMENT,))


def found(verdict=SURE, affected=None, look=QUIET, signal=DEPLOYMENT, safety=None):
    return doubts(verdict, affected or resolved(DEPLOYMENT), look, signal, safety)


def test_nothing_speaks_against_a_quiet_resource():
    assert () == found()
    assert () == found(safety=SafetyContext())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unverified": True}, "could not check the state of"),
        ({"approval_factors": (factor(FactorCode.RESOURCE_ABSENT, "Pod shop/api"),)}, "Pod shop/api"),
    ],
)
def test_doubts_of_the_answer(changes, said):
    (only,) = found(replace(SURE, **changes))
    assert said in only


@pytest.mark.parametrize(
    ("blamed", "owners", "signal", "chain", "related"),
    [
        (POD, (REPLICA_SET, DEPLOYMENT), DEPLOYMENT, (DEPLOYMENT,), True),
        (DEPLOYMENT, (), POD, (POD, REPLICA_SET, DEPLOYMENT), True),
        (POD, (), POD, (), True),
        (DEPLOYMENT, (), POD, (), False),
        (POD, (), DEPLOYMENT, (DEPLOYMENT,), False),
        (NODE, (), DEPLOYMENT, (DEPLOYMENT,), False),
    ],
)
def test_the_blamed_object_must_belong_to_the_signal(blamed, owners, signal, chain, related):
    said = found(replace(SURE, affected=blamed), resolved(blamed, *owners), FirstLook(chain=chain), signal)
    assert related is (said == ())


def test_a_warning_alone_is_no_doubt():
    assert () == found(replace(SURE, warnings=("it may come back",)))


def test_what_code_saw_itself():
    trouble = FirstLook((DEPLOYMENT,), trouble=tuple(f"Pod shop/api-{n}" for n in range(5)))
    assert found(look=trouble) == (
        "Unhealthy when the request arrived: Pod shop/api-0, Pod shop/api-1, Pod shop/api-2 and 2 more.",
    )
    assert 1 == len(found(look=FirstLook((DEPLOYMENT,), unread=("pods",))))


@pytest.mark.parametrize(
    "safety",
    [
        SafetyContext(safety_constraints=SafetyConstraints(requires_approval=True)),
        SafetyContext(rego_policy=RegoPolicy(dry_run=True)),
    ],
)
def test_what_the_sender_demands(safety):
    assert 1 == len(found(safety=safety))


@pytest.mark.parametrize(
    "verdict",
    [
        None,
        Rejected(()),
        replace(SURE, outcome=InvestigationOutcome.ACTIONABLE),
        replace(SURE, outcome=None),
        replace(SURE, workflow=workflow()),
    ],
)
def test_other_answers_are_judged_elsewhere(verdict):
    assert () == found(verdict, look=FirstLook(unread=("pods",)))
