"""`rca mcp` as a process, and the official client: over stdio, as an agent starts it, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager

import aiohttp
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.test_pipeline import CASE
from tests.pipeline import CATALOG
from tests.processes import COMMAND, PATIENCE_SECONDS, environment, rca
from tests.processes import running as process
from worker.domain.investigation.toolbox.served import SERVED
from worker.sandbox.cluster_server import serve as serve_cluster
from worker.sandbox.cluster_server import write_kubeconfig

pytestmark = pytest.mark.process

TOKEN = "FAKE-token-of-the-test"
NAMES = list(SERVED)
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture
async def env(tmp_path):
    """A cluster and a catalog, as `rca mcp` is told of them."""
    async with serve_cluster(CASE) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        yield {
            "RCA_KUBERNETES__KUBECONFIG": str(tmp_path / "kubeconfig"),
            "RCA_CATALOG__PATH": str(CATALOG),
        }


@asynccontextmanager
async def over_stdio(env, tmp_path):
    parameters = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], "mcp"], env=environment(env))
    with (tmp_path / "stderr").open("w") as errors:
        async with Client(stdio_client(parameters, errors)) as client:
            yield client


@asynccontextmanager
async def served(env, address="127.0.0.1:0"):
    """`rca mcp --http`: its url."""
    async with process("mcp", "--http", address, env=env) as started:
        line = await asyncio.wait_for(started.stdout.readline(), PATIENCE_SECONDS)
        assert line, (await started.stderr.read()).decode()
        yield json.loads(line)["url"]


@asynccontextmanager
async def over_http(env, tmp_path):
    async with (
        served({**env, "RCA_MCP__TOKEN": TOKEN}) as url,
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def ask(client, tool, /, **arguments):
    """The JSON of the answer, and what it says it covers."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    body, note = (part.text for part in result.content)
    return json.loads(body), note


@pytest.mark.parametrize("way", [over_stdio, over_http])
async def test_other_agents_choose_workflows_with_read_only_tools(env, tmp_path, way):
    async with way(env, tmp_path) as client:
        assert "Read-only" in client.instructions
        await tools_that_only_read(client)
        await a_choice_in_three_steps(client)
        await a_search_takes_labels_in_both_forms(client)
        await the_affected_object_narrows_the_choice(client)
        wrong = await client.call_tool("list_available_actions", {"priority": "P9"})
        assert (True, 1) == (wrong.is_error, len(wrong.content))
        assert "must be one of P0, P1, P2, P3" in wrong.content[0].text


async def tools_that_only_read(client):
    tools = (await client.list_tools()).tools
    assert NAMES == [tool.name for tool in tools]
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools)


async def a_choice_in_three_steps(client):
    said = {"environment": "production", "priority": "P1"}
    actions, note = await ask(
        client, "list_available_actions", signal_type="OOMKilled", severity="critical", **said
    )
    assert "environment=production, priority=P1" in note
    [action] = [a for a in actions["actions"] if a["action_type"] == "IncreaseMemoryLimits"]
    page, _ = await ask(client, "list_workflows", action_type=action["action_type"], **said)
    chosen = page["workflows"][0]["workflow_id"]
    workflow, _ = await ask(client, "get_workflow", workflow_id=chosen, **said)
    assert "TARGET_RESOURCE_NAME" in [p["name"] for p in workflow["parameters"]]


async def a_search_takes_labels_in_both_forms(client):
    query = "OOMKilled critical"
    own, note = await ask(client, "search_workflow_catalog", query=query, environment="production")
    filters = {"environment": "Production"}
    assert (own, note) == await ask(client, "search_workflow_catalog", query=query, filters=filters)
    assert "environment=production" in note
    assert own["workflows"]


async def the_affected_object_narrows_the_choice(client):
    target = {"kind": "Deployment", "name": "ml-worker", "namespace": "ml-batch"}
    context, _ = await ask(client, "get_resource_context", **target)
    assert "Deployment" == context["root_owner"]["kind"]
    _, note = await ask(
        client, "list_available_actions", **{f"resource_{part}": value for part, value in target.items()}
    )
    assert "component=Deployment" in note
    _, other = await ask(client, "list_available_actions")
    assert "name the affected object by resource_kind and resource_name" in other


async def test_logs_go_to_stderr_and_the_process_ends_with_its_input(env, tmp_path):
    async with over_stdio(env, tmp_path) as client:
        await ask(client, "list_available_actions")
    said = (tmp_path / "stderr").read_text().splitlines()
    assert {"catalog_opened", "mcp_call"} == {json.loads(line)["event"] for line in said}


