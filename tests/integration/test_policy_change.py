"""A worker whose policy is changed while it runs, or stands on an OPA server."""

from __future__ import annotations

from contextlib import asynccontextmanager

from tests.fakes import opa
from tests.fakes.rego import RULES
from tests.pipeline import CATALOG
from tests.waiting import until
from worker.app.settings.environment import Settings
from worker.app.settings.groups import CatalogSettings, KubernetesSettings, LlmSettings, PolicySettings
from worker.app.wiring import open_worker
from worker.sandbox.cluster_server import write_kubeconfig


@asynccontextmanager
async def worker_with(tmp_path, policy: PolicySettings):
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    settings = Settings(
        kubernetes=KubernetesSettings(kubeconfig=tmp_path / "kubeconfig"),
        llm=LlmSettings(model="openai-chat:scripted", base_url="http://127.0.0.1:9/v1", api_key="test-key"),
        catalog=CatalogSettings(path=CATALOG),
        policy=policy,
    )
    async with open_worker(settings) as worker:
        yield worker


async def test_a_broken_change_is_reported_beside_readiness_and_in_the_metrics(tmp_path):
    path = tmp_path / "approval.rego"
    path.write_text(RULES, encoding="utf-8")
    async with worker_with(tmp_path, PolicySettings(path=path, poll_seconds=0.01)) as worker:
        told = worker.notices["policy"]
        assert "" == told()
        path.write_text("package broken", encoding="utf-8")
        await until(lambda: "everything needs approval" in told())
        assert "no rule that decides" in told()
        assert b"rca_policy_problems 1.0" in worker.metrics.text()
        assert not any("policy" in name for name in worker.checks)
        path.write_text(RULES, encoding="utf-8")
        await until(lambda: not told())
        assert b"rca_policy_problems 0.0" in worker.metrics.text()


async def test_a_server_that_is_not_there_is_told_and_the_worker_starts(tmp_path):
    async with (
        opa.serve(RULES) as server,
        worker_with(tmp_path, PolicySettings(url=server.url)) as worker,
    ):
        assert "" == worker.notices["policy"]()
    async with worker_with(tmp_path, PolicySettings(url=server.url)) as worker:
        assert f"the OPA server {server.url}: cannot be reached" in worker.notices["policy"]()
