"""The answers to probes, over the loopback interface."""

from __future__ import annotations

import aiohttp
import pytest

from worker.app.health import problems, serve
from worker.app.metrics import WorkerMetrics


def well():
    return ""


async def answers(checks, *paths, **notices):
    """Status and text of each path."""
    async with (
        serve("127.0.0.1", 0, checks=checks, metrics=WorkerMetrics(), notices=notices) as port,
        aiohttp.ClientSession() as session,
    ):
        got = []
        for path in paths:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                got.append((response.status, await response.text()))
        return got


def test_problems_are_named_by_their_check():
    checks = {"nats": well, "kubernetes": lambda: "no answer", "model": lambda: "no credit"}
    assert ["kubernetes: no answer", "model: no credit"] == problems(checks)
    assert problems({}) == []


async def test_readyz_answers_ok_if_every_check_passes():
    assert [(200, "ok\n"), (200, "ok\n")] == await answers({"nats": well}, "/livez", "/readyz")


async def test_problems_are_listed_and_leave_livez_ok():
    checks = {"nats": lambda: "not connected yet", "model": well, "kubernetes": lambda: "403"}
    assert [(200, "ok\n"), (503, "nats: not connected yet\nkubernetes: 403\n")] == await answers(
        checks, "/livez", "/readyz"
    )


async def test_a_notice_is_shown_and_leaves_the_worker_ready():
    old = {"catalog": lambda: "1 problems in the catalog"}
    assert [(200, "ok\ncatalog: 1 problems in the catalog\n")] == await answers({}, "/readyz", **old)
    wrong = {"model": lambda: "no credit"}
    assert [(503, "model: no credit\ncatalog: 1 problems in the catalog\n")] == await answers(
        wrong, "/readyz", **old
    )


async def test_notices_are_shown_and_leave_the_worker_ready():
    notices = {"catalog": lambda: "a change of a.yaml is refused", "model": well}
    async with (
        serve("127.0.0.1", 0, checks={"nats": well}, metrics=WorkerMetrics(), notices=notices) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/readyz") as response,
    ):
        assert (200, "ok\ncatalog: a change of a.yaml is refused\n") == (
            response.status,
            await response.text(),
        )


async def test_checks_are_asked_each_time():
    said = iter(["starting", ""])
    assert [503, 200] == [
        status for status, _ in await answers({"nats": lambda: next(said)}, "/readyz", "/readyz")
    ]


async def test_metrics_are_served_in_the_exposition_format():
    metrics = WorkerMetrics()
    metrics.llm_calls.labels("openai-chat:m", "answered").inc(3)
    async with (
        serve("127.0.0.1", 0, checks={}, metrics=metrics) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as response,
    ):
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'rca_llm_calls_total{model="openai-chat:m",outcome="answered"} 3.0' in await response.text()


@pytest.mark.parametrize("path", ["/", "/livez/", "/debug", "/metrics/../readyz2"])
async def test_other_paths_are_not_found(path):
    [(status, _)] = await answers({}, path)
    assert status == 404


async def test_the_port_is_free_again_afterwards():
    async with serve("127.0.0.1", 0, checks={}, metrics=WorkerMetrics()) as port:
        pass
    async with serve("127.0.0.1", port, checks={}, metrics=WorkerMetrics()) as again:
        assert again == port


async def test_a_port_in_use_is_an_error_at_the_start():
    async with serve("127.0.0.1", 0, checks={}, metrics=WorkerMetrics()) as port:
        with pytest.raises(OSError, match="address already in use"):
            async with serve("127.0.0.1", port, checks={}, metrics=WorkerMetrics()):
                pass
