"""Hosts in messages and settings, and the Services that they mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.manifests import obj, pod
from tests.fakes.memory_cluster import MemoryCluster
from tests.unit.domain.diagnosis.small_clusters import service
from worker.domain.cluster.fields import reference
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.hosts import Host, configured_hosts, hosts_in, place_of, services_named
from worker.domain.values.objects import Manifest


@given(st.text(max_size=300))
def test_any_text_is_searched_without_an_error(text: str) -> None:
    hosts_in(text)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("dial tcp 10.96.7.7:6379: connect: connection refused", Host("10.96.7.7", 6379)),
        ("connect postgres://app:secret@orders-db:5432/x?sslmode=disable: refused", Host("orders-db", 5432)),
        ('connection to server at "postgres" (10.96.44.12), port 5432 failed', Host("postgres", 5432)),
        ('Get "http://api:8080/list": context deadline exceeded', Host("api", 8080)),
        (
            "lookup cache.shop.svc.cluster.local on 10.96.0.10:53: no such host",
            Host("cache.shop.svc.cluster.local"),
        ),
        ("getaddrinfo ENOTFOUND mysql", Host("mysql")),
        ("(tried: main-db:3333)", Host("main-db", 3333)),
        ("wget: bad address 'redis'", Host("redis")),
    ],
)
def test_hosts_are_found_in_messages(text: str, host: Host) -> None:
    assert host in hosts_in(text)


@pytest.mark.parametrize(
    "text", ["main.go:42: failed", "at 15:04:05", "version 1.2.3", "http://localhost:80/x"]
)
def test_what_is_no_host(text: str) -> None:
    assert [] == hosts_in(text)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("db", ("db", "home")), ("db.data", ("db", "data")), ("db.data.svc", ("db", "data")),
        ("db-0.db.data.svc.cluster.local", ("db", "data")), ("www.example.com", None),
    ],
)  # fmt: skip
def test_cluster_names(name: str, place: tuple[str, str] | None) -> None:
    assert place == place_of(Host(name), "home")


def client(**env: str) -> Manifest:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return pod(
        "web-1",
        spec={"containers": [{"name": "app", "env": variables, "args": ["--cache", "http://cache:80"]}]},
    )


def test_settings_name_hosts_with_their_ports() -> None:
    found = configured_hosts(client(DB_HOST="db", DB_PORT="5432", MODE="x1.2"))
    assert Host("db", 5432) in found
    assert Host("cache", 80) in found


@pytest.mark.parametrize("port", ["²", "9" * 5000, "http", "-1", ""])
def test_a_port_that_is_no_number_is_left_out(port: str) -> None:
    assert Host("db", 0) in configured_hosts(client(DB_HOST="db", DB_PORT=port))


@pytest.mark.parametrize("part", ["a", "a-", "a.", "a:", "host ", "at ", "http://", "'a"])
def test_a_megabyte_of_settings_is_searched_in_one_go(part: str) -> None:
    """It ends: a pattern that goes back and forth, or one without a limit, would take hours."""
    configured_hosts(client(URL=part * 1_000_000))
    hosts_in(part * 1_000_000)


async def named(message: str, *manifests: Manifest) -> list[str]:
    web = client(DB_HOST="db")
    facts = ClusterFacts()
    found = await Investigator(MemoryCluster([web, *manifests])).conclude(
        facts, lambda f: services_named(f, message, web)
    )
    return [str(ref) for _, ref in found]


async def test_services_are_found_by_their_address() -> None:
    db = service("db", clusterIP="10.0.0.7")
    assert await named("dial tcp 10.0.0.7:80: refused", db) == ["Service shop/db"]
    assert await named("dial tcp 10.9.9.9:80: refused") == []


async def test_another_namespace_must_exist() -> None:
    far = service("pay")
    far["metadata"]["namespace"] = "billing"
    home = obj("Namespace", "billing", "")
    assert await named('Get "http://pay.billing:80/": refused', far, home) == [str(reference(far))]
    assert await named('Get "http://pay.billing:80/": refused', far) == []
    assert await named("lookup www.example.com: no such host") == []
