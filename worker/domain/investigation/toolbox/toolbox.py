"""Running what the model asks for: arguments checked, bounded in time and size, never twice, always fenced.

Whatever goes wrong in the outside world becomes a text that tells the model what would work; nothing it asks for can
end a run. Results are cut before they are sent for the first time and are never changed later.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from worker.domain.cluster.history import Lookback
from worker.domain.investigation.toolbox.catalog import CatalogTools
from worker.domain.investigation.toolbox.cluster import ClusterTools, problem_of
from worker.domain.investigation.toolbox.findings import Finding, ToolProblem
from worker.domain.investigation.toolbox.logs import LogTools
from worker.domain.investigation.toolbox.specs import ARGUMENTS, argument_problems
from worker.domain.untrusted.evidence import Evidence, EvidenceLog, fence, one_line
from worker.domain.values.conversation import ToolCall, ToolResult
from worker.domain.values.errors import CatalogUnavailable, ClusterError
from worker.domain.values.ports import Catalog, Cluster
from worker.domain.values.tokens import RESULT_TOKENS, cut_middle, fits
from worker.domain.values.workflow_search import Target
from worker.domain.values.workflows import SelectionContext

__all__ = ["Target", "Tool", "Toolbox"]

DEADLINE_SECONDS = 20.0
MAX_ALIKE = 5
"""Calls of one tool about one object that differ only in how much is shown. More of them are refused."""
DETAILS = frozenset(
    {"path", "tail_lines", "grep", "since", "only_unhealthy", "label_selector", "field_selector"}
)
"""Arguments that change how much is seen, not what is looked at."""
MAX_ERROR = 1200  # characters
CATALOG_TOOLS = frozenset(
    {"list_available_actions", "list_workflows", "get_workflow", "search_workflow_catalog"}
)
SAME_CALL = "(the same call as before, the same answer: {id}; nothing new will come of it)"
ALIKE = (
    "not run: {count} calls of {tool} about the same object differ only in details; "
    "look at something else, or give the final answer from what you know"
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that depends on the configuration: what it is called with, and what runs it.

    `run` raises ToolProblem, ClusterError or TimeoutError; anything else is a programming error. `source` is what its
    evidence is said to come from, the name of the tool by default.
    """

    arguments: type[BaseModel]
    run: Callable[[Any], Awaitable[Finding]]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the toolbox has learned from one turn of calls, to be kept beside their results.

    `answers`: what was asked -> position of its answer in the turn. `alike`: how often each object was asked about, in
    all turns until now. `target`: `last_target` after the turn.
    """

    answers: Mapping[str, int] = field(default_factory=dict)
    alike: Mapping[str, int] = field(default_factory=dict)
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of one call: refused with a text, answered from memory, or run."""

    call: ToolCall
    key: str
    arguments: BaseModel | None = None
    refusal: str = ""


