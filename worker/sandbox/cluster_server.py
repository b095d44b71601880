"""A read-only Kubernetes API server over a snapshot: real HTTP on loopback, for the demo, the scoring and the tests.

It speaks the documented REST protocol ("Kubernetes API Concepts"), so production clients need no special case.
Not served: watch, writes, Table output, OpenAPI.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from aiohttp import web

from worker.sandbox.cluster_failure import ApiFailure, bad_request, no_such_resource
from worker.sandbox.cluster_faults import Fault, FaultPlan
from worker.sandbox.cluster_kinds import Resource, aggregated_document, discovery_document
from worker.sandbox.cluster_logs import LogOptions
from worker.sandbox.cluster_rights import Rights, shipped_rights
from worker.sandbox.cluster_store import ListOptions, Snapshot

HOST = "127.0.0.1"
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"}
AGGREGATED = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
USER = "system:serviceaccount:rca:rca-worker"
REQUESTS_KEPT = 2_000
SHUTDOWN_SECONDS = 1.0
GARBAGE = b"<html><body>\xff\xfe not the answer</body></html>"
NOT_ALLOWED = ApiFailure(405, "the server does not allow this method on the requested resource")
TRUE_WORDS = {"true", "True", "1"}


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request that was answered (or dropped: status 0). `query` is the raw query string."""

    method: str
    path: str
    query: str
    status: int


class SnapshotApi:
    """The HTTP face of one snapshot.

    `token`: required as bearer token when set. `rights`: what is allowed; None allows everything but what is
    `forbidden` (as `secrets` or `rollouts.argoproj.io`). `aggregated`: whether discovery is offered in one document, as
    since Kubernetes 1.26. `dead` are groups of an aggregated API without a backend. `requests` holds the last requests,
    oldest first; it, `snapshot`, `faults`, `rights`, `aggregated` and `dead` may be replaced at any time.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        token: str | None = None,
        faults: Iterable[Fault] = (),
        forbidden: Iterable[str] = ("secrets",),
        rights: Rights | None = None,
        aggregated: bool = True,
        dead: Iterable[str] = (),
    ) -> None:
        self.faults = FaultPlan(faults)
        self.requests: deque[SeenRequest] = deque(maxlen=REQUESTS_KEPT)
        self.snapshot = snapshot
        self.rights = rights
        self.aggregated = aggregated
        self.dead = frozenset(dead)
        self._token = token
        self._forbidden = frozenset(forbidden)
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Ends the answers that hang."""
        self._closing.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers any request."""
        fault = self.faults.take(request.path)
        status = 0
        try:
            response = await self._faulty(request, fault) if fault else self._answer(request)
            status = 0 if fault and (fault.drop or fault.hang) else response.status
        finally:
            self.requests.append(SeenRequest(request.method, request.path, request.query_string, status))
        return response

    async def _faulty(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        if fault.delay_seconds or fault.hang:
            await self._pause(None if fault.hang else fault.delay_seconds)
        if fault.drop or fault.hang:
            return _abort(request)
        if fault.status:
            return _failing(request, fault, fault.status)
        if fault.redirect:
            return web.Response(status=302, headers={"Location": fault.redirect})
        if fault.garbage:
            return web.Response(body=GARBAGE, content_type="application/json")
        response = self._answer(request)
        return await _cut_short(request, response) if fault.cut else response

    async def _pause(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return

    def _answer(self, request: web.Request) -> web.Response:
        try:
            self._admit(request)
            return self._route(request)
        except ApiFailure as failure:
            return _json_failure(failure)

    def _admit(self, request: web.Request) -> None:
        if self._token is not None:
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), self._token.encode()):
                raise ApiFailure(401, "Unauthorized")
        if request.method != "GET" and self.rights is None:
            raise NOT_ALLOWED

    def _route(self, request: web.Request) -> web.Response:
        match [part for part in request.path.split("/") if part]:
            case ["version"]:
                return web.json_response(VERSION)
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["api", version, resource, *rest]:
                return self._resource(request, "", version, [resource, *rest])
            case ["apis", group, version, resource, *rest]:
                return self._resource(request, group, version, [resource, *rest])
            case ["apis", group, *_] if group in self.dead:
                raise ApiFailure(503, "the server is currently unable to handle the request")
            case ["api" | "apis" as top] if self.aggregated and AGGREGATED in request.headers.get(
                "Accept", ""
            ):
                document = aggregated_document(self.snapshot.resources, core=top == "api", dead=self.dead)
                return web.json_response(document, content_type="application/json")
            case parts:
                found = discovery_document(self.snapshot.resources, parts)
                return _page_not_found() if found is None else web.json_response(found)

    def _resource(self, request: web.Request, group: str, version: str, rest: list[str]) -> web.Response:
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        self._authorize(request, group, rest, namespace)
        if request.method != "GET":
            raise NOT_ALLOWED
        if not self.snapshot.resources.in_version(group, version):
            return _page_not_found()
        resource = self.snapshot.resources.at(group, version, rest[0])
        if resource is None or (namespace and not resource.namespaced):
            raise no_such_resource()
        if group in self.dead:
            raise ApiFailure(503, "the server is currently unable to handle the request")
        match rest[1:]:
            case []:
                return self._list(request, resource, namespace)
            case [name] if bool(namespace) is resource.namespaced:
                return self._get(resource, namespace, name)
            case [name, "log"] if "log" in resource.subresources and namespace:
                return self._log(request, namespace, name)
            case [name, part] if part in resource.subresources and bool(namespace) is resource.namespaced:
                return self._get(resource, namespace, name)
            case _:
                raise no_such_resource()

    def _authorize(self, request: web.Request, group: str, rest: list[str], namespace: str) -> None:
        """As the API server, before it looks whether it serves the resource at all. Raises ApiFailure 403."""
        plural, name = rest[0], rest[1] if len(rest) > 1 else ""
        verb = WRITES.get(request.method) or ("get" if name else "list")
        resource = f"{plural}/{rest[2]}" if len(rest) > 2 else plural
        qualified = f"{plural}.{group}" if group else plural
        if self.rights is None:
            allowed = qualified not in self._forbidden
        else:
            allowed = self.rights.allow(verb, group, resource, name)
        if allowed:
            return
        subject = f'{qualified} "{name}"' if name else qualified
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        message = (
            f'{subject} is forbidden: User "{USER}" cannot {verb} resource "{resource}" '
            f'in API group "{group}" {scope}'
        )
        raise ApiFailure(403, message, name=name, group=group, kind=plural)

    def _get(self, resource: Resource, namespace: str, name: str) -> web.Response:
        manifest = self.snapshot.get(resource, namespace, name)
        return web.json_response(manifest)

    def _list(self, request: web.Request, resource: Resource, namespace: str) -> web.Response:
        query = request.query
        if query.get("watch") in TRUE_WORDS:
            raise ApiFailure(405, "a snapshot does not change: watch is not served")
        options = ListOptions(
            namespace=namespace,
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            limit=_number(request, "limit") or 0,
            start=query.get("continue", ""),
        )
        return web.json_response(self.snapshot.list(resource, options))

    def _log(self, request: web.Request, namespace: str, pod: str) -> web.Response:
        options = LogOptions(
            container=request.query.get("container", ""),
            previous=request.query.get("previous") in TRUE_WORDS,
            tail_lines=_number(request, "tailLines"),
            limit_bytes=_number(request, "limitBytes"),
        )
        text = self.snapshot.log(namespace, pod, options)
        return web.Response(body=text, content_type="text/plain")


@asynccontextmanager
async def serve_api(api: SnapshotApi, *, port: int = 0) -> AsyncIterator[str]:
    """Serves on loopback while the context is open; yields the base URL. Port 0 takes a free one."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        api.close()
        await runner.cleanup()


