"""What is asked of a model and what is made of its answers, over the wire: a scripted model, the real adapter, a whole analysis."""

from __future__ import annotations

import json
import re

import pytest

from schemas.analysis import HumanReviewReason, Status
from schemas.incident import IncidentRequest
from tests.bench.incident import TURNS, request_text
from tests.corpus_files import CORPUS
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


async def test_a_whole_answer_is_read_whatever_ended_the_reply():
    cut = Said(text=json.dumps(answer(confidence=0.9)), finish="length")
    result, requests, _ = await run([cut])
    assert (Status.COMPLETED, 1) == (result.status, len(requests))


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


# -- 4: the signal type that was found


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
