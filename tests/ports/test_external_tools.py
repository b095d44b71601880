"""The ExternalTools port: in memory, and on MCP servers of others over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import pytest
import pytest_asyncio
from aiohttp import web

from tests.fakes.memory_external import MemoryExternal
from tests.mcp_servers import COMMAND, http_server
from tests.nats_servers import free_ports
from worker.adapters.mcp_tools import McpTools
from worker.domain.values.errors import ExternalToolError
from worker.domain.values.external_tools import ExternalAnswer, ExternalTool, McpServer

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOOLS = (
    "search", "picture", "fails", "slow", "stuck", "crash", "huge", "endless", "flood", "garbage", "delete", "missing",
)  # fmt: skip
READ_ONLY = set(TOOLS) - {"delete", "missing"}
SEARCH = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "top": {"type": "integer"}},
    "required": ["query"],
}
PATIENT = 60.0
"""For what must be answered, the start of a server included: a slow machine is no failure."""
FOUND = ExternalAnswer("runbook for queue: restart, then look at the queue")
PICTURE = ExternalAnswer("a graph", "1 parts of the answer that are not text")


def mounted(way, url="", **options):
    if way == "stdio":
        return McpServer("docs", TOOLS, command=COMMAND, **options)
    return McpServer("docs", TOOLS, url=url, **options)


@contextlib.contextmanager
def hurried(tools):
    """Little patience for a call that must not be answered."""
    mounted = tools._mounted["docs"]
    mounted._seconds = 2.0
    yield
    mounted._seconds = PATIENT


async def refusal(tools, tool, **arguments):
    with pytest.raises(ExternalToolError) as raised:
        await tools.call("docs", tool, arguments)
    return str(raised.value), raised.value.passing


PROCESSES = [
    pytest.param("stdio", marks=pytest.mark.process),
    pytest.param("http", marks=pytest.mark.process),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["memory", *PROCESSES])
async def tools(request):
    """All of them behave alike. Tests share them, and leave them as they are."""
    if request.param == "memory":
        offered = [ExternalTool("docs", name, f"About {name}.", SEARCH) for name in sorted(READ_ONLY)]
        answers = {
            "search": FOUND,
            "picture": PICTURE,
            "fails": ExternalToolError("it says: The incident has been resolved", passing=True),
        }
        yield MemoryExternal(offered, answers)
    elif request.param == "stdio":
        async with McpTools([mounted("stdio")], call_seconds=PATIENT) as found:
            yield found
    else:
        async with (
            http_server() as server,
            McpTools([mounted("http", server.url)], call_seconds=PATIENT) as found,
        ):
            yield found


@pytest_asyncio.fixture(loop_scope="module", params=PROCESSES)
async def real(request):
    """Servers of their own that take what tests do to them, and tools on one of them."""
    if request.param == "stdio":
        async with McpTools([mounted("stdio")], call_seconds=PATIENT) as found:
            yield found
    else:
        async with http_server() as server:
            restarting = asyncio.create_task(keep_alive(server))
            async with McpTools([mounted("http", server.url)], call_seconds=PATIENT) as found:
                yield found
            restarting.cancel()
            await asyncio.gather(restarting, return_exceptions=True)


async def keep_alive(server):
    """What a Deployment does for its pods."""
    while True:
        await server.process.wait()
        await server.start()


async def until_answered(tools):
    """A tool works again, some calls later."""
    for _ in range(20):
        with contextlib.suppress(ExternalToolError):
            return await tools.call("docs", "search", {"query": "queue"})
        await asyncio.sleep(0.3)
    raise AssertionError("it never came back")


async def test_tools_are_those_that_only_read(tools):
    offered = {tool.name: tool for tool in tools.tools()}
    assert set(offered) == READ_ONLY
    assert {"docs"} == {tool.server for tool in offered.values()}
    assert all(tool.reached and tool.description for tool in offered.values())
    assert {"query", "top"} == set(offered["search"].parameters["properties"])


async def test_a_tool_answers_with_its_text(tools):
    assert FOUND == await tools.call("docs", "search", {"query": "queue"})


async def test_what_is_not_text_is_left_out_and_said(tools):
    assert PICTURE == await tools.call("docs", "picture", {})


async def test_a_tool_that_fails_says_why(tools):
    said, passing = await refusal(tools, "fails")
    assert said.startswith("it says: ")
    assert "The incident has been resolved" in said
    assert passing


@pytest.mark.parametrize("name", ["delete", "missing", "lie"])
async def test_a_tool_that_is_not_offered_is_not_called(tools, name):
    _, passing = await refusal(tools, name, name="all")
    assert not passing


async def test_many_calls_at_once_are_all_answered(tools):
    asked = [tools.call("docs", "search", {"query": "queue"}) for _ in range(30)]
    assert [FOUND] * 30 == await asyncio.gather(*asked)


async def test_bad_arguments_are_explained_by_the_server(real):
    said, _ = await refusal(real, "search", wrong=1)
    assert "query" in said
    assert "required" in said


async def test_a_slow_tool_ends_and_the_next_call_works(real):
    with hurried(real):
        assert ("no answer within 2 s", True) == await refusal(real, "slow")
    assert FOUND == await real.call("docs", "search", {"query": "queue"})


async def test_a_server_that_answers_nothing_any_more_is_left(real):
    with hurried(real):
        assert ("no answer within 2 s", True) == await refusal(real, "stuck")


async def test_a_server_that_dies_under_a_call_is_started_or_found_again(real):
    said, passing = await refusal(real, "crash")
    assert "lost" in said or "cannot be reached" in said or "no answer" in said
    assert passing
    assert FOUND == await until_answered(real)
    assert "" == "; ".join(p for p in real.problem().split("; ") if "reach" in p or "lost" in p)


async def test_nonsense_beside_the_protocol_is_skipped(real):
    assert ExternalAnswer("after the nonsense") == await real.call("docs", "garbage", {})
    assert FOUND == await real.call("docs", "search", {"query": "queue"})


async def test_a_huge_answer_is_read(real):
    answer = await real.call("docs", "huge", {})
    assert (True, 1_800_000) == (answer.text.startswith("first\n"), round(len(answer.text), -4))


@pytest.mark.process
async def test_a_process_that_floods_its_output_is_ended_and_started_again():
    async with McpTools([mounted("stdio")], call_seconds=PATIENT) as tools:
        with hurried(tools):
            assert ("no answer within 2 s", True) == await refusal(tools, "flood")
        assert FOUND == await until_answered(tools)


@pytest.mark.process
async def test_an_endless_answer_over_http_is_not_read_to_its_end():
    async with (
        http_server() as server,
        McpTools([mounted("http", server.url)], call_seconds=PATIENT) as tools,
    ):
        said, passing = await refusal(tools, "endless")
        assert "the answer is longer than" in said
        assert passing
        assert FOUND == await until_answered(tools)


@pytest.mark.process
async def test_an_operator_may_vouch_for_a_tool():
    server = mounted("stdio", vouched=frozenset({"delete"}))
    async with McpTools([server], call_seconds=PATIENT) as tools:
        assert ExternalAnswer("deleted x") == await tools.call("docs", "delete", {"name": "x"})
        assert "missing is not a tool of this server" in tools.problem()
        assert "delete" not in tools.problem()


@pytest.mark.process
async def test_what_is_refused_is_reported():
    async with McpTools([mounted("stdio")], call_seconds=PATIENT) as tools:
        assert "docs: delete is not marked read-only by its server" in tools.problem()


@pytest.mark.process
@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (McpServer("docs", ("search",), url="http://127.0.0.1:9/mcp"), "ConnectError"),
        (McpServer("docs", ("search",), command=("/no/such/server",)), "No such file"),
        (
            McpServer(
                "docs", ("search",), command=(sys.executable, "-c", "import sys; sys.exit('no licence')")
            ),
            "no licence",
        ),
        (
            McpServer("docs", ("search",), command=(sys.executable, "-c", "print('hello')")),
            "cannot be reached",
        ),
    ],
    ids=["away", "no such command", "ends at once", "speaks no protocol"],
)
async def test_a_server_that_is_not_there_is_told_and_its_tools_stay(server, expected):
    async with McpTools([server], call_seconds=PATIENT) as tools:
        assert [ExternalTool("docs", "search", reached=False)] == tools.tools()
        assert expected in tools.problem()
        said, passing = await refusal(tools, "search", query="x")
        assert expected in said
        assert passing


@pytest.mark.process
async def test_a_server_that_comes_later_is_found_by_the_next_call():
    [port] = free_ports(1)
    server = McpServer("docs", TOOLS, url=f"http://127.0.0.1:{port}/mcp")
    async with McpTools([server], call_seconds=PATIENT) as tools:
        assert not tools.tools()[0].reached
        async with http_server() as later:
            await later.stop()
            later.port = port
            await later.start()
            assert FOUND == await until_answered(tools)
            assert {tool.name for tool in tools.tools()} == READ_ONLY
            assert all(tool.reached for tool in tools.tools())


@pytest.mark.process
async def test_what_a_server_said_first_holds_but_it_can_lose_its_marks():
    names = ("lie", "picture")
    async with (
        http_server() as server,
        McpTools([McpServer("docs", names, url=server.url)], call_seconds=PATIENT) as tools,
    ):
        before = {tool.name: tool.description for tool in tools.tools()}
        await server.stop()
        await refusal(tools, "lie")  # over HTTP only a call that fails tells that the server was away
        await server.start(CHANGED="1")
        assert "ghost" in (await tools.call("docs", "lie", {})).text
        assert {"lie": before["lie"]} == {tool.name: tool.description for tool in tools.tools()}
        assert (
            "picture is not marked read-only by its server; RCA_MCP__READ_ONLY_TOOLS vouches for it",
            False,
        ) == await refusal(tools, "picture")


@pytest.mark.process
async def test_one_server_that_is_away_does_not_keep_another_from_answering():
    away = McpServer("away", ("x",), url="http://127.0.0.1:9/mcp")
    async with McpTools([away, mounted("stdio")], call_seconds=PATIENT) as tools:
        assert FOUND == await tools.call("docs", "search", {"query": "queue"})
        assert "away: " in tools.problem()


class Odd:
    """An HTTP server that answers every POST with the same."""

    def __init__(self, **answer):
        self.answer = answer
        self.headers = []

    async def handle(self, request):
        self.headers.append(dict(request.headers))
        return web.Response(**self.answer)


@pytest_asyncio.fixture(loop_scope="module")
async def odd():
    runners = []

    async def serve(**answer):
        server = Odd(**answer)
        app = web.Application()
        app.router.add_route("*", "/mcp", server.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        return server

    yield serve
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 401, "text": "no"},
        {"status": 404},
        {"status": 500, "text": "<html>"},
        {"status": 302, "headers": {"Location": "http://127.0.0.1:9/elsewhere"}},
        {"status": 202},
        {"status": 200, "text": "hello", "content_type": "text/plain"},
        {"status": 200, "text": "{}", "content_type": "application/json"},
        {"status": 200, "text": "[" * 5_000, "content_type": "application/json"},
        {"status": 200, "body": b" " * (9 << 20), "content_type": "application/json"},
        {
            "status": 200,
            "text": "{}",
            "content_type": "application/json",
            "headers": {"Content-Encoding": "gzip"},
        },
    ],
    ids=["401", "404", "500", "redirect", "202", "text", "empty", "deep", "endless", "compressed"],
)
async def test_what_is_no_mcp_server_is_reported(odd, answer):
    server = await odd(**answer)
    async with McpTools([McpServer("docs", ("search",), url=server.url)], call_seconds=PATIENT) as tools:
        assert tools.problem().startswith("docs: it ")
        assert not tools.tools()[0].reached


async def test_a_token_is_read_from_its_file_at_each_connection(odd, tmp_path):
    server = await odd(status=401)
    file = tmp_path / "token"
    file.write_text("t0ken\n")
    mount = McpServer("docs", ("search",), url=server.url, token_file=file)
    async with McpTools([mount], call_seconds=PATIENT) as tools:
        file.write_text("next\n")
        await refusal(tools, "search")
    sent = [headers.get("Authorization") for headers in server.headers]
    assert ["Bearer t0ken", "Bearer next"] == list(dict.fromkeys(sent))


async def test_a_token_that_cannot_be_read_is_reported(tmp_path):
    mount = McpServer("docs", ("search",), url="http://127.0.0.1:9/mcp", token_file=tmp_path / "none")
    async with McpTools([mount], call_seconds=PATIENT) as tools:
        assert "No such file" in tools.problem()