@asynccontextmanager
async def serve(directory: Path, *, port: int = 0) -> AsyncIterator[str]:
    """Serves the snapshot in a directory with the rights of the shipped deployment; yields the base URL.

    Raises SnapshotError, OSError for a taken port.
    """
    api = SnapshotApi(Snapshot.read(directory), rights=shipped_rights())
    async with serve_api(api, port=port) as url:
        yield url


def write_kubeconfig(path: Path, url: str, token: str | None = None) -> None:
    """Writes a kubeconfig with one context, readable by its owner only."""
    name = "snapshot"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": token} if token else {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise bad_request(f"strconv.ParseInt: parsing {name}: invalid syntax")
    return int(text)


def _failing(request: web.Request, fault: Fault, status: int) -> web.Response:
    if fault.page:
        return web.Response(status=status, text=fault.page, content_type="text/html")
    failure = ApiFailure(status, f"injected fault {status}")
    body = failure.body
    token = request.query.get("continue", "")
    if status == 410 and fault.continuable and token:
        body["metadata"] = {"continue": token}  # goes on with what there is now
    after = fault.retry_after_seconds
    return web.json_response(
        body, status=status, headers={} if after is None else {"Retry-After": str(after)}
    )


def _json_failure(failure: ApiFailure) -> web.Response:
    return web.json_response(failure.body, status=failure.code)


def _page_not_found() -> web.Response:
    """What the API server says to a path that no API group serves: plain text, no Status object."""
    return web.Response(status=404, text="404 page not found\n")


def _abort(request: web.Request) -> web.Response:
    if request.transport:
        request.transport.abort()
    return web.Response()


async def _cut_short(request: web.Request, whole: web.Response) -> web.StreamResponse:
    """Sends half of the body that was promised, then closes the connection."""
    body = whole.body if isinstance(whole.body, bytes) else b""
    response = web.StreamResponse(
        headers={"Content-Length": str(len(body)), "Content-Type": "application/json"}
    )
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport:
        request.transport.close()
    return response
