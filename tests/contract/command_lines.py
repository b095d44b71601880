"""Reads a command line as `rca` would, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from worker.app.cli.main import app


def find_command(words: Sequence[str]) -> tuple[Any, list[str]]:
    """The command and the words after its name. Raises KeyError for one that is not there."""
    command, rest = typer.main.get_command(app), list(words)
    while hasattr(command, "commands") and rest:
        command = command.commands[rest.pop(0)]
    return command, rest


def parse(words: Sequence[str]) -> None:
    """Raises KeyError for a command that is not there, and click's usage errors."""
    command, rest = find_command(words)
    command.make_context("rca", rest).close()
