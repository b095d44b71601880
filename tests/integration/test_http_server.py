"""Clients that send too little, over the loopback interface."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web

from worker.app.http_server import listening

HEADERS = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"


@asynccontextmanager
async def echo(*, silent_seconds=0.3, answered=None):
    """A server that sends back what it has read; with `answered`, once that is set."""

    async def handle(request):
        read = await request.read()
        if answered:
            await answered.wait()
        return web.Response(body=read)

    app = web.Application()
    app.router.add_post("/echo", handle)
    async with listening(app, "127.0.0.1", 0, silent_seconds=silent_seconds) as port:
        yield port


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /ec", HEADERS, HEADERS + b"\r\n", HEADERS + b"\r\nab"],
    ids=["nothing", "half a line", "half the headers", "no body", "half a body"],
)
async def test_a_silent_client_loses_its_connection(sent):
    async with echo() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_a_client_that_sends_slowly_loses_its_connection():
    async with echo() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def dribble():
            for byte in HEADERS * 100:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.05)

        dribbling = asyncio.create_task(dribble())
        assert await asyncio.wait_for(reader.read(), 20) == b""
        dribbling.cancel()
        writer.close()


async def test_a_connection_is_closed_after_its_last_answer():
    async with echo() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(HEADERS + b"\r\nabcd")
            assert (await reader.readuntil(b"abcd")).startswith(b"HTTP/1.1 200 OK")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_an_answer_may_take_longer():
    answered = asyncio.Event()
    async with echo(answered=answered) as port, ClientSession() as session:
        asking = asyncio.create_task(session.post(f"http://127.0.0.1:{port}/echo", data=b"abcd"))
        await asyncio.sleep(1.0)
        answered.set()
        response = await asking
        assert await response.read() == b"abcd"
