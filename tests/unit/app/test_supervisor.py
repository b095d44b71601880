"""Loops of the process are watched."""

from __future__ import annotations

import asyncio

import pytest

from worker.app.supervisor import Supervisor


async def fails():
    raise LookupError("a bug")


async def returns():
    pass


@pytest.mark.parametrize(("loop", "why"), [(fails, "LookupError: a bug"), (returns, "it returned")])
async def test_a_loop_that_ends_by_itself_is_a_failure_at_once(loop, why):
    supervisor = Supervisor()
    async with supervisor.running("policy files", loop()):
        await asyncio.wait_for(supervisor.failed.wait(), 100)
        assert "policy files" in supervisor.problem
        assert why in supervisor.problem


async def test_the_first_failure_is_the_one_that_is_named():
    supervisor = Supervisor()
    async with supervisor.running("a", fails()), supervisor.running("b", returns()):
        await asyncio.sleep(0.01)
    assert "'a'" in supervisor.problem


async def test_a_loop_that_is_cancelled_at_the_end_has_not_died():
    supervisor = Supervisor()
    async with supervisor.running("a", asyncio.sleep(60)):
        await asyncio.sleep(0)
    assert ("", False) == (supervisor.problem, supervisor.failed.is_set())
