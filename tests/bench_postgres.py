"""The part of `make bench` about the catalog in PostgreSQL: wall time of look-ups, which are spent in two processes.

On a busy machine all of it is more.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Awaitable, Callable

from schemas.taxonomy import Severity
from tests.corpus_files import corpus_path
from tests.fakes.many_workflows import many_workflows, some_contexts
from tests.postgres_server import postgres_server, rows
from worker.adapters.file_catalog import FileCatalog
from worker.adapters.postgres_catalog import PostgresCatalog, push
from worker.adapters.postgres_catalog.statements import BITS
from worker.adapters.postgres_catalog.stored import keys_for
from worker.domain.catalog.search import SearchQuery
from worker.domain.catalog.workflow import SelectionContext, Workflow

WORKFLOWS = 20_000
CALLS = 300
EXAMPLES = corpus_path("catalog/restart-deployment-v1.yaml").parent


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
            await look_ups(catalog, many)
        keys = keys_for(some_contexts(1)[0])
        plan = await rows(url, f"EXPLAIN {BITS}", *map(list, zip(*keys, strict=True)))
        for (step,) in plan:
            print(f"    {step}")


async def look_ups(catalog: PostgresCatalog, many: list[Workflow]) -> None:
    contexts = some_contexts(100)
    queries = [SearchQuery(c.signal_type, Severity(c.severity), ("deployment", "rollback")) for c in contexts]
    actions = [action.action_type for action in await catalog.actions(SelectionContext())]
    fitting = [n for n in range(100) if (await catalog.search(queries[n], contexts[n])).total]
    turn = itertools.cycle(fitting)

    async def found(_number: int) -> object:
        chosen = next(turn)
        return await catalog.search(queries[chosen], contexts[chosen])

    kinds: dict[str, Callable[[int], Awaitable[object]]] = {
        "list actions": lambda n: catalog.actions(contexts[n % 100]),
        "list workflows": lambda n: catalog.workflows(actions[n % len(actions)], contexts[n % 100]),
        "search": lambda n: catalog.search(queries[n % 100], contexts[n % 100]),
        "search that finds hundreds": found,
        "get": lambda n: catalog.get(many[n * 7].workflow_id, contexts[n % 100]),
    }
    for name, call in kinds.items():
        line(name, await wall_ms(call))


def line(name: str, value: str) -> None:
    print(f"{f'PostgreSQL, {WORKFLOWS:,} workflows: {name}':55} {value}", flush=True)
