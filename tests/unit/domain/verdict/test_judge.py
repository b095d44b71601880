from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.safety import SafetyConstraints, SafetyContext
from schemas.taxonomy import Severity
from tests.fakes.memory_catalog import labels, target_parameters, workflow
from tests.fakes.verdicts import (
    CONFIG,
    DEPLOYMENT,
    NODE,
    POD,
    REPLICA_SET,
    answer,
    chosen,
    facts,
    resolved,
)
from worker.domain.catalog.selection import for_final_choice, mismatches
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import FailedExecution
from worker.domain.values.workflows import SelectionContext
from worker.domain.verdict.answers.answer import (
    Answer,
    AnsweredAlternative,
    AnsweredWorkflow,
    InvestigationOutcome,
    Problem,
    ProblemKind,
)
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.checks.facts import lookup_context
from worker.domain.verdict.checks.targets import Existence
from worker.domain.verdict.judge import correction_message, judge
from worker.domain.verdict.verdict import Accepted, Rejected

UNREADABLE, RCA, UNKNOWN = ProblemKind.UNREADABLE, ProblemKind.RCA, ProblemKind.WORKFLOW_UNKNOWN
MISMATCH, PARAMETERS, FORBIDDEN = (
    ProblemKind.WORKFLOW_MISMATCH,
    ProblemKind.PARAMETERS,
    ProblemKind.FORBIDDEN,
)
TARGET = "root_cause_analysis.affectedResource"


def accepted(given_answer, given_facts) -> Accepted:
    verdict = judge(given_answer, given_facts)
    assert isinstance(verdict, Accepted), verdict
    return verdict


def problems(given_answer, given_facts):
    verdict = judge(given_answer, given_facts)
    assert isinstance(verdict, Rejected), verdict
    return [(p.kind, p.path) for p in verdict.problems]


def message(given_answer, given_facts):
    verdict = judge(given_answer, given_facts)
    assert isinstance(verdict, Rejected), verdict
    (only,) = verdict.problems
    return only.message


def codes(verdict):
    return [found.code for found in verdict.approval_factors]


def test_a_complete_answer_is_accepted_with_the_facts_of_the_catalog():
    verdict = accepted(answer(), facts())
    assert (verdict.severity, verdict.signal_type) == (Severity.CRITICAL, "CrashLoopBackOff")
    assert (verdict.affected, verdict.root_owner, verdict.target) == (DEPLOYMENT, DEPLOYMENT, DEPLOYMENT)
    assert (workflow(), 0.9) == (verdict.workflow, verdict.confidence)
    assert InvestigationOutcome.ACTIONABLE is verdict.outcome
    assert (verdict.approval_factors, verdict.warnings) == ((), ())
    assert not verdict.unverified


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"summary": " "}, [(RCA, "root_cause_analysis.summary")]),
        ({"severity": ""}, [(RCA, "root_cause_analysis.severity")]),
        ({"severity": "catastrophic"}, [(RCA, "root_cause_analysis.severity")]),
        ({"signal_type": "MemoryIssue"}, [(RCA, "root_cause_analysis.signal_type")]),
        ({"affected_resource": None}, [(RCA, TARGET)]),
        ({"affected_resource": ObjectRef("Deployment", "")}, [(RCA, TARGET)]),
        ({"affected_resource": ObjectRef("", "api")}, [(RCA, TARGET)]),
        ({"selected_workflow": None, "workflow_stated": False}, [(UNREADABLE, "selected_workflow")]),
        (
            {"selected_workflow": chosen(confidence=None)},
            [(UNREADABLE, "selected_workflow.confidence")],
        ),
        (
            {"selected_workflow": chosen(confidence=float("nan"))},
            [(UNREADABLE, "selected_workflow.confidence")],
        ),
        ({"selected_workflow": chosen(workflow_id="")}, [(UNKNOWN, "selected_workflow.workflow_id")]),
        ({"selected_workflow": chosen(workflow_id="nope")}, [(UNKNOWN, "selected_workflow.workflow_id")]),
        ({"selected_workflow": chosen(version="9.9.9")}, [(MISMATCH, "selected_workflow.version")]),
        (
            {"selected_workflow": chosen(container_image="evil")},
            [(MISMATCH, "selected_workflow.container_image")],
        ),
        ({"outcome": "who knows"}, [(UNREADABLE, "investigation_outcome")]),
        ({"outcome": "not_actionable"}, [(UNREADABLE, "investigation_outcome")]),
        ({"outcome": "problem_resolved"}, [(UNREADABLE, "investigation_outcome")]),
        ({"problems": (Problem(UNREADABLE, "x", "said by the parser"),)}, [(UNREADABLE, "x")]),
    ],
)
def test_what_is_missing_or_wrong_is_a_problem_with_its_path(fields, expected):
    assert expected == problems(answer(**fields), facts())


