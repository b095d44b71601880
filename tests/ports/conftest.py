from __future__ import annotations

import pytest
import pytest_asyncio

from tests.nats_servers import one_server, provisioned, three_servers


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_server(tmp_path_factory):
    """One server for tests that keep to their own keys."""
    async with one_server(tmp_path_factory.mktemp("one")) as server:
        yield [server]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_cluster(tmp_path_factory):
    """Three servers for tests that keep to their own keys, and leave all three running."""
    async with three_servers(tmp_path_factory.mktemp("three")) as servers:
        yield servers


@pytest.fixture(params=["one server", pytest.param("three servers", marks=pytest.mark.slow)])
def servers(request):
    """Not an async fixture: those can't ask for another one while their loop runs."""
    return request.getfixturevalue("shared_server" if request.param == "one server" else "shared_cluster")


@pytest.fixture
async def case(servers):
    """A provisioned broker, with as many replicas as there are servers."""
    async with provisioned(servers) as found:
        yield found


@pytest.fixture
async def own_server(tmp_path):
    """A provisioned server that the test may break."""
    async with one_server(tmp_path) as server, provisioned([server]) as found:
        yield found
