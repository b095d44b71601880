"""DataStorage on loopback: the remediation history of Kubernaut, in its own words (DD-HAPI-016), and its catalog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from tests.fakes.datastorage_catalog import StoredCatalog
from tests.fakes.loopback import served
from worker.adapters.datastorage import DataStorageCatalog, DataStorageClient, DataStorageHistory
from worker.domain.values.errors import CatalogUnavailable, HistoryUnavailable
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import PastRemediation

HASH = f"sha256:{'1' * 64}"
WORDS = {"completed": "success", "failed": "failure", "cancelled": "cancelled"}


@dataclass
class DataStorage:
    """`entries` by target. `answers` come first, one a request of whatever: a status, a response, or None to hang.

    `before` is awaited with every request.
    """

    entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    answers: list[int | web.Response | None] = field(default_factory=list)
    catalog: StoredCatalog = field(default_factory=StoredCatalog)
    requests: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    before: Callable[[web.Request], Awaitable[None]] | None = None
    url: str = ""
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, target: ObjectRef, remediation: PastRemediation) -> None:
        self.entries.setdefault(_place(target.namespace, target.kind, target.name), []).append(
            written(remediation)
        )

    @web.middleware
    async def planned(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.requests.append(dict(request.query))
        self.headers.append(dict(request.headers))
        if self.before is not None:
            await self.before(request)
        if not self.answers:
            return await handler(request)
        planned = self.answers.pop(0)
        if planned is None:
            await self.closing.wait()
            return web.Response(status=503)
        if isinstance(planned, int):
            return web.json_response({"title": "planned"}, status=planned)
        return planned

    async def handle(self, request: web.Request) -> web.Response:
        query = request.query
        needed = ("targetKind", "targetName", "currentSpecHash")
        if not all(query.get(name) for name in needed):
            return web.json_response({"title": "Missing Required Parameter"}, status=400)
        place = _place(query.get("targetNamespace", ""), query["targetKind"], query["targetName"])
        return web.json_response(document(self.entries.get(place, []), place, query["currentSpecHash"]))


def document(
    chain: list[dict[str, Any]], place: str = "shop/Deployment/api", current: str = HASH
) -> dict[str, Any]:
    """The answer, with every entry as a recent one."""
    compact = ("remediationUID", "completedAt", "actionType", "outcome", "hashMatch")
    return {
        "targetResource": place,
        "currentSpecHash": current,
        "regressionDetected": any(entry.get("hashMatch") == "preRemediation" for entry in chain),
        "tier1": {"window": "24h", "chain": chain},
        "tier2": {"window": "2160h", "chain": [{k: e[k] for k in compact if k in e} for e in chain]},
    }


def written(item: PastRemediation) -> dict[str, Any]:
    """A remediation as DataStorage writes it; what it has no word for is lost."""
    values = {
        "remediationUID": item.id,
        "signalFingerprint": "f" * 64,
        "signalType": item.signal_type,
        "actionType": item.action_type,
        "outcome": WORDS.get(item.outcome, item.outcome),
        "effectivenessScore": item.score,
        "signalResolved": item.resolved,
        "hashMatch": item.match,
        "preRemediationSpecHash": item.pre_hash or None,
        "postRemediationSpecHash": item.post_hash or None,
        "sideEffects": list(item.side_effects),
        "completedAt": item.at.isoformat().replace("+00:00", "Z") if item.at else None,
        "assessmentReason": "spec_drift" if item.drifted else "full",
    }
    return {name: value for name, value in values.items() if value is not None}


def _place(namespace: str, kind: str, name: str) -> str:
    return f"{namespace}/{kind}/{name}"


@asynccontextmanager
async def serve() -> AsyncIterator[DataStorage]:
    """Run the server on a free loopback port."""
    storage = DataStorage()
    app = web.Application(middlewares=[storage.planned])
    app.router.add_get("/api/v1/remediation-history/context", storage.handle)
    app.add_routes(storage.catalog.routes())
    async with served(app, storage.closing) as url:
        storage.url = url
        yield storage


def catalog_of(url: str, **options: Any) -> DataStorageCatalog:
    """The catalog at an address."""
    return DataStorageCatalog(_client(url, CatalogUnavailable, 15.0, options), **options)


def history_of(url: str, **options: Any) -> DataStorageHistory:
    """The history at an address."""
    return DataStorageHistory(_client(url, HistoryUnavailable, 5.0, options), **options)


def _client(url: str, failure: Any, seconds: float, options: dict[str, Any]) -> DataStorageClient:
    own = {name: options.pop(name) for name in ("token", "monotonic", "sleep") if name in options}
    return DataStorageClient(url, failure, call_seconds=options.pop("call_seconds", seconds), **own)
