"""An incident takes no more calls, tokens and bytes than it did when `figures.json` was written (docs/benchmarks.md)."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests import bench
from tests.bench.calls import counted_calls
from tests.bench.incident import footprint, longest_stretch
from tests.drills.stage import ground

FIGURES = json.loads((Path(bench.__file__).parent / "figures.json").read_text())
GROWTH = 1.10
LONGEST_STRETCH = 25_000
"""Function calls: less than 20 ms of CPU, during which the event loop answers nobody. Measured: 18,900 and 12 ms."""


async def test_an_incident_takes_no_more_function_calls():
    assert await counted_calls() <= FIGURES["function_calls"] * GROWTH


@pytest.mark.process
async def test_an_incident_reads_sends_and_stores_no_more(tmp_path):
    async with ground(tmp_path) as shared:
        found = asdict(await footprint(shared))
    assert found["prefix"] >= FIGURES["prefix"]
    assert {name for name, value in found.items() if value > FIGURES[name] * GROWTH} == set()


@pytest.mark.process
async def test_no_stretch_of_the_event_loop_is_long(tmp_path):
    async with ground(tmp_path) as shared:
        assert 0 < await longest_stretch(shared) <= LONGEST_STRETCH