class Toolbox:
    """The tools of one investigation. `last_target` is the object of the last get_resource_context.

    `now` is when the signal was received: ages and windows of time are counted from it. `catalog_failed` tells that the
    catalog could not be read.
    """

    def __init__(
        self,
        cluster: Cluster,
        catalog: Catalog,
        evidence: EvidenceLog,
        *,
        now: datetime,
        base_context: SelectionContext,
        redact: Callable[[str], str],
        fence_token: str,
        deadline_seconds: float = DEADLINE_SECONDS,
        extra: Mapping[str, Tool] | None = None,
        lookback: Lookback | None = None,
    ) -> None:
        self._evidence, self._redact, self._token = evidence, redact, fence_token
        self._deadline = deadline_seconds
        self.last_target: Target | None = None
        self.catalog_failed = False
        self._answers: dict[str, ToolResult] = {}
        self._alike: Counter[str] = Counter()
        on_cluster = ClusterTools(cluster, now, redact, lookback)
        on_logs = LogTools(cluster, redact)
        on_catalog = CatalogTools(catalog, base_context, lambda: self.last_target, redact)
        runners: dict[str, Callable[[Any], Awaitable[Finding]]] = {
            "get_events": on_cluster.get_events,
            "get_pod_logs": on_logs.get_pod_logs,
            "get_resource": on_cluster.get_resource,
            "get_resource_context": on_cluster.get_resource_context,
            "get_workflow": on_catalog.get_workflow,
            "list_available_actions": on_catalog.list_available_actions,
            "list_resources": on_cluster.list_resources,
            "list_workflows": on_catalog.list_workflows,
            "search_workflow_catalog": on_catalog.search_workflow_catalog,
        }
        self._tools = {name: Tool(ARGUMENTS[name], runner) for name, runner in runners.items()} | dict(
            extra or {}
        )

    async def run(self, call: ToolCall) -> ToolResult:
        """The answer to one call. Never raises for anything the model or the outside world does."""
        return (await self.run_all((call,)))[0]

    async def run_all(self, calls: Sequence[ToolCall]) -> tuple[ToolResult, ...]:
        """Answers in the order of the calls, which run at the same time.

        Tools of the catalog run after the others, so that they see the target of a get_resource_context beside them.
        """
        plans = [self._plan(call) for call in calls]
        first = {
            plan.key: index for index, plan in reversed(list(enumerate(plans))) if plan.arguments is not None
        }
        to_run = [plan for index, plan in enumerate(plans) if first.get(plan.key) == index]
        found: dict[str, Finding | ToolProblem] = {}
        for wave in (False, True):
            chosen = [plan for plan in to_run if (plan.call.name in CATALOG_TOOLS) is wave]
            outcomes = await asyncio.gather(*(self._attempt(plan) for plan in chosen))
            for plan, outcome in zip(chosen, outcomes, strict=True):
                found[plan.key] = outcome
                if isinstance(outcome, Finding) and outcome.target:
                    self.last_target = outcome.target
        return tuple(self._settle(plan, found.get(plan.key)) for plan in plans)

    def remembered(self, results: Sequence[ToolResult]) -> Remembered:
        """What a successor needs to know beside these results, the last that `run_all` gave."""
        position = {id(result): at for at, result in enumerate(results)}
        answers = {key: position[id(kept)] for key, kept in self._answers.items() if id(kept) in position}
        return Remembered(answers, dict(self._alike), self.last_target)

    def recall(self, results: Sequence[ToolResult], memory: Remembered) -> None:
        """Take over one turn of calls that an earlier run has made, in place of running them."""
        self._answers |= {key: results[at] for key, at in memory.answers.items() if at < len(results)}
        self._alike, self.last_target = Counter(memory.alike), memory.target

    def _plan(self, call: ToolCall) -> _Plan:
        key = _key(call.name, call.arguments)
        if call.problem:
            return _Plan(call, key, refusal=f"arguments are not a JSON object: {one_line(call.problem, 300)}")
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(self._tools))
            return _Plan(call, key, refusal=f"unknown tool {one_line(call.name, 60)}; there are: {known}")
        try:
            arguments = tool.arguments.model_validate(dict(call.arguments))
        except ValidationError as error:
            return _Plan(call, key, refusal=argument_problems(tool.arguments, error))
        values = arguments.model_dump()
        key = _key(call.name, values)
        if call.name in CATALOG_TOOLS:  # the answer depends on the target as well
            key = f"{key} {self.last_target.ref if self.last_target else ''}"
        if key in self._answers:
            return _Plan(call, key)
        about = (
            key
            if call.name in CATALOG_TOOLS or tool.source  # nobody knows what arguments of others mean
            else _key(call.name, {k: v for k, v in values.items() if k not in DETAILS})
        )
        self._alike[about] += 1
        if self._alike[about] > MAX_ALIKE:
            return _Plan(call, key, refusal=ALIKE.format(count=self._alike[about], tool=call.name))
        return _Plan(call, key, arguments)

    async def _attempt(self, plan: _Plan) -> Finding | ToolProblem:
        tool = self._tools[plan.call.name]
        try:
            async with asyncio.timeout(self._deadline):
                return await tool.run(plan.arguments)
        except ToolProblem as problem:
            return problem
        except ClusterError as error:
            return problem_of(error, plan.call.name)
        except CatalogUnavailable as error:
            self.catalog_failed = True
            return ToolProblem(f"the workflow catalog cannot be read: {error}", passing=True)
        except TimeoutError:
            message = f"no answer within {self._deadline:g} s; nothing is known; ask for less (namespace, name, fewer lines)"
            return ToolProblem(message, passing=True)

    def _settle(self, plan: _Plan, outcome: Finding | ToolProblem | None) -> ToolResult:
        if plan.refusal:
            return self._error(plan.call, ToolProblem(plan.refusal))
        if known := self._answers.get(plan.key):
            note = SAME_CALL.format(id=_id_of(known.content))
            return ToolResult(plan.call.id, plan.call.name, f"{known.content}\n{note}", known.ok)
        if isinstance(outcome, Finding):
            result = self._result(plan.call, outcome)
        else:
            problem = outcome or ToolProblem("not run")
            result = self._error(plan.call, problem)
            if problem.passing:  # it may work later: the same call is allowed again
                return result
        self._answers[plan.key] = result
        return result

    def _result(self, call: ToolCall, finding: Finding) -> ToolResult:
        body, cut = self._redact(finding.body), finding.cut
        if not fits(body, RESULT_TOKENS):
            shorter = cut_middle(body, RESULT_TOKENS)
            body, cut = (
                shorter.text,
                "; ".join(p for p in (cut, f"{shorter.missing} characters in the middle") if p),
            )
        item = self._evidence.add(
            Evidence(self._source(call), one_line(self._redact(finding.scope), 240), body, one_line(cut, 400))
        )
        return ToolResult(call.id, call.name, fence(item, self._token))

    def _error(self, call: ToolCall, problem: ToolProblem) -> ToolResult:
        text = one_line(self._redact(problem.message), MAX_ERROR)
        item = self._evidence.add(
            Evidence(
                self._source(call), one_line(self._redact(problem.scope), 240), f"error: {text}", ok=False
            )
        )
        return ToolResult(call.id, call.name, fence(item, self._token), ok=False)

    def _source(self, call: ToolCall) -> str:
        tool = self._tools.get(call.name)
        return (tool.source or call.name) if tool else "unknown_tool"


def _key(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name} {json.dumps(dict(arguments), sort_keys=True, default=str)}"


def _id_of(content: str) -> str:
    start = content.find('id="')
    return content[start + 4 : content.find('"', start + 4)] if start >= 0 else "see above"
