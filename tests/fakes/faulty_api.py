"""A snapshot cluster with faults: which answers go wrong, how, and how often; and a record of what was asked."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from worker.sandbox.cluster_failure import ApiFailure
from worker.sandbox.cluster_server import Rights, SnapshotApi, json_failure
from worker.sandbox.cluster_store import Snapshot

REQUESTS_KEPT = 2_000
FOREVER_SECONDS = 3600.0
GARBAGE = b"<html><body>\xff\xfe not the answer</body></html>"


class Fault(BaseModel):
    """One rule. `path` is a glob over the request path, as in `/api/v1/namespaces/*/pods*`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = "*"
    every: int = Field(default=1, ge=1)
    """Goes wrong for each n-th matching request."""
    times: int | None = Field(default=None, ge=0)
    """How often at most; None is always."""
    delay_seconds: float = Field(default=0.0, ge=0)
    status: int | None = Field(default=None, ge=400, le=599)
    retry_after_seconds: int | None = Field(default=None, ge=0)
    redirect: str = ""
    """Answers with a redirect to this address."""
    hang: bool = False
    """Never answers."""
    drop: bool = False
    """Closes the connection without an answer."""
    cut: bool = False
    """Closes the connection in the middle of the answer."""
    garbage: bool = False
    """Answers 200 with a body that is not JSON."""
    page: str = ""
    """The body of the answer with `status`, as a proxy sends it, in place of a Status object."""
    continuable: bool = True
    """Whether a 410 offers a token to go on with."""


class FaultPlan:
    """The rules in force, and how often each has been used."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._entries = [_Entry(fault) for fault in faults]

    def take(self, path: str) -> Fault | None:
        """The fault of this request, if it has one: the first rule that fires."""
        return next((entry.fault for entry in self._entries if entry.fires(path)), None)


class _Entry:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._seen = 0
        self._fired = 0

    def fires(self, path: str) -> bool:
        if not fnmatchcase(path, self.fault.path):
            return False
        self._seen += 1
        spent = self.fault.times is not None and self._fired >= self.fault.times
        if spent or self._seen % self.fault.every:
            return False
        self._fired += 1
        return True


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request that was answered (or dropped: status 0). `query` is the raw query string."""

    method: str
    path: str
    query: str
    status: int


@dataclass(frozen=True, slots=True)
class AllBut(Rights):
    """Every right but those on the resources, as `secrets` or `rollouts.argoproj.io`."""

    forbidden: tuple[str, ...] = ("secrets",)

    def allow(self, verb: str, group: str, resource: str, name: str = "") -> bool:
        plural = resource.partition("/")[0]
        return (f"{plural}.{group}" if group else plural) not in self.forbidden


class FaultyApi(SnapshotApi):
    """A snapshot's API that can go wrong, and that notes what it was asked.

    `token`: required as bearer token when set. `aggregated`: whether discovery is offered in one document, as since
    Kubernetes 1.26. `dead` are groups of an aggregated API without a backend. `requests` holds the last requests, oldest
    first. Every public attribute may be replaced at any time.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        rights: Rights = AllBut(),
        *,
        token: str | None = None,
        faults: Iterable[Fault] = (),
    ) -> None:
        super().__init__(snapshot, rights)
        self.faults = FaultPlan(faults)
        self.requests: deque[SeenRequest] = deque(maxlen=REQUESTS_KEPT)
        self.aggregated = True
        self.dead: frozenset[str] = frozenset()
        self._token = token

    async def handle(self, request: web.Request) -> web.StreamResponse:
        fault, status = self.faults.take(request.path), 0
        try:
            response = await self._faulty(request, fault) if fault else await self._answer(request)
            status = 0 if fault and fault.drop else response.status
        finally:
            self.requests.append(SeenRequest(request.method, request.path, request.query_string, status))
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if self._token is not None and (scheme.lower(), given) != ("bearer", self._token):
            return json_failure(ApiFailure(401, "Unauthorized"))
        if request.path.startswith(tuple(f"/apis/{group}" for group in self.dead)):
            return json_failure(ApiFailure(503, "the server is currently unable to handle the request"))
        if not self.aggregated:
            request = request.clone(headers={"Accept": "application/json"})
        response = await super().handle(request)
        return self._with_dead_groups(response) if self.dead and request.path == "/apis" else response

    def _with_dead_groups(self, response: web.StreamResponse) -> web.StreamResponse:
        """Versions of groups that never answered are stale and list nothing."""
        assert isinstance(response, web.Response)
        document = json.loads(response.text or "")
        for group in document.get("items", ()):
            if group["metadata"].get("name") in self.dead:
                stale = [{"version": v["version"], "freshness": "Stale"} for v in group["versions"]]
                group["versions"] = stale
        return web.json_response(document)

    async def _faulty(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        await asyncio.sleep(FOREVER_SECONDS if fault.hang else fault.delay_seconds)
        if fault.drop:
            return _abort(request)
        if fault.status:
            return _failing(request, fault, fault.status)
        if fault.redirect:
            return web.Response(status=302, headers={"Location": fault.redirect})
        if fault.garbage:
            return web.Response(body=GARBAGE, content_type="application/json")
        response = await self._answer(request)
        return await _cut_short(request, response) if fault.cut else response


def _failing(request: web.Request, fault: Fault, status: int) -> web.Response:
    if fault.page:
        return web.Response(status=status, text=fault.page, content_type="text/html")
    body = ApiFailure(status, f"injected fault {status}").body
    token = request.query.get("continue", "")
    if status == 410 and fault.continuable and token:
        body["metadata"] = {"continue": token}  # goes on with what there is now
    after = fault.retry_after_seconds
    return web.json_response(
        body, status=status, headers={} if after is None else {"Retry-After": str(after)}
    )


def _abort(request: web.Request) -> web.Response:
    if request.transport:
        request.transport.abort()
    return web.Response()


async def _cut_short(request: web.Request, whole: web.StreamResponse) -> web.StreamResponse:
    """Sends half of the body that was promised, then closes the connection."""
    assert isinstance(whole, web.Response)
    body = whole.body if isinstance(whole.body, bytes) else b""
    response = web.StreamResponse(
        headers={"Content-Length": str(len(body)), "Content-Type": "application/json"}
    )
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport:
        request.transport.close()
    return response
