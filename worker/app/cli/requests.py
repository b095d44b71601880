"""`rca submit`, `rca show`, `rca cancel` and `rca report`, about one request, and `rca results`."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from worker.app.cli.console import (
    EXIT_ERROR,
    Json,
    asynchronous,
    one_line,
    print_json,
    progress,
    reported,
    run,
    session,
    waiting_for,
)
from worker.app.cli.dlq import open_operations
from worker.domain.values.errors import ReportedError

if TYPE_CHECKING:
    from schemas.failure import FieldError
    from schemas.taxonomy import RequestKind
    from worker.app.client import Outcome, Submitted

ERROR_CHARS = 400
KEY_CHARS, ROW_CHARS = 300, 56
LISTED = {"remediation_id", "status", "human_review_reason", "environment", "completed_at"}
"""Fields of the results in a list for scripts."""
Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="The request key that `rca submit` prints, or the remediation id."),
]
EXIT_RESULT, EXIT_DEAD_LETTER, EXIT_TIMEOUT, EXIT_REJECTED = 0, 3, 4, 5


# -- submit


def submit(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A request as JSON; - reads standard input.", allow_dash=True),
    ],
    *,
    recovery: Annotated[bool, typer.Option("--recovery", help="The request is a recovery request.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the result and print it.")] = False,
    timeout: Annotated[float, typer.Option(help="With --wait: how many seconds to wait.", min=1)] = 300.0,
    new_id: Annotated[
        bool, typer.Option("--new-id", help="Replace incident_id and remediation_id with new ones.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only validate the request, without a connection.")
    ] = False,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Publish the request even if a worker will reject it.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Validate a request and publish it, as a gateway would.

    Exit code 5 if the request is invalid; it is then not published. With --wait also: 0 result, 3 dead letter,
    4 timeout, 5 rejected by the worker.
    """
    with reported():  # outside of the event loop: Ctrl-C ends the reading of a terminal
        body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        if new_id:
            body = with_new_ids(body)
        if not unchecked or dry_run:
            _validate(body, kind_of(recovery=recovery), say_valid=dry_run, as_json=json_output)
    if not dry_run:
        run(_submit(body, kind_of(recovery=recovery), timeout if wait else None, as_json=json_output))


def with_new_ids(body: bytes) -> bytes:
    """The same request under new ids. Raises ReportedError if it is not a JSON object."""
    try:
        data = json.loads(body)
        data.update(incident_id=f"inc-{uuid.uuid4()}", remediation_id=f"rr-{uuid.uuid4()}")
    except (ValueError, AttributeError, RecursionError) as e:
        raise ReportedError(f"--new-id needs a JSON object: {e}") from e
    return json.dumps(data).encode()


def kind_of(*, recovery: bool) -> RequestKind:
    """The kind of request that the option `--recovery` selects."""
    from schemas.taxonomy import RequestKind

    return RequestKind.RECOVERY if recovery else RequestKind.INCIDENT


def _validate(body: bytes, kind: RequestKind, *, say_valid: bool, as_json: bool) -> None:
    """Exits with EXIT_REJECTED and every error if a worker would reject the request."""
    from schemas.subjects import request_key
    from worker.domain.intake.accepted import attempt_number
    from worker.domain.intake.decode import InvalidRequest, decode
    from worker.domain.untrusted.redaction.redact import redact

    found = decode(body, kind, datetime.now(UTC))
    if isinstance(found, InvalidRequest):
        errors = [error.model_copy(update={"got": redact(error.got)}) for error in found.errors]
        if as_json:
            facts = {"code": found.code, "request_key": found.request_key, "published": False}
            print_json({**facts, "errors": [error.model_dump(mode="json") for error in errors]})
        else:
            _print_errors(f"invalid ({found.code}), not published:", errors)
        raise typer.Exit(EXIT_REJECTED)
    if say_valid:
        request, ignored = found.request, found.ignored_fields
        key = request_key(request.remediation_id, attempt_number(request))
        if as_json:
            print_json({"request_key": key, "ignored_fields": ignored, "published": False})
            return
        typer.echo(f"{key} is a valid {kind} request", err=True)
        for path in ignored:
            typer.echo(f"warning: {_line(path)}: unknown field, workers ignore it", err=True)


