"""`rca outcomes`: compare proposed workflows with their outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.app.cli.console import Json, asynchronous, counted, one_line, print_json, session, waiting_for

if TYPE_CHECKING:
    from worker.domain.verdict.approval.track_record import OutcomeReport

ENVIRONMENT_CHARS, CORROBORATION_CHARS, LINE_CHARS = 14, 12, 80
NUMBERS = {"proposed": 8, "would_pass": 10, "succeeded": 9, "failed": 6, "unknown": 7}
"""Columns and their widths; a whole line has 80 characters."""

outcomes = typer.Typer(no_args_is_help=True, help="Report the outcomes of proposed workflows.")


@outcomes.callback()
def _outcomes() -> None:
    """Keep `report` a subcommand: Typer turns a group with a single command into that command."""


@outcomes.command()
@asynchronous
async def report(
    *,
    since: Annotated[
        str,
        typer.Option(
            metavar="DURATION|DATE",
            help="Only results since then: 12h, 7d, or a date or time in UTC such as 2026-06-04.",
        ),
    ] = "",
    json_output: Json = False,
) -> int:
    """Compare results with the outcomes that executors published, by action, environment and corroboration.

    A workflow counts as succeeded or failed only if it was executed as proposed and its effect is known. It
    counts as `would pass` if neither the policy nor the worker's own checks require approval, in observe mode
    or not.
    """
    from worker.adapters.nats.stream import FencedStream
    from worker.adapters.nats.track_record import OutcomeReader

    now = datetime.now(UTC)
    begin = _since(since, now)
    async with session("rca-outcomes") as opened:
        subjects = opened.subjects

        def stream(name: str) -> FencedStream:
            return FencedStream(opened.nc, name, api_prefix=opened.settings.nats.api_prefix)

        reader = OutcomeReader(stream(subjects.results_stream), stream(subjects.outcomes_stream), subjects)
        async with waiting_for(f"all of {subjects.results_stream} and {subjects.outcomes_stream}"):
            found = (await reader.read(now)).report(begin)
    if json_output:
        print_json({"since": begin.isoformat() if begin else None, **_document(found)})
    else:
        typer.echo("\n".join(_lines(found)))
    return 0


def _since(text: str, now: datetime) -> datetime | None:
    """Raises BadParameter."""
    from worker.domain.cluster.events import since_moment

    if not text:
        return None
    if (found := since_moment(text, now)) is None:
        raise typer.BadParameter(
            f"{text!r} is neither a duration such as 12h or 7d nor a date such as 2026-06-04",
            param_hint="--since",
        )
    return found


def _document(found: OutcomeReport) -> dict[str, Any]:
    return {
        "groups": [
            {
                "action_type": group.action,
                "environment": group.environment,
                "corroboration": group.corroboration or None,
                **asdict(counts),
            }
            for group, counts in found.groups.items()
        ],
        "total": asdict(found.total),
        "would_have_passed": asdict(found.passing),
        "outcomes_without_result": found.unmatched,
        "unreadable": found.unreadable,
    }


def _lines(found: OutcomeReport) -> Iterator[str]:
    """The report for a terminal of 80 columns."""
    if found.groups:
        yield _row("environment", "corroborated", {name: name.replace("_", " ") for name in NUMBERS})
    action = None
    for group, counts in found.groups.items():
        if group.action != action:
            action = group.action
            yield one_line(action, LINE_CHARS)
        environment = one_line(group.environment or "not known", ENVIRONMENT_CHARS)
        yield _row(environment, one_line(group.corroboration, CORROBORATION_CHARS) or "-", asdict(counts))
    if found.groups:
        yield "all"
        yield _row("proposed", "", asdict(found.total))
        yield _row("would pass", "", asdict(found.passing))
    else:
        yield "no result proposes a workflow"
    if found.unmatched:
        yield f"{counted(found.unmatched, 'outcome')} without such a result: it has expired, or was never published"
    if found.unreadable:
        yield f"{counted(found.unreadable, 'message')} could not be read"


def _row(environment: str, corroboration: str, numbers: dict[str, Any]) -> str:
    cells = "  ".join(f"{numbers[name]:>{width}}" for name, width in NUMBERS.items())
    return f"  {environment:<{ENVIRONMENT_CHARS}}  {corroboration:<{CORROBORATION_CHARS}}  {cells}"