def test_all_problems_come_at_once():
    broken = answer(
        summary="",
        severity="huge",
        affected_resource=None,
        selected_workflow=chosen(confidence=2, version="0", parameters={"FORCE": 1}),
    )
    assert problems(broken, facts()) == [
        (RCA, "root_cause_analysis.summary"),
        (RCA, "root_cause_analysis.severity"),
        (RCA, TARGET),
        (UNREADABLE, "selected_workflow.confidence"),
        (MISMATCH, "selected_workflow.version"),
    ]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("warning", Severity.MEDIUM),
        ("INFO", Severity.LOW),
        ("error", Severity.HIGH),
        ("Critical", Severity.CRITICAL),
    ],
)
def test_severities_are_normalised(stated, expected):
    verdict = accepted(answer(severity=stated), facts(workflow=workflow(labels={})))
    assert expected is verdict.severity


def test_an_unknown_severity_needs_approval():
    factors = accepted(answer(severity="unknown"), facts()).approval_factors
    assert factors == (factor(FactorCode.SEVERITY_UNKNOWN),)


@pytest.mark.parametrize(
    ("stated", "expected"), [("oomkilled", "OOMKilled"), ("hpamaxedout", "HPAMaxedOut"), ("", "")]
)
def test_signal_types_get_their_canonical_spelling(stated, expected):
    assert expected == accepted(answer(signal_type=stated), facts()).signal_type


def test_a_reason_that_the_cluster_reports_is_a_signal_type():
    reported = facts(reasons=frozenset({"FailedCreate"}))
    assert accepted(answer(signal_type="failedcreate"), reported).signal_type == "FailedCreate"
    assert "not a signal type" in message(answer(signal_type="FailedCreate"), facts())


def test_a_workflow_made_for_another_signal_needs_approval():
    factors = accepted(answer(signal_type="OOMKilled"), facts()).approval_factors
    assert factors == (factor(FactorCode.WORKFLOW_FOR_OTHER_SIGNAL, "CrashLoopBackOff, not OOMKilled"),)


def test_a_workflow_for_targets_with_another_label_needs_approval():
    context = SelectionContext(detected_labels={"stateful": False})
    stateful = workflow(labels={}, detected_labels={"stateful": True})
    factors = accepted(answer(), facts(context=context, workflow=stateful)).approval_factors
    assert factors == (factor(FactorCode.WORKFLOW_LABEL_UNMET, "stateful=true"),)


def test_what_the_answer_leaves_unsaid_is_noted_not_refused():
    silent = answer(signal_type="", contributing_factors=(), selected_workflow=chosen(rationale=""))
    notes = accepted(silent, facts()).notes
    unsaid = [
        "signal_type",
        "contributing_factors",
        "rationale",
        "estimated_risk",
        "context_used",
    ]
    assert unsaid == [note.rpartition(" ")[2] for note in notes]


@pytest.mark.parametrize("outcome", ["not_actionable", "problem_resolved", "inconclusive", "actionable", ""])
def test_an_answer_says_how_sure_it_is(outcome):
    said = answer(selected_workflow=None, outcome=outcome, confidence=None)
    assert problems(said, facts()) == [(UNREADABLE, "confidence")]
    assert isinstance(judge(replace(said, confidence=0.9), facts()), Accepted)
    assert problems(answer(confidence=None), facts()) == [(UNREADABLE, "confidence")]


@pytest.mark.parametrize("summary", ["", " \n", "\u200b", "\u3164\u115f", ".", "\u2800", "- ..."])
def test_a_summary_that_a_human_cannot_read_is_missing(summary):
    assert problems(answer(summary=summary), facts()) == [(RCA, "root_cause_analysis.summary")]


