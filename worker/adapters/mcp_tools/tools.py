"""The ExternalTools port on MCP servers.

It uses streamable HTTP, or the stdin and stdout of a process that it starts.

A task for each server keeps the connection, and reconnects when it is lost: at once when a tool is called,
else after a pause. The first description of a tool is used until the worker ends, so that the server cannot
exchange it later. Results are not validated against the output schemas of the server: validating a hostile
schema can take forever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import anyio
import httpx2
import mcp_types as types
import structlog
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import ValidationError

from worker.adapters.mcp_tools.bounds import MAX_BODY_BYTES, ServerLog, bound_answer
from worker.domain.untrusted.evidence import one_line
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ExternalToolError
from worker.domain.values.external_tools import ExternalAnswer, ExternalTool, McpServer

CONCURRENT = 8
"""Concurrent calls of one server; further ones wait."""
MAX_PAGES = 10
"""Pages of a list of tools that are read."""
PAUSE_SECONDS, RETRY_SECONDS = 1.0, 30.0
"""Between two attempts to connect: with and without a call that waits."""
PROBE_SECONDS = 2.0
CLOSING_SECONDS = 8.0
"""How long the library may take to end a process that does not exit."""
CONNECTIONS = 8
MAX_MESSAGE = 300  # characters
BROKEN = (
    MCPError,
    OSError,
    RuntimeError,
    ValueError,  # pydantic's ValidationError, and UnicodeDecodeError, are ones
    ExceptionGroup,
    httpx2.HTTPError,
    httpx2.InvalidURL,
    httpx2.StreamError,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
)
"""Errors of the library if a server or the connection to it fails."""


log = structlog.stdlib.get_logger(__name__)


class McpTools:
    """Tools of mounted servers. `call_seconds` bounds one call, and one attempt to connect."""

    def __init__(self, servers: Sequence[McpServer], *, call_seconds: float = 10.0) -> None:
        self._mounted = {server.name: _Mounted(server, call_seconds) for server in servers}
        self._tasks: list[asyncio.Task[None]] = []
        self._patience = call_seconds + CLOSING_SECONDS

    async def __aenter__(self) -> Self:
        """Connect to each server; those that cannot be reached are retried in the background."""
        self._tasks = [asyncio.create_task(mounted.run()) for mounted in self._mounted.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await concurrently([mounted.tried() for mounted in self._mounted.values()])
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections and end the processes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def tools(self) -> Sequence[ExternalTool]:
        """The tools that may be called, those of unreachable servers included."""
        return [tool for mounted in self._mounted.values() for tool in mounted.tools()]

    async def call(self, server: str, name: str, arguments: Mapping[str, Any]) -> ExternalAnswer:
        """Call a tool. Raises ExternalToolError."""
        return await self._mounted[server].call(name, arguments)

    def problem(self) -> str:
        """The problem that an operator should fix; empty if all configured tools are available."""
        said = ((name, mounted.problem()) for name, mounted in self._mounted.items())
        return "; ".join(f"{name}: {wrong}" for name, wrong in said if wrong)


class _Lost(Exception):  # noqa: N818 - a state: the connection is gone
    """The connection ended during a call; the message says how."""


class _Mounted:
    """One server: its connection, and what is known about its tools."""

    def __init__(self, server: McpServer, call_seconds: float) -> None:
        self._server, self._seconds = server, call_seconds
        self._client: Client | None = None
        self._trouble = ""
        self._known: dict[str, ExternalTool] = {}
        self._refused: dict[str, str] = {}
        self._tries = 0
        self._news = asyncio.Condition()
        self._wanted, self._lost = asyncio.Event(), asyncio.Event()
        self._room = asyncio.Semaphore(CONCURRENT)
        self._log = ServerLog(server.name)

    def tools(self) -> Sequence[ExternalTool]:
        unknown = [
            ExternalTool(self._server.name, name, reached=False)
            for name in self._server.tools
            if name not in self._known and name not in self._refused
        ]
        return [*(tool for name, tool in self._known.items() if name not in self._refused), *unknown]

    def problem(self) -> str:
        refused = (f"{name} {why}" for name, why in self._refused.items())
        return "; ".join(part for part in (self._trouble, *refused) if part)

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        while True:
            self._wanted.clear()
            self._lost.clear()
            before, known = self._tries, self._trouble
            try:
                await self._stay_connected()
            except TimeoutError:
                self._trouble = f"it did not answer within {self._seconds:g} s"
            except BROKEN as error:
                self._trouble = f"it cannot be reached ({_reason(error)}{self._log.last()})"
            finally:
                self._client = None
            if self._trouble != known:
                log.warning("mcp_server_unavailable", server=self._server.name, error=self._trouble)
            if self._tries == before:
                await self._announce_attempt()
            await asyncio.sleep(PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), RETRY_SECONDS)

    async def _stay_connected(self) -> None:
        async with asyncio.timeout(self._seconds) as limit, self._connected() as client:
            self._learn(await _listed(client, self._server.tools))
            limit.reschedule(None)
            self._client, self._trouble = client, ""
            log.info("mcp_server_connected", server=self._server.name, refused=self._refused)
            await self._announce_attempt()
            await self._lost.wait()
            self._trouble = "the connection was lost"

    async def tried(self) -> None:
        """Wait for the end of the first attempt to connect."""
        async with self._news:
            await self._news.wait_for(lambda: self._tries > 0)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ExternalAnswer:
        message = f"no answer within {self._seconds:g} s"
        try:
            async with asyncio.timeout(self._seconds), self._room:
                # A connection that was lost while idle is made again, once.
                with contextlib.suppress(_Lost):
                    return await self._ask(name, arguments)
                return await self._ask(name, arguments)
        except _Lost as lost:
            said = f"the connection was lost during the call ({lost}{self._log.last()})"
            raise ExternalToolError(said, passing=True) from None
        except TimeoutError:
            await self._probe()
            raise ExternalToolError(message, passing=True) from None

    async def _ask(self, name: str, arguments: Mapping[str, Any]) -> ExternalAnswer:
        if name not in self._server.tools:
            raise ExternalToolError(f"{name} is not an allowed tool")
        client = await self._reach()
        if why := self._refused.get(name):
            raise ExternalToolError(f"{name} {why}")
        params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
        try:
            result = await client.session.send_request(
                types.CallToolRequest(params=params), types.CallToolResult
            )
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED or self._client is not client:
                self._drop(client)
                raise _Lost(_reason(error)) from error
            raise ExternalToolError(f"it says: {error.message}", passing=True) from error
        except ValidationError as error:
            raise ExternalToolError("its answer is not a tool result", passing=True) from error
        except BROKEN as error:
            self._drop(client)
            raise _Lost(_reason(error)) from error
        return _answer(result)

    async def _reach(self) -> Client:
        if self._client is None:
            before = self._tries
            self._wanted.set()
            async with self._news:
                await self._news.wait_for(lambda: self._client is not None or self._tries > before)
        if self._client is None:
            raise ExternalToolError(self._trouble, passing=True)
        return self._client

    async def _probe(self) -> None:
        """After a call that took too long, reconnect to a server that does not answer at all."""
        client = self._client
        if client is None:
            return
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await client.list_tools()
        except (TimeoutError, *BROKEN):
            self._drop(client)

    def _drop(self, client: Client) -> None:
        if self._client is client:
            self._client = None
            self._lost.set()

    async def _announce_attempt(self) -> None:
        """Announce that an attempt to connect has ended."""
        async with self._news:
            self._tries += 1
            self._news.notify_all()

    def _learn(self, listed: Mapping[str, types.Tool]) -> None:
        self._refused = {}
        for name in self._server.tools:
            tool = listed.get(name)
            if tool is None:
                self._refused[name] = "is not a tool of this server"
            elif (
                not (tool.annotations and tool.annotations.read_only_hint)
                and name not in self._server.vouched
            ):
                self._refused[name] = (
                    "is not marked read-only by its server; RCA_MCP__READ_ONLY_TOOLS vouches for it"
                )
            elif name not in self._known:
                said = tool.description or tool.title or ""
                self._known[name] = ExternalTool(self._server.name, name, said, tool.input_schema)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        """A session with the server."""
        async with AsyncExitStack() as stack:
            if self._server.url:
                http = await stack.enter_async_context(self._http())
                transport = streamable_http_client(
                    self._server.url, http_client=http, max_sse_event_size=MAX_BODY_BYTES // 2
                )
            else:
                command, *arguments = self._server.command
                errors = await stack.enter_async_context(self._log.opened())
                transport = stdio_client(StdioServerParameters(command=command, args=arguments), errors)
            yield await stack.enter_async_context(Client(transport, cache=None))

    def _http(self) -> httpx2.AsyncClient:
        token = self._server.token_file.read_text(encoding="utf-8").strip() if self._server.token_file else ""
        plain = {"Accept-Encoding": "identity"}  # a small compressed answer may be huge
        return httpx2.AsyncClient(
            headers={**plain, "Authorization": f"Bearer {token}"} if token else plain,
            timeout=httpx2.Timeout(self._seconds, read=None),  # each call has a limit of its own
            limits=httpx2.Limits(max_connections=CONNECTIONS * 2),
            event_hooks={"response": [bound_answer]},
            trust_env=False,
        )


async def _listed(client: Client, wanted: Sequence[str]) -> dict[str, types.Tool]:
    """The wanted tools that the server has, by name."""
    found: dict[str, types.Tool] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found |= {tool.name: tool for tool in page.tools if tool.name in wanted}
        cursor = page.next_cursor
        if cursor is None or len(found) == len(wanted):
            break
    return found


def _answer(result: types.CallToolResult) -> ExternalAnswer:
    texts = [part.text for part in result.content if isinstance(part, types.TextContent)]
    text, others = "\n".join(texts), len(result.content) - len(texts)
    if result.is_error:
        raise ExternalToolError(f"it says: {text}", passing=True)
    return ExternalAnswer(text, f"{others} parts of the answer that are not text" if others else "")


def _reason(error: BaseException) -> str:
    """The type and message of an error; of a group its first one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    said = one_line(str(error), MAX_MESSAGE)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
