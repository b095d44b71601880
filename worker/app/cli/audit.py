"""`rca audit verify|export`."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from schemas.subjects import Subjects
from worker.app.auditing import Auditing, check_file, public_keys
from worker.app.cli.connection import connection
from worker.app.cli.console import print_json
from worker.app.operations import OperationError
from worker.app.settings import load
from worker.domain.audit.findings import ChainReport, Finding, Report
from worker.domain.untrusted.evidence import one_line

NOTHING = (
    "there is no event and no result of the request {request}: they have expired, or its key is another one"
)
SHOWN = 20
LINE_CHARS = 200
EVERY_SECONDS = 1.0


async def verify(
    keys: Sequence[Path],
    *,
    request: str = "",
    file: Path | None = None,
    kept_since: datetime | None = None,
    as_json: bool = False,
) -> int:
    """Exit code 1 when something is wrong."""
    known, progress = public_keys(keys), _progress("events" if file is None else "bytes")
    if file is not None:
        report = check_file(file, known, only=request, kept_since=kept_since, progress=progress)
    else:
        async with _auditing() as auditing:
            report = await auditing.check(known, only=request, progress=progress)
    if not report.events and (file or not report.findings):
        if request:
            raise OperationError(NOTHING.format(request=request))
        if file:
            raise OperationError(f"{file} holds no audit events; `rca audit export` writes such files")
    if as_json:
        print_json(_document(report))
    else:
        _print(report)
    return int(not report.good)


async def export(*, request: str = "") -> int:
    """The stored bodies on standard output, one a line."""
    written = 0
    async with _auditing() as auditing:
        async for body in auditing.events(only=request):
            sys.stdout.buffer.write(body + b"\n")
            written += 1
    sys.stdout.buffer.flush()
    if request and not written:
        raise OperationError(NOTHING.format(request=request))
    return 0


@asynccontextmanager
async def _auditing() -> AsyncIterator[Auditing]:
    settings = load()
    async with connection(settings.nats, name="rca-audit") as nc:
        yield Auditing(nc, Subjects(settings.nats.prefix), api_prefix=settings.nats.api_prefix)


def _progress(what: str) -> Callable[[int, int], None]:
    """Once a second, on a terminal only."""
    shown = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal shown
        if sys.stderr.isatty() and time.monotonic() - shown >= EVERY_SECONDS:
            shown = time.monotonic()
            typer.echo(f"read {done:,} of {total:,} {what}", err=True)

    return show


def _print(report: Report) -> None:
    for finding in report.findings[:SHOWN]:
        typer.echo(_line(finding))
    if (more := len(report.findings) - SHOWN) > 0:
        typer.echo(f"and {more:,} more; --json has them all")
    for chain in report.notable[:SHOWN]:
        typer.echo(f"{_shown(chain.request_key)}: {chain.status}, {chain.events:,} events{_head(chain)}")
    chains = ", ".join(f"{count:,} {status}" for status, count in report.chains.items()) or "none"
    again = f" ({report.republished:,} published again)" if report.republished else ""
    typer.echo(f"{report.events:,} events{again} of {report.requests:,} requests; chains: {chains}")
    if report.checked_results is None:
        typer.echo("results were not compared: the file has none")
    else:
        typer.echo(f"{report.checked_results:,} stored results compared")
    if report.checked_signatures:
        typer.echo(f"{report.signed:,} of {report.ends:,} ends have a good signature")
    else:
        typer.echo(
            f"signatures were not checked: {report.signed:,} of {report.ends:,} ends have one; --key names the key"
        )


def _line(finding: Finding) -> str:
    where = f", at {finding.position}" if finding.position else ""
    if not finding.sequence:
        return f"message {finding.position}: {finding.problem}: {finding.detail}"
    chain = f" (chain {_shown(finding.chain)}{where})" if finding.chain else ""
    return (
        f"{_shown(finding.request_key)}: event {finding.sequence}: {finding.problem}: {finding.detail}{chain}"
    )


def _head(chain: ChainReport) -> str:
    return f", head {chain.head}" if chain.head else ""


def _document(report: Report) -> dict[str, Any]:
    return {"good": report.good, **asdict(report)}


def _shown(text: str) -> str:
    """For a terminal: whatever a forger has put there, it moves no cursor."""
    return ascii(one_line(text, LINE_CHARS))[1:-1]
