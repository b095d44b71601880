"""The Metrics port on a Prometheus on loopback."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from tests.fakes import prometheus
from tests.fakes.prometheus import LABELS, failure, success
from worker.adapters.prometheus_metrics import PrometheusMetrics
from worker.domain.values.errors import MetricsError
from worker.domain.values.ports import Series

NOW = datetime(2026, 6, 4, 15, 33, 5, tzinfo=UTC)


@pytest.fixture
async def server():
    async with prometheus.serve() as found:
        yield found


@pytest.fixture
async def metrics(server):
    async with PrometheusMetrics(f"{server.url}/prefix/", token="t0ken", call_seconds=30.0) as found:
        yield found


async def refused(metrics):
    with pytest.raises(MetricsError) as raised:
        await metrics.instant("up", NOW)
    return str(raised.value), raised.value.passing


async def test_a_moment_is_asked_for(metrics, server):
    assert [Series(LABELS, ((NOW.timestamp(), 0.25),))] == await metrics.instant('up{a="b&c"}', NOW)
    path, query = server.requests[0]
    assert "/prefix/api/v1/query" == path
    assert ('up{a="b&c"}', NOW.timestamp()) == (query["query"], float(query["time"]))
    assert "Bearer t0ken" == server.headers[0]["Authorization"]


async def test_a_range_is_asked_for(metrics, server):
    [found] = await metrics.over_time("up", NOW - timedelta(hours=1), NOW, 62)
    assert (59, 58.0) == (len(found.points), found.points[-1][1])
    assert "/prefix/api/v1/query_range" == server.requests[0][0]
    assert "62" == server.requests[0][1]["step"]


async def test_a_scalar_is_a_series_without_labels(metrics, server):
    server.answers = [success("scalar", [NOW.timestamp(), "7"])]
    assert [Series({}, ((NOW.timestamp(), 7.0),))] == await metrics.instant("7", NOW)


async def test_special_values_are_numbers(metrics, server):
    server.answers = [success("vector", [{"metric": {}, "value": [1, v]} for v in ("NaN", "+Inf", "-Inf")])]
    assert ["nan", "inf", "-inf"] == [str(s.points[0][1]) for s in await metrics.instant("x", NOW)]


async def test_what_prometheus_says_about_a_query_is_passed_on(metrics, server):
    server.answers = [failure(400, "bad_data", '1:3: parse error: unexpected "}"')]
    assert ('Prometheus says bad_data: 1:3: parse error: unexpected "}"', False) == await refused(metrics)
    server.answers = [failure(503, "timeout", "query timed out")]
    assert ("Prometheus says timeout: query timed out", True) == await refused(metrics)


@pytest.mark.parametrize(
    ("status", "expected", "passing"),
    [
        (401, "token is rejected", False),
        (403, "may not query", False),
        (404, "no Prometheus API", False),
        (410, "answered 410", False),
        (429, "too many requests", True),
        (500, "answered 500", True),
        (302, "answered 302", False),
    ],
)
async def test_other_refusals_are_explained(metrics, server, status, expected, passing):
    server.answers = [web.Response(status=status, text="<html>", headers={"Location": "http://127.0.0.1:9/"})]
    said, may_pass = await refused(metrics)
    assert expected in said
    assert passing is may_pass


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[]", b"{}", b'{"status": "success"}', b"[" * 9_000])
async def test_an_answer_of_something_else_is_no_result(metrics, server, body):
    server.answers = [web.Response(body=body)]
    await refused(metrics)


async def test_a_text_is_no_number(metrics, server):
    server.answers = [success("string", [1, "hello"])]
    assert "does not give numbers" in (await refused(metrics))[0]


async def test_what_is_no_point_is_left_out(metrics, server):
    junk = [None, [], [1], ["x", "1"], [1, {}], [1e999, "2"], {"a": 1}]
    items = [
        {"metric": LABELS, "values": [*junk, [5, "1"]]},
        {"metric": 7, "values": [[1, "2"]]},
        {"values": junk},
        3,
    ]
    server.answers = [success("matrix", items)]
    found = await metrics.over_time("x", NOW - timedelta(hours=1), NOW, 60)
    assert [Series(LABELS, ((5.0, 1.0),)), Series({}, ((1.0, 2.0),))] == found


async def test_an_endless_answer_is_not_read_to_its_end(metrics, server):
    server.answers = [web.Response(body=b" " * (9 << 20))]
    assert "too long" in (await refused(metrics))[0]


async def test_a_server_that_hangs_or_is_away_is_told(server):
    server.answers = [None]
    async with PrometheusMetrics(server.url, call_seconds=0.5) as hurried:
        said, passing = await refused(hurried)
    assert "no answer within 0.5 s" in said
    assert passing
    async with PrometheusMetrics("http://127.0.0.1:9") as away:
        assert ("Prometheus cannot be reached (Connection refused)", True) == await refused(away)
