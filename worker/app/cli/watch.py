"""`rca watch`: what workers are doing now, as a live view on a terminal and as lines anywhere else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from worker.app.cli.console import Json, asynchronous, one_line, session, waiting_for
from worker.app.cli.requests import EXIT_DEAD_LETTER

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

    from schemas.analysis import AnalysisResult
    from schemas.audit import AuditEvent
    from worker.adapters.nats.stream_info import ConsumerState
    from worker.app.activity import Activity
    from worker.app.operations import Operations

REFRESH_SECONDS = 0.5
LANES_SECONDS = 2.0
RESULT_SECONDS = 5.0
"""How often the result of a followed request is looked up while no event of it arrives."""
SHOWN_IN_FLIGHT, SHOWN_ENDED = 12, 8
KEY_CHARS, SHOWN_KEY_CHARS, STEP_CHARS = 64, 16, 200
EVENTS_READ = 400
"""How many earlier events the live view begins with."""


@asynchronous
async def watch(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY", help="Follow only this request, until it ends. KEY may be the remediation id."
        ),
    ] = None,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="Print lines even on a terminal.")] = False,
    json_output: Json = False,
) -> int:
    """Show queues, running analyses and new results, live.

    Prints one line per step if KEY or --plain is given, or if standard output is not a terminal; with --json,
    prints one audit event per line. Shows only new events: `rca audit export` prints earlier ones.

    Exit codes with KEY: 0 if the request got a result, 3 if it became a dead letter.
    """
    from rich.console import Console

    from worker.app.operations import read_key

    key, console = read_key(key) if key else None, Console(highlight=False)
    async with _heard(key) as (operations, events):
        if key is None and console.is_terminal and not plain and not json_output:
            await _live(console, operations, events)
            return 0
        if key is not None and (stored := await operations.result(key)) is not None:
            return _said_ended(key, stored)
        return await _follow(events, key, operations, as_json=json_output)


@asynccontextmanager
async def _heard(key: str | None) -> AsyncIterator[tuple[Operations, asyncio.Queue[AuditEvent]]]:
    """The events of this request, or of all."""
    from worker.app.client import RequestClient
    from worker.app.operations import Operations

    events: asyncio.Queue[AuditEvent] = asyncio.Queue()

    def hear(event: AuditEvent) -> None:
        if key in {None, event.request_key}:
            events.put_nowait(event)

    async with (
        session("rca-watch") as opened,
        RequestClient(opened.nc, opened.subjects).following(hear),
    ):
        await opened.nc.flush()  # from now on nothing is missed
        yield Operations(opened.nc, opened.subjects), events


def _said_ended(key: str, result: AnalysisResult) -> int:
    from schemas.analysis import Status

    typer.echo(f"{key} has ended: {result.status}; rca show {key} prints the result", err=True)
    return EXIT_DEAD_LETTER if result.status is Status.FAILED else 0


async def _follow(
    events: asyncio.Queue[AuditEvent], key: str | None, operations: Operations, *, as_json: bool
) -> int:
    """Print one line per step of `events` until the request `key` has ended.

    A result also counts as its end, in case the last step was missed.
    """
    from schemas.audit import ENDS, EventType
    from worker.app.event_line import step_of

    typer.echo(f"waiting for steps of {key or 'any request'}; Ctrl-C ends", err=True)
    told = ""
    while True:
        try:
            async with asyncio.timeout(RESULT_SECONDS if key else None):
                event = await events.get()
        except TimeoutError:
            if key is not None and (stored := await operations.result(key)) is not None:
                return _said_ended(key, stored)
            if key is not None and (why := await operations.waits_for(key)) != told:
                told = why
                typer.echo(f"{key} {f'waits: {why}' if why else 'goes on'}", err=True)
            continue
        if as_json:
            typer.echo(event.model_dump_json(ensure_ascii=True))
        elif line := step_of(event):
            indent = "  " if line.startswith(" ") else ""
            about = f"{one_line(event.request_key, STEP_CHARS)}  {indent}{one_line(line, STEP_CHARS)}"
            typer.echo(f"{event.time:%H:%M:%S}  {about}")
        if key is not None and event.event_type in ENDS:
            return EXIT_DEAD_LETTER if event.event_type is EventType.RESPONSE_FAILED else 0


# -- live view


async def _live(console: Console, operations: Operations, events: asyncio.Queue[AuditEvent]) -> None:
    from rich.live import Live

    from worker.app.activity import Activity

    activity, lanes, waits = Activity(), await operations.lanes(), dict[str, str]()
    loop = asyncio.get_running_loop()
    async with waiting_for("the newest audit events"):
        for event in await operations.newest_events(EVENTS_READ):
            activity.record(event)
    read_at = 0.0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            while not events.empty():
                activity.record(events.get_nowait())
            if loop.time() - read_at > LANES_SECONDS:
                waits = await operations.waits(list(activity.in_flight)[-SHOWN_IN_FLIGHT:])
                lanes, read_at = await operations.lanes(), loop.time()
            live.update(picture(activity, lanes, waits, datetime.now(UTC)), refresh=True)
            with contextlib.suppress(TimeoutError):
                activity.record(await asyncio.wait_for(events.get(), REFRESH_SECONDS))


def picture(
    activity: Activity, lanes: Mapping[str, ConsumerState], waits: Mapping[str, str], now: datetime
) -> Group:
    """The whole screen, for 80 columns. `waits` says why requests are not being analysed at the moment."""
    from rich.console import Group

    return Group(_lanes(lanes), _in_flight(activity, waits, now), _ended(activity))


def _table(title: str, *columns: str, wide: str) -> Table:
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", title_style="bold", expand=True, box=None, padding=(0, 1)
    )
    for name in columns:
        right = name in {"calls", "tools", "tokens", "cost", "time", "waiting", "being analysed"}
        table.add_column(
            name,
            no_wrap=True,
            overflow="ellipsis",
            ratio={wide: 2, "request": 1}.get(name),
            min_width=SHOWN_KEY_CHARS if name == "request" else None,
            justify="right" if right else "left",
            header_style="dim",
        )
    return table


def _lanes(lanes: Mapping[str, ConsumerState]) -> Table:
    table = _table("Queues", "lane", "waiting", "being analysed", "", wide="")
    for name, state in lanes.items():
        idle = state.num_pending and not state.num_ack_pending
        remark = "no worker takes them: see /readyz" if idle else ""
        table.add_row(name, f"{state.num_pending:,}", f"{state.num_ack_pending:,}", remark)
    return table


def _in_flight(activity: Activity, waits: Mapping[str, str], now: datetime) -> Table:
    from rich.text import Text

    from worker.app.event_line import step_of, work_after

    runs = list(activity.in_flight.values())
    title = f"\nIn flight ({len(runs):,})"
    table = _table(title, "request", "step", "calls", "tools", "tokens", "cost", "time", wide="step")
    if reasons := sorted(set(waits.values()) - {""}):
        table.caption = Text(f"waiting: {', '.join(reasons)}; /readyz of the workers says more")
        table.caption_justify = "left"
    for run_ in runs[-SHOWN_IN_FLIGHT:]:
        why = waits.get(run_.key)
        step = f"waits: {why}" if why else step_of(run_.last).strip() or work_after(run_.last)
        seconds = max(0.0, (now - run_.began).total_seconds())
        table.add_row(
            Text(one_line(run_.key, KEY_CHARS)),
            Text(one_line(step, STEP_CHARS)),
            f"{run_.calls}",
            f"{run_.tools}",
            f"{run_.tokens:,}",
            _money(run_.cost_usd),
            f"{seconds:.0f} s",
        )
    return table


def _ended(activity: Activity) -> Table:
    from rich.text import Text

    table = _table("\nEnded", "at", "request", "verdict", "tokens", "cost", "time", wide="verdict")
    for done in list(activity.ended)[-SHOWN_ENDED:][::-1]:
        decided = " needs approval" if done.approval_required else " may run"
        verdict = one_line(done.workflow, STEP_CHARS) + decided if done.workflow else done.verdict
        tokens = done.usage.input_tokens + done.usage.output_tokens
        table.add_row(
            f"{done.at:%H:%M:%S}",
            Text(one_line(done.key, KEY_CHARS)),
            Text(verdict),
            f"{tokens:,}",
            _money(done.usage.cost_usd),
            f"{done.usage.wall_seconds:.0f} s",
        )
    return table


def _money(cost_usd: float | None) -> str:
    return "?" if cost_usd is None else f"${cost_usd:.2f}"
