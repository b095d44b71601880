"""The contract as other languages read it: the official AsyncAPI parser, and a strict JSON Schema validator."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from schemas.export import V1, export

HERE = Path(__file__).parent / "node"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (HERE / "node_modules").is_dir(),
        reason="its packages are not installed: npm ci --prefix tests/contract/node",
    ),
]


def check(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [NODE, HERE / "check.mjs", directory]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_contract_is_read_without_an_error():
    done = check(V1)
    assert "" == done.stderr
    assert 0 == done.returncode
    assert done.stdout.startswith("7 schemas, ")


@pytest.mark.parametrize(
    ("file", "path", "value", "expected"),
    [
        (
            "asyncapi.json",
            ("channels", "audit", "messages", "auditEvent", "$ref"),
            "#/nowhere",
            "asyncapi.json",
        ),
        ("analysis-result.schema.json", ("properties", "status", "typ"), "string", "strict mode"),
        ("samples/incident-request.json", ("severity",), "catastrophic", "samples/incident-request.json"),
        (
            "asyncapi.json",
            ("components", "messages", "incidentResult", "examples", 0, "headers", "ce-type"),
            "other",
            "headers",
        ),
    ],
)
def test_the_check_finds_what_is_wrong(tmp_path, file, path, value, expected):
    export(tmp_path)
    document = json.loads((tmp_path / file).read_text())
    node = document
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    (tmp_path / file).write_text(json.dumps(document))
    done = check(tmp_path)
    assert 1 == done.returncode
    assert expected in done.stderr
