"""Gathering the facts of an incident in a large cluster: time, reads and memory."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schemas.taxonomy import RequestKind
from tests.drills.stage import CASE, ROOT
from worker.adapters.kubernetes_cluster import KubernetesCluster
from worker.app.wiring.clock import SystemClock
from worker.domain.enrichment.enrich import Enrichment, enrich
from worker.domain.intake.decode import Decoded, decode
from worker.sandbox.cluster_server import write_kubeconfig


class Counting:
    """A cluster that counts what it is asked."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster, self.calls = cluster, 0

    def __getattr__(self, name: str) -> Any:
        self.calls += name in {"get", "list", "logs"}
        return getattr(self._cluster, name)


@dataclass(frozen=True)
class Gathered:
    """Wall seconds, calls of the cluster, MiB that the process has grown by at most; what could not be read."""

    seconds: float
    calls: int
    growth: float
    unknown: tuple[str, ...]


async def gathering() -> Gathered:
    """One incident in the cluster of 10,000 pods, after one in which the client has looked around."""
    decoded = decode((CASE / "incident.json").read_bytes(), RequestKind.INCIDENT, datetime.now(UTC))
    assert isinstance(decoded, Decoded)

    async def once(cluster: Any) -> Enrichment:
        return await enrich(decoded.request, cluster, SystemClock(), deadline_seconds=60)

    async with _served() as kubeconfig, KubernetesCluster(kubeconfig=str(kubeconfig)) as cluster:
        counting = Counting(cluster)
        before = _largest_mib()
        await once(cluster)
        began = time.monotonic()
        found = await once(counting)
        return Gathered(
            time.monotonic() - began, counting.calls, _largest_mib() - before, found.failed_sources
        )


def _largest_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@asynccontextmanager
async def _served() -> AsyncIterator[Path]:
    """The kubeconfig of the cluster, which runs in a process of its own."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.large_cluster", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        url = json.loads(await asyncio.wait_for(server.stdout.readline(), 120))["url"]
        with tempfile.TemporaryDirectory() as directory:
            kubeconfig = Path(directory) / "kubeconfig"
            write_kubeconfig(kubeconfig, url)
            yield kubeconfig
    finally:
        server.terminate()
        await server.wait()
