"""How the adapter gets its credentials: service account over TLS, kubeconfig, credential plugin."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests.fakes.faulty_api import FaultyApi
from worker.adapters.kubernetes_cluster import KubernetesCluster
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import ObjectRef
from worker.sandbox.cluster_server import serve_api, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot

TOKEN = "FAKE-token"
NODE = ObjectRef("Node", "worker-1")
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
async def api() -> FaultyApi:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}}
    return FaultyApi(Snapshot([node]), token=TOKEN)


@pytest.fixture
async def url(api: FaultyApi) -> AsyncIterator[str]:
    async with serve_api(api) as url:
        yield url


class Plugin:
    """A credential plugin: a script that counts its runs in a file."""

    def __init__(self, folder: Path, url: str, body: str) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._log = folder / "runs"
        script = folder / "plugin.py"
        script.write_text(
            f"import json, os, sys, time\nopen({str(self._log)!r}, 'a').write('run\\n')\n{body}\n"
        )
        write_kubeconfig(self.kubeconfig, url)
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"][0]["user"] = {
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": sys.executable,
                "args": [str(script)],
                "env": [{"name": "PLUGIN_TOKEN", "value": TOKEN}],
            }
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))

    @property
    def runs(self) -> int:
        return len(self._log.read_text().splitlines())

    def cluster(self, **settings: Any) -> KubernetesCluster:
        return KubernetesCluster(kubeconfig=str(self.kubeconfig), now=lambda: NOW, **settings)


def credential(expires: datetime | None = None) -> str:
    """Python that prints a credential made of what the plugin was given."""
    moment = f", 'expirationTimestamp': {expires.isoformat()!r}" if expires else ""
    return (
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"status = {{'token': os.environ['PLUGIN_TOKEN']{moment}}}\n"
        "print(json.dumps({'apiVersion': info['apiVersion'], 'kind': 'ExecCredential', 'status': status}))"
    )


async def unavailable(call: Any) -> str:
    with pytest.raises(ClusterError) as caught:
        await call
    assert caught.value.reason == ClusterReason.UNAVAILABLE
    return caught.value.message


@pytest.mark.process
async def test_plugin_runs_once_for_many_calls(tmp_path: Path, url: str) -> None:
    plugin = Plugin(tmp_path, url, credential(NOW + timedelta(hours=1)))
    async with plugin.cluster() as cluster:
        await asyncio.gather(*(cluster.get(NODE) for _ in range(20)))
    assert plugin.runs == 1


@pytest.mark.process
async def test_plugin_runs_again_when_its_token_is_about_to_expire(tmp_path: Path, url: str) -> None:
    plugin = Plugin(tmp_path, url, credential(NOW + timedelta(seconds=10)))
    async with plugin.cluster() as cluster:
        await cluster.get(NODE)
    assert plugin.runs == 2


@pytest.mark.process
async def test_plugin_runs_again_when_its_token_is_refused(tmp_path: Path, url: str) -> None:
    plugin = Plugin(tmp_path, url, credential().replace("['PLUGIN_TOKEN']", "['PLUGIN_TOKEN'] + 'x'"))
    async with plugin.cluster() as cluster:
        with pytest.raises(ClusterError) as caught:
            await cluster.get(NODE)
    assert caught.value.reason == ClusterReason.FORBIDDEN
    assert plugin.runs == 2


@pytest.mark.process
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("print('SECRET-OUTPUT')", "ExecCredential"),
        ("print(json.dumps({'status': {'clientCertificateData': 'SECRET-OUTPUT'}}))", "certificates"),
        ("sys.stderr.write('SECRET-OUTPUT'); sys.exit(3)", "exit code 3"),
        (credential().replace("'token'", "'expirationTimestamp': 'SECRET-OUTPUT', 'token'"), "RFC 3339"),
    ],
)
async def test_plugin_that_fails(tmp_path: Path, url: str, body: str, expected: str) -> None:
    message = await unavailable(Plugin(tmp_path, url, body).cluster().open())
    assert expected in message
    assert "SECRET-OUTPUT" not in message


@pytest.mark.process
async def test_plugin_that_hangs_is_killed(tmp_path: Path, url: str) -> None:
    pid_file = tmp_path / "pid"
    plugin = Plugin(tmp_path, url, f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    assert "did not answer" in await unavailable(plugin.cluster(plugin_seconds=5.0).open())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


@pytest.mark.process
async def test_plugin_that_is_not_there(tmp_path: Path, url: str) -> None:
    plugin = Plugin(tmp_path, url, "")
    plugin.kubeconfig.write_text(plugin.kubeconfig.read_text().replace(sys.executable, "/nowhere/plugin"))
    assert "cannot be started" in await unavailable(plugin.cluster().open())


@pytest.mark.parametrize("text", ["", "[]", "{", "a: b", json.dumps({"contexts": 1, "current-context": "x"})])
async def test_kubeconfig_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    await unavailable(KubernetesCluster(kubeconfig=str(path)).open())


async def test_kubeconfig_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file" in await unavailable(KubernetesCluster(kubeconfig=str(tmp_path / "none")).open())


async def test_context_that_is_named(tmp_path: Path, url: str) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, url, TOKEN)
    config = yaml.safe_load(path.read_text())
    config["current-context"] = "other"
    path.write_text(yaml.safe_dump(config))
    await unavailable(KubernetesCluster(kubeconfig=str(path)).open())
    async with KubernetesCluster(kubeconfig=str(path), context="snapshot") as cluster:
        assert (await cluster.get(NODE))["kind"] == "Node"


async def test_proxy_variables_are_not_looked_at(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, url, TOKEN)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with KubernetesCluster(kubeconfig=str(path)) as cluster:
        assert (await cluster.get(NODE))["kind"] == "Node"


async def test_no_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    await unavailable(KubernetesCluster(service_account=tmp_path).open())


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("openssl"), reason="makes its certificate with openssl")
async def test_service_account_whose_token_is_replaced(
    tmp_path: Path, api: FaultyApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = _certificate(tmp_path)
    (tmp_path / "token").write_text("FAKE-old")
    async with _served_with_tls(api, tls) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        async with KubernetesCluster(service_account=tmp_path) as cluster:
            (tmp_path / "token").write_text(TOKEN)
            assert (await cluster.get(NODE))["kind"] == "Node"
    assert [request.status for request in api.requests] == [401, 200]


def _certificate(folder: Path) -> ssl.SSLContext:
    names = "subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "ca.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subject = [
        "-subj",
        "/CN=test",
        "-addext",
        names,
        "-addext",
        "keyUsage=critical,digitalSignature,keyCertSign",
    ]
    subprocess.run([*command, *files, *subject], check=True, capture_output=True, timeout=30)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "ca.crt", folder / "key")
    return context


@asynccontextmanager
async def _served_with_tls(api: FaultyApi, context: ssl.SSLContext) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    async with AsyncExitStack() as stack:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
