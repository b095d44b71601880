"""`make bench`: what an incident costs and how fast the parts are, beside what is wanted (docs/benchmarks.md).

    python -m tests.bench [--rounds N | --parts | --figures]

CPU is that of the worker and its policy process; the fakes run in processes of their own. `--rounds` repeats everything and
prints medians. `--parts` measures the parts one by one, PostgreSQL and the quality of searches. `--figures` writes the counts
that CI compares.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tests.bench import incident, parts
from tests.bench.calls import counted_calls
from tests.bench.enrichment import gathering
from tests.bench.incident import Measured, footprint
from tests.drills.stage import Ground, ground

PART_SECONDS = 300.0
FIGURES = Path(__file__).parent / "figures.json"
ROWS = {
    "CPU of an incident, ms": ("<=", 70, "HolmesGPT 0.45: 459 (5 calls); HolmesGPT-API: 670 (7 calls)"),
    "incidents/s, 50 in flight, 200 ms a call": (">=", 12, ""),
    "share of ideal, 100 in flight, 2 s a call": (">=", 0.95, "before: 0.40"),
    "start to ready, CPU s": ("<=", 2.5, "before: 3.5"),
    "rca --help, CPU s": ("<=", 0.4, ""),
    "RSS idle, MiB": ("<=", 130, ""),
    "RSS, 100 in flight, MiB": ("<=", 200, ""),
    "publish to first call, p99, 50 in flight, ms": ("<=", 250, ""),
    "input tokens, first call": ("<=", 6_500, ""),
    "input tokens, 6 calls": ("<=", 36_000, "before: 42,000"),
    "prefix of a call that repeats the one before": (">=", 0.99, ""),
    "facts of a cluster of 10,000 pods, s": ("<=", 1.0, ""),
    "the same, reads": ("<=", 40, ""),
    "the same, RSS, MiB": ("<=", 40, ""),
    "workflows of 2,000, p99, ms": ("<=", 1.0, ""),
    "search among 2,000, p99, ms": ("<=", 5.0, ""),
    "journal, audit and result, kept, KB": ("<=", 60, ""),
    "of it left in the journal, KB": ("<=", 1, "one message, which fences older runs"),
    "journal, audit and result, written, KB": ("<=", 60, "before: 149"),
    "CPU of 20 calls to 5": ("<=", 3.0, ""),
    "redaction of ordinary logs, MB/s": (">=", 20, "before: 1.2"),
    "redaction of twice the hostile text, times": ("<=", 2.5, ""),
}
"""What is measured, what it shall be, and what others or earlier versions need. Other figures have no target."""


async def measure() -> Measured:
    """One round of all rows. A part that fails is named, and its rows are missing."""
    found: Measured = {}
    on_nats = (incident.stored, incident.costs, incident.throughput, incident.slow_model, incident.arrivals)
    work: dict[str, Callable[[], Awaitable[Measured]]] = {
        **{part.__name__: partial(_on_nats, part) for part in on_nats},
        "facts": _facts,
        "catalog": _catalog,
        "redaction": _redaction,
    }
    for name, part in work.items():
        began, problem = time.monotonic(), ""
        try:
            found |= await asyncio.wait_for(part(), PART_SECONDS)
        except Exception as error:  # noqa: BLE001 - the other rows are measured all the same
            problem = f", failed: {error!r}"
        print(f"  {name}: {time.monotonic() - began:.0f} s{problem}", file=sys.stderr)
    return found


async def _on_nats(part: Callable[[Ground], Awaitable[Measured]]) -> Measured:
    with tempfile.TemporaryDirectory() as directory:
        async with ground(Path(directory)) as shared:
            return await part(shared)


async def _facts() -> Measured:
    gathered = await gathering()
    return {
        "facts of a cluster of 10,000 pods, s": gathered.seconds,
        "the same, reads": gathered.calls,
        "the same, RSS, MiB": gathered.growth,
    }


async def _catalog() -> Measured:
    return {
        "workflows of 2,000, p99, ms": await parts.listing(),
        "search among 2,000, p99, ms": await parts.searching(),
    }


async def _redaction() -> Measured:
    return {
        "redaction of ordinary logs, MB/s": parts.redaction_speed(),
        "redaction of twice the hostile text, times": parts.redaction_growth(),
    }


async def counts() -> dict[str, float]:
    """What an incident takes, in counts that are the same on each machine."""
    with tempfile.TemporaryDirectory() as directory:
        async with ground(Path(directory)) as shared:
            return {"function_calls": await counted_calls(), **asdict(await footprint(shared))}


def show(rounds: Sequence[Measured]) -> None:
    """Print the table of medians, and which rows are missed."""
    missed = []
    print(f"| {'what':48} | {'measured':>8} | {'wanted':>9} | {'ratio':>5} | {'verdict':7} | beside |")
    print(f"|{'-' * 50}|{'-' * 10}|{'-' * 11}|{'-' * 7}|{'-' * 9}|--------|")
    for name, (sign, wanted, beside) in ROWS.items():
        values = [found[name] for found in rounds if name in found]
        value = statistics.median(values) if values else math.nan  # which meets nothing
        met = value <= wanted if sign == "<=" else value >= wanted
        missed += [] if met else [name]
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        verdict = "met" if met else "missed"
        print(
            f"| {name:48} | {shown:>8} | {sign} {wanted:>6,} | {value / wanted:5.2f} | {verdict:7} | {beside} |"
        )
    for name in sorted({name for found in rounds for name in found} - ROWS.keys()):
        value = statistics.median(found[name] for found in rounds if name in found)
        print(f"without a target: {name}: {value:.3g}")
    print(
        f"{len(ROWS) - len(missed)} of {len(ROWS)} rows met" + "".join(f"; missed: {row}" for row in missed)
    )


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--figures", action="store_true")
    given = parser.parse_args()
    if given.parts:
        await parts.main()
        return
    if given.figures:
        FIGURES.write_text(json.dumps(await counts(), indent=2) + "\n")
        return
    show([await measure() for _ in range(given.rounds)])


if __name__ == "__main__":
    asyncio.run(main())
