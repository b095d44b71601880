"""What a command imports: start-up is what a person waits for, and nobody notices when an import becomes slow."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.pipeline import CATALOG
from tests.processes import environment

HEAVY = {
    "aiohttp",
    "anthropic",
    "asyncpg",
    "faststream",
    "httpx2",
    "kubernetes",
    "mcp",
    "nats",
    "openai",
    "prometheus_client",
    "pydantic_ai",
    "regorus",
}
PROBE = """
import json, sys
from worker.app.cli.main import app
try:
    app(sys.argv[1:])
except SystemExit as ended:
    print("\\n" + json.dumps([ended.code or 0, sorted(sys.modules)]))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (("--help",), {"pydantic", "schemas", "structlog", "yaml", "worker.adapters"}),
        (("--version",), {"pydantic", "schemas", "rich", "structlog", "yaml", "worker.adapters"}),
        (("catalog", "lint", str(CATALOG)), {"worker.app.settings", "worker.app.wiring"}),
        (("catalog", "list", str(CATALOG)), {"worker.app.settings", "worker.app.wiring"}),
        (("settings",), {"structlog", "worker.adapters"}),
        (("permissions",), {"structlog", "worker.adapters"}),
        (("policy", "input"), {"worker.adapters"}),
        (("submit", "--dry-run", os.devnull), {"worker.app.settings", "worker.app.wiring"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_imports_only_what_it_needs(arguments, more):
    code, modules, said = imported(*arguments)
    assert code in {0, 5}, said
    assert set() == (HEAVY | more) & modules


def imported(*arguments, **env):
    """The exit code of a command, the modules that it has imported, and what it says."""
    ended = subprocess.run(
        (sys.executable, "-c", PROBE, *arguments), env=environment(env), capture_output=True, check=True
    )
    code, modules = json.loads(ended.stdout.splitlines()[-1])
    return code, set(modules), ended.stderr.decode()


@pytest.mark.process
def test_a_worker_imports_only_what_is_configured():
    """It stops for its catalog, when all that it needs has been imported."""
    catalog = "/no/such/directory"
    code, modules, said = imported(
        "worker", RCA_LLM__MODEL="openai-chat:m", RCA_LLM__API_KEY="k", RCA_CATALOG__PATH=catalog
    )
    assert (1, True) == (code, catalog in said), said
    unneeded = {
        "anthropic",
        "asyncpg",
        "boto3",
        "google.genai",
        "groq",
        "kubernetes_validate",
        "mcp",
        "mistralai",
        "rich",
        "uvicorn",
    }
    assert {"openai", "kubernetes", "nats"} == modules & (unneeded | {"openai", "kubernetes", "nats"})
