"""`rca policy`: approval rules before a worker uses them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from worker.app.cli.console import Json, print_json, reported, run
from worker.domain.values.errors import ReportedError

if TYPE_CHECKING:
    from worker.adapters.rego_policy import Bounds, Evaluated, PolicyFiles

MAX_INPUT_BYTES = 1024 * 1024
NOT_LOADED = (
    "A worker does not start with this policy; while it runs, it requires approval for everything. Policies are "
    "Rego v1: `import rego.v1`, `if` before a body, `contains` for a set."
)
NOT_DECIDED = "A worker requires approval for such an input, and gives this error as the reason."

policy = typer.Typer(no_args_is_help=True, help="Test approval rules before a worker uses them.")


@policy.command(name="test")
def decide(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Rego file, or a directory of Rego files.")],
    document: Annotated[
        Path,
        typer.Argument(metavar="INPUT", help="The input as JSON; - reads standard input.", allow_dash=True),
    ],
    *,
    data: Annotated[
        list[Path] | None, typer.Option(help="A JSON or YAML file for the policy's `data`; may be repeated.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Decide one input exactly as a worker would: in the same kind of process, with the same limits.

    Exit code 1 if there is no decision. `rca policy input` prints an input to start from.
    """
    with reported():  # outside of the event loop: Ctrl-C ends the reading of a terminal
        given = _read_input(document)
    run(_print_decision(file, given, data or [], as_json=json_output))


@policy.command(name="input")
def print_input() -> None:
    """Print an example of the input of a policy, as JSON."""
    from worker.domain.verdict.approval.policy import example_input

    print_json(example_input())


async def _print_decision(file: Path, given: dict[str, Any], data: Sequence[Path], *, as_json: bool) -> int:
    from worker.adapters.rego_policy import Bounds
    from worker.app.settings.environment import load
    from worker.domain.verdict.approval.policy import missing_fields, unknown_fields

    bounds = Bounds(cpu_seconds=load().policy.timeout_seconds)
    unknown, missing = unknown_fields(given), missing_fields(given)
    _warn(unknown, missing)
    files, evaluated = await _decide(file, data, given, bounds)
    if files.left_out:
        typer.echo(f"warning: {files.left_out}", err=True)
    if as_json:
        fields = {"unknown_fields": unknown, "missing_fields": missing}
        print_json(_document(files, evaluated) | fields)
    else:
        typer.echo("\n".join(_lines(files, evaluated, bounds)))
    return 0


def _warn(unknown: Sequence[str], missing: Sequence[str]) -> None:
    for field in unknown:
        typer.echo(f"warning: input.{field}: the input of a worker never has this field", err=True)
    if missing:
        typer.echo(f"warning: the input of a worker always has {', '.join(missing)} as well", err=True)


def _read_input(path: Path) -> dict[str, Any]:
    """The JSON object in a file or on standard input. Raises OSError, ReportedError."""
    if str(path) == "-":
        body = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    else:
        with path.open("rb") as stream:
            body = stream.read(MAX_INPUT_BYTES + 1)
    try:
        return _object(body)
    except (ValueError, RecursionError) as e:
        raise ReportedError(f"input {path}: {e}") from e


def _object(body: bytes) -> dict[str, Any]:
    if len(body) > MAX_INPUT_BYTES:
        raise ValueError(f"longer than {MAX_INPUT_BYTES} bytes")
    found = json.loads(body, parse_constant=_no_number)
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 - what is wrong is the text
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


async def _decide(
    file: Path, data: Sequence[Path], given: dict[str, Any], bounds: Bounds
) -> tuple[PolicyFiles, Evaluated]:
    """The files and the decision. Raises PolicyUnusable, whose message ends with what a worker would do."""
    from worker.adapters.rego_policy import Evaluator, PolicyUnusable, read_files

    try:
        files = read_files(file, data)
        evaluator = Evaluator(files.sources(), bounds)
        await evaluator.start()
    except PolicyUnusable as e:
        raise PolicyUnusable(f"{e}\n{NOT_LOADED}") from e
    try:
        return files, await evaluator.evaluate(given)
    except PolicyUnusable as e:
        raise PolicyUnusable(f"{e}\n{NOT_DECIDED}") from e
    finally:
        await evaluator.close()


def _lines(files: PolicyFiles, evaluated: Evaluated, bounds: Bounds) -> Iterator[str]:
    approval = evaluated.approval
    yield f"policy: {files.title}"
    yield f"approval required: {'yes' if approval.required else 'no'}"
    yield from (f"  reason: {reason}" for reason in approval.reasons)
    if approval.risk_factors:
        yield "risk factors, from 0 to 100:"
    yield from (f"  {factor.score:>3}  {factor.reason}" for factor in approval.risk_factors)
    yield f"time: {evaluated.seconds * 1000:.1f} ms of {bounds.cpu_seconds * 1000:g} ms"


def _document(files: PolicyFiles, evaluated: Evaluated) -> dict[str, Any]:
    return {
        "policy": files.title,
        "unused_files": files.unused,
        "approval": evaluated.approval.model_dump(mode="json"),
        "milliseconds": round(evaluated.seconds * 1000, 3),
    }
