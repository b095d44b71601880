"""The part of `make bench-parts` about the catalog in PostgreSQL: wall time of look-ups, which are spent in two processes.

On a busy machine all of it is more.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

from schemas.taxonomy import Severity
from tests.corpus_files import corpus_path
from tests.fakes.many_workflows import many_workflows, some_contexts
from tests.postgres_server import postgres_server
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.postgres_catalog import PostgresCatalog, embed, push
from worker.domain.catalog.similarity import unit_vectors
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import SelectionContext, Workflow

WORKFLOWS = 20_000
CALLS = 300
EXAMPLES = corpus_path("catalog/restart-deployment-v1.yaml").parent


class Dice:
    """An Embedder of no meaning: texts as random vectors, the same for the same text."""

    name = "dice"
    dimensions = 384

    async def embed(self, texts: Sequence[str], *, query: bool) -> Sequence[Sequence[float]]:
        dice = [random.Random(f"{query} {text}") for text in texts]
        return unit_vectors([[one.gauss(0, 1) for _ in range(self.dimensions)] for one in dice], len(texts))


async def wall_ms(call: Callable[[int], Awaitable[object]]) -> str:
    """Median and 99th percentile of one call, over many different ones, after a first one of each kind."""
    found = []
    for number in range(CALLS + 100):
        started = time.perf_counter()
        await call(number)
        found.append((time.perf_counter() - started) * 1000)
    cuts = statistics.quantiles(found[100:], n=100)
    return f"p50 {cuts[49]:6.2f}  p99 {cuts[98]:6.2f} ms"


async def postgres_table() -> None:
    """Print a line for each kind of look-up."""
    many = many_workflows(await FileCatalog.open(EXAMPLES), WORKFLOWS)
    with postgres_server() as server:
        url = await server.new_database()
        started = time.perf_counter()
        await push(url, many, {})
        line("push", f"{time.perf_counter() - started:.1f} s")
        async with PostgresCatalog(url) as catalog:
            started = time.perf_counter()
            await catalog.check()
            line("first look-up after a push", f"{time.perf_counter() - started:.1f} s")
            await look_ups(catalog, many)
        await embed(url, Dice())
        async with PostgresCatalog(url, embedder=Dice()) as catalog:
            line("search that finds hundreds, by meaning", await wall_ms(await searches(catalog)))


async def look_ups(catalog: PostgresCatalog, many: list[Workflow]) -> None:
    contexts = some_contexts(100)
    queries = [SearchQuery(c.signal_type, Severity(c.severity), ("deployment", "rollback")) for c in contexts]
    actions = [action.action_type for action in await catalog.actions(SelectionContext())]
    kinds: dict[str, Callable[[int], Awaitable[object]]] = {
        "list actions": lambda n: catalog.actions(contexts[n % 100]),
        "list workflows": lambda n: catalog.workflows(actions[n % len(actions)], contexts[n % 100]),
        "search": lambda n: catalog.search(queries[n % 100], contexts[n % 100]),
        "search that finds hundreds": await searches(catalog),
        "get": lambda n: catalog.get(many[n * 7].workflow_id, contexts[n % 100]),
    }
    for name, call in kinds.items():
        line(name, await wall_ms(call))


async def searches(catalog: PostgresCatalog) -> Callable[[int], Awaitable[object]]:
    """Searches of which each finds something, hundreds most of the time."""
    asked = [
        (SearchQuery(c.signal_type, Severity(c.severity), ("deployment", "rollback")), c)
        for c in some_contexts(100)
    ]
    fitting = [each for each in asked if (await catalog.search(*each)).total]
    return lambda n: catalog.search(*fitting[n % len(fitting)])


def line(name: str, value: str) -> None:
    print(f"{f'PostgreSQL, {WORKFLOWS:,} workflows: {name}':55} {value}", flush=True)
