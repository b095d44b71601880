"""`rca dlq`: requests that could not be served."""

from __future__ import annotations

from typing import Annotated

import typer

from worker.app.cli.console import Json, run

dlq = typer.Typer(no_args_is_help=True, help="Requests that could not be served: look, send again, delete.")
LetterId = Annotated[int, typer.Argument(help="Its id, as `rca dlq list` shows it.", min=1)]
LetterIds = Annotated[list[int], typer.Argument(help="Their ids, as `rca dlq list` shows them.", min=1)]


@dlq.command(name="list")
def dlq_list(*, json_output: Json = False) -> None:
    """Each with its id, time, reason, remediation id and error, oldest first."""
    from worker.app.cli.dlq import show_all

    run(show_all(as_json=json_output))


@dlq.command(name="show")
def dlq_show(letter: LetterId, *, json_output: Json = False) -> None:
    """Why it could not be served, and the request as it was sent."""
    from worker.app.cli.dlq import show

    run(show(letter, as_json=json_output))


@dlq.command(name="replay")
def dlq_replay(letters: LetterIds, *, json_output: Json = False) -> None:
    """Send requests again, when the cause is mended. What comes out replaces the failed result."""
    from worker.app.cli.dlq import replay

    run(replay(letters, as_json=json_output))


@dlq.command(name="drop")
def dlq_drop(letters: LetterIds, *, json_output: Json = False) -> None:
    """Delete dead letters. Their failed results stay."""
    from worker.app.cli.dlq import drop

    run(drop(letters, as_json=json_output))
