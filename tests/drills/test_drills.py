"""The short drills, at a small size: real processes, a real server, real signals.

Drills that pass or fail by a time are played by `make drills` only: on a busy machine they would tell nothing.
"""

from __future__ import annotations

import shutil

import pytest

from tests.drills import broker, deaths, faults, garbage
from tests.drills.stage import ground

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def on(tmp_path):
    async with ground(tmp_path) as made:
        yield made
    shutil.rmtree(tmp_path, ignore_errors=True)


async def test_nothing_is_lost_or_answered_twice_when_workers_are_killed(on):
    outcome = await deaths.killed_workers(
        on, incidents=10, kills=2, workers=2, latency_seconds=0.2, ack_wait_seconds=2.0
    )
    assert outcome.passed, outcome.measured


async def test_a_crash_between_publish_and_ack_costs_nothing(on):
    outcome = await deaths.crash_before_ack(on)
    assert outcome.passed, outcome.measured


async def test_the_same_id_ten_times_is_answered_once(on):
    outcome = await broker.same_id(on)
    assert outcome.passed, outcome.measured


async def test_a_bad_model_costs_answers_but_no_request(on):
    outcome = await faults.bad_model(on, incidents=8, workers=1)
    assert outcome.passed, outcome.measured


async def test_generated_bodies_are_answered_and_bring_nothing_down(on):
    outcome = await garbage.generated_bodies(on, bodies=3_000, by_hypothesis=100, sample=200)
    assert outcome.passed, outcome.measured
