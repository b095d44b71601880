"""`rca audit`: the trail of audit events."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.app.cli.console import EXIT_ERROR, Json, asynchronous, counted, print_json, progress, session
from worker.domain.values.errors import ReportedError

if TYPE_CHECKING:
    from worker.app.auditing import Auditing
    from worker.domain.audit.findings import AuditFinding, Report

NOTHING = "no event and no result of the request {request} is stored: they have expired, or the key is wrong"
SHOWN = 20
LINE_CHARS = 200

audit = typer.Typer(no_args_is_help=True, help="Verify or export the audit trail.")
RequestKey = Annotated[
    str, typer.Option(metavar="KEY", help="Only the request with this key or remediation id.")
]


@audit.command()
@asynchronous
async def verify(
    *,
    key: Annotated[
        list[Path] | None,
        typer.Option(
            help="Public key (Ed25519, PEM or base64) that must have signed the last event of every request. After a "
            "change of keys, repeat the option for each key.",
            dir_okay=False,
        ),
    ] = None,
    request: RequestKey = "",
    file: Annotated[
        Path | None,
        typer.Option(
            help="Verify exported events instead of the stream: a file, or the directory of an archive.",
            exists=True,
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="Verify the stream together with this archive, which has the events that were purged from it.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    head: Annotated[
        str,
        typer.Option(
            help="With an archive: the head that `rca audit export` printed and that you stored elsewhere."
        ),
    ] = "",
    heads: Annotated[
        Path | None,
        typer.Option(
            help="A file that you kept elsewhere, with the last events of chains (rca.audit.response.*), one per line: the trail "
            "must contain each of them.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    kept_since: Annotated[
        datetime | None,
        typer.Option(
            help="With --file: events before this time (UTC) had expired when the file was written."
        ),
    ] = None,
    exported_at: Annotated[
        datetime | None,
        typer.Option(
            help="With --file and --key: when the file was written (UTC). The chains of requests that were being analysed at "
            "that time need no end; without this option, every chain without a signed end is a finding."
        ),
    ] = None,
    json_output: Json = False,
) -> int:
    """Find events that were changed, dropped, moved, added or cut off, and altered results.

    Also reports a stream that was emptied, receives messages of other streams, or has lower limits than
    provisioned. Exit code 1 if there are findings; each request is listed with its first bad event.
    """
    from worker.adapters.audit_archive import AuditArchive
    from worker.adapters.ed25519_keys import read_public_key
    from worker.app.auditing import check_export, read_heads

    if file and archive:
        raise typer.BadParameter("--file verifies an archive alone, --archive with the stream: give one")
    request = _key(request)
    asked: dict[str, Any] = {"only": request, "head": head, "heads": read_heads(heads) if heads else []}
    known = [read_public_key(path) for path in key or ()]
    if file is None:
        async with _auditing() as auditing:
            with progress("reading events") as show:
                stored = AuditArchive(archive) if archive else None
                report = await auditing.check(known, archive=stored, progress=show, **asked)
    else:
        with progress(f"verifying {'events' if file.is_dir() else 'bytes'}") as show:
            since, at = _utc(kept_since), _utc(exported_at)
            report = check_export(file, known, kept_since=since, exported_at=at, progress=show, **asked)
    if not report.events and (file or not report.findings):
        if request:
            raise ReportedError(NOTHING.format(request=request))
        if file:
            first = report.findings[0] if report.findings else None
            said = f" (line {first.position}: {first.detail})" if first and first.position else ""
            raise ReportedError(f"{file} holds no audit events{said}; `rca audit export` writes such files")
    if json_output:
        print_json({"good": report.good, **asdict(report)})
    else:
        _print(report)
    return 0 if report.good else EXIT_ERROR


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time else None


def _key(text: str) -> str:
    if not text:
        return ""
    from worker.app.operations import read_key

    return read_key(text)


@audit.command()
@asynchronous
async def export(
    *,
    request: RequestKey = "",
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Append new events and results to an archive in this directory, one file for each day.",
            file_okay=False,
        ),
    ] = None,
) -> int:
    """Print all events as they are stored, one per line, or keep an archive of events and results.

    `rca audit verify --file` verifies the printed events or the archive. Run the command with --to regularly,
    for example once a day: it continues where the last run ended, even if that run was interrupted.
    """
    if to and request:
        raise typer.BadParameter("an archive has all requests: leave out --request")
    return await (_archive(to) if to else _export(request=request))


async def _archive(directory: Path) -> int:
    from worker.adapters.audit_archive import AuditArchive

    archive = AuditArchive(directory)
    async with _auditing() as auditing:
        with progress("exporting messages") as show:
            done = await auditing.export(archive, show)
        for exported in done:
            said = f"{counted(exported.messages, 'message')} added"
            typer.echo(f"{exported.stream}: {said}; the archive has it up to {exported.last}")
    typer.echo(f"head {archive.head or 'none'}")
    return 0


async def _export(*, request: str) -> int:
    request, written = _key(request), 0
    async with _auditing() as auditing:
        with progress("reading events") as show:
            async for body in auditing.events(only=request, progress=show):
                sys.stdout.buffer.write(body + b"\n")
                written += 1
    sys.stdout.buffer.flush()
    if request and not written:
        raise ReportedError(NOTHING.format(request=request))
    return 0


@asynccontextmanager
async def _auditing() -> AsyncIterator[Auditing]:
    from worker.app.auditing import Auditing

    async with session("rca-audit") as opened:
        yield Auditing(opened.nc, opened.subjects, api_prefix=opened.settings.nats.api_prefix)


def _print(report: Report) -> None:
    for finding in report.findings[:SHOWN]:
        typer.echo(_line(finding))
    if (more := len(report.findings) - SHOWN) > 0:
        typer.echo(f"and {more:,} more; --json prints all")
    for chain in report.notable[:SHOWN]:
        head = f", head {chain.head}" if chain.head else ""
        typer.echo(f"{_shown(chain.request_key)}: {chain.status}, {counted(chain.events, 'event')}{head}")
    events, requests = counted(report.events, "event"), counted(report.requests, "request")
    chains = ", ".join(f"{count:,} {status}" for status, count in report.chains.items()) or "none"
    again = f" ({report.republished:,} published again)" if report.republished else ""
    typer.echo(f"{events}{again} of {requests}; chains: {chains}")
    if report.checked_results is None:
        typer.echo("results were not compared, because a file of events contains none")
    else:
        typer.echo(f"{counted(report.checked_results, 'stored result')} compared")
    signed = f"{report.signed:,} of {report.ends:,} final events"
    if report.checked_signatures:
        typer.echo(f"{signed} have a valid signature")
    else:
        typer.echo(f"signatures were not verified ({signed} have one): --key names the key")


def _line(finding: AuditFinding) -> str:
    where = f", at {finding.position}" if finding.position else ""
    if not finding.sequence and not finding.position:
        return f"{finding.problem}: {_shown(finding.detail)}"
    if not finding.sequence:
        return f"message {finding.position}: {finding.problem}: {finding.detail}"
    chain = f" (chain {_shown(finding.chain)}{where})" if finding.chain else ""
    key = _shown(finding.request_key) or "a result that names no request"
    return f"{key}: event {finding.sequence}: {finding.problem}: {finding.detail}{chain}"


def _shown(text: str) -> str:
    """Text for a terminal, which nothing that a forger wrote can control."""
    from worker.domain.untrusted.evidence import one_line

    return ascii(one_line(text, LINE_CHARS))[1:-1]
