"""The handler of messages over ports in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from schemas.analysis import AnalysisResult
from schemas.audit import RequestResumed
from schemas.incident import Signal
from schemas.subjects import Subjects
from tests.fakes.memory_model import MemoryModel, Said
from tests.fakes.memory_nats import MemoryCancellations, MemoryRequests, MemoryResults
from tests.fakes.scripted import DELIVERY, World, incident, tokens
from worker.app.admission import Admission
from worker.app.handler import Ports, RequestHandler
from worker.app.metrics import WorkerMetrics
from worker.app.settings.groups import WorkerSettings
from worker.app.telemetry import MeteredEvents, Telemetry
from worker.domain.investigation.toolbox.tools import tool_names
from worker.domain.values.delivery import MessageId, Settlement
from worker.domain.values.ports import JournalRun, Step
from worker.domain.values.step_kinds import END, FINISHED


def body(request: Signal | None = None, **fields: Any) -> bytes:
    """A request as it is published, with other or more fields."""
    request = request or incident()
    return json.dumps(request.model_dump(mode="json", exclude_defaults=True) | fields).encode()


async def until(condition: Callable[[], Any]) -> None:
    """Let the other tasks run until it holds."""
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never happened")


@dataclass
class HandlerRig:
    """A handler in a world. Each `take` is one more delivery of a message, stored at the first one."""

    world: World = field(default_factory=World)
    rules: dict[str, Any] = field(default_factory=dict)
    deliveries: int = 0
    requests: MemoryRequests = field(default_factory=MemoryRequests)
    cancellations: MemoryCancellations = field(default_factory=MemoryCancellations)
    telemetry: Telemetry | None = None

    def __post_init__(self) -> None:
        self.metrics, self._token = WorkerMetrics(), tokens()
        self._stored_at: dict[int, datetime] = {}
        self.handler = self.new_process()

    def new_process(self) -> RequestHandler:
        """Another process, with the same broker."""
        world, telemetry = self.world, self.telemetry
        tools = partial(tool_names, None, None)
        ports = Ports(
            events=MeteredEvents(world.events, telemetry, Subjects(), tools) if telemetry else world.events,
            results=MemoryResults(world.events),
            journal=world.journal,
            requests=self.requests,
            cancellations=self.cancellations,
            clock=world.clock,
        )
        self.admission = Admission(world.clock)
        self.handler = RequestHandler(
            ports,
            analysis=world.analysis(),
            settings=WorkerSettings(**self.rules),
            subjects=Subjects(),
            metrics=self.metrics,
            admission=self.admission,
            new_token=self._token,
            jitter=lambda: 0.5,
        )
        return self.handler

    def says(self, *said: Said) -> None:
        """From now on the model says this."""
        self.world.model = MemoryModel(said)
        self.new_process()

    async def take(
        self, message: bytes | None = None, subject: str = "rca.request.incident", **delivery: Any
    ) -> Settlement:
        """What becomes of a message."""
        self.deliveries += 1
        sequence = delivery.get("sequence", DELIVERY.sequence)
        stored_at = self._stored_at.setdefault(sequence, self.world.clock.now())
        values = {"subject": subject, "deliveries": self.deliveries, "stored_at": stored_at}
        headers = delivery.pop("headers", {})
        handler = self.telemetry.handler(self.handler) if self.telemetry else self.handler
        return await handler(message or body(), headers, replace(DELIVERY, **{**values, **delivery}))

    @property
    def message(self) -> MessageId:
        """Of the message that is delivered unless a test says otherwise."""
        return MessageId(DELIVERY.sequence, self._stored_at[DELIVERY.sequence])

    @property
    def steps(self) -> list[Step]:
        """The steps of the request, those of a finished one as they were: it has only one left."""
        there = self.world.journal.steps.get("rr-1", [])
        if [FINISHED] != self.kept:
            return there
        return [step for step in self.world.journal.written["rr-1"] if step.kind != FINISHED]

    @property
    def kept(self) -> list[str]:
        """The kinds of the steps that are still there."""
        return [step.kind for step in self.world.journal.steps.get("rr-1", []) if step is not None]

    def break_journal_of(self, key: str) -> None:
        """Whoever reads the journal of this request meets a defect."""
        read = self.world.journal.open

        async def opened(request_key: str, run: str) -> JournalRun:
            if request_key == key:
                raise KeyError("a defect")
            return await read(request_key, run)

        self.world.journal.open = opened

    @property
    def ends(self) -> list[tuple[str, str | None]]:
        """How the runs of the request have ended: outcome and reason."""
        return [(s.notes["outcome"], s.notes.get("reason")) for s in self.steps if s.kind == END]

    @property
    def resumed(self) -> list[int]:
        """How many steps each run that went on has found."""
        told = (event.payload for event in self.world.events.audits)
        return [p.replayed_steps for p in told if isinstance(p, RequestResumed)]

    @property
    def result(self) -> AnalysisResult:
        """The only result."""
        [stored] = self.world.events.results.values()
        return AnalysisResult.model_validate_json(stored)

    def count(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0
