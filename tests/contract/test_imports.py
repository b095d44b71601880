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
    ended = subprocess.run(
        (sys.executable, "-c", PROBE, *arguments), env=environment({}), capture_output=True, check=True
    )
    code, modules = json.loads(ended.stdout.splitlines()[-1])
    assert code in {0, 5}, ended.stderr
    assert set() == (HEAVY | more) & set(modules)
