"""A language model in a process of its own that counts every call: OpenAI chat completions, and faults on request.

    python -m tests.drills.model DIRECTORY

It prints one JSON line when it is ready. `/<drill>/<worker>/v1/chat/completions` answers by the drill's plan, which a
PUT to `/<drill>` sets. Each call is a line in `DIRECTORY/<drill>.ledger`: when, who, for which request and step, and
what became of it. A request is known by the words `drill key NAME.` in its first turn, a step by the replies before.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.fakes.llm_server import Said, answer_bytes

KEY = re.compile(r"drill key ([a-z0-9-]+)\.")
LOOK = [
    ("get_resource_context", {"kind": "Deployment", "name": "ml-worker", "namespace": "ml-batch"}),
    ("list_available_actions", {"signal_type": "OOMKilled", "severity": "critical"}),
]
ANSWER = {
    "root_cause_analysis": {
        "summary": "The container is OOMKilled at its own limit.",
        "severity": "critical",
        "signal_type": "OOMKilled",
        "contributing_factors": ["memory-backed emptyDir"],
        "affectedResource": {"kind": "Deployment", "name": "ml-worker", "namespace": "ml-batch"},
    },
    "selected_workflow": {
        "workflow_id": "increase-memory-limits-v1",
        "confidence": 0.9,
        "rationale": "Termination reason OOMKilled.",
        "parameters": {},
    },
    "investigation_outcome": "actionable",
}
PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in to the proxy</body></html>"
PROSE = "The pod is killed again and again.\n"


@dataclass(frozen=True)
class Plan:
    """How the model behaves in one drill. Shares are of all calls, seconds are wall time.

    `looks`: replies with tool calls before the answer; `turns`: the tool calls of these replies, in place of the usual
    ones. `keeps_bodies`: requests are written to `DIRECTORY/<drill>.bodies`, one a line. `holds`: request -> [step, seconds], for its first call only.
    `unanswered`: requests none of whose calls is ever answered. `status`: every call fails with it and with `message`.
    `html`: every call is answered with a page, as by a proxy that wants a login.
    """

    latency_seconds: float = 0.0
    looks: int = 1
    turns: Sequence[Sequence[tuple[str, dict[str, Any]]]] = ()
    keeps_bodies: bool = False
    overloaded: float = 0.0
    hang: float = 0.0
    cut: float = 0.0
    seed: int = 1
    holds: dict[str, tuple[int, float]] = field(default_factory=dict)
    unanswered: Sequence[str] = ()
    status: int = 0
    message: str = ""
    html: bool = False

    def fault(self, key: str, step: int, tries: int) -> str:
        """What goes wrong with this call; the same for the same call in every run of the drill."""
        if key in self.unanswered:
            return "hang"
        chance = random.Random(f"{self.seed} {key} {step} {tries}").random()
        for name, share in (("overloaded", self.overloaded), ("hang", self.hang), ("cut", self.cut)):
            if chance < share:
                return name
            chance -= share
        return ""


class CountingModel:
    """All drills' models in one server."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._plans: dict[str, Plan] = {}
        self._files: dict[str, int] = {}
        self._tries: dict[tuple[str, str, int], int] = {}

    async def set_plan(self, request: web.Request) -> web.Response:
        self._plans[request.match_info["drill"]] = Plan(**await request.json())
        return web.Response()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        drill, worker = request.match_info["drill"], request.match_info["worker"]
        raw = await request.read()
        body = json.loads(raw)
        key, step = _about(body)
        plan = self._plans.get(drill, Plan())
        if plan.keeps_bodies:
            with (self._directory / f"{drill}.bodies").open("ab") as bodies:
                bodies.write(raw.replace(b"\n", b" ") + b"\n")
        tries = self._tries[drill, key, step] = self._tries.get((drill, key, step), 0) + 1
        self._write(drill, worker, key, step, "asked")
        seconds = plan.latency_seconds
        if key in plan.holds and step == plan.holds[key][0] and tries == 1:
            seconds = plan.holds[key][1]
        fault = plan.fault(key, step, tries)
        await asyncio.sleep(3_600.0 if fault == "hang" else seconds)
        self._write(drill, worker, key, step, fault or "answered")
        if plan.html:
            return web.Response(text=PAGE, content_type="text/html")
        if plan.status:
            return web.json_response({"error": {"message": plan.message}}, status=plan.status)
        if fault == "overloaded":
            return web.json_response({"error": {"message": "overloaded", "type": "overloaded"}}, status=529)
        whole, content_type = answer_bytes(_say(step, plan), body, 1, request.path)
        if fault == "cut":
            response = web.StreamResponse(
                headers={"Content-Type": content_type, "Content-Length": str(len(whole))}
            )
            await response.prepare(request)
            await response.write(whole[: len(whole) // 2])
            if request.transport:
                request.transport.close()
            return response
        return web.Response(body=whole, content_type=content_type)

    def _write(self, drill: str, worker: str, key: str, step: int, event: str) -> None:
        if drill not in self._files:
            path = self._directory / f"{drill}.ledger"
            self._files[drill] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        line = json.dumps([time.time(), worker, key, step, event]) + "\n"
        os.write(self._files[drill], line.encode())


def _about(body: dict[str, Any]) -> tuple[str, int]:
    messages = body["messages"]
    opening = next(m["content"] for m in messages if m["role"] == "user")
    found = KEY.search(opening)
    return found[1] if found else "", sum(m["role"] == "assistant" for m in messages)


def _say(step: int, plan: Plan) -> Said:
    if step < len(plan.turns):
        return Said(tool_calls=[(name, arguments) for name, arguments in plan.turns[step]])
    if step < plan.looks and not plan.turns:
        # Other arguments each time: the worker answers a repeated call without running it.
        logs = {"pod": "ml-worker-5584d8b7cb-rn4jl", "namespace": "ml-batch", "tail_lines": 20 + step}
        return Said(tool_calls=LOOK if not step else [("get_pod_logs", logs)])
    return Said(text=f"{PROSE}```json\n{json.dumps(ANSWER)}\n```")


async def main(directory: Path) -> None:
    """Serve until a signal."""
    model = CountingModel(directory)
    app = web.Application(client_max_size=16 << 20)
    app.router.add_put("/{drill}", model.set_plan)
    app.router.add_post("/{drill}/{worker}/v1/chat/completions", model.answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}), flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await runner.cleanup()


def as_json(plan: Plan) -> dict[str, Any]:
    """A plan as the PUT takes it."""
    return asdict(plan)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
