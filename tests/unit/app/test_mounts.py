from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.app.settings.groups import McpSettings
from worker.app.settings.mounts import read_mounts
from worker.domain.values.external_tools import McpServer

DOCS = "docs=https://docs.example.org/mcp"
TEXTS = st.lists(st.text(max_size=30) | st.sampled_from([DOCS, "docs.a", "docs=/x", "r=stdio:x"]), max_size=4)


def mounts(servers=(DOCS,), tools=("docs.search",), read_only_tools=(), tokens=()):
    return read_mounts(servers, tools, read_only_tools, tokens)


def test_without_servers_there_is_nothing():
    assert () == McpSettings().mounts


def test_servers_are_comma_text():
    settings = McpSettings(
        servers="docs=https://docs.example.org/mcp, run=stdio:/usr/bin/runbooks --root '/my books'",
        tools="docs.search,run.read,docs.read/page.v2",
        read_only_tools="run.read",
        tokens="docs=/run/secrets/docs",
    )
    assert (
        McpServer(
            "docs",
            ("search", "read/page.v2"),
            url="https://docs.example.org/mcp",
            token_file=Path("/run/secrets/docs"),
        ),
        McpServer(
            "run",
            ("read",),
            command=("/usr/bin/runbooks", "--root", "/my books"),
            vouched=frozenset({"read"}),
        ),
    ) == settings.mounts


def test_a_tool_that_is_named_twice_is_one():
    assert ("search",) == mounts(tools=("docs.search", "docs.search"))[0].tools


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"servers": (DOCS, "b=https://b/mcp")}, "tools: name at least one tool of b"),
        ({"tools": ()}, "tools: name at least one tool of docs"),
        ({"tools": ("docs.search", "other.x")}, "tools: other.x: must be SERVER.TOOL"),
        ({"tools": ("docs.search", "docs")}, "tools: docs: must be SERVER.TOOL"),
        ({"tools": ("docs.search", "docs.a b")}, "tools: docs.a b: must be SERVER.TOOL"),
        ({"read_only_tools": ("docs.write",)}, "read_only_tools: docs.write is not one of the tools"),
        ({"tokens": ("other=/x",)}, "tokens: other: only a server over HTTP takes a token"),
        ({"tokens": ("docs",)}, "tokens: docs: must be NAME=FILE"),
        ({"servers": ("docs",)}, "servers: docs: must be NAME=https"),
        ({"servers": ("Docs=https://h/mcp",)}, "servers: Docs: must be NAME=https"),
        ({"servers": ("docs_a=https://h/mcp",)}, "servers: docs_a: must be NAME=https"),
        ({"servers": (DOCS, DOCS)}, "servers: docs is named twice"),
        ({"servers": ("docs=ftp://h/mcp",)}, "servers: docs: must be https://HOST/PATH"),
        ({"servers": ("docs=https://user:pw@h/mcp",)}, "without credentials"),
        ({"servers": ("docs=https://h/mcp?key=x",)}, "without credentials or query"),
        ({"servers": ("docs=stdio:",)}, "servers: docs: stdio: needs a command"),
        ({"servers": ("docs=stdio:'x",)}, "the command cannot be read"),
        ({"servers": ("docs=stdio:x",), "tokens": ("docs=/x",)}, "only a server over HTTP takes a token"),
    ],
)
def test_what_cannot_be_meant_is_refused(said, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        mounts(**said)


def test_every_problem_is_told_and_no_credential():
    with pytest.raises(ValueError, match="docs") as raised:
        mounts(servers=("docs=https://user:hunter2@h/mcp", "run=stdio:"), tools=("x.y",))
    assert 5 == len(str(raised.value).split("; "))
    assert "hunter2" not in str(raised.value)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_any_text_is_read_or_refused(servers, tools, read_only_tools, tokens):
    try:
        found = read_mounts(servers, tools, read_only_tools, tokens)
    except ValueError:
        return
    assert all(mount.tools and bool(mount.url) is not bool(mount.command) for mount in found)
