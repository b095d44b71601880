"""Runs the tool calls of a model: arguments checked, bounded in time and size, never repeated, always fenced.

A failure of the outside world becomes an error text that tells the model what would work; no call can end a
run. Results are cut before they are first sent and never change afterwards, so that providers can cache the
conversation.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from worker.domain.investigation.toolbox.cluster import problem_of
from worker.domain.investigation.toolbox.tool import (
    RESULT_TOKENS,
    ToolContext,
    ToolDef,
    ToolOutput,
    ToolProblem,
    argument_problems,
)
from worker.domain.untrusted.evidence import Evidence, EvidenceKind, EvidenceLog, fence, one_line
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.concurrency import concurrently
from worker.domain.values.conversation import ToolCall, ToolResult, ToolSpec
from worker.domain.values.errors import CatalogUnavailable, ClusterError
from worker.domain.values.tokens import cut_middle, fits
from worker.domain.values.workflow_search import Target
from worker.domain.verdict.answers.fields import plain
from worker.domain.verdict.answers.form import SUBMIT_RESULT

DEADLINE_SECONDS = 20.0
MAX_ALIKE = 5
"""How many calls of one tool for one object may differ only in size; further ones are rejected.
"""
MAX_ERROR = 1200  # characters
SAME_CALL = "(the same call as before, the same answer: {id}; nothing new will come of it)"
LEAST_REPEATED = 160
"""From this many characters on, text that the first message has shown is only named, and not repeated."""
SAME_AS_FIRST = "the same as {id}"
ALIKE = (
    "not run: {count} calls of {tool} about the same object differ only in details; "
    "look at something else, or give the final answer from what you know"
)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a successor must know about one turn of calls besides their results.

    `answers`: the question -> the position of its answer in the turn. `alike`: how often each object was
    asked about, in all turns so far. `target`: the target after the turn.
    """

    answers: Mapping[str, int] = field(default_factory=dict)
    alike: Mapping[str, int] = field(default_factory=dict)
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """The treatment of one call: rejected with a text, answered from memory, or run.

    `tool` is None if it is unknown.
    """

    call: ToolCall
    key: str
    tool: ToolDef | None = None
    arguments: BaseModel | None = None
    refusal: str = ""