@pytest.mark.parametrize(
    ("affected", "expected"),
    [
        (resolved(DEPLOYMENT, existence=Existence.NOT_FOUND), "was not found in the cluster: name an object"),
        (
            resolved(DEPLOYMENT, existence=Existence.NOT_FOUND, detail="no kind Deploymint"),
            "no kind Deploymint",
        ),
        (resolved(DEPLOYMENT, seen_in=()), "no evidence shows Deployment shop/api"),
        (
            resolved(DEPLOYMENT, seen_in=(), existence=Existence.UNVERIFIABLE),
            "no evidence shows Deployment shop/api",
        ),
        (None, "could not be looked up"),
        (
            resolved(replace(DEPLOYMENT, name="{}"), existence=Existence.UNVERIFIABLE),
            "is not a name of a Kubernetes object",
        ),
    ],
)
def test_an_affected_resource_that_is_not_there_or_was_not_seen_is_refused(affected, expected):
    assert expected in message(answer(), facts(affected=affected))


def test_an_affected_resource_the_request_names_needs_no_evidence():
    accepted(answer(), facts(affected=resolved(DEPLOYMENT, seen_in=(), requested=True)))


def test_an_affected_resource_that_cannot_be_verified_needs_approval():
    hidden = resolved(DEPLOYMENT, existence=Existence.UNVERIFIABLE, detail="forbidden")
    verdict = accepted(answer(), facts(affected=hidden))
    assert verdict.unverified
    expected = factor(FactorCode.RESOURCE_UNVERIFIED, "Deployment shop/api: forbidden")
    assert (expected,) == verdict.approval_factors


def test_an_affected_resource_shown_to_be_gone_is_accepted():
    gone = resolved(CONFIG, existence=Existence.ABSENT)
    cause = ObjectRef("ConfigMap", "api-config", "shop")
    nothing = answer(affected_resource=cause, selected_workflow=None, outcome="")
    assert accepted(nothing, facts(affected=gone)).affected == CONFIG


def test_a_cluster_scoped_resource_loses_its_namespace():
    written = resolved(ObjectRef("Node", "worker-1", "shop", "v1"), namespaced=False)
    nothing = answer(affected_resource=ObjectRef("Node", "worker-1", "shop"), selected_workflow=None)
    assert accepted(nothing, facts(affected=written)).affected == NODE


def test_a_namespaced_resource_needs_its_namespace():
    bare = resolved(ObjectRef("Deployment", "api"), namespaced=True)
    found = problems(answer(affected_resource=ObjectRef("Deployment", "api")), facts(affected=bare))
    assert [(RCA, f"{TARGET}.namespace")] == found


def test_the_affected_resource_stays_as_named_and_the_workflow_acts_on_its_owner():
    pod = answer(
        affected_resource=ObjectRef("Pod", POD.name, "shop"), selected_workflow=chosen(parameters={})
    )
    verdict = accepted(pod, facts(affected=resolved(POD, REPLICA_SET, DEPLOYMENT)))
    assert (verdict.affected, verdict.root_owner, verdict.target) == (POD, DEPLOYMENT, DEPLOYMENT)
    assert verdict.parameters["TARGET_RESOURCE_NAME"] == "api"


@pytest.mark.parametrize(
    ("declared", "fits"),
    [
        ({"environment": "staging"}, False),
        ({"priority": "P0"}, False),
        ({"severity": "low"}, False),
        ({"component": "apps/v1/StatefulSet"}, False),
        ({"component": "apps/v1/Deployment", "severity": "critical"}, True),
        ({"signal_type": "Evicted"}, True),
    ],
)
def test_the_label_gate_holds_for_the_final_choice(declared, fits):
    gated = workflow(labels=labels(**declared))
    verdict = judge(answer(), facts(workflow=gated))
    assert fits == isinstance(verdict, Accepted)
    if not fits:
        assert {UNKNOWN} == {p.kind for p in verdict.problems}


def test_a_detected_text_label_excludes():
    context = SelectionContext(detected_labels={"gitOpsTool": "flux"})
    for_argo = workflow(labels={}, detected_labels={"gitops_tool": "argocd"})
    assert "detected label gitops_tool is flux" in message(
        answer(), facts(context=context, workflow=for_argo)
    )


