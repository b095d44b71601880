"""`rca eval`: every case through the whole pipeline, compared with the expected answer."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from schemas.analysis import AnalysisResult
from worker.app import logs
from worker.app.cli.console import print_json
from worker.app.cli.demo import analyse
from worker.app.cli.score import Score, as_json, score, total
from worker.app.embedded import Case, EmbeddedError, open_services

CASE_CHARS = 26  # with the other columns 80 characters


async def evaluate(cases_dir: Path, *, catalog: Path, parallel: int, as_json: bool) -> int:
    """Exit code 0 when every case ended in a result."""
    logs.configure("error", json_lines=False)
    cases = find_cases(cases_dir)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=console) if console.is_terminal else nullcontext()
    async with open_services() as services:
        with progress as bar:
            task = bar.add_task("cases", total=len(cases)) if bar else None
            slots = asyncio.Semaphore(parallel)

            async def run(number: int, case: Case) -> Score:
                async with slots:
                    outcome = await analyse(services, case, catalog=catalog, prefix=f"eval{number}")
                result = outcome if isinstance(outcome, AnalysisResult) else None
                if bar and task is not None:
                    bar.advance(task)
                return score(case.name, expected_of(case), result)

            scores = await asyncio.gather(*(run(n, case) for n, case in enumerate(cases)))
    _print(scores, json_lines=as_json)
    return 0 if all(s.status != "no result" for s in scores) else 1


def find_cases(directory: Path) -> list[Case]:
    """All cases below the directory, by name. Raises EmbeddedError when there are none."""
    cases = [Case(path.parent) for path in sorted(directory.glob("*/incident.json"))]
    if not cases:
        raise EmbeddedError(
            f"no cases in {directory}: each is a directory with incident.json and expected.json"
        )
    for case in cases:
        expected_of(case)
    return cases


def expected_of(case: Case) -> dict[str, object]:
    """The expected answer. Raises EmbeddedError."""
    path = case.directory / "expected.json"
    try:
        expected = json.loads(path.read_bytes())
        return {**expected, "affected_resource": expected["affected_resource"]}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise EmbeddedError(f"{path}: no expected answer with an affected_resource: {e}") from e


def _print(scores: list[Score], *, json_lines: bool) -> None:
    if json_lines:
        print_json(as_json(scores))
        return
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("case", overflow="ellipsis", no_wrap=True)
    for heading in ("target", "signal", "workflow", "review", "calls", "tools", "tokens", "s"):
        table.add_column(heading, no_wrap=True, justify="right", min_width=len(heading))
    for s in scores:
        table.add_row(
            s.case[:CASE_CHARS],
            "best" if s.target_best else "ok" if s.target_right else "WRONG",
            "ok" if s.signal_type_right else "other",
            _workflow_word(s),
            "yes" if s.human_review else "no",
            str(s.llm_calls),
            str(s.tool_calls),
            str(s.input_tokens),
            f"{s.wall_seconds:.1f}",
        )
    console = Console(highlight=False)
    console.print(table)
    for name, value in total(scores).items():
        console.print(f"{name:24} {value:g}")


def _workflow_word(s: Score) -> str:
    if s.workflow_wrong:
        return "WRONG"
    if s.workflow_acceptable:
        return "none ok" if s.workflow_none else "ok"
    return "none" if s.workflow_none else "other"
