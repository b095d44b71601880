"""A read-only Kubernetes API server over a snapshot.

It speaks real HTTP on loopback, for the demo, the evaluation and the tests.

It speaks the documented REST protocol ("Kubernetes API Concepts"), so production clients need no special
case. Not served: watch, writes, Table output, OpenAPI.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from worker.domain.values.objects import Manifest
from worker.sandbox.cluster_failure import ApiFailure, bad_request, no_such_resource
from worker.sandbox.cluster_kinds import Resource, aggregated_document, discovery_document
from worker.sandbox.cluster_logs import LogOptions
from worker.sandbox.cluster_store import ListOptions, Snapshot

HOST = "127.0.0.1"
VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"}
AGGREGATED = "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
USER = "system:serviceaccount:rca:rca-worker"
SHUTDOWN_SECONDS = 1.0
TRUE_WORDS = {"true", "True", "1"}
SHIPPED = ("rbac.yaml", "custom-owners.yaml")
"""Copies of the files in `deploy/kubernetes` that give the worker its rights."""


class SnapshotApi:
    """The HTTP face of one snapshot, to a client with the given rights."""

    def __init__(self, snapshot: Snapshot, rights: Rights) -> None:
        self.snapshot = snapshot
        self.rights = rights

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers any request."""
        try:
            return self._route(request)
        except ApiFailure as failure:
            return json_failure(failure)

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
            case ["api" | "apis" as top] if AGGREGATED in request.headers.get("Accept", ""):
                document = aggregated_document(self.snapshot.resources, core=top == "api")
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
            raise ApiFailure(405, "the server does not allow this method on the requested resource")
        if not self.snapshot.resources.in_version(group, version):
            return _page_not_found()
        resource = self.snapshot.resources.at(group, version, rest[0])
        if resource is None or (namespace and not resource.namespaced):
            raise no_such_resource()
        match rest[1:]:
            case []:
                return self._list(request, resource, namespace)
            case [name] if bool(namespace) is resource.namespaced:
                return web.json_response(self.snapshot.get(resource, namespace, name))
            case [name, "log"] if "log" in resource.subresources and namespace:
                return self._log(request, namespace, name)
            case [name, part] if part in resource.subresources and bool(namespace) is resource.namespaced:
                return web.json_response(self.snapshot.get(resource, namespace, name))
            case _:
                raise no_such_resource()

    def _authorize(self, request: web.Request, group: str, rest: list[str], namespace: str) -> None:
        """Check the rights, like the API server, before whether the resource is served at all.

        Raises ApiFailure 403.
        """
        plural, name = rest[0], rest[1] if len(rest) > 1 else ""
        verb = WRITES.get(request.method) or ("get" if name else "list")
        resource = f"{plural}/{rest[2]}" if len(rest) > 2 else plural
        if self.rights.allow(verb, group, resource, name):
            return
        qualified = f"{plural}.{group}" if group else plural
        subject = f'{qualified} "{name}"' if name else qualified
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        message = (
            f'{subject} is forbidden: User "{USER}" cannot {verb} resource "{resource}" '
            f'in API group "{group}" {scope}'
        )
        raise ApiFailure(403, message, name=name, group=group, kind=plural)

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
        await runner.cleanup()


@asynccontextmanager
async def serve(directory: Path, *, port: int = 0) -> AsyncIterator[str]:
    """Serves the snapshot in a directory with the rights of the shipped deployment; yields the base URL.

    Raises SnapshotError, OSError for a taken port.
    """
    async with serve_api(SnapshotApi(Snapshot.read(directory), shipped_rights()), port=port) as url:
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


def json_failure(failure: ApiFailure) -> web.Response:
    """A Status object with its HTTP status."""
    return web.json_response(failure.body, status=failure.code)


def _page_not_found() -> web.Response:
    """The answer of the API server for a path that no API group serves: plain text, no Status object."""
    return web.Response(status=404, text="404 page not found\n")


@dataclass(frozen=True, slots=True)
class Rights:
    """PolicyRules (rbac.authorization.k8s.io/v1) that hold in every namespace and for cluster scope."""

    rules: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, account: str, objects: Iterable[Manifest]) -> Rights:
        """The rights that ClusterRoleBindings among the objects give to a service account of that name."""
        known = list(objects)
        roles = {o["metadata"]["name"]: o for o in known if o["kind"] == "ClusterRole"}
        bound = [
            roles[binding["roleRef"]["name"]]
            for binding in known
            if binding["kind"] == "ClusterRoleBinding" and account in _accounts(binding)
        ]
        return cls(tuple(rule for role in bound for rule in _rules(role, roles.values())))

    def allow(self, verb: str, group: str, resource: str, name: str = "") -> bool:
        """True if a rule allows the verb. A subresource is named as in `pods/log`."""
        return any(
            _has(rule, "verbs", verb)
            and _has(rule, "apiGroups", group)
            and _has(rule, "resources", resource)
            and name in (rule.get("resourceNames") or (name,))
            for rule in self.rules
        )


@cache
def shipped_rights() -> Rights:
    """The rights that the shipped deployment gives the worker."""
    folder = files("worker") / "sandbox" / "rbac"
    texts = [(folder / name).read_text(encoding="utf-8") for name in SHIPPED]
    return Rights.of("rca-worker", [found for text in texts for found in yaml.safe_load_all(text) if found])


def _accounts(binding: Manifest) -> list[str]:
    return [s["name"] for s in binding.get("subjects") or () if s["kind"] == "ServiceAccount"]


def _rules(role: Manifest, roles: Iterable[Manifest]) -> Iterator[Mapping[str, Any]]:
    """The rules of a role.

    An aggregated role has those of the roles that it selects, as the controller fills them in.
    """
    aggregation = role.get("aggregationRule")
    if not aggregation:
        yield from role.get("rules") or ()
        return
    for other in roles:
        labels = (other["metadata"].get("labels") or {}).items()
        if any(selector["matchLabels"].items() <= labels for selector in aggregation["clusterRoleSelectors"]):
            yield from other.get("rules") or ()


def _has(rule: Mapping[str, Any], field: str, wanted: str) -> bool:
    values = rule.get(field) or ()
    return wanted in values or "*" in values
