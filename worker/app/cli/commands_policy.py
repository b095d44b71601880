"""`rca policy`: approval rules before a worker uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from worker.app.cli.console import Json, print_json, run, told

policy = typer.Typer(no_args_is_help=True, help="Try approval rules before a worker uses them.")


@policy.command(name="test")
def policy_test(
    file: Annotated[Path, typer.Argument(help="A Rego file, or a directory with several.")],
    document: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT", help="What is asked, as JSON; - reads standard input.", allow_dash=True
        ),
    ],
    *,
    data: Annotated[
        list[Path] | None, typer.Option(help="A JSON or YAML file for the policy's `data`; may be repeated.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Decide one input as a worker would: the same process, the same limits. Exit code 1 when there is no decision.

    `rca policy input` prints an input to begin with.
    """
    from worker.app.cli.policy import read_input, test

    with told():  # outside of the event loop: Ctrl-C ends the reading of a terminal
        given = read_input(document)
    run(test(file, given, data=data or [], as_json=json_output))


@policy.command(name="input")
def policy_input() -> None:
    """Print an example of what a policy is asked, as JSON."""
    from worker.domain.verdict.approval.policy_example import example_input

    print_json(example_input())
