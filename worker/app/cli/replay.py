"""`rca record` and `rca replay`: fetch the recording of an analysis, and run it again without a cluster."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worker.app.cli.console import (
    EXIT_ERROR,
    NO_STREAM,
    Json,
    asynchronous,
    counted,
    one_line,
    print_json,
    session,
    waiting_for,
)
from worker.app.cli.requests import Key
from worker.domain.values.errors import ReportedError, Unavailable

if TYPE_CHECKING:
    from worker.app.replaying import Alternative
    from worker.domain.recording.bundle import Bundle
    from worker.domain.recording.compare import ChangedFact
    from worker.domain.recording.replay import Replayed

OFF = "recording is off: set RCA_RECORD__HOURS, run `rca provision` and restart the workers"
SHOWN = 20
VALUE_CHARS = 200

Model = Annotated[
    str,
    typer.Option(
        help="Call this model, such as openai-chat:gpt-5, with the RCA_LLM__ settings.", metavar="NAME"
    ),
]
CatalogDirectory = Annotated[
    Path | None,
    typer.Option(help="Use the workflows in this directory instead.", exists=True, file_okay=False),
]
PolicyFiles = Annotated[
    Path | None, typer.Option(help="Use this Rego file, or directory of Rego files, instead.", exists=True)
]


# -- record


@asynchronous
async def record(
    key: Key,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; KEY.rca by default.", dir_okay=False),
    ] = None,
    json_output: Json = False,
) -> int:
    """Write the recording of a finished request to a file.

    A recording holds every read of the analysis with its answer, the replies of the model, and the result.

    Workers record when RCA_RECORD__HOURS is set. The file is redacted, but it still describes your cluster.
    Exit code 1 if there is no recording.
    """
    from worker.adapters.nats.stored import NatsRecordings
    from worker.app.operations import Operations, read_key
    from worker.app.replaying import SUFFIX
    from worker.domain.recording.bundle import decode

    key = read_key(key)
    async with session("rca-record") as opened:
        try:
            data = await NatsRecordings(opened.nc, opened.subjects).find(key)
        except Unavailable as e:
            raise (ReportedError(OFF) if NO_STREAM in str(e) else e) from e
        if data is None:
            async with waiting_for("the state of the request"):
                state = await Operations(opened.nc, opened.subjects).state(key)
            raise ReportedError(_why_missing(key, state))
    bundle, path = decode(data, f"the recording of {key}"), output or Path(f"{key}{SUFFIX}")
    path.write_bytes(data)
    if json_output:
        print_json({**_described(bundle), "file": str(path), "bytes": len(data)})
    else:
        typer.echo(f"{path}: {counted(len(data), 'byte')}, {_line(bundle)}")
    return 0


def _why_missing(key: str, state: str) -> str:
    from worker.app.operations import State

    return {
        State.QUEUED: f"{key} is in the queue: its analysis will be recorded",
        State.STARTED: f"{key} is still being analysed: its recording is written when the analysis ends",
        State.FINISHED: f"{key} has a result but no recording: RCA_RECORD__HOURS was not set, the analysis ended without an "
        "answer, or the recording has expired or was replaced by newer ones",
    }.get(State(state), f"request {key} is unknown: check the key that `rca submit` prints")


def _described(bundle: Bundle) -> dict[str, Any]:
    return {
        "key": bundle.key,
        "versions": bundle.versions.model_dump(),
        "questions": len(bundle.exchanges),
        "left_out": bundle.left_out,
        "resumed": bool(bundle.steps),
    }


def _line(bundle: Bundle) -> str:
    left_out = f", {bundle.left_out} answers too large to keep" if bundle.left_out else ""
    resumed = "; a resumed run: what earlier runs read is not in it" if bundle.steps else ""
    return f"{counted(len(bundle.exchanges), 'question')} recorded by version {bundle.versions.program}{left_out}{resumed}"


# -- replay


@asynchronous
async def replay(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A recording (`rca record`).", exists=True, dir_okay=False)
    ],
    *,
    model: Model = "",
    catalog: CatalogDirectory = None,
    policy: PolicyFiles = None,
    json_output: Json = False,
) -> int:
    """Run a recorded analysis again, offline, and show how the new result differs from the recorded one.

    Without options, everything comes from the file, and the new result is the same, byte for byte; exit code 1
    if it is not. An option replaces one part, and the approval policy then decides again (the policy of
    --policy, or else of the RCA_POLICY__ settings). A read that was not recorded gets the answer "not recorded"
    and is listed.

    The prompt is part of the program: to try another prompt, run the version that contains it, with --model.
    """
    from worker.app import logs
    from worker.app.replaying import Alternative, open_changes, read_bundle
    from worker.domain.recording.compare import changed_fields, differences
    from worker.domain.recording.replay import recorded_result
    from worker.domain.recording.replay import replay as run_again

    logs.configure("error", json_lines=False)
    wanted, bundle = Alternative(model, catalog, policy), read_bundle(file)
    recorded = recorded_result(bundle)
    async with open_changes(wanted) as changes, waiting_for(f"the replay of {file}"):
        replayed = await run_again(bundle, changes)
    told = replayed.result.model_dump_json()
    same, found = told == bundle.result, differences(recorded, replayed.result)
    fields = list(changed_fields(json.loads(bundle.result), json.loads(told)))
    if json_output:
        print_json(
            {
                **_described(bundle),
                "changed": wanted.names,
                "same": same,
                "differences": [asdict(each) for each in found],
                "changed_fields": fields,
                "not_recorded": replayed.gaps,
                "replies_out_of_place": replayed.diverged,
                "result": replayed.result.model_dump(mode="json"),
            }
        )
    else:
        _print(bundle, wanted, replayed, found, fields)
    return 0 if same or wanted.names else EXIT_ERROR


def _print(
    bundle: Bundle, wanted: Alternative, replayed: Replayed, found: tuple[ChangedFact, ...], fields: list[str]
) -> None:
    changed = ", ".join(f"{name} {value}" for name, value in wanted.names.items())
    about = f"{bundle.key}: {_line(bundle)}; {f'with {changed}' if changed else 'unchanged'}"
    typer.echo(one_line(about, 2 * VALUE_CHARS))
    for each in found:
        for name, value in (("recorded", each.recorded), ("replayed", each.replayed)):
            shown = value if isinstance(value, str) else json.dumps(value)
            label = f"{each.fact:18} {name}" if name == "recorded" else f"{'':18} {name}"
            typer.echo(f"  {label}  {one_line(shown, VALUE_CHARS) or '(none)'}")
    if not fields:
        typer.echo("the same result, byte for byte")
    elif not found:
        more = ", ..." if len(fields) > SHOWN else ""
        typer.echo(one_line(f"the result differs in {', '.join(fields[:SHOWN])}{more}", 10 * VALUE_CHARS))
    if replayed.diverged:
        typer.echo(
            f"recorded replies to a conversation that now differs: {replayed.diverged}; the model might have replied otherwise "
            "(add --model to ask one)"
        )
    for gap in replayed.gaps[:SHOWN]:
        typer.echo(f"not recorded: {one_line(gap, VALUE_CHARS)}")
    if (left := len(replayed.gaps) - SHOWN) > 0:
        typer.echo(f"not recorded: {left} more; --json shows them")
