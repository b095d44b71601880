"""A request is cancelled beside every single message that it costs, also while its worker dies and another one takes over.

Whatever comes first, there is one result with a whole audit chain, and after the cancellation at most one call of the
model is paid for: the one whose claim was stored already.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import nats
import pytest

from schemas.analysis import AnalysisResult, HumanReviewReason, Status
from schemas.subjects import Subjects
from tests.drills.breaking_wire import Break, breaking_wire
from tests.fakes.memory_model import MemoryModel
from tests.fakes.scripted import World
from tests.integration.test_broken_anywhere import (
    ACK_WAIT_SECONDS,
    AT_ONCE,
    PassingClock,
    Scenario,
    Scene,
    in_three_calls,
    problems_of,
    published,
)
from tests.nats_servers import Case, one_server
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.app.operations import Operations

NOT_REACHED = 1_000


class Cancelling:
    """A request that is cancelled so many times when its worker sends the message number `at`."""

    def __init__(self, server, nc, prefix, times=1):
        world = World(model=MemoryModel(in_three_calls), clock=PassingClock())
        self.scene = Scene(Case([server], nc, Subjects(prefix)), world)
        self.times, self.paid, self.ended = times, NOT_REACHED, False

    async def cancel(self):
        scene = self.scene
        self.paid = scene.world.model.calls
        for number in range(self.times):
            at, operations = scene.world.clock.now(), Operations(scene.case.nc, scene.subjects)
            self.ended = await operations.cancel("rr-1", at=at, token=f"t{number}") is not None

    async def play(self, server, at, how, dies):
        """Returns what does not hold, and how many messages the first worker sent."""
        scene = self.scene
        await provision(scene.case.nc, wanted(scene.subjects, ack_wait_seconds=ACK_WAIT_SECONDS))
        await published(scene)
        options = {"at": at, "how": how, "for_good": dies, "meanwhile": self.cancel}
        async with breaking_wire(server.url, **options) as wire:
            await (scene.served_or_broken(wire) if dies else scene.served(wire.url))
        await scene.served(server.url)
        return await self.problems(), len(wire.sent)

    async def problems(self):
        scene, prefix = self.scene, self.scene.subjects.prefix
        found = await scene.case.messages(scene.subjects.results_stream, f"{prefix}.result.>")
        results = [AnalysisResult.model_validate_json(message.data) for message in found]
        ends = [(result.status, result.human_review_reason) for result in results]
        is_cancelled = ends == [(Status.NEEDS_HUMAN_REVIEW, HumanReviewReason.OPERATOR_ESCALATION)]
        expected = Scenario(statuses=(Status.NEEDS_HUMAN_REVIEW if is_cancelled else Status.COMPLETED,))
        rejections = await scene.case.messages(scene.subjects.validation_stream, f"{prefix}.validation.>")
        rules = replace(expected, rejections=min(len(rejections), 1))
        problems = await problems_of(scene, rules, lost_replies=1, is_kept=False)
        if scene.world.model.calls > self.paid + 1:
            problems["paid after the cancellation"] = scene.world.model.calls - self.paid
        if self.ended and is_cancelled:
            problems["cancelled"] = "after its end"
        return problems


async def wrong_of(server, plans):
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number, at, how, dies, times):
        async with slots, AsyncExitStack() as stack:
            nc = await nats.connect(server.url)
            stack.push_async_callback(nc.close)
            return (await Cancelling(server, nc, f"c{number}", times).play(server, at, how, dies))[0]

    found = await asyncio.gather(*(one(number, *plan) for number, plan in enumerate(plans)))
    return {str(plan): problems for plan, problems in zip(plans, found, strict=True) if problems}


@pytest.mark.parametrize(
    ("how", "dies", "times"),
    [
        (Break.NOT_AT_ALL, False, 1),
        (Break.NOT_AT_ALL, False, 2),
        (Break.BEFORE, True, 1),
        (Break.AFTER, False, 1),
    ],
    ids=["once", "twice", "during a takeover", "while the connection is lost"],
)
async def test_a_cancellation_at_any_message_loses_nothing(tmp_path, how, dies, times):
    async with one_server(tmp_path) as server:
        nc = await nats.connect(server.url)
        problems, messages = await Cancelling(server, nc, "plain").play(server, 0, how, False)
        await nc.close()
        assert ({}, True) == (problems, messages > 30)
        plans = [(at, how, dies, times) for at in range(1, messages + 1)]
        assert {} == await wrong_of(server, plans)