async def started(env, *arguments):
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        "mcp",
        *arguments,
        env=environment(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def say(server, message):
    server.stdin.write(json.dumps(message).encode() + b"\n")
    await server.stdin.drain()
    return json.loads(await asyncio.wait_for(server.stdout.readline(), PATIENCE_SECONDS))


@pytest.mark.parametrize("how", ["closed input", signal.SIGTERM, signal.SIGINT])
async def test_over_stdio_it_ends_cleanly(env, how):
    server = await started(env)
    assert "rca-worker" == (await say(server, HELLO))["result"]["serverInfo"]["name"]
    if how == "closed input":
        server.stdin.close()
    else:
        server.send_signal(how)
    out, err = await asyncio.wait_for(server.communicate(), PATIENCE_SECONDS)
    assert (0, b"") == (server.returncode, out)
    assert b"Traceback" not in err


async def test_a_client_that_is_gone_ends_it_cleanly(env):
    reading, writing = os.pipe()
    server = await asyncio.create_subprocess_exec(
        *COMMAND,
        "mcp",
        env=environment(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writing)
    os.close(reading)
    server.stdin.write(json.dumps(HELLO).encode() + b"\n")
    _, err = await asyncio.wait_for(server.communicate(), PATIENCE_SECONDS)
    assert (0, ["catalog_opened", "mcp_client_disconnected"]) == (
        server.returncode,
        [json.loads(line)["event"] for line in err.splitlines()],
    )


async def test_over_stdio_garbage_and_endless_lines_are_skipped(env):
    server = await started(env)
    server.stdin.write(b"\xff\xfe{{{\n" + b"x" * 200_000 + b"\n" + b'{"jsonrpc": "2.0"}\n[]\n')
    answers = [await say(server, HELLO)]
    while answers[-1].get("id") != 1:
        answers.append(json.loads(await asyncio.wait_for(server.stdout.readline(), PATIENCE_SECONDS)))
    assert "rca-worker" == answers[-1]["result"]["serverInfo"]["name"]
    server.stdin.close()
    await asyncio.wait_for(server.communicate(), PATIENCE_SECONDS)
    assert 0 == server.returncode


async def test_input_that_is_no_pipe_ends_it(env):
    ended = await rca("mcp", env=env)
    assert (0, "") == (ended.code, ended.out)


async def posted(url, body=HELLO, **headers):
    sent = {**HEADERS, "Authorization": f"Bearer {TOKEN}", **headers}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, data=data, headers={k: v for k, v in sent.items() if v is not None}) as response,
    ):
        return response.status, dict(response.headers), await response.text()


async def test_http_requires_the_token_and_the_expected_host(env):
    async with served({**env, "RCA_MCP__TOKEN": TOKEN}) as url:
        assert 200 == (await posted(url))[0]
        assert 200 == (await posted(url, Authorization=f"bearer {TOKEN}"))[0]
        for value in (None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"bearer{TOKEN}", "Bearer \xe4"):
            status, headers, _ = await posted(url, Authorization=value)
            assert (401, "Bearer") == (status, headers["WWW-Authenticate"]), value
        assert 421 == (await posted(url, Host="evil.example"))[0]
        assert 403 == (await posted(url, Origin="http://evil.example"))[0]
        assert 403 == (await posted(url, Origin=url.removesuffix("/mcp")))[0]
        assert 413 == (await posted(url, body=b" " * 70_000))[0]
        assert 400 == (await posted(url, body=b"{"))[0]
        assert 404 == (await posted(f"{url}/other"))[0]
        with pytest.RaisesGroup(MCPError, allow_unwrapped=True, flatten_subgroups=True):
            async with Client(url) as client:
                await client.list_tools()


async def test_many_calls_at_once_are_answered_or_told_to_come_again(env, tmp_path):
    async with over_http(env, tmp_path) as client:
        results = await asyncio.gather(*(client.call_tool("list_available_actions", {}) for _ in range(60)))
    told = {part.content[0].text for part in results if part.is_error}
    assert told <= {"error: too many calls at once; try again in a moment"}
    assert any(not result.is_error for result in results)


async def test_an_address_that_is_not_safe_is_refused_with_what_to_set(env):
    ended = await rca("mcp", "--http", "0.0.0.0:0", env=env)
    assert (1, "") == (ended.code, ended.out)
    assert "set RCA_MCP__TOKEN" in ended.err


async def test_every_address_is_served_for_the_hosts_that_are_set(env):
    more = {"RCA_MCP__TOKEN": TOKEN, "RCA_MCP__HOSTS": "rca-mcp.rca.svc:*"}
    async with served({**env, **more}, "0.0.0.0:0") as url:
        reachable = url.replace("0.0.0.0", "127.0.0.1")
        assert 200 == (await posted(reachable, Host="rca-mcp.rca.svc:9000"))[0]
        assert 421 == (await posted(reachable))[0]
