"""The short drills, at a small size: real processes, a real server, real signals.

They pass by what was counted and stored, never by how long it took: that is measured by `make drills`, on a machine
that has nothing else to do.
"""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.drills import broker, deaths, faults, garbage, machine, operators
from tests.drills.stage import ground

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("drills")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on(directory):
    async with ground(directory) as made:
        yield made


DRILLS = {
    "a worker is killed": lambda on: deaths.killed_workers(
        on, incidents=6, kills=1, workers=1, latency_seconds=1.0, ack_wait_seconds=2.0
    ),
    "a crash between publish and ack": deaths.crash_before_ack,
    "the same id six times": lambda on: broker.same_id(on, times=6, window_seconds=2.0),
    "deliveries are exhausted": lambda on: broker.deliveries_exhausted(on, requests=2, max_deliver=2),
    "a worker is asked to stop": lambda on: deaths.stopped_worker(
        on, incidents=2, drain_seconds=0.5, grace_seconds=120.0
    ),
    "poison": lambda on: deaths.poison(on, neighbours=2, workers=1, deaths=1),
    "a bad model": lambda on: faults.bad_model(on, incidents=6, workers=1),
    "a wrong clock": lambda on: machine.wrong_clock(on, incidents=1),
    "few open files": lambda on: machine.few_files(on, incidents=8),
    "letters and a long journal": lambda on: operators.letters_and_steps(on, number=20),
    "a stream of another kind": operators.other_kind,
    "generated bodies": lambda on: garbage.generated_bodies(on, bodies=1_000, by_hypothesis=50, sample=100),
}


@pytest.mark.parametrize("name", DRILLS)
async def test_a_short_drill_holds(on, name):
    outcome = await DRILLS[name](on)
    assert outcome.passed, outcome.measured
