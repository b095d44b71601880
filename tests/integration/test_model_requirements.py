"""What is asked of a model and what is made of its answers, over the wire: a scripted model, the real adapter, a whole analysis."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from schemas.analysis import HumanReviewReason, Status
from schemas.evidence import ClaimSupport
from schemas.incident import IncidentRequest
from tests.bench.incident import TURNS, request_text
from tests.corpus_files import CORPUS
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.llm_server import Said, serve
from tests.fakes.memory_catalog import MemoryCatalog, labels, target_parameters, workflow
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_external import MemoryExternal
from tests.fakes.memory_metrics import MemoryMetrics
from tests.fakes.scripted import LOGS, World, answer, incident, recovered, recovery, shop
from tests.fakes.tokens import real_tokens
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.pydantic_ai import PydanticAIModel
from worker.domain.analyse import Rules
from worker.domain.values.limits import Limits
from worker.domain.values.workflows import Parameter

LOOK = ("get_resource", {"kind": "Deployment", "name": "api", "namespace": "shop"})
POD = {"kind": "Pod", "name": "api-7d9-x2x", "namespace": "shop"}
API = {"kind": "Deployment", "name": "api", "namespace": "shop", "apiVersion": "apps/v1"}
CAUSE = {
    "summary": "Its listen address is not set.",
    "severity": "critical",
    "signal_type": "CrashLoopBackOff",
}
CHOICE = {
    "workflow_id": "restart-v1",
    "confidence": 0.9,
    "rationale": "It picks the address up.",
    "estimated_risk": "low",
}


REPEATED = {
    "recovery_analysis": {
        "previous_attempt_assessment": {
            "failure_understood": True, "failure_reason_analysis": "slow", "state_changed": False,
            "current_signal_type": "CrashLoopBackOff",
        }
    },
    "recovery_strategy": {"approach": "the same again", "why_different": "it is not"},
}  # fmt: skip


async def run(script, request=None, **ports):
    """The result, the requests that the model got, and the world around it. A list is said in order, the last one again."""
    lines = script if callable(script) else lambda _, number: script[min(number, len(script)) - 1]
    async with serve(lines) as llm:
        model = PydanticAIModel("openai-chat:scripted", base_url=f"{llm.url}/v1", api_key="none")
        world = World(**ports)
        world.model = model
        try:
            result = await world.analyse(request or incident())
        finally:
            await model.close()
    return result, llm.requests, world


def form_of(request):
    """The schema of an answer, as it went over the wire."""
    (tool,) = [t["function"] for t in request["tools"] if t["function"]["name"] == "submit_result"]
    assert tool["strict"] is True
    return tool["parameters"]


def filled(schema, **values):
    """A value in the form of the schema: `values` by name wherever they belong, else the emptiest value of its type."""
    for name, kind in {"array": [], "string": "", "integer": 0, "number": 0.0, "boolean": False}.items():
        if schema.get("type") == name:
            return schema["enum"][0] if "enum" in schema else kind
    if "anyOf" in schema:
        return None
    assert set(schema["required"]) == set(schema["properties"])
    return {
        name: (
            values[name]
            if name in values and not isinstance(values[name], dict)
            else filled(_object_of(inner), **{**values, **values.get(name, {})})
            if name in values or inner.get("type") == "object"
            else filled(inner)
        )
        for name, inner in schema["properties"].items()
    }


def _object_of(schema):
    return next((option for option in schema.get("anyOf", ()) if option.get("type") == "object"), schema)


def by_the_form(**values):
    """A script that looks at the resource, then fills in the form that it was given."""
    given = {
        "root_cause_analysis": {**CAUSE, "affectedResource": API},
        "confidence": 0.9,
        "analysis": "Found it.",
    }

    def script(request, number):
        if number == 1:
            return Said(tool_calls=[LOOK])
        return Said(tool_calls=[("submit_result", filled(form_of(request), **{**given, **values}))])

    return script


def submit(**changes):
    return Said(tool_calls=[("submit_result", answer(confidence=0.9, **changes))])


def system_of(request):
    return request["messages"][0]["content"]


def opening_of(request):
    return request["messages"][1]["content"]


def context_of(name):
    return ("get_resource_context", {"kind": "Deployment", "name": name, "namespace": "shop"})


def told(request):
    """The last thing that the model was told."""
    return request["messages"][-1]["content"]


# -- 1: an answer in the form that is asked for reaches every ending


@pytest.mark.parametrize(
    ("values", "status", "reason"),
    [
        ({"selected_workflow": CHOICE, "investigation_outcome": "actionable"}, Status.COMPLETED, None),
        ({"investigation_outcome": "problem_resolved"}, Status.RESOLVED, None),
        ({"investigation_outcome": "not_actionable"}, Status.NOT_ACTIONABLE, None),
        (
            {"selected_workflow": {**CHOICE, "confidence": 0.4}, "investigation_outcome": "actionable"},
            Status.NEEDS_HUMAN_REVIEW,
            HumanReviewReason.LOW_CONFIDENCE,
        ),
        (
            {"investigation_outcome": "inconclusive"},
            Status.NEEDS_HUMAN_REVIEW,
            HumanReviewReason.INVESTIGATION_INCONCLUSIVE,
        ),
        (
            {"investigation_outcome": "actionable", "rationale": "none fits"},
            Status.NEEDS_HUMAN_REVIEW,
            HumanReviewReason.NO_MATCHING_WORKFLOWS,
        ),
    ],
)
async def test_the_form_filled_in_reaches_each_ending(values, status, reason):
    healthy = values["investigation_outcome"] in {"problem_resolved", "not_actionable"}
    cluster = MemoryCluster(recovered() if healthy else shop(), LOGS)
    result, requests, _ = await run(by_the_form(**values), cluster=cluster)
    assert (status, reason) == (result.status, result.human_review_reason)
    assert 2 == len(requests)
    assert '"warnings": []' in system_of(requests[0])


async def test_a_warning_alone_forces_no_approval():
    given = {"selected_workflow": CHOICE, "investigation_outcome": "actionable", "warnings": ["short outage"]}
    result, _, world = await run(by_the_form(**given))
    assert (Status.COMPLETED, False) == (result.status, result.needs_human_review)
    assert "short outage" in result.warnings
    assert "short outage" in world.policy.asked[-1]["warnings"]
    assert not [f for f in result.approval.reasons if "short outage" in f]


@pytest.mark.parametrize("outcome", ["problem_resolved", "not_actionable"])
async def test_an_end_without_a_workflow_needs_a_confidence(outcome):
    unsure = Said(
        tool_calls=[("submit_result", answer(selected_workflow=None, investigation_outcome=outcome))]
    )
    result, requests, _ = await run([unsure], cluster=MemoryCluster(recovered(), LOGS))
    assert "these two without a confidence" in system_of(requests[0])
    assert "confidence" in told(requests[1])
    assert Status.NEEDS_HUMAN_REVIEW is result.status


# -- 2: the tool is the way to answer, text the fallback


async def test_text_with_json_is_read_as_a_submission_is():
    text = Said(text=f"It is the image.\n```json\n{json.dumps(answer(confidence=0.9))}\n```")
    (by_text, *_), (by_tool, *_) = await run([text]), await run([submit()])
    assert by_text.root_cause_analysis == by_tool.root_cause_analysis
    assert by_text.selected_workflow == by_tool.selected_workflow


TWO = f"```json\n{json.dumps(answer())}\n```\n```json\n{json.dumps(answer(selected_workflow=None))}\n```"
ONLY_REASONING = json.dumps(
    {
        "id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": None, "reasoning_content": "It may be the image."},
        }],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
).encode()  # fmt: skip
UNREADABLE = {
    "prose": (Said(text="It is the image."), "no JSON object"),
    "truncated": (
        Said(text='```json\n{"root_cause_analysis": {"summ', finish="length"),
        "cut off at the token limit",
    ),
    "two": (Said(text=TWO), "different answers"),
    "reasoning": (Said(body=ONLY_REASONING), "reasoning"),
    "no arguments": (Said(tool_calls=[("submit_result", '{"root_cause')], finish="length"), "cut off"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_an_answer_that_cannot_be_read_costs_no_attempt_the_first_time(kind):
    said, why = UNREADABLE[kind]
    result, requests, _ = await run([said, submit()])
    assert Status.COMPLETED is result.status
    assert [1] == [a.attempt for a in result.validation_attempts]
    assert why in told(requests[1])
    assert "submit_result" in told(requests[1])


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_no_answer_is_read_from_a_reply_that_was_cut_off_or_filtered(finish):
    cut = Said(text=json.dumps(answer(confidence=0.9)), finish=finish)
    result, requests, _ = await run([cut, submit()])
    assert (Status.COMPLETED, 2) == (result.status, len(requests))


# -- 3: what is rejected is said beforehand, and then told with the number of the attempt


@pytest.mark.parametrize(
    ("wrong", "beforehand", "reason"),
    [
        (
            {"root_cause_analysis": {**CAUSE, "affectedResource": {**API, "name": "gone"}}},
            "an object that does not exist, or that no evidence shows",
            HumanReviewReason.RCA_INCOMPLETE,
        ),
        (
            {"root_cause_analysis": {**CAUSE, "signal_type": "MemoryIssue", "affectedResource": API}},
            "a signal type or severity that is not listed",
            HumanReviewReason.RCA_INCOMPLETE,
        ),
        (
            {"selected_workflow": {**CHOICE, "workflow_id": "no-such-v1"}},
            "a workflow the catalog did not show",
            HumanReviewReason.WORKFLOW_NOT_FOUND,
        ),
        (
            {"selected_workflow": {**CHOICE, "version": "9.9.9"}},
            "another version than the catalog's",
            HumanReviewReason.IMAGE_MISMATCH,
        ),
        (
            {"selected_workflow": {**CHOICE, "parameters": {"FORCE": True}}},
            "a parameter that is missing, unknown or against its limits",
            HumanReviewReason.PARAMETER_VALIDATION_FAILED,
        ),
        (
            {"investigation_outcome": "problem_resolved"},
            "a workflow with not_actionable or problem_resolved",
            HumanReviewReason.LLM_PARSING_ERROR,
        ),
    ],
)
async def test_what_is_rejected_is_said_beforehand(wrong, beforehand, reason):
    result, requests, _ = await run([submit(**wrong)])
    assert beforehand in system_of(requests[0])
    assert "three attempts" in system_of(requests[0])
    assert reason is result.human_review_reason
    assert ["attempt 2 of 3", "attempt 3 of 3"] == [
        re.search(r"attempt \d of \d", told(request))[0] for request in requests[1:]
    ]


async def test_limits_of_the_safety_context_are_enforced_and_said():
    limits = {"forbidden_actions": ["restart_*"]}
    result, requests, _ = await run([submit()], incident(safety_context={"safety_constraints": limits}))
    assert HumanReviewReason.OPERATOR_ESCALATION is result.human_review_reason
    assert "an action that the safety context forbids, or more downtime" in system_of(requests[0])
    assert "Forbidden actions: restart_*. A workflow that takes one is rejected." in opening_of(requests[0])


async def test_more_downtime_than_allowed_is_rejected_and_said():
    slow = MemoryCatalog([workflow(estimated_downtime_seconds=300)])
    limits = {"max_downtime_seconds": 60}
    request = incident(safety_context={"safety_constraints": limits})
    result, requests, _ = await run([submit()], request, catalog=slow)
    assert HumanReviewReason.OPERATOR_ESCALATION is result.human_review_reason
    assert "Downtime: at most 60 s. A workflow that takes longer is rejected" in opening_of(requests[0])
    assert len(requests) == 3


async def test_what_has_failed_before_is_rejected_and_said():
    result, requests, _ = await run([submit(**REPEATED)], recovery())
    assert "a workflow with parameters that failed before" in system_of(requests[0])
    assert "Do NOT select restart-v1 with the same parameters again" in opening_of(requests[0])
    assert "attempt 2 of 3" in told(requests[1])
    assert Status.NEEDS_HUMAN_REVIEW is result.status


# -- 4: the signal type that was found


async def test_the_signal_type_of_a_dependency_is_what_was_found_there():
    text = json.dumps([item for item in shop() if item["metadata"]["name"].startswith("api")])
    cache = json.loads(text.replace("api-", "cache-").replace('"api"', '"cache"'))
    [pod] = [item for item in cache if item["kind"] == "Pod"]
    killed = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-06-04T15:32:00Z"}
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"] = killed
    looks = Said(tool_calls=[("list_resources", {"kind": "Pod", "namespace": "shop"}), context_of("cache")])
    found = {**CAUSE, "signal_type": "OOMKilled", "affectedResource": {**API, "name": "cache"}}
    search = Said(tool_calls=[("search_workflow_catalog", {"query": "OOMKilled critical memory"})])
    memory = workflow(
        "memory-v1", "GrowMemory", labels=labels(signal_type="OOMKilled", component="deployment")
    )
    choice = {
        "workflow_id": "memory-v1",
        "confidence": 0.9,
        "rationale": "It is killed.",
        "estimated_risk": "low",
    }
    said = submit(root_cause_analysis=found, selected_workflow=choice)
    result, requests, _ = await run(
        [looks, search, said],
        cluster=MemoryCluster([*shop(), *cache], LOGS),
        catalog=MemoryCatalog([workflow(), memory]),
    )
    assert "OOMKilled for an OOM-killed dependency" in system_of(requests[0])
    assert '"memory-v1"' in told(requests[2])
    assert "restart-v1" not in told(requests[2])
    assert ("OOMKilled", "cache") == (
        result.root_cause_analysis.signal_type,
        result.root_cause_analysis.affected_resource.name,
    )
    assert "memory-v1" == result.selected_workflow.workflow_id


@pytest.mark.parametrize(
    ("signal_type", "reported", "accepted"),
    [
        ("NodePressure", False, True),
        ("failedcreate", True, True),
        ("FailedCreate", False, False),
    ],
)
async def test_signal_types_are_the_listed_ones_and_what_the_cluster_reports(signal_type, reported, accepted):
    manifests = shop()
    if reported:
        event = next(item for item in manifests if item["kind"] == "Event")
        involved = {"kind": "ReplicaSet", "name": "api-7d9", "namespace": "shop"}
        failed = {
            **event,
            "reason": "FailedCreate",
            "involvedObject": involved,
            "message": "forbidden: quota",
        }
        manifests.append({**failed, "metadata": {**event["metadata"], "name": "api-7d9.2", "uid": "uid-2"}})
    events = Said(tool_calls=[("get_events", {"namespace": "shop"})])
    said = submit(root_cause_analysis={**CAUSE, "signal_type": signal_type, "affectedResource": API})
    result, _, _ = await run([events, said], cluster=MemoryCluster(manifests, LOGS))
    assert accepted is (result.status is Status.COMPLETED)
    if reported:
        assert "FailedCreate" == result.root_cause_analysis.signal_type


# -- 5: guidance, and recovery


async def test_each_severity_has_four_examples_and_each_source_its_guidance():
    _, requests, _ = await run([submit()], metrics=MemoryMetrics())
    system = system_of(requests[0])
    for level in ("critical", "high", "medium", "low"):
        (line,) = re.findall(rf"^{level}: .*$", system, re.MULTILINE)
        assert 4 == len(re.search(r"\(([^()]*)\)$", line)[1].split(", "))
    assert all(f"{source}:" in system for source in ("Kubernetes", "Prometheus", "logs"))
    (metrics,) = [t["function"] for t in requests[0]["tools"] if t["function"]["name"] == "query_prometheus"]
    assert "alert" in metrics["description"]


async def test_a_recovery_tells_the_failure_and_ends_with_the_form_of_the_answer():
    assessment = {"failure_understood": "true", "failure_reason_analysis": "slow", "state_changed": "false"}
    given = {
        "recovery_analysis": {
            "previous_attempt_assessment": {**assessment, "current_signal_type": "OOMKilled"}
        },
        "recovery_strategy": {"approach": "none", "why_different": "nothing is restarted"},
        "selected_workflow": None,
    }
    result, requests, _ = await run([submit(**given)], recovery())
    opening, form = opening_of(requests[0]), form_of(requests[0])
    assert "- Failed At: 2026-06-04T15:30:00Z" in opening
    assert "Include the failure reason in your search rationale" in opening
    assert opening.rindex('"recovery_analysis"') > opening.rindex("</data-")
    assert {"recovery_analysis", "recovery_strategy"} <= set(form["required"])
    found = result.recovery_analysis.previous_attempt_assessment
    assert (True, False) == (found.failure_understood, found.state_changed)


# -- 6: the safety context


async def test_limits_and_the_view_of_the_model_on_them():
    safety = {
        "criticality": "high",
        "safety_constraints": {"max_downtime_seconds": 60, "allowed_actions": ["restart"]},
    }
    known = workflow(estimated_downtime_seconds=None)
    choice = {**CHOICE, "estimated_downtime_seconds": 45, "impact_on_dependencies": "moderate"}
    result, requests, _ = await run(
        by_the_form(selected_workflow=choice, investigation_outcome="actionable"),
        incident(safety_context=safety),
        catalog=MemoryCatalog([known]),
    )
    opening = opening_of(requests[0])
    assert "Downtime: at most 60 s" in opening
    assert "Allowed actions: restart" in opening
    assert '"criticality":"high"' in opening
    chosen = result.selected_workflow
    assert (45, "moderate") == (chosen.estimated_downtime_seconds, chosen.impact_on_dependencies)


async def test_the_answer_of_the_safety_document_is_a_choice():
    cause = {"summary": "Address not set.", "severity": "critical", "affectedResource": API}
    recommended = {
        "root_cause_analysis": cause,
        "confidence": 0.92,
        "recommendations": [
            {"action": "rollback_deployment", "priority": 2, "risk_level": "low"},
            {"action": "restart_workload", "priority": 1, "rationale": "no downtime", "risk_level": "low"},
        ],
    }
    result, _, _ = await run([Said(text=json.dumps(recommended))])
    assert (Status.COMPLETED, "restart-v1", 0.92) == (
        result.status,
        result.selected_workflow.workflow_id,
        result.selected_workflow.confidence,
    )


@pytest.mark.parametrize("action", ["delete_namespace", "investigate"])
async def test_an_action_that_names_no_workflow_is_no_choice(action):
    cause = {"summary": "Address not set.", "severity": "critical", "affectedResource": API}
    said = {
        "root_cause_analysis": cause,
        "confidence": 0.92,
        "recommendations": [{"action": action, "priority": 1}],
    }
    result, _, _ = await run([Said(text=json.dumps(said))])
    assert result.selected_workflow is None


# -- 7: claims with evidence


async def test_claims_are_checked_and_their_evidence_can_be_read():
    secret = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"
    logs = {key: f"starting\ntoken {secret}\n".encode() + b"x\n" * 3_000 for key in LOGS}
    asked = {"pod": "api-7d9-x2x", "namespace": "shop", "previous": True}
    numbers = {}

    def script(request, number):
        if number == 1:
            return Said(tool_calls=[("get_pod_logs", asked), ("get_resource", {**POD})])
        seen = [m["content"] for m in request["messages"] if m["role"] == "tool"]
        numbers["log"], numbers["pod"] = (re.search(r'id="(E\d+)"', text)[1] for text in seen)
        claims = [
            {"claim": "The pod is in CrashLoopBackOff", "evidence": [numbers["pod"]]},
            {"claim": "The container was OOMKilled", "evidence": [numbers["pod"], "E99"]},
            {"claim": "The address is not set", "evidence": []},
        ]
        return submit(root_cause_analysis={**CAUSE, "affectedResource": API, "causal_chain": claims})

    result, _, _ = await run(script, cluster=MemoryCluster(shop(), logs))
    claims = result.root_cause_analysis.causal_claims
    assert [ClaimSupport.SHOWN, ClaimSupport.NOT_SHOWN, ClaimSupport.UNCITED] == [c.support for c in claims]
    assert [numbers["pod"]] == list(claims[1].evidence)
    assert any("E99" in warning for warning in result.warnings)
    shown = {item.id: item for item in result.evidence}
    said = shown[numbers["pod"]].excerpt  # the first look has read the pod, too
    assert "CrashLoopBackOff" in shown[said.removeprefix("same text as ")].excerpt
    assert all(item.source and item.summary and item.seen_at for item in shown.values())
    assert all(len(item.excerpt.encode()) <= 2_048 for item in shown.values())
    assert secret not in result.model_dump_json()


# -- 8: tools


async def test_schemas_of_tools_are_whole():
    _, requests, _ = await run([submit()])
    tools = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in requests[0]["tools"]}
    assert tools["list_workflows"]["severity"]["enum"] == ["critical", "high", "medium", "low"]
    lines = tools["get_pod_logs"]["tail_lines"]
    assert (200, 1, 2000) == (lines["default"], lines["minimum"], lines["maximum"])
    assert {"before", "after", "grep"} <= set(tools["get_pod_logs"])
    assert "namespaced" in tools["get_resource"]["namespace"]["description"]
    assert not {"filters", "custom_labels"} & set(tools["search_workflow_catalog"])


async def test_only_tools_of_other_servers_need_the_labels_as_arguments():
    stateful = {"detectedLabels": {"stateful": True}}
    for ports, asked in (({}, False), ({"external": MemoryExternal()}, True)):
        _, requests, _ = await run([submit()], incident(enrichment_results=stateful), **ports)
        assert asked is ('"stateful":true' in opening_of(requests[0]))


async def test_nothing_is_told_twice_and_code_fills_in_the_target():
    declared = workflow(
        labels=labels(
            signal_type="CrashLoopBackOff",
            severity="critical",
            component="deployment",
            environment="*",
            priority="*",
        ),
        parameters=(*target_parameters("Deployment"), Parameter("REASON")),
    )
    context = ("get_resource_context", {"kind": "Deployment", "name": "api", "namespace": "shop"})
    looks = [
        Said(tool_calls=[context, ("get_workflow", {"workflow_id": "restart-v1"})]),
        Said(tool_calls=[("search_workflow_catalog", {"query": "CrashLoopBackOff critical"})]),
    ]
    _, requests, _ = await run([*looks, submit()], catalog=MemoryCatalog([declared]))
    results = [m["content"] for m in requests[-1]["messages"] if m["role"] == "tool"]
    assert 3 == len(results)
    assert not any("TARGET_" in text or "root_owner" in text or "priority=" in text for text in results)
    assert all("REASON" in text for text in results[1:])
    assert 1 == opening_of(requests[0]).count("- Environment: production")


async def test_cached_tokens_count_at_their_price_and_no_limit_is_overrun():
    """The scripted server reports 1,000 input tokens more for each call, and 900 of each as cached."""
    limit = 12_000
    result, _, _ = await run([Said(tool_calls=[LOOK])], rules=Rules(limits=Limits(input_tokens=limit)))
    assert HumanReviewReason.INVESTIGATION_INCONCLUSIVE is result.human_review_reason
    usage = result.usage
    assert usage.input_tokens - 0.9 * usage.cached_tokens <= limit < usage.input_tokens


LONG = {key: b"".join(b"line %d: %d\n" % (n, n * n) for n in range(4_000)) for key in LOGS}


async def test_the_oldest_results_leave_before_the_window_is_full():
    def logs(number):
        asked = {
            "pod": "api-7d9-x2x",
            "namespace": "shop",
            "previous": True,
            "before": f"line {3_900 - number}:",
        }
        return Said(tool_calls=[("get_pod_logs", asked)])

    said = [*map(logs, range(4)), submit()]
    rules = Rules(limits=Limits(window_tokens=4_500))
    result, requests, _ = await run(said, cluster=MemoryCluster(shop(), LONG), rules=rules)
    assert Status.COMPLETED is result.status
    first = [m["content"] for m in requests[-1]["messages"] if m["role"] == "tool"]
    assert "taken out to make room" in first[0]
    assert "line 3" in first[-1]


# -- 9: JSON in a string where a value belongs


def _encoded(path, times=1):
    """The answer with the value at the path as JSON in a string."""
    made = answer(confidence=0.9)
    made["root_cause_analysis"]["causal_chain"] = [{"claim": "It exits", "evidence": ["E1"]}]
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    for _ in range(times):
        holder[path[-1]] = json.dumps(holder[path[-1]])
    return made


@pytest.mark.parametrize(
    "made",
    [
        _encoded(["root_cause_analysis"]),
        _encoded(["root_cause_analysis"], times=2),
        _encoded(["root_cause_analysis", "affectedResource"]),
        _encoded(["root_cause_analysis", "causal_chain"]),
        _encoded(["root_cause_analysis", "causal_chain", 0]),
        _encoded(["root_cause_analysis", "causal_chain", 0, "evidence"]),
        _encoded(["selected_workflow"]),
        _encoded(["selected_workflow", "parameters"]),
        json.dumps(answer(confidence=0.9)),
    ],
)
@pytest.mark.parametrize("by_tool", [True, False])
async def test_json_in_a_string_is_read_where_a_value_belongs(made, by_tool):
    written = json.dumps(made)
    said = Said(tool_calls=[("submit_result", written)]) if by_tool else Said(text=written)
    result, requests, _ = await run([said])
    assert (Status.COMPLETED, 1) == (result.status, len(requests))
    assert "api" == result.root_cause_analysis.affected_resource.name
    assert "restart-v1" == result.selected_workflow.workflow_id


async def test_half_a_value_in_a_string_is_told_back():
    half = json.dumps(answer()["root_cause_analysis"])[:-20]
    result, requests, _ = await run([submit(root_cause_analysis=half), submit()])
    assert "root_cause_analysis" in told(requests[1])
    assert Status.COMPLETED is result.status


# -- 10: a cause that passed its checks is kept (budgets and operators: test_consumer.py)


@pytest.mark.parametrize(
    "wrong",
    [{**CHOICE, "workflow_id": "no-such-v1"}, {**CHOICE, "parameters": {"FORCE": True}}],
    ids=["workflow", "parameters"],
)
async def test_a_cause_is_kept_when_only_the_workflow_fails(wrong):
    other = {"workflow_id": "rollback-v1", "confidence": 0.6, "rationale": "It worked before."}
    script = [Said(tool_calls=[LOOK]), submit(selected_workflow=wrong, alternative_workflows=[other])]
    result, _, _ = await run(script)
    assert Status.NEEDS_HUMAN_REVIEW is result.status
    assert "api" == result.root_cause_analysis.affected_resource.name
    assert ["rollback-v1"] == [found.workflow_id for found in result.alternative_workflows]
    assert "get_resource" in {item.source for item in result.evidence}
    assert result.human_review_detail
    assert result.selected_workflow is None


# -- 11: fields of the answer and of the request


@pytest.mark.parametrize(("said", "kept"), [("Moderate", "medium"), ("critical", "high"), ("no idea", "")])
async def test_the_risk_is_a_closed_set(said, kept):
    result, requests, _ = await run([submit(selected_workflow={**CHOICE, "estimated_risk": said})])
    form = _object_of(form_of(requests[0])["properties"]["selected_workflow"])
    assert ["low", "medium", "high"] == form["properties"]["estimated_risk"]["enum"]
    assert kept == result.selected_workflow.estimated_risk


async def test_each_attempt_has_the_time_at_which_it_was_checked():
    clock = FixedClock()

    def script(request, number):
        clock.advance(60)
        return submit(
            **({"selected_workflow": {**CHOICE, "workflow_id": "no-such-v1"}} if number < 3 else {})
        )

    result, _, _ = await run(script, clock=clock)
    times = [attempt.timestamp for attempt in result.validation_attempts]
    assert [60, 60] == [(later - earlier).total_seconds() for earlier, later in pairwise(times)]


# -- the whole


async def test_the_golden_path_is_within_its_budget():
    """Six calls of a model with eight tool calls. Tokens are o200k ones of what the model reads."""
    case = CORPUS / "cases" / "001-oom-shm-leak-after-limit-raises"
    request = IncidentRequest.model_validate_json((case / "incident.json").read_bytes())
    turns = [Said(tool_calls=[(name, dict(given)) for name, given in turn]) for turn in TURNS]
    cluster, catalog = MemoryCluster.read(case), await FileCatalog.open(CORPUS / "catalog")
    _, requests, _ = await run(
        [*turns, submit(selected_workflow=None)], request, cluster=cluster, catalog=catalog
    )
    tokens = [real_tokens(request_text(request)) for request in requests[:6]]
    assert tokens[0] <= 5_700
    assert sum(tokens) <= 36_000
