"""A worker whose catalog is changed while it runs."""

from __future__ import annotations

from tests.pipeline import CATALOG
from tests.waiting import until
from worker.app.settings.environment import Settings
from worker.app.settings.groups import CatalogSettings, KubernetesSettings, LlmSettings
from worker.app.wiring import open_worker
from worker.sandbox.cluster_server import write_kubeconfig


async def test_a_refused_change_is_reported_beside_readiness_and_in_the_metrics(tmp_path):
    directory = tmp_path / "catalog"
    directory.mkdir()
    good = (CATALOG / "restart-deployment-v1.yaml").read_text(encoding="utf-8")
    (directory / "a.yaml").write_text(good, encoding="utf-8")
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    settings = Settings(
        kubernetes=KubernetesSettings(kubeconfig=tmp_path / "kubeconfig"),
        llm=LlmSettings(model="openai-chat:scripted", base_url="http://127.0.0.1:9/v1", api_key="test-key"),
        catalog=CatalogSettings(path=directory, poll_seconds=0.01),
    )
    async with open_worker(settings) as worker:
        told = worker.notices["catalog"]
        assert "" == told()
        (directory / "b.yaml").write_text("workflow_id: b\n", encoding="utf-8")
        await until(told)
        assert "action_type: Field required" in told()
        assert b"rca_catalog_problems 1.0" in worker.metrics.text()
        assert not any("catalog" in said for said in worker.checks)
        (directory / "b.yaml").unlink()
        await until(lambda: not told())
        assert b"rca_catalog_problems 0.0" in worker.metrics.text()
