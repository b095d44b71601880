"""Drills of what operators do: many dead letters, the same command again, a long journal, a stream of another kind."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from nats.js.api import RetentionPolicy

from schemas.subjects import request_key
from tests.drills.stage import Ground, Stage, body, stage
from tests.drills.streams import SEEN_SECONDS, seconds_until_said
from tests.drills.table import Outcome, lost_and_twice
from tests.fakes.messages import dead, new_id
from tests.processes import rca
from worker.adapters.nats.journal import NatsJournal
from worker.adapters.nats.publish import NatsEvents
from worker.adapters.nats.stream import FencedStream

T = TypeVar("T")
UNTOUCHED_SECONDS = 5.0
REPEATED_SECONDS = 10.0
"""A command that is repeated ends within this time: it must not look for long for what is gone."""


async def letters_and_steps(ground: Ground, *, number: int = 2_000) -> Outcome:
    """So many dead letters are listed, one is dropped twice and one replayed twice; so many steps of a journal are read."""
    async with stage(ground, "letters") as s:
        events, gate = NatsEvents(partial(FencedStream, s.nc), s.subjects), asyncio.Semaphore(50)

        async def bury(n: int) -> None:
            async with gate:
                await events.dead_letter(dead(n), body(f"letter-{n}"))

        await asyncio.gather(*map(bury, range(1, number + 1)))
        listed, list_seconds = await _timed(rca("dlq", "list", "--json", env=s.env))
        letters = [letter["id"] for letter in json.loads(listed.out)]
        first, second = map(str, letters[:2])
        codes, repeated = [], 0.0
        for command, letter in (("drop", first), ("replay", second)):
            codes.append((await rca("dlq", command, letter, env=s.env)).code)
            again, seconds = await _timed(rca("dlq", command, letter, env=s.env))
            codes.append(again.code)
            repeated = max(repeated, seconds)
        queued = await s.count(s.subjects.requests_stream)
        left = await s.count(s.subjects.dlq_stream)
        steps, step_seconds = await _long_journal(s, number)
    return Outcome(
        (len(letters), left, codes, queued, steps) == (number, number - 2, [0, 1, 0, 1], 1, number)
        and repeated <= REPEATED_SECONDS,
        f"{len(letters)} letters listed in {list_seconds:.1f} s; drop and replay repeated: codes {codes}, "
        f"{repeated:.1f} s at most, requests in the queue {queued}, {left} letters left; "
        f"{steps} steps read in {step_seconds:.1f} s",
    )


async def other_kind(ground: Ground) -> Outcome:
    """The stream of results drops what is read. A worker takes no request until it has been created anew."""
    async with stage(ground, "kind") as s:
        js, name = s.nc.jetstream(timeout=10), s.subjects.results_stream
        config = (await js.stream_info(name)).config
        await js.delete_stream(name)
        await js.add_stream(config.evolve(retention=RetentionPolicy.WORK_QUEUE))
        await s.publish("kind-0")
        worker = s.worker()
        await worker.start()
        seen = await seconds_until_said(worker, f"{name} has retention workqueue, which must be limits")
        await asyncio.sleep(UNTOUCHED_SECONDS)
        calls = len(s.calls())
        await js.delete_stream(name)
        await s.provision(5.0)
        settled = await s.settled(1, 60)
        account = await s.account()
    return Outcome(
        seen <= SEEN_SECONDS and not calls and settled and account.clean and not account.dead,
        f"readiness names it {seen:.1f} s after the start of the process, calls meanwhile {calls}, afterwards results "
        f"{account.expected - len(account.lost)} of {account.expected}, {lost_and_twice(account)}",
    )


async def _long_journal(s: Stage, number: int) -> tuple[int, float]:
    journal = NatsJournal(FencedStream(s.nc, f"KV_{s.subjects.journal_bucket}"), s.nc)
    key = request_key("long")
    run = await journal.open(key, new_id())
    for n in range(number):
        await run.append("llm", b"%d" % n)
    read, seconds = await _timed(journal.open(key, new_id()))
    return len(read.past), seconds


async def _timed(work: Awaitable[T]) -> tuple[T, float]:
    began = time.monotonic()
    return await work, time.monotonic() - began
