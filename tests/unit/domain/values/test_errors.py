"""Messages of errors of the operating system."""

import socket

import pytest

from worker.domain.values.errors import system_message

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
        (TimeoutError(), "TimeoutError()"),
    ],
)
def test_an_error_of_the_system_is_shown_without_its_number(error, expected):
    assert expected == system_message(error)
