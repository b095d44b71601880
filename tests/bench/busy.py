"""A namespace with 2,000 pods and 5,000 events: requests, and memory that stays after 13 incidents, four at once.

The API server runs in a process of its own, the incidents in another one, so that only a worker's own memory counts.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

from schemas.incident import IncidentRequest
from tests.fakes.faulty_api import FaultyApi
from tests.fakes.manifests import crashing, deployment, event, obj, pod, replica_set
from worker.adapters.kubernetes_cluster import KubernetesCluster
from worker.app.wiring.clock import SystemClock
from worker.domain.diagnosis.claims import diagnose
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.enrichment.enrich import enrich
from worker.domain.intake.accepted import signal_resource
from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_server import serve_api, shipped_rights, write_kubeconfig
from worker.sandbox.cluster_store import Snapshot

PODS, EVENTS, INCIDENTS, AT_ONCE = 2_000, 5_000, 13, 4
MANAGERS = [
    {
        "manager": "kube-controller-manager",
        "fieldsV1": {f"f:field{n}": {"f:a": {}, "f:b": {}} for n in range(40)},
    }
]
SPEC = {
    "containers": [
        {"name": "app", "image": "a:1", "env": [{"name": f"E{n}", "value": "v" * 20} for n in range(20)]}
    ],
    "volumes": [{"name": f"v{n}", "configMap": {"name": f"c{n}"}} for n in range(4)],
    "nodeName": "node-1",
}

REQUEST = {
    "incident_id": "inc-1",
    "remediation_id": "rr-1",
    "signal_type": "KubePodCrashLooping",
    "severity": "critical",
    "resource_kind": "Deployment",
    "resource_name": "api",
    "resource_namespace": "shop",
    "received_time": "2026-06-04T15:30:00Z",
}


def namespace() -> list[Manifest]:
    """Ten pods of a Deployment crash between 2,000 healthy ones, about which 5,000 events tell."""
    top = deployment("api")
    revision = replica_set(top, "5d4f8b7cb", 1)
    own: dict[str, Any] = {"owner": revision, "labels": {"app": "api"}, "status": crashing(), "spec": SPEC}
    pods = [pod(f"api-5d4f8b7cb-x{n}x4z", **own) for n in range(10)]
    pods += [pod(f"other-{n:04d}", labels={"app": "other"}, spec=SPEC) for n in range(PODS)]
    noise = [event(pods[50], "Noise", f"probe {n} failed: {'x' * 60}", key=str(n)) for n in range(EVENTS)]
    for item in (*pods, *noise):
        item["metadata"]["managedFields"] = MANAGERS
    return [obj("Namespace", "shop", ""), obj("Node", "node-1", ""), top, revision, *pods, *noise]


async def serve(kubeconfig: Path) -> None:
    """Serve the namespace until the process is ended."""
    async with serve_api(FaultyApi(Snapshot(namespace()), rights=shipped_rights())) as url:
        write_kubeconfig(kubeconfig, url)
        print("ready", flush=True)
        await asyncio.Event().wait()


def resident_mib() -> float:
    """Memory of this process that is in RAM."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


async def analyse(kubeconfig: Path) -> None:
    """Run the incidents and print how much memory is left behind, in MiB."""
    request = IncidentRequest.model_validate(REQUEST)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with gate:
            await enrich(request, cluster, SystemClock(), deadline_seconds=60.0)
            facts = ClusterFacts(now=request.received_time)
            await Investigator(cluster).conclude(
                facts, lambda known: diagnose(known, signal_resource(request))
            )

    async with KubernetesCluster(kubeconfig=str(kubeconfig)) as cluster:
        await cluster.check()
        before = resident_mib()
        await asyncio.gather(*(one() for _ in range(INCIDENTS)))
        print(f"{resident_mib() - before:.1f}")


async def busy_namespace() -> float:
    """MiB that stay after the incidents."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = f"{folder}/kubeconfig"
        command = [sys.executable, "-m", "tests.bench.busy"]
        server = await asyncio.create_subprocess_exec(
            *command, "serve", kubeconfig, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert server.stdout is not None
            await server.stdout.readline()
            client = await asyncio.create_subprocess_exec(
                *command, "analyse", kubeconfig, stdout=asyncio.subprocess.PIPE
            )
            said, _ = await client.communicate()
            return float(said)
        finally:
            server.kill()
            await server.wait()


if __name__ == "__main__":
    work = {"serve": serve, "analyse": analyse}[sys.argv[1]]
    asyncio.run(work(Path(sys.argv[2])))
