"""Bounds for MCP servers: the size of an HTTP answer, and what a process writes to its stderr."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TextIO

import httpx2
import structlog

from worker.domain.untrusted.evidence import one_line

MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_LINES, MAX_LINE = 100, 300
"""For one connection; what a process writes beyond them is read and dropped."""

log = structlog.stdlib.get_logger(__name__)


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of an answer, up to the limit."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for chunk in self._inner:
            read += len(chunk)
            if read > MAX_BODY_BYTES:
                # The library treats this error as one of this answer alone and keeps the connection.
                raise httpx2.StreamError(f"the answer is longer than {MAX_BODY_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def bound_answer(response: httpx2.Response) -> None:
    """A response hook of the HTTP client: rejects an answer that is compressed, and bounds any other.

    A stream of events is one answer.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx2.DecodingError("the answer is compressed", request=response.request)
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _BoundedStream(response.stream)


class ServerLog:
    """Logs what a server process writes to its stderr, and keeps the last line to explain why it ended."""

    def __init__(self, server: str) -> None:
        self._server, self._last = server, ""

    def last(self) -> str:
        """The last line, to be appended to a message; empty if there is none."""
        return f"; last line of its stderr: {self._last}" if self._last else ""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[TextIO]:
        """The write end of a pipe for one process."""
        self._last = ""
        reading, writing = os.pipe()
        reader = asyncio.StreamReader(limit=MAX_LINE * 16)
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb"))
        task = asyncio.create_task(self._follow(reader))
        try:
            with os.fdopen(writing, "w", encoding="utf-8") as end:
                yield end
        finally:
            task.cancel()
            transport.close()

    async def _follow(self, reader: asyncio.StreamReader) -> None:
        count = 0
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # longer than the limit: that part is dropped
                continue
            if not line:
                return
            count += 1
            said = one_line(line.decode("utf-8", "replace"), MAX_LINE)
            if said:
                self._last = said
            if said and count <= MAX_LINES:
                log.debug("mcp_server_stderr", server=self._server, line=said)
