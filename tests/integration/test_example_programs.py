"""The programs of docs/examples work with a worker, each with the rights of its role and nothing more."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from schemas.permissions import Role
from tests.fakes.aianalysis import act
from tests.integration.test_nats_roles import Model, place
from tests.integration.test_pipeline import BODY
from tests.nats_roles import PASSWORD

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NODE = shutil.which("node")
PATIENCE_SECONDS = 100
without_node = pytest.mark.skipif(
    NODE is None or not (EXAMPLES / "node" / "node_modules").is_dir(),
    reason="node or its packages are not installed: npm ci --prefix docs/examples/node",
)
LANGUAGES = [pytest.param("node", marks=without_node), "python"]

pytestmark = [pytest.mark.process]


@asynccontextmanager
async def started(language, name, server, *files):
    """A program of the examples, named as its role. It must end in order when it is told to."""
    command = (NODE, f"node/{name}.mjs") if language == "node" else (sys.executable, f"python/{name}.py")
    process = await asyncio.create_subprocess_exec(
        *command,
        *files,
        cwd=EXAMPLES,
        env=os.environ
        | {"NATS_URL": server.url, "NATS_USER": name, "NATS_PASSWORD": PASSWORD.format(role=name)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        _, err = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert 0 == process.returncode, err.decode()


async def said(process, beginning):
    """The rest of the next line that begins so."""
    while line := (await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)).decode():
        if line.startswith(beginning):
            return line.removeprefix(beginning).strip()
    raise AssertionError(f"it ended without {beginning!r}: {(await process.stderr.read()).decode()}")


def request(path, **changes):
    path.write_text(json.dumps({**json.loads(BODY), **changes}))
    return path


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_gateway_and_the_consumer_do_their_part(tmp_path, language):
    async with place(tmp_path, Model(free=True)) as p:
        made = await p.rca(Role.PROVISIONER, "provision")
        assert 0 == made.code, made.err
        wrong = request(tmp_path / "wrong.json", severity="catastrophic")
        good = request(tmp_path / "good.json", remediation_id="rr.1")
        other = request(tmp_path / "other.json", remediation_id="rr.1", severity="low")
        async with (
            started(language, "aianalysis", p.server) as consumer,
            started(language, "gateway", p.server, wrong, good, good) as gateway,
            p.worker(),
        ):
            assert "severity" in await said(gateway, "not sent: ")
            assert "sequence 1" == await said(gateway, "stored rr.1: ")
            assert "sequence 1" == await said(gateway, "was stored before rr.1: ")
            action, _, detail = (await said(consumer, "rr%2E1: ")).partition(" ")
            result = await p.result("rr%2E1")
            assert "execute" == act(result).action == action
            assert result["selected_workflow"] == json.loads(detail)
            await p.speakers[Role.GATEWAY].js.publish("rca.request.incident", other.read_bytes())
            assert (await said(gateway, "rejected rr%2E1: ")).startswith(
                "key_conflict: remediation_id: expected "
            )
        durable = await p.speakers[Role.OPERATOR].js.consumer_info("RCA_RESULTS", "aianalysis")
        assert (0, 0) == (durable.num_pending, durable.num_ack_pending)
        assert [] == p.server.violations()
