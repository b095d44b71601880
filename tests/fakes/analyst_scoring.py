"""Runs incidents through the real analysis with the offline analyst as the model, in one process, and scores them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schemas.analysis import AnalysisResult
from schemas.incident import IncidentRequest
from schemas.recovery import RecoveryRequest
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_nats import MemoryEvents, MemoryJournal
from tests.fakes.memory_policy import MemoryPolicy
from worker.adapters.file_catalog import FileCatalog
from worker.domain.analyse import Analysis, Rules
from worker.domain.intake.accepted import AcceptedRequest
from worker.domain.journal.run import Run
from worker.domain.values.conversation import (
    CallUsage,
    Finish,
    ModelRequest,
    Reply,
    ToolCall,
    ToolTurn,
    UserTurn,
)
from worker.domain.values.delivery import Delivery
from worker.domain.values.ports import ExternalTools, History, Outside, Policy
from worker.sandbox.analyst.respond import respond

NOW = datetime(2026, 11, 1, tzinfo=UTC)


class StillClock:
    def now(self) -> datetime:
        return NOW

    def has_passed(self, moment: datetime) -> bool:
        return moment <= NOW

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


@dataclass
class AnalystModel:
    """The Model port over `respond`: the same request body an OpenAI client would send. Keeps what was said."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    name: str = "offline-analyst"

    async def ask(self, request: ModelRequest) -> Reply:
        body = json.loads(json.dumps(chat_request(request)))
        self.requests.append(body)
        message = respond(body)["choices"][0]["message"]
        calls = tuple(
            ToolCall(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
            for c in message.get("tool_calls") or ()
        )
        size = len(json.dumps(body["messages"])) // 4
        return Reply(
            text=message.get("content") or "",
            tool_calls=calls,
            finish=Finish.TOOL_CALLS if calls else Finish.STOP,
            usage=CallUsage(input_tokens=size, output_tokens=100),
            model="offline-analyst",
        )


def chat_request(request: ModelRequest) -> dict[str, Any]:
    """The conversation as a chat completions body."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": request.system}]
    for turn in request.turns:
        if isinstance(turn, UserTurn):
            messages.append({"role": "user", "content": turn.text})
        elif isinstance(turn, ToolTurn):
            messages += [
                {"role": "tool", "tool_call_id": r.call_id, "content": r.content} for r in turn.results
            ]
            messages += [{"role": "user", "content": turn.note}] if turn.note else []
        else:
            calls = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.name, "arguments": json.dumps(dict(c.arguments))},
                }
                for c in turn.tool_calls
            ]
            messages.append(
                {
                    "role": "assistant",
                    "content": turn.text or None,
                    **({"tool_calls": calls} if calls else {}),
                }
            )
    tools = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
        }
        for t in request.tools
    ]
    return {
        "model": "x",
        "messages": messages,
        "tools": tools,
        "tool_choice": "auto" if request.tools_allowed else "none",
    }


@dataclass(frozen=True, slots=True)
class Ran:
    """One incident after its analysis."""

    name: str
    result: AnalysisResult
    expected: dict[str, Any]
    requests: Sequence[dict[str, Any]]

    @property
    def workflow(self) -> str:
        chosen = self.result.selected_workflow
        return chosen.workflow_id if chosen else "(none)"

    @property
    def resource(self) -> tuple[str, str, str]:
        found = self.result.affected_resource
        return (found.kind, found.name, found.namespace or "") if found else ("", "", "")

    @property
    def best(self) -> bool:
        return self.resource == _key(self.expected["affected_resource"])

    @property
    def acceptable(self) -> bool:
        places = [self.expected["affected_resource"], *self.expected.get("acceptable_affected_resources", [])]
        return self.resource in {_key(p) for p in places}

    @property
    def signal_fits(self) -> bool:
        cause, expected = self.result.root_cause_analysis, self.expected
        right = {expected["signal_type"], *expected.get("acceptable_signal_types", ())}
        return bool(cause) and cause.signal_type in right

    @property
    def workflow_fits(self) -> bool:
        accepted = self.expected["workflows"]["acceptable"] or ["(none)"]
        return self.workflow in accepted

    @property
    def workflow_wrong(self) -> bool:
        return self.workflow != "(none)" and not self.workflow_fits

    @property
    def workflow_required(self) -> bool:
        accepted = self.expected["workflows"]["acceptable"]
        return bool(accepted) and "(none)" not in accepted

    @property
    def missing_keywords(self) -> list[str]:
        text = f"{self.result.analysis} {self.result.root_cause_analysis}".lower()
        return [
            k
            for k in self.expected["root_cause_keywords"]
            if not any(p.lower() in text for p in k.split("|"))
        ]


def _key(place: dict[str, str]) -> tuple[str, str, str]:
    return place["kind"], place["name"], place.get("namespace") or ""


async def run_case(directory: Path, catalog: FileCatalog, *, logs_from: Path | None = None) -> Ran:
    """Analyse the incident of a case directory."""
    incident = json.loads((directory / "incident.json").read_text())
    expected = json.loads((directory / "expected.json").read_text())
    model = AnalystModel()
    result = await analyse(incident, MemoryCluster.read(logs_from or directory), catalog, model)
    return Ran(directory.name, result, expected, model.requests)


async def analyse(
    incident: dict[str, Any],
    cluster: MemoryCluster,
    catalog: FileCatalog,
    model: AnalystModel,
    external: ExternalTools | None = None,
    policy: Policy | None = None,
    history: History | None = None,
) -> AnalysisResult:
    """One request, or a recovery of one, through enrichment, loop, verdict and policy."""
    kind = RecoveryRequest if "previous_execution" in incident else IncidentRequest
    request = kind.model_validate({"received_time": NOW.isoformat(), **incident})
    delivery = Delivery("rca.request.incident", "RCA_REQUESTS", "p2", 1, 1, NOW)
    run = Run(
        AcceptedRequest(request, delivery),
        await MemoryJournal().open(request.remediation_id, "run-1"),
        MemoryEvents(),
        StillClock(),
        name="run-1",
        proceed=_go_on,
        new_token=lambda: "0123456789ab",
    )
    outside = Outside(
        cluster=cluster,
        catalog=catalog,
        model=model,
        policy=policy or MemoryPolicy(),
        clock=StillClock(),
        jitter=lambda: 0.5,
        external=external,
        history=history,
    )
    return await Analysis(outside, Rules()).run(run)


async def _go_on() -> None:
    """Nobody cancels."""


def figures(ran: Iterable[Ran]) -> dict[str, float]:
    """Counts over all runs, and the median number of calls to the model."""
    runs = list(ran)
    required = [r for r in runs if r.workflow_required]
    calls = sorted(r.result.usage.llm_calls for r in runs)
    return {
        "cases": len(runs),
        "acceptable": sum(r.acceptable for r in runs),
        "best": sum(r.best for r in runs),
        "signal": sum(r.signal_fits for r in runs),
        "workflow": sum(r.workflow_fits for r in runs),
        "required": sum(r.workflow_fits for r in required),
        "wrong": sum(r.workflow_wrong for r in runs),
        "median_calls": calls[len(calls) // 2] if calls else 0,
    }
