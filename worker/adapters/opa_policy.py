"""Approval rules on an OPA server: the Policy port over its Data API (`POST /v1/data/<path>`).

The document at the path has the form of the package `rca.approval`. After any failure, approval is required
and the reason names the server and the failure: an answer that is late, undefined, too long, or not a
decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

import structlog

from schemas.analysis import Approval
from worker.adapters.json_server import JsonServer, ServerAnswer, ServerClient, TooLongError, UnreachableError
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.ports import PolicyDecision
from worker.domain.verdict.approval.policy import example_input
from worker.domain.verdict.approval.policy_answer import NoDecision, approval_decision, fail_closed

FIRST_SECONDS = 2.0
MAX_ANSWER_BYTES = 256 * 1024
MESSAGE_CHARS = 200
HINTS = {401: "it rejects the token", 403: "the worker may not query it", 404: "no such API at this address"}

log = structlog.stdlib.get_logger(__name__)


class OpaPolicy(ServerClient):
    """Implements the Policy port. `url` is the server's base address, `decision` the path of the document.

    `timeout_seconds` bounds a decision by the wall clock, from the connection to the last byte. Within that
    time, a question whose connection breaks is asked once more, because servers close idle connections.
    """

    def __init__(
        self, url: str, *, decision: str = "rca/approval", token: str = "", timeout_seconds: float = 0.05
    ) -> None:
        self._path, self._document = f"/v1/data/{decision}", f"data.{decision.replace('/', '.')}"
        self._timeout_seconds = timeout_seconds
        super().__init__(JsonServer(url, token=token, call_seconds=FIRST_SECONDS, max_bytes=MAX_ANSWER_BYTES))
        self.name = f"opa:{self._server.url}{self._path}"
        """The address of the decision, for the audit."""
        self.problem = ""
        """The problem of the last answer; empty if it was a decision."""

    async def __aenter__(self) -> Self:
        """Check whether the server answers. Never raises, because it may come later."""
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                with suppress(TooLongError):
                    await self._server.get("/health", {})
        except (TimeoutError, UnreachableError) as e:
            self._failed(str(e) or f"no answer within {FIRST_SECONDS:g} s")
        return self

    async def follow(self, poll_seconds: float) -> None:
        """Let it decide an example while its last answer was a problem, until cancelled."""
        while True:
            await asyncio.sleep(poll_seconds)
            if self.problem:
                await self.decide(example_input())

    async def decide(self, policy_input: Mapping[str, Any]) -> PolicyDecision:
        """The decision on one input. Never raises: see the module."""
        return PolicyDecision(await self._decide(policy_input), self.name)

    async def _decide(self, policy_input: Mapping[str, Any]) -> Approval:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await self._ask({"input": dict(policy_input)})
            approval = approval_decision(_result(answer, self._document), self._document)
        except TimeoutError:
            return self._failed(f"no answer within {self._timeout_seconds * 1000:g} ms")
        except TooLongError:
            return self._failed(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        except (UnreachableError, ValueError, TypeError, RecursionError) as e:
            return self._failed(str(e) or type(e).__name__)
        if self.problem:
            log.info("policy_server_recovered", server=self._server.url)
        self.problem = ""
        return approval

    async def _ask(self, question: Mapping[str, Any]) -> ServerAnswer:
        try:
            return await self._server.post(self._path, question)
        except UnreachableError:
            return await self._server.post(self._path, question)

    def _failed(self, why: str) -> Approval:
        problem = f"the OPA server {self._server.url}: {why}"
        if problem != self.problem:
            log.warning("policy_server_failed", server=self._server.url, error=why)
        self.problem = problem
        return fail_closed(problem)


def _result(answer: ServerAnswer, document: str) -> Any:
    if 300 <= answer.status < 400:
        raise NoDecision(f"it answered {answer.status}; redirects are not followed")
    if answer.status != 200:
        raise NoDecision(f"it answered {answer.status}{_said(answer)}")
    try:
        found = answer.json()
    except ValueError as e:
        raise NoDecision("the answer is not JSON") from e
    if not isinstance(found, dict):
        raise NoDecision("the answer is not an object")
    if "result" not in found:
        raise NoDecision(f"{document} is undefined: no such package on the server")
    return found["result"]


def _said(answer: ServerAnswer) -> str:
    """The `message` of OPA's error document, or the usual meaning of the status."""
    message = (answer.object() or {}).get("message")
    said = one_line(message, MESSAGE_CHARS) if isinstance(message, str) else HINTS.get(answer.status, "")
    return f": {said}" if said else ""
