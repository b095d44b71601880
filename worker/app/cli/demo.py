"""`rca demo`: send one incident through the whole pipeline, and show every step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.app.cli.console import Case, CaseCatalog, Json, asynchronous, print_json
from worker.app.cli.requests import exit_code, kind_of, print_outcome
from worker.domain.values.errors import ReportedError
from worker.domain.values.json_read import read_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status as Spinner

    from schemas.audit import AuditEvent
    from worker.app.client import Outcome
    from worker.app.embedded import CaseDirectory, Services
    from worker.app.wiring import Worker

PATIENCE_SECONDS = 600.0
LOOK_SECONDS = 0.2
UNREACHABLE_SECONDS = 12.0
"""How long a model may be unreachable before the run is given up."""
NO_MODEL = (
    "the model does not answer: {why}\n"
    "Check RCA_LLM__MODEL, RCA_LLM__API_KEY and RCA_LLM__BASE_URL. Without RCA_LLM__MODEL the offline analyst answers."
)


@asynchronous
async def demo(
    case_dir: Case = None,
    *,
    recovery: Annotated[
        bool, typer.Option("--recovery", help="Analyse the incident again, after a remediation that failed.")
    ] = False,
    catalog: CaseCatalog = None,
    output: Annotated[Path | None, typer.Option(help="Also write the run to this file, as JSON.")] = None,
    json_output: Json = False,
) -> int:
    """Analyse an example incident on this machine, with an embedded NATS server, cluster and worker.

    RCA_LLM__MODEL chooses the model. Without it, the offline analyst answers: fixed rules that need no language
    model and no network.
    """
    from rich.console import Console
    from rich.text import Text

    from worker.app import logs
    from worker.app.embedded import EXAMPLE_CASE, CaseDirectory, open_services

    logs.configure("error", json_lines=False)
    console = Console(highlight=False, stderr=json_output)
    case = CaseDirectory(case_dir or EXAMPLE_CASE)
    body = case.request(recovery=recovery)
    if output and not output.parent.is_dir():
        raise ReportedError(f"--output {output}: no such directory")
    with console.status("starting NATS, cluster and worker") as spinner:
        shown = _Run(console, spinner)
        async with open_services() as services:
            who = "the offline analyst (rules, no language model)" if services.offline else services.llm.model
            console.print(Text(f"Case {case.directory}, answered by {who}", style="bold"))
            outcome = await shown.outcome(
                analyse(services, case, recovery=recovery, catalog=catalog, on_event=shown.on_event)
            )
    document = _document(case, body, outcome, shown.events)
    if output:
        await asyncio.to_thread(output.write_text, json.dumps(document, indent=2) + "\n")
    if json_output:
        print_json(document)
    else:
        if outcome is None:
            typer.echo(f"error: no result within {PATIENCE_SECONDS:g} s", err=True)
        else:
            console.print()
            print_outcome(outcome)
        if output:
            console.print(Text(f"The same run as JSON: {output}", style="dim"), soft_wrap=True)
    return exit_code(outcome)


async def analyse(
    services: Services,
    case: CaseDirectory,
    *,
    recovery: bool = False,
    catalog: Path | None,
    prefix: str = "rca",
    on_event: Callable[[AuditEvent], None] = lambda _: None,
) -> Outcome | None:
    """The outcome of a case, by a worker of its own."""
    from schemas.subjects import Subjects
    from worker.app.client import RequestClient
    from worker.app.embedded import open_case
    from worker.app.provisioning import connected

    body, kind = case.request(recovery=recovery), kind_of(recovery=recovery)
    async with (
        open_case(services, case, catalog=catalog, prefix=prefix) as (settings, worker),
        connected(settings.nats) as nc,
    ):
        client = RequestClient(nc, Subjects(prefix))
        async with client.following(on_event), client.waiting(kind, body) as waiter:
            submitted = await client.submit(body, kind)
            outcome = client.outcome(waiter, submitted, PATIENCE_SECONDS)
            return await _while_model_answers(worker, outcome)


async def _while_model_answers(
    worker: Worker, waiting: Coroutine[Any, Any, Outcome | None]
) -> Outcome | None:
    """The outcome. Raises ReportedError if the model refuses all calls, or cannot be reached for a while.

    A worker waits for its model without limit; somebody who tries one wants to know.
    """
    clock, task = asyncio.get_running_loop().time, asyncio.create_task(waiting)
    reached_at = clock()
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            refused, unreachable = worker.checks["model"](), worker.notices["model"]()
            if not unreachable:
                reached_at = clock()
            if refused or clock() - reached_at > UNREACHABLE_SECONDS:
                raise ReportedError(NO_MODEL.format(why=refused or unreachable))
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


class _Run:
    """Collects the events of the run, and prints each as it arrives."""

    def __init__(self, console: Console, spinner: Spinner) -> None:
        self.console, self.spinner = console, spinner
        self.events: list[AuditEvent] = []
        self._arrived: asyncio.Queue[AuditEvent | None] = asyncio.Queue()

    def on_event(self, event: AuditEvent) -> None:
        self.events.append(event)
        self._arrived.put_nowait(event)

    async def outcome(self, analysing: Coroutine[Any, Any, Outcome | None]) -> Outcome | None:
        """Prints here, where a closed pipe ends the command, and not in a callback of the connection."""
        task = asyncio.create_task(analysing)
        task.add_done_callback(lambda _: self._arrived.put_nowait(None))
        try:
            while (event := await self._arrived.get()) is not None:
                self._print(event)
            return await task
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _print(self, event: AuditEvent) -> None:
        from rich.text import Text

        from worker.app.event_line import step_of, work_after

        if line := step_of(event):
            mark = "" if line.startswith(" ") else "✓ "
            self.console.print(Text(f"{mark}{line}"), overflow="ellipsis", no_wrap=True)
        self.spinner.update(work_after(event))


def _document(
    case: CaseDirectory, body: bytes, outcome: Outcome | None, events: list[AuditEvent]
) -> dict[str, Any]:
    return {
        "case": case.name,
        "request": read_json(body, body.decode("utf-8", "replace")),  # as text if it was rejected
        "result": outcome.model_dump(mode="json") if outcome is not None else None,
        "audit_events": [event.model_dump(mode="json") for event in events],
    }
