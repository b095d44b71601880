from __future__ import annotations

import pytest
from pydantic import SecretStr

from worker.app.cli.mcp import LOOPBACK_HOSTS, allowed_hosts, read_address
from worker.app.settings.environment import ConfigurationError
from worker.app.settings.groups import McpSettings
from worker.domain.values.errors import ReportedError


def settings(*, token="", hosts=()):
    return McpSettings(token=SecretStr(token), hosts=hosts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, expected):
    assert expected == read_address(text)


@pytest.mark.parametrize(
    "text",
    ["9000", "", ":9000", "host:", "127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1:-1", "h:" + 5_000 * "9"],
)
def test_anything_else_is_no_address(text):
    with pytest.raises(ReportedError, match="must be HOST:PORT"):
        read_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_token_and_takes_only_its_names(host):
    assert LOOPBACK_HOSTS == allowed_hosts(settings(), host, 9000)
    assert [*LOOPBACK_HOSTS, "proxy:*"] == allowed_hosts(settings(hosts=("proxy:*",)), host, 9000)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "rca.example.org", "localhost.evil"]
)
def test_an_address_that_others_can_reach_needs_a_token(host):
    with pytest.raises(ConfigurationError, match="set RCA_MCP__TOKEN"):
        allowed_hosts(settings(), host, 9000)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_address_needs_the_names_by_which_it_is_reached(host):
    with pytest.raises(ConfigurationError, match=r"set RCA_MCP__HOSTS .* rca-mcp.rca.svc:9000"):
        allowed_hosts(settings(token="t"), host, 9000)
    assert ["rca:9000"] == allowed_hosts(settings(token="t", hosts=("rca:9000",)), host, 9000)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.1", "192.0.2.1:*"),
        ("2001:db8::1", "[2001:db8::1]:*"),
        ("rca.example.org", "rca.example.org:*"),
    ],
)
def test_one_address_is_its_own_name(host, expected):
    assert [expected] == allowed_hosts(settings(token="t"), host, 9000)