async def _submit(body: bytes, kind: RequestKind, wait_seconds: float | None, *, as_json: bool) -> int:
    from worker.app.client import RequestClient

    submitted = None
    try:
        async with session("rca-submit") as opened:
            client = RequestClient(opened.nc, opened.subjects)
            if wait_seconds is None:
                _print_submitted(await client.submit(body, kind), as_json=as_json)
                return EXIT_RESULT
            async with client.waiting(kind, body) as waiter:
                submitted = await client.submit(body, kind)
                _print_submitted(submitted, as_json=False)
                async with waiting_for(f"its result, for up to {wait_seconds:g} s"):
                    outcome = await client.outcome(waiter, submitted, wait_seconds)
    except asyncio.CancelledError:  # Ctrl-C
        if submitted is not None:
            typer.echo(f"interrupted; {_what_remains(submitted)}", err=True)
        raise
    if outcome is None:
        typer.echo(
            f"error: no result within {wait_seconds:g} s (is a worker running, and ready?); {_what_remains(submitted)}",
            err=True,
        )
    elif as_json:
        print_json(outcome.model_dump(mode="json"))
    else:
        print_outcome(outcome)
    return exit_code(outcome)


def _what_remains(submitted: Submitted) -> str:
    if submitted.key is None:
        return "a worker will reject the request: submit it again to see why"
    key = submitted.key
    return f"the request stays in the queue: `rca watch {key}` follows it, `rca show {key}` prints its result, `rca cancel {key}` ends it"


def _print_submitted(submitted: Submitted, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(submitted))
        return
    key = submitted.key or "(without a readable id: a worker will reject it)"
    again = " (already stored by an earlier submission)" if submitted.duplicate else ""
    where = f"{submitted.subject}: {submitted.stream} sequence {submitted.sequence}"
    typer.echo(f"submitted {key} to {where}{again}", err=True)


def exit_code(outcome: Outcome | None) -> int:
    """The exit code: 0 result, 3 dead letter, 4 no outcome in time, 5 rejected."""
    from schemas.failure import ValidationFailure
    from worker.app.client import DeadLettered

    match outcome:
        case None:
            return EXIT_TIMEOUT
        case DeadLettered():
            return EXIT_DEAD_LETTER
        case ValidationFailure():
            return EXIT_REJECTED
        case _:
            return EXIT_RESULT


def print_outcome(outcome: Outcome) -> None:
    """Print the outcome for people: a result on standard output, anything else on standard error."""
    from schemas.failure import ValidationFailure
    from worker.app.cli.report import print_result
    from worker.app.client import DeadLettered

    match outcome:
        case DeadLettered():
            typer.echo(
                f"dead letter ({outcome.reason}), see `rca dlq list`: {_line(outcome.error)}", err=True
            )
        case ValidationFailure():
            _print_errors(f"rejected ({outcome.code}):", outcome.errors)
        case _:
            print_result(outcome)


def _print_errors(heading: str, errors: Iterable[FieldError]) -> None:
    typer.echo(heading, err=True)
    for error in errors:
        typer.echo(f"  {_line(str(error))}", err=True)


def _line(text: str) -> str:
    return one_line(text, ERROR_CHARS)


# -- show


@asynchronous
async def show(key: Key, *, json_output: Json = False) -> int:
    """Print the result of a request that has ended: verdict, cause, evidence, remediation.

    Exit code 1 if there is no result, or not yet; --json then prints the state of the request.
    """
    from worker.app.cli.report import print_result
    from worker.app.operations import State, read_key

    key = read_key(key)
    async with open_operations() as operations:
        result = await operations.result(key)
        if result is None:
            async with waiting_for("the state of the request"):
                state = await operations.state(key)
                why = await operations.waits_for(key) if state is State.STARTED else ""
            result = await operations.result(key) if state is State.FINISHED else None
    if result is None:
        waits = f"waits ({why}); /readyz of the workers says more" if why else "is being analysed"
        said = {
            State.QUEUED: f"{_what(key)} is in the queue; it has no result yet",
            State.STARTED: f"{_what(key)} has no result yet: it {waits}",
        }.get(
            state,
            f"request {key} is unknown: check the key that `rca submit` prints; results are kept for 30 days",
        )
        if json_output:
            print_json({"key": key, "state": state, "waits_for": why or None})
        typer.echo(f"error: {said}", err=True)
        return EXIT_ERROR
    if json_output:
        print_json(result.model_dump(mode="json"))
    else:
        print_result(result)
    return 0


# -- results


