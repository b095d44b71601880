from __future__ import annotations

import asyncio
import inspect

import pytest

from worker.domain.values.concurrency import concurrently


async def test_results_come_in_the_order_of_the_calls():
    async def after(seconds, value):
        await asyncio.sleep(seconds)
        return value

    assert ["a", "b"] == await concurrently([after(0.01, "a"), after(0, "b")])
    assert [] == await concurrently([])


async def test_the_first_failure_is_raised_as_it_is_and_cancels_the_others():
    cancelled = asyncio.Event()

    async def waits():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def fails():
        await asyncio.sleep(0)
        raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        await concurrently([waits(), fails()])
    assert cancelled.is_set()


async def test_no_more_calls_run_at_once_than_allowed():
    running, most = 0, 0

    async def call():
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await concurrently([call() for _ in range(20)], at_once=3)
    assert 3 == most


async def test_calls_that_never_had_their_turn_are_closed():
    async def fails():
        raise ValueError("first")

    async def waits():
        await asyncio.sleep(0)

    calls = [fails(), *(waits() for _ in range(5))]
    with pytest.raises(ValueError, match="first"):
        await concurrently(calls, at_once=1)
    assert {inspect.CORO_CLOSED} == {inspect.getcoroutinestate(call) for call in calls}
