"""Messages of errors of the operating system."""

import errno
import socket

import pytest

from worker.domain.values.errors import network_reason, system_message

LOCALHOST = (
    "Multiple exceptions: [Errno 111] Connect call failed ('::1', 4222, 0, 0), "
    "[Errno 111] Connect call failed ('127.0.0.1', 4222)"
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 4222)"), "Connection refused"),
        (OSError(LOCALHOST), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ValueError("no such scheme"), "no such scheme"),
        (TimeoutError(), "no answer in time"),
    ],
)
def test_an_error_of_the_system_is_shown_without_its_number(error, expected):
    assert expected == system_message(error)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed"), "Connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (OSError("All connection attempts failed"), ""),
    ],
)
def test_the_reason_of_a_failed_connection_is_that_of_the_system(cause, reason):
    group, error = ExceptionGroup("several addresses", [cause]), RuntimeError("it failed")
    error.__cause__ = group
    assert reason == network_reason(error)