class Toolbox:
    """Runs the tools of one investigation. `deadline_seconds` bounds one call."""

    def __init__(
        self,
        tools: Sequence[ToolDef],
        context: ToolContext,
        evidence: EvidenceLog,
        *,
        fence_token: str,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._context, self._evidence = context, evidence
        self._token, self._deadline = fence_token, deadline_seconds
        self._first = {i.body: i.id for i in evidence.items if len(i.body) >= LEAST_REPEATED and not i.cut}
        self._answers: dict[str, ToolResult] = {}
        self._alike: Counter[str] = Counter()
        self._took: dict[str, float] = {}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them."""
        return tuple(tool.spec for tool in self._tools.values())

    @property
    def target(self) -> Target | None:
        """The object of the last get_resource_context."""
        return self._context.target

    def tool_named(self, name: str) -> ToolDef | None:
        """The tool of this name, or the only one whose name differs only in case and separators."""
        alike = [tool for known, tool in self._tools.items() if plain(known) == plain(name)]
        return self._tools.get(name, alike[0] if len(alike) == 1 else None)

    async def run(self, call: ToolCall) -> ToolResult:
        """Run one call. Never raises for anything that the model or the outside world does."""
        return (await self.run_all((call,)))[0]

    async def run_all(self, calls: Sequence[ToolCall]) -> tuple[ToolResult, ...]:
        """Run the calls at the same time. Returns their results in the order of the calls.

        Tools that use the target run after the others, so that they see the target that a
        get_resource_context beside them sets.
        """
        plans = [self._plan(call) for call in calls]
        first = {
            plan.key: index for index, plan in reversed(list(enumerate(plans))) if plan.arguments is not None
        }
        to_run = [plan for index, plan in enumerate(plans) if first.get(plan.key) == index]
        found: dict[str, ToolOutput | ToolProblem] = {}
        self._took = {}
        for uses_target in (False, True):
            chosen = [
                (plan, tool) for plan in to_run if (tool := plan.tool) and tool.uses_target is uses_target
            ]
            outcomes = await concurrently([self._attempt(tool, plan) for plan, tool in chosen])
            for (plan, _), outcome in zip(chosen, outcomes, strict=True):
                found[plan.key] = outcome
                if isinstance(outcome, ToolOutput) and outcome.target:
                    self._context.target = outcome.target
        return tuple(self._settle(plan, found.get(plan.key)) for plan in plans)

    def remembered(self, results: Sequence[ToolResult]) -> Remembered:
        """What a successor must know besides these results, which `run_all` returned last."""
        position = {id(result): at for at, result in enumerate(results)}
        answers = {key: position[id(kept)] for key, kept in self._answers.items() if id(kept) in position}
        return Remembered(answers, dict(self._alike), self._context.target)

    def recall(self, results: Sequence[ToolResult], memory: Remembered) -> None:
        """Restore the state after a turn of calls that an earlier run has made."""
        self._answers |= {key: results[at] for key, at in memory.answers.items() if at < len(results)}
        self._alike, self._context.target = Counter(memory.alike), memory.target

    def _plan(self, call: ToolCall) -> _Plan:
        key, tool = _key(call.name, call.arguments), self.tool_named(call.name)
        if call.problem:
            problem = f"arguments are not a JSON object: {one_line(call.problem, 300)}"
            return _Plan(call, key, tool, refusal=problem)
        if tool is None:
            known = ", ".join([*sorted(self._tools), f"{SUBMIT_RESULT} (the final answer)"])
            return _Plan(call, key, refusal=f"unknown tool {one_line(call.name, 60)}; there are: {known}")
        try:
            arguments = tool.arguments.model_validate(dict(call.arguments))
        except ValidationError as error:
            return _Plan(call, key, tool, refusal=argument_problems(tool.arguments, error))
        values = arguments.model_dump()
        key = _key(tool.name, values)
        if tool.uses_target:
            key = f"{key} {self.target.ref if self.target else ''}"
        if key in self._answers:
            return _Plan(call, key, tool)
        about = key
        if tool.details:
            about = _key(tool.name, {k: v for k, v in values.items() if k not in tool.details})
        self._alike[about] += 1
        if self._alike[about] > MAX_ALIKE:
            return _Plan(call, key, tool, refusal=ALIKE.format(count=self._alike[about], tool=tool.name))
        return _Plan(call, key, tool, arguments)

    async def _attempt(self, tool: ToolDef, plan: _Plan) -> ToolOutput | ToolProblem:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._deadline):
                return await tool.run(self._context, plan.arguments)
        except ToolProblem as problem:
            return problem
        except ClusterError as error:
            return problem_of(error, tool.name)
        except CatalogUnavailable as error:
            return ToolProblem(f"the workflow catalog cannot be read: {error}", passing=True)
        except TimeoutError:
            message = f"no answer within {self._deadline:g} s; nothing is known; ask for less (namespace, name, fewer lines)"
            return ToolProblem(message, passing=True)
        finally:
            self._took[plan.key] = clock() - began

    def _settle(self, plan: _Plan, outcome: ToolOutput | ToolProblem | None) -> ToolResult:
        if plan.refusal:
            return self._error(plan, ToolProblem(plan.refusal))
        if known := self._answers.get(plan.key):
            note = SAME_CALL.format(id=_id_of(known.content))
            return ToolResult(plan.call.id, plan.call.name, f"{known.content}\n{note}", known.ok)
        if isinstance(outcome, ToolOutput):
            result = self._result(plan, outcome)
        else:
            problem = outcome or ToolProblem("not run")
            result = self._error(plan, problem)
            if problem.passing:  # it may work later, so the same call is allowed again
                return result
        self._answers[plan.key] = result
        return result

    def _result(self, plan: _Plan, output: ToolOutput) -> ToolResult:
        body, cut = redact(output.body), output.cut
        if not fits(body, RESULT_TOKENS):
            shorter = cut_middle(body, RESULT_TOKENS)
            missing = f"{shorter.missing} characters in the middle"
            body, cut = shorter.text, "; ".join(part for part in (cut, missing) if part)
        return self._fenced(plan, output.scope, body, one_line(cut, 400))

    def _error(self, plan: _Plan, problem: ToolProblem) -> ToolResult:
        text = one_line(redact(problem.message), MAX_ERROR)
        return self._fenced(plan, problem.scope, f"error: {text}", ok=False)

    def _fenced(self, plan: _Plan, scope: str, body: str, cut: str = "", *, ok: bool = True) -> ToolResult:
        tool, call = plan.tool, plan.call
        item = self._evidence.add(
            Evidence(
                (tool.source or tool.name) if tool else "unknown_tool",
                one_line(redact(scope), 240),
                body,
                cut,
                ok,
                kind=tool.shows if tool else EvidenceKind.OTHER,
            )
        )
        known = self._first.get(body) if ok and not cut else None
        shown = replace(item, body=SAME_AS_FIRST.format(id=known)) if known else item
        seconds = 0.0 if plan.refusal else self._took.get(plan.key, 0.0)
        return ToolResult(call.id, call.name, fence(shown, self._token), ok, seconds)


def _key(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name} {json.dumps(dict(arguments), sort_keys=True, default=str)}"


def _id_of(content: str) -> str:
    start = content.find('id="')
    return content[start + 4 : content.find('"', start + 4)] if start >= 0 else "see above"
