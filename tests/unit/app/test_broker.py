"""Which servers a worker takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from worker.app.broker import MIN_MAX_PAYLOAD, unsuitable


@pytest.mark.parametrize(
    ("version", "payload", "said"),
    [
        ((2, 11), MIN_MAX_PAYLOAD, ""),
        ((3, 0), MIN_MAX_PAYLOAD, ""),
        ((2, 10), MIN_MAX_PAYLOAD, "2.11"),
        ((2, 15), 1_048_576, "max_payload"),
    ],
)
def test_a_server_that_is_too_old_or_limits_messages_is_refused(version, payload, said):
    major, minor = version
    server = SimpleNamespace(
        connected_server_version=SimpleNamespace(major=major, minor=minor), max_payload=payload
    )
    why = unsuitable(server)
    assert (bool(said), True) == (bool(why), said in why)