def test_a_choice_that_gitops_may_undo_carries_a_warning():
    context = SelectionContext(detected_labels={"gitOpsManaged": True})
    verdict = accepted(answer(), facts(context=context, workflow=workflow(labels={})))
    (warning,) = verdict.warnings
    assert "GitOps" in warning


def test_a_workflow_for_another_kind_is_accepted_for_an_object_that_was_seen():
    uncordon = workflow(
        "uncordon-v1", labels=labels(component="v1/Node"), parameters=target_parameters("Node")
    )
    choice = chosen(
        workflow_id="uncordon-v1",
        parameters={"TARGET_RESOURCE_NAME": "worker-1", "TARGET_RESOURCE_KIND": "Node"},
    )
    given_answer = answer(selected_workflow=choice)
    verdict = accepted(given_answer, facts(workflow=uncordon, other_target=resolved(NODE)))
    assert (verdict.target, codes(verdict)) == (NODE, ["target_not_affected_resource"])
    assert verdict.parameters["TARGET_RESOURCE_NAMESPACE"] == ""
    refused = problems(given_answer, facts(workflow=uncordon, other_target=resolved(NODE, seen_in=())))
    assert (PARAMETERS, "selected_workflow.parameters.TARGET_RESOURCE_NAME") in refused


@pytest.mark.parametrize("version", ["1.2.0", "v1.2.0", "V1.2.0", "1.2", " 1.2.0.0", ""])
def test_the_version_may_be_left_out_or_spelt_in_other_ways(version):
    accepted(answer(selected_workflow=chosen(version=version)), facts())


@pytest.mark.parametrize("version", ["1.20", "1", "1.2.0-rc1", "12.0", "w1.2.0"])
def test_another_version_is_refused(version):
    said = answer(selected_workflow=chosen(version=version))
    assert problems(said, facts()) == [(MISMATCH, "selected_workflow.version")]


def test_the_failed_workflow_may_not_be_repeated():
    failed = FailedExecution("restart-v1")
    assert problems(answer(), facts(failed=failed)) == [(FORBIDDEN, "selected_workflow")]
    accepted(answer(), facts(failed=FailedExecution("scale-v1")))


def test_a_forbidden_action_is_refused_and_others_wait_for_approval():
    forbidden = SafetyContext(safety_constraints=SafetyConstraints(forbidden_actions=("restart",)))
    assert problems(answer(), facts(safety=forbidden)) == [(FORBIDDEN, "selected_workflow.workflow_id")]
    unlisted = SafetyContext(safety_constraints=SafetyConstraints(allowed_actions=("scale",)))
    assert ["action_not_allowed"] == codes(accepted(answer(), facts(safety=unlisted)))


def test_the_answers_own_downtime_counts_when_the_catalog_has_none():
    limit = SafetyContext(safety_constraints=SafetyConstraints(max_downtime_seconds=60))
    slow = answer(selected_workflow=chosen(estimated_downtime_seconds=90))
    assert problems(slow, facts(safety=limit)) == [(FORBIDDEN, "selected_workflow.workflow_id")]


def test_a_note_says_why_an_alternative_is_left_out():
    names = ["no-such", *(f"known-{n}" for n in range(4)), "sixth"]
    listed = answer(alternatives=tuple(map(AnsweredAlternative, names)))
    verdict = accepted(listed, facts(alternatives=frozenset(names[1:5])))
    notes = [note for note in verdict.notes if note.startswith("alternative ")]
    assert [("no-such", True), ("sixth", False)] == [(note.split()[1], "catalog" in note) for note in notes]


def test_only_known_alternatives_are_passed_on():
    listed = answer(
        alternatives=(
            AnsweredAlternative("scale-v1", 0.4),
            AnsweredAlternative("invented"),
            AnsweredAlternative("restart-v1"),
            AnsweredAlternative("scale-v1", 0.3),
        )
    )
    verdict = accepted(listed, facts(alternatives=frozenset({"scale-v1", "restart-v1"})))
    assert (AnsweredAlternative("scale-v1", 0.4),) == verdict.alternatives


