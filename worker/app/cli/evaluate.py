"""`rca eval`: send every case through the whole pipeline, and compare the results with the expected answers.

`expected.json`: `affected_resource` and `signal_type` are the best answer, `acceptable_affected_resources`
(namespace empty for cluster scope) and `acceptable_signal_types` are right as well; `workflows.acceptable`
may hold `(none)`: choosing nothing is right; an empty list means the same; `workflows.wrong` must never be
chosen.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.app.cli.console import EXIT_ERROR, Json, asynchronous, counted, print_json, progress
from worker.app.cli.demo import analyse
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ReportedError

if TYPE_CHECKING:
    from schemas.analysis import AnalysisResult
    from worker.app.embedded import CaseDirectory
    from worker.app.replaying import Alternative
    from worker.domain.recording.compare import Comparison

CASE_CHARS = 26  # with the other columns 80 characters
NONE = "(none)"
FIGURE_CHARS = 18


@asynchronous
async def evaluate(
    cases_dir: Annotated[
        Path,
        typer.Argument(
            metavar="CASES",
            help="Directory of cases, each with incident.json and expected.json, or of recordings (`rca record`).",
        ),
    ],
    *,
    catalog: Annotated[
        Path | None, typer.Option(help="For cases: directory of the workflows that they expect.")
    ] = None,
    against_model: Annotated[str, typer.Option(help="For recordings: replay with this model.")] = "",
    against_catalog: Annotated[
        Path | None, typer.Option(help="For recordings: replay with these workflows.", exists=True)
    ] = None,
    against_policy: Annotated[
        Path | None, typer.Option(help="For recordings: replay with this approval policy.", exists=True)
    ] = None,
    seed: Annotated[int, typer.Option(help="For recordings: seed of the bootstrap.")] = 0,
    parallel: Annotated[int, typer.Option(help="How many cases run at once.", min=1, max=32)] = 4,
    json_output: Json = False,
) -> int:
    """Run every case through the whole pipeline and compare the results with the expected answers.

    If the directory holds recordings (*.rca), replay each of them with another model, catalog or policy
    instead, and compare the new results with the recorded ones: shares and means, with 95 % confidence
    intervals of the differences. Exit code 1 if a case ended without a result, or a recording could not be
    replayed.
    """
    from worker.app import logs
    from worker.app.replaying import SUFFIX, Alternative

    logs.configure("error", json_lines=False)
    if not cases_dir.is_dir():
        raise typer.BadParameter(f"{cases_dir} is not a directory")
    if bundles := sorted(cases_dir.glob(f"*{SUFFIX}")):
        wanted = Alternative(against_model, against_catalog, against_policy)
        with progress("replaying recordings") as show:
            return await _evaluate_recordings(
                bundles, wanted, parallel=parallel, seed=seed, as_json=json_output, show=show
            )
    if catalog is None:
        raise typer.BadParameter("cases need the workflows that they expect: give --catalog DIR")
    return await _evaluate_cases(find_cases(cases_dir), catalog, parallel, as_json=json_output)


async def _evaluate_cases(
    cases: Sequence[CaseDirectory], catalog: Path, parallel: int, *, as_json: bool
) -> int:
    from schemas.analysis import AnalysisResult
    from worker.app.embedded import open_services

    done = 0
    async with open_services() as services:
        with progress("running cases") as show:

            async def score_case(number: int, case: CaseDirectory) -> Score:
                nonlocal done
                outcome = await analyse(services, case, catalog=catalog, prefix=f"eval{number}")
                result, done = outcome if isinstance(outcome, AnalysisResult) else None, done + 1
                show(done, len(cases))
                return score(case.name, expected_of(case), result)

            runs = [score_case(number, case) for number, case in enumerate(cases)]
            scores = await concurrently(runs, at_once=parallel)
    if as_json:
        print_json({"total": total(scores), "cases": [asdict(s) for s in scores]})
    else:
        _print(scores)
    return EXIT_ERROR if any(s.status == "no result" for s in scores) else 0


def find_cases(directory: Path) -> list[CaseDirectory]:
    """All cases in the directory, by name. Raises ReportedError if there are none."""
    from worker.app.embedded import CaseDirectory

    cases = [CaseDirectory(path.parent) for path in sorted(directory.glob("*/incident.json"))]
    if not cases:
        raise ReportedError(
            f"no cases in {directory}: each is a directory with incident.json and expected.json, or a file of "
            "`rca record` that ends with .rca"
        )
    for case in cases:
        expected_of(case)
    return cases


def expected_of(case: CaseDirectory) -> dict[str, object]:
    """The expected answer. Raises ReportedError."""
    path = case.directory / "expected.json"
    try:
        expected = json.loads(path.read_bytes())
        return {**expected, "affected_resource": expected["affected_resource"]}
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise ReportedError(f"{path}: no expected answer with an affected_resource: {e}") from e


def _print(scores: list[Score]) -> None:
    from rich.console import Console
    from rich.table import Table

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


# -- scores


@dataclass(frozen=True, slots=True)
class Score:
    """One case. `workflow_required`: choosing none is not acceptable here. Times in seconds."""

    case: str
    status: str
    affected_resource: str
    target_right: bool
    target_best: bool
    signal_type: str
    signal_type_right: bool
    workflow: str
    workflow_acceptable: bool
    workflow_required: bool
    workflow_wrong: bool
    workflow_none: bool
    human_review: bool
    llm_calls: int
    tool_calls: int
    input_tokens: int
    wall_seconds: float


def score(case: str, expected: Mapping[str, Any], result: AnalysisResult | None) -> Score:
    """Compare one result with the expected answer. Without a result (None), everything counts as wrong."""
    from worker.domain.recording.compare import facts_of

    workflows = expected.get("workflows") or {}
    acceptable = set(workflows.get("acceptable") or [NONE])
    facts = facts_of(result) if result else {}
    chosen = facts.get("workflow", "")
    resource = result.affected_resource if result else None
    target = (resource.kind.lower(), resource.namespace, resource.name) if resource else None
    best = _key(expected["affected_resource"])
    right = {best, *map(_key, expected.get("acceptable_affected_resources") or [])}
    signal_type = facts.get("cause", "")
    return Score(
        case=case,
        status=result.status if result else "no result",
        affected_resource=facts.get("target", ""),
        target_right=target in right,
        target_best=target == best,
        signal_type=signal_type,
        signal_type_right=signal_type
        in {expected.get("signal_type"), *(expected.get("acceptable_signal_types") or ())},
        workflow=chosen,
        workflow_acceptable=result is not None and (chosen or NONE) in acceptable,
        workflow_required=NONE not in acceptable,
        workflow_wrong=(chosen or NONE) in set(workflows.get("wrong") or []),
        workflow_none=not chosen,
        human_review=result is None or result.needs_human_review or result.approval.required,
        llm_calls=facts.get("llm_calls", 0),
        tool_calls=facts.get("tool_calls", 0),
        input_tokens=facts.get("input_tokens", 0),
        wall_seconds=result.usage.wall_seconds if result else 0.0,
    )


def total(scores: Sequence[Score]) -> dict[str, float]:
    """Counts over all cases, and medians of what they cost."""

    def count(name: str) -> int:
        return sum(bool(getattr(s, name)) for s in scores)

    def median(name: str) -> float:
        return round(float(statistics.median(getattr(s, name) for s in scores)), 3) if scores else 0.0

    required = [s for s in scores if s.workflow_required]
    return {
        "cases": len(scores),
        **{name: count(name) for name in ("target_right", "target_best", "signal_type_right")},
        "workflow_acceptable": count("workflow_acceptable"),
        "workflow_required": len(required),
        "workflow_required_right": sum(s.workflow_acceptable for s in required),
        **{name: count(name) for name in ("workflow_wrong", "workflow_none", "human_review")},
        **{f"{name}_median": median(name) for name in ("llm_calls", "input_tokens", "wall_seconds")},
    }


def _key(resource: Mapping[str, Any]) -> tuple[str, str, str]:
    kind, namespace, name = (str(resource.get(part) or "") for part in ("kind", "namespace", "name"))
    return kind.lower(), namespace, name


# -- recordings: replayed with another model, catalog or policy, and compared with what was recorded


async def _evaluate_recordings(
    paths: Sequence[Path],
    wanted: Alternative,
    *,
    parallel: int,
    seed: int,
    as_json: bool,
    show: Callable[[int, int], None],
) -> int:
    """Replay all and print how the results differ. Exit code 1 if one could not be replayed."""
    from worker.app.replaying import open_changes, read_bundle
    from worker.domain.recording.compare import compare
    from worker.domain.recording.replay import recorded_result, replay

    failed, gaps, done = dict[str, str](), 0, 0
    async with open_changes(wanted) as changes:

        async def pair(path: Path) -> tuple[AnalysisResult, AnalysisResult] | None:
            nonlocal gaps, done
            try:
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

        replays = await concurrently([pair(path) for path in paths], at_once=parallel)
        pairs = [found for found in replays if found]
    rows = compare(pairs, seed=seed)
    if as_json:
        facts = {"changed": wanted.names, "bundles": len(pairs), "not_recorded": gaps, "failed": failed}
        print_json({**facts, "figures": [asdict(row) for row in rows]})
    else:
        _print_comparison(rows, wanted, len(pairs), gaps, failed)
    return EXIT_ERROR if failed else 0


def _print_comparison(
    rows: Sequence[Comparison], wanted: Alternative, pairs: int, gaps: int, failed: dict[str, str]
) -> None:
    changed = ", ".join(f"{name} {value}" for name, value in wanted.names.items()) or "nothing changed"
    typer.echo(f"{counted(pairs, 'recording')} as recorded and with {changed}; 95 % intervals of differences")
    for row in rows:
        told = f"{row.recorded:12,.4g} {row.replayed:12,.4g} {row.difference:+12,.4g}"
        typer.echo(f"{row.figure:{FIGURE_CHARS}}{told}  ({row.low:+,.4g} to {row.high:+,.4g})")
    if gaps:
        typer.echo(f"{counted(gaps, 'question')} not in the recordings: the replays had fewer facts")
    for name, why in failed.items():
        typer.echo(f"not replayed: {name}: {why}", err=True)