@asynchronous
async def results(
    *,
    count: Annotated[int, typer.Option(help="How many results to list.", min=1, max=1000)] = 20,
    json_output: Json = False,
) -> int:
    """List the newest results, the newest first, with time, request key and verdict."""
    from worker.app.verdict_line import decision_line, reported

    async with open_operations() as operations, waiting_for("the newest results"):
        found = await operations.newest_results(count)
    listed = [each.model_dump(mode="json", include=LISTED) for each in found]
    for each, facts in zip(found, listed, strict=True):
        facts |= {"request_key": each.request_key, "verdict": decision_line(each)}
        if not json_output:
            about = f"{each.signal.signal_type} on {reported(each)}" if each.signal else ""
            typer.echo(f"{each.completed_at:%Y-%m-%dT%H:%M:%SZ}  {one_line(about, ROW_CHARS)}".rstrip())
            typer.echo(f"    {one_line(facts['verdict'], 76)}\n    {one_line(each.request_key, KEY_CHARS)}")
    if json_output:
        print_json(listed)
    elif not found:
        typer.echo("no results", err=True)
    return 0


# -- cancel


@asynchronous
async def cancel(
    key: Key,
    *,
    ahead: Annotated[
        bool, typer.Option("--ahead", help="Also cancel a request that arrives later; exit with 0.")
    ] = False,
    json_output: Json = False,
) -> int:
    """Cancel a request that is queued or running; a running one stops before its next step.

    The result escalates the request to a human. Exit code 1 if the request has already ended or is unknown.
    """
    from worker.app.operations import State, read_key

    key = read_key(key)
    async with open_operations() as operations:
        stored = await operations.cancel(key, at=datetime.now(UTC), token=uuid.uuid4().hex)
        async with waiting_for("the state of the request; it is already cancelled"):
            state = State.FINISHED if stored else await operations.state(key)
    failed = stored is not None or (state is State.UNKNOWN and not ahead)
    if json_output:
        status = stored.status if stored else None
        print_json({"key": key, "state": state, "cancelled": stored is None, "status": status})
    elif stored is not None:
        why = f" ({stored.human_review_reason})" if stored.human_review_reason else ""
        when = f"{stored.completed_at:%Y-%m-%dT%H:%M:%SZ}"
        typer.echo(f"error: {key} has already ended: {stored.status}{why}, {when}", err=True)
    else:
        said = {
            State.QUEUED: "cancelled {what}: it is in the queue, and will be escalated to a human",
            State.STARTED: "cancelled {what}: it stops before its next step, and is escalated to a human",
            State.FINISHED: "{what} has just ended: its result says whether it was cancelled",
            State.UNKNOWN: "request {key} is unknown: check the key that `rca submit` prints. If it arrives within 24 "
            "hours, it will be cancelled (with --ahead, this is not an error)",
        }[state].format(key=key, what=_what(key))
        typer.echo(f"error: {said}" if failed else said, err=failed)
    return EXIT_ERROR if failed else 0


def _what(key: str) -> str:
    stem, _, attempt = key.partition(".")
    return f"attempt {attempt} of the recovery {stem}" if attempt else f"the incident {stem}"


# -- report


@asynchronous
async def report(
    key: Key,
    *,
    form: Annotated[
        Literal["md", "html"] | None,
        typer.Option(
            "--format",
            help="Markdown or one self-contained HTML file; by default, the extension of FILE decides.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file.", metavar="FILE")
    ] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline/--no-timeline", help="Include a timeline from the audit trail.")
    ] = True,
) -> int:
    """Write the result of a request as one file: verdict, cause, evidence, remediation, steps, cost.

    All text is escaped; secrets were removed before the result was stored. Exit code 1 if there is no result.
    """
    from worker.app.auditing import Auditing
    from worker.app.operations import Operations, read_key
    from worker.app.pages import as_html, as_markdown, incident_page

    if output and not output.parent.is_dir():
        raise typer.BadParameter(f"{output.parent} is not a directory", param_hint="--output")
    key = read_key(key)
    async with session("rca-report") as opened:
        result = await Operations(opened.nc, opened.subjects).result(key)
        if result is None:
            raise ReportedError(f"{key} has no result (yet): `rca show {key}` prints its state")
        with progress("reading audit events") as show:
            auditing = Auditing(opened.nc, opened.subjects)
            events = await auditing.events_of(key, show) if timeline else []
    page = incident_page(key, result, events)
    by_name = "html" if output and output.suffix.lower() in {".html", ".htm"} else "md"
    written = as_html(page) if (form or by_name) == "html" else as_markdown(page)
    if output:
        await asyncio.to_thread(output.write_text, written, encoding="utf-8")
        typer.echo(f"written to {output}", err=True)
    else:
        typer.echo(written, nl=False)
    return 0
