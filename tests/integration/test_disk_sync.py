"""Whether the server writes each message to disk: what its monitoring port says, and what `rca provision` makes of it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiohttp import web

from tests.commands import rca
from tests.nats_servers import free_ports
from worker.app.disk_sync import UNKNOWN, sync_advice
from worker.sandbox.nats_server import find_nats_server


@contextlib.asynccontextmanager
async def server(directory, sync=""):
    """A nats-server with its monitoring port; by default with the `sync_interval` that it has without a setting."""
    port, monitoring = free_ports(2)
    configuration = directory / "nats.conf"
    configuration.write_text(
        f"listen: 127.0.0.1:{port}\nhttp: 127.0.0.1:{monitoring}\nmax_payload: 2MB\n"
        f'jetstream {{\n  store_dir: "{directory}/js"\n  {sync}\n}}\n'
    )
    process = await asyncio.create_subprocess_exec(
        find_nats_server(), "-c", str(configuration), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield {"RCA_NATS__SERVERS": f"nats://127.0.0.1:{port}"}, f"http://127.0.0.1:{monitoring}"
    finally:
        process.terminate()
        await process.wait()


async def test_the_default_is_warned_about_each_time(tmp_path):
    async with server(tmp_path) as (env, url):
        for _ in range(2):
            ended = await rca("provision", "--monitoring-url", url, env=env)
            assert (0, "120 s" in ended.err, "sync_interval: always" in ended.err) == (ended.code, True, True)


async def test_a_server_that_syncs_is_not_mentioned(tmp_path):
    async with server(tmp_path, 'sync_interval: "always"') as (env, url):
        ended = await rca("provision", "--monitoring-url", url, env=env)
        assert (0, "") == (ended.code, ended.err)


async def test_without_the_port_the_advice_comes_with_the_first_streams_only(tmp_path):
    async with server(tmp_path) as (env, _):
        first, second = await rca("provision", env=env), await rca("provision", env=env)
        assert (UNKNOWN in first.err, "") == (True, second.err)


@pytest.mark.parametrize("said", ["{}", "<html>", '{"jetstream": {}}', "[" * 10_000])
async def test_a_url_that_is_no_monitoring_port_is_reported(said):
    async def answer(_):
        return web.Response(text=said)

    app = web.Application()
    app.router.add_get("/varz", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        assert f"{url} cannot be read" in await sync_advice(url)
    finally:
        await runner.cleanup()
    assert "cannot be read" in await sync_advice(url)