def test_a_workflow_is_fetched_for_the_answers_severity_whatever_its_component_or_signal():
    context = SelectionContext(environment="prod", signal_type="X", components=(("v1", "Pod"),))
    expected = SelectionContext(environment="prod", severity="medium")
    assert expected == lookup_context(answer(severity="warning"), context)


def test_the_correction_names_every_problem_once():
    found = (
        Problem(RCA, "a.b", "is missing"),
        Problem(PARAMETERS, "c", "too\nlarge"),
        Problem(UNREADABLE, "", "no JSON"),
    )
    lines = correction_message(found).splitlines()
    assert lines[1:4] == ["- a.b: is missing", "- c: too large", "- no JSON"]
    assert lines[-1] != correction_message(found[:2]).splitlines()[-1]


def test_a_correction_is_bounded():
    many = [Problem(PARAMETERS, f"p{n}", "x" * 10_000) for n in range(500)]
    assert len(correction_message(many)) < 20_000


WORDS = st.sampled_from(
    ["", " ", "api", "restart-v1", "Deployment", "critical", "\ud800", "a\x00b", "é" * 50]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["TARGET_RESOURCE_NAME", "TARGET_RESOURCE_KIND", "TARGET_RESOURCE_NAMESPACE", "FACTOR", "", "x"]
)
TARGETS = st.builds(ObjectRef, WORDS, WORDS, WORDS, WORDS)
CONFIDENCES = st.none() | st.floats()
CHOICES = st.builds(
    AnsweredWorkflow,
    workflow_id=WORDS,
    confidence=CONFIDENCES,
    version=WORDS,
    container_image=WORDS,
    rationale=WORDS,
    estimated_downtime_seconds=st.none() | st.integers(),
    parameters=st.dictionaries(NAMES, JSON, max_size=5),
)
ANSWERS = st.builds(
    Answer,
    summary=WORDS,
    severity=WORDS,
    signal_type=WORDS,
    affected_resource=st.none() | TARGETS,
    selected_workflow=st.none() | CHOICES,
    workflow_stated=st.booleans(),
    alternatives=st.lists(st.builds(AnsweredAlternative, WORDS, CONFIDENCES), max_size=3).map(tuple),
    outcome=st.sampled_from(["", "actionable", "not_actionable", "resolved", "nonsense", "inconclusive"]),
    confidence=CONFIDENCES,
)
HOLDING = st.builds(
    answer,
    severity=st.sampled_from(["critical", "warning", "unknown", "nonsense"]),
    selected_workflow=st.builds(
        chosen,
        confidence=st.sampled_from([0.1, 0.9, None]),
        parameters=st.dictionaries(NAMES, st.just("api") | JSON, max_size=2),
    ),
    outcome=st.sampled_from(["", "actionable", "inconclusive"]),
)
AFFECTED = st.sampled_from(
    [
        None,
        resolved(DEPLOYMENT),
        resolved(POD, REPLICA_SET, DEPLOYMENT),
        resolved(NODE),
        resolved(DEPLOYMENT, existence=Existence.UNVERIFIABLE),
        resolved(DEPLOYMENT, existence=Existence.NOT_FOUND),
    ]
)
WORKFLOWS = st.sampled_from(
    [None, workflow(), workflow(labels={}), workflow(labels=labels(environment="staging"))]
)


@given(HOLDING | ANSWERS, AFFECTED, WORKFLOWS)
def test_any_answer_is_accepted_or_rejected_and_what_is_accepted_passed_the_gate(
    given_answer, affected, catalogued
):
    given_facts = facts(affected=affected, workflow=catalogued)
    verdict = judge(given_answer, given_facts)
    if isinstance(verdict, Rejected):
        assert verdict.problems
        assert correction_message(verdict.problems).encode()
        return
    assert isinstance(verdict, Accepted)
    assert verdict.confidence is None or 0 <= verdict.confidence <= 1
    if verdict.workflow is None:
        assert given_answer.selected_workflow is None
        return
    objects = (*affected.chain, verdict.target)
    context = replace(
        lookup_context(given_answer, given_facts.context),
        components=tuple((o.api_version, o.kind) for o in objects),
    )
    assert mismatches(verdict.workflow, for_final_choice(context)) == ()
    assert {p.name for p in verdict.workflow.parameters} >= set(verdict.parameters)
