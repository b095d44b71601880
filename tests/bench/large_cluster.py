"""A large cluster in a process of its own: `python -m tests.bench.large_cluster` prints its address when it is ready.

10,000 pods on 20 namespaces; the namespace of the incident has 2,000 of them and 5,000 events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

from tests.drills.stage import CASE
from tests.fakes.faulty_api import FaultyApi
from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_files import find_logs, read_objects
from worker.sandbox.cluster_server import serve_api
from worker.sandbox.cluster_store import Snapshot

PODS, PODS_BESIDE, EVENTS_BESIDE, NAMESPACES = 10_000, 2_000, 5_000, 20


def objects() -> Iterator[Manifest]:
    """Those of the incident, and many like them."""
    own = list(read_objects(CASE))
    yield from own
    pod = next(one for one in own if one["kind"] == "Pod" and one["metadata"]["namespace"] == "ml-batch")
    event = next(one for one in own if one["kind"] == "Event" and one["metadata"]["namespace"] == "ml-batch")
    for number in range(PODS):
        beside = number < PODS_BESIDE
        namespace = "ml-batch" if beside else f"team-{number % (NAMESPACES - 1)}"
        name = f"other-{number // 10}-5584d8b7cb-{number:05}"
        yield _copy(pod, name, namespace, labels={"app": f"other-{number // 10}"}, ownerReferences=[])
    for number in range(EVENTS_BESIDE):
        about = {
            "kind": "Pod",
            "namespace": "ml-batch",
            "name": f"other-{number % 200}-5584d8b7cb-{number % PODS_BESIDE:05}",
        }
        yield {
            **_copy(event, f"event-{number}", "ml-batch"),
            "involvedObject": {**event["involvedObject"], **about},
        }


def _copy(manifest: Manifest, name: str, namespace: str, **metadata: object) -> Manifest:
    own = {"name": name, "namespace": namespace, "uid": f"uid-{manifest['kind']}-{name}"}
    return {**manifest, "metadata": {**manifest["metadata"], **own, **metadata}}


async def main() -> None:
    """Serve until the process is ended."""
    async with serve_api(FaultyApi(Snapshot(objects(), find_logs(CASE)))) as url:
        print(json.dumps({"url": url}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
