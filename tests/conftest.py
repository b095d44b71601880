from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# machines differ: no test is judged by its time
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def postgres():
    """One server for tests that keep to databases of their own."""
    from tests.postgres_server import postgres_server

    with postgres_server() as server:
        yield server
