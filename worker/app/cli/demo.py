"""`rca demo`: one incident through the whole pipeline, shown to a person."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.status import Status as Spinner
from rich.text import Text

from schemas.analysis import AnalysisResult
from schemas.audit import AuditEvent
from schemas.subjects import DEFAULT_PREFIX, Subjects
from schemas.taxonomy import RequestKind
from worker.app import logs
from worker.app.cli.console import print_json
from worker.app.cli.progress import line_of, waiting_for
from worker.app.cli.report import print_result
from worker.app.cli.submit import exit_code, kind_of, print_outcome
from worker.app.client import Outcome, RequestClient
from worker.app.client import as_json as json_of
from worker.app.embedded import Case, EmbeddedError, Services, example_case, open_case, open_services
from worker.app.provisioning import connected
from worker.domain.intake.decode import Decoded, decode

PATIENCE_SECONDS = 600.0


async def demo(
    case_dir: Path | None, *, recovery: bool, catalog: Path | None, output: Path | None, as_json: bool
) -> int:
    """Run the case and show it. Exit codes as for `rca submit --wait`."""
    logs.configure("error", json_lines=False)
    console = Console(highlight=False, stderr=as_json)
    case = Case(case_dir) if case_dir else example_case()
    body = case.request(recovery=recovery)
    if output and not output.parent.is_dir():
        raise EmbeddedError(f"--output {output}: no such directory")
    run = _Run(console)
    with (
        console.status("starting NATS, cluster and worker")
        if console.is_terminal
        else nullcontext() as spinner
    ):
        run.spinner = spinner
        async with open_services() as services:
            _introduce(console, services, case)
            outcome = await run.shown(
                analyse(services, case, recovery=recovery, catalog=catalog, on_event=run.on_event)
            )
    document = _document(case, body, outcome, run.events)
    if as_json:
        print_json(document)
        return exit_code(outcome)
    _show(console, outcome, body, kind_of(recovery=recovery))
    where = _write(document, output)
    console.print(Text(f"The same run as JSON: {where}", style="dim"), soft_wrap=True)
    return exit_code(outcome)


class _Run:
    """Collects the events of the run, and shows each as it comes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.spinner: Spinner | None = None
        self.events: list[AuditEvent] = []
        self._come = asyncio.Queue[AuditEvent | None]()

    def on_event(self, event: AuditEvent) -> None:
        self.events.append(event)
        self._come.put_nowait(event)

    async def shown(self, analysing: Coroutine[Any, Any, Outcome | None]) -> Outcome | None:
        """Its outcome. Prints here, where the end of a pipe ends the command, not in a callback of the connection."""
        task = asyncio.create_task(analysing)
        task.add_done_callback(lambda _: self._come.put_nowait(None))
        try:
            while (event := await self._come.get()) is not None:
                self._show(event)
            return await task
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _show(self, event: AuditEvent) -> None:
        if line := line_of(event):
            mark = "" if line.startswith(" ") else "✓ "
            self.console.print(Text(f"{mark}{line}"), overflow="ellipsis", no_wrap=True)
        if self.spinner is not None:
            self.spinner.update(waiting_for(event))


async def analyse(
    services: Services,
    case: Case,
    *,
    recovery: bool = False,
    catalog: Path | None,
    prefix: str = DEFAULT_PREFIX,
    on_event: Callable[[AuditEvent], None] = lambda _: None,
) -> Outcome | None:
    """What becomes of a case, by a worker of its own."""
    body, kind = case.request(recovery=recovery), kind_of(recovery=recovery)
    async with (
        open_case(services, case, catalog=catalog, prefix=prefix) as settings,
        connected(settings.nats) as nc,
    ):
        client = RequestClient(nc, Subjects(prefix))
        async with client.following(on_event), client.waiting(kind, body) as waiter:
            submitted = await client.submit(body, kind)
            return await client.outcome(waiter, submitted, PATIENCE_SECONDS)


def _introduce(console: Console, services: Services, case: Case) -> None:
    who = "the offline analyst (rules, no language model)" if services.offline else services.llm.model
    console.print(Text(f"Case {case.directory}, answered by {who}", style="bold"))


def _show(console: Console, outcome: Outcome | None, body: bytes, kind: RequestKind) -> None:
    if outcome is None:
        typer.echo(f"no outcome within {PATIENCE_SECONDS:g} s", err=True)
        return
    if not isinstance(outcome, AnalysisResult):
        print_outcome(outcome)
        return
    decoded = decode(body, kind, outcome.completed_at)
    console.print()
    print_result(outcome, decoded.request if isinstance(decoded, Decoded) else None, console)


def _document(case: Case, body: bytes, outcome: Outcome | None, events: list[AuditEvent]) -> dict[str, Any]:
    return {
        "case": case.name,
        "request": _readable(body),
        "result": json_of(outcome) if outcome is not None else None,
        "audit_events": [event.model_dump(mode="json") for event in events],
    }


def _readable(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):  # it was rejected; what was sent is shown all the same
        return body.decode("utf-8", "replace")


def _write(document: dict[str, Any], output: Path | None) -> Path:
    if output is None:
        output = Path(tempfile.mkdtemp(prefix="rca-demo-")) / "run.json"
    output.write_text(json.dumps(document, indent=2) + "\n")
    return output
