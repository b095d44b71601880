"""`rca eval` over recordings: every one replayed with another model, catalog or policy, compared with what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from worker.app.cli.console import EXIT_ERROR, counted, print_json
from worker.domain.values.errors import ReportedError
from worker.domain.values.together import together

if TYPE_CHECKING:
    from worker.app.replaying import Alternative
    from worker.domain.recording.compare import Comparison

WIDTH = 18


async def evaluate_bundles(
    paths: Sequence[Path],
    wanted: Alternative,
    *,
    parallel: int,
    seed: int,
    as_json: bool,
    show: Callable[[int, int], None],
) -> int:
    """Replay all and print how the results differ. Exit code 1 if one could not be replayed."""
    from schemas.analysis import AnalysisResult
    from worker.app.replaying import open_changes, read_bundle
    from worker.domain.recording.compare import compare
    from worker.domain.recording.replay import recorded_result, replay

    failed, gaps, done, slots = dict[str, str](), 0, 0, asyncio.Semaphore(parallel)
    async with open_changes(wanted) as changes:

        async def pair(path: Path) -> tuple[AnalysisResult, AnalysisResult] | None:
            nonlocal gaps, done
            try:
                async with slots:
                    bundle = read_bundle(path)
                    recorded = recorded_result(bundle)
                    replayed = await replay(bundle, changes)
            except (ReportedError, OSError) as e:
                failed[path.name] = str(e)
                return None
            finally:
                done += 1
                show(done, len(paths))
            gaps += len(replayed.gaps)
            return recorded, replayed.result

        pairs = [found for found in await together([pair(path) for path in paths]) if found]
    rows = compare(pairs, seed=seed)
    if as_json:
        facts = {"changed": wanted.names, "bundles": len(pairs), "not_recorded": gaps, "failed": failed}
        print_json({**facts, "figures": [asdict(row) for row in rows]})
    else:
        _print(rows, wanted, len(pairs), gaps, failed)
    return EXIT_ERROR if failed else 0


def _print(
    rows: Sequence[Comparison], wanted: Alternative, pairs: int, gaps: int, failed: dict[str, str]
) -> None:
    changed = ", ".join(f"{name} {value}" for name, value in wanted.names.items()) or "nothing changed"
    typer.echo(
        f"{counted(pairs, 'recording')} as recorded, and with {changed}; 95 % intervals of the difference"
    )
    for row in rows:
        told = f"{row.recorded:12,.4g} {row.replayed:12,.4g} {row.difference:+12,.4g}"
        typer.echo(f"{row.figure:{WIDTH}}{told}  ({row.low:+,.4g} to {row.high:+,.4g})")
    if gaps:
        typer.echo(
            f"{counted(gaps, 'question')} not recorded: the replays know less than the recorded analyses did"
        )
    for name, why in failed.items():
        typer.echo(f"not replayed: {name}: {why}", err=True)
