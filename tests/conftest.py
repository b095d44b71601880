from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def postgres():
    """One server for tests that keep to databases of their own."""
    from tests.postgres_server import postgres_server

    with postgres_server() as server:
        yield server
