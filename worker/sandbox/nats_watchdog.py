"""Ends a nats-server with its owner: a small process of its own, standard library only, run by path.

    python -I -S nats_watchdog.py OWNER_PID DIRECTORY COMMAND...

It starts COMMAND and reads orders from stdin: a line is the name of a signal for the server (`SIGTERM`), end
of file means that the owner is gone, even by SIGKILL. Then the server is stopped, and DIRECTORY is deleted
unless it is the empty string. The parent's pid is watched, too, because a fork of the owner may keep the pipe
open. It ends when the server has ended, with the server's exit code (0 when a signal ended it).
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from types import FrameType

LOOK_SECONDS = 0.5
STOP_SECONDS = 5.0
OUTLIVED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """A handler that does nothing. The server would inherit SIG_IGN."""


def _wakeup_pipe() -> int:
    """A pipe that becomes readable when a signal arrives, so that the end of the server is noticed at once."""
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in OUTLIVED:
        signal.signal(number, _noted)
    return reader


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _watch(server: subprocess.Popen[bytes], owner: int, wakeup: int) -> bool:
    """Wait until the server has ended. True if that was because its owner is gone."""
    stdin = sys.stdin.fileno()
    while server.poll() is None:
        readable, _, _ = select.select([stdin, wakeup], [], [], LOOK_SECONDS)
        if wakeup in readable:
            os.read(wakeup, 4096)
        orders = os.read(stdin, 4096) if stdin in readable else b""
        if (stdin in readable and not orders) or os.getppid() != owner:
            _stop(server)
            return True
        for name in orders.decode("ascii").split():
            server.send_signal(signal.Signals[name])
    return False


def main(arguments: list[str]) -> int:
    """Run what the module's docstring describes; returns the exit code."""
    owner, directory, *command = arguments
    wakeup = _wakeup_pipe()
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - the owner's own command line
    orphaned = _watch(server, int(owner), wakeup)
    if orphaned and directory:
        shutil.rmtree(directory, ignore_errors=True)
    return max(0, server.returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
