"""The Cluster port on the Kubernetes API."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, TypeVar

from worker.adapters.kubernetes_cluster.api import ApiLimits, ApiReader, BodyTooLargeError
from worker.adapters.kubernetes_cluster.auth import SERVICE_ACCOUNT, ClusterCredentials
from worker.adapters.kubernetes_cluster.discovery import Discovery
from worker.adapters.kubernetes_cluster.failures import ExpiredListError
from worker.adapters.kubernetes_cluster.paths import collection_path, container_name, object_path
from worker.adapters.kubernetes_cluster.served import JSON
from worker.domain.cluster.fields import dig, meta
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import Keep, KindInfo, Listing, ListQuery, LogQuery, Manifest, ObjectRef

PAGE_ITEMS = 500
LARGE_PAGE_ITEMS: Mapping[str, int] = {"Pod": 250}
"""For kinds whose objects are large: a page is held ten times over while it is decoded."""
MAX_LIST_ITEMS = 5_000
MAX_LIST_BYTES = 32 * 1024 * 1024
MAX_SELECTOR_CHARS = 1_024
MAX_LOG_LINES = 10_000
MAX_LOG_TRANSFER_BYTES = 8 * 1024 * 1024
Found = TypeVar("Found")


@dataclass(kw_only=True, eq=False, repr=False)
class KubernetesCluster:
    """Read-only view of one cluster: get, list, logs and discovery. Secrets are never asked for.

    `kubeconfig` is a path (or several, as in `$KUBECONFIG`), None means the service account of the pod, whose
    files are in `service_account`. Proxy variables of the environment are ignored. `open` before use, or use
    as a context manager.
    """

    kubeconfig: str | None = None
    context: str = ""
    service_account: Path = SERVICE_ACCOUNT
    limits: ApiLimits = field(default_factory=ApiLimits)
    discovery_seconds: float = 300.0
    plugin_seconds: float = 10.0
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._credentials = ClusterCredentials(
            kubeconfig=self.kubeconfig,
            context=self.context,
            service_account=self.service_account,
            plugin_seconds=self.plugin_seconds,
            now=self.now,
        )
        self._reader: ApiReader | None = None
        self._discovery = Discovery(
            self._document, keep_seconds=self.discovery_seconds, monotonic=self.monotonic
        )

    async def open(self) -> None:
        """Reads the credentials; connects with the first call. Raises ClusterError UNAVAILABLE."""
        await self._credentials.load()
        self._reader = ApiReader(
            self._credentials, self.limits, monotonic=self.monotonic, jitter=self.jitter, sleep=self.sleep
        )

    async def __aenter__(self) -> Self:
        """Opens."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections."""
        if self._reader:
            await self._reader.close()

    async def check(self, namespace: str | None = "") -> None:
        """Use a right that every analysis needs: list the pods of a namespace, or of all (empty).

        None checks only that the API server answers these credentials. Raises ClusterError when that fails.
        """
        if namespace is None:
            await self._document("/version")
            return
        info = await self.kind("Pod", "v1")
        document, size = await self._api.json(collection_path(info, namespace), [("limit", 1)])
        _Pages(info, 1).add(document, size)

    async def get(self, ref: ObjectRef) -> Manifest:
        """One object as the API returns it. Raises ClusterError."""
        return await self._read(ref.kind, ref.api_version, lambda info: self._get(info, ref))

    async def list(self, query: ListQuery) -> Listing:
        """Objects of one kind, page by page up to the limit, inside one deadline.

        `complete` is False when there are more, and when a later page could not be read. A list that expires
        on the way is continued as the server offers it, else started again, once. Raises ClusterError.
        """
        return await self._read(query.kind, query.api_version, lambda info: self._list(info, query))

    async def _read(self, kind: str, api_version: str, read: Callable[[KindInfo], Awaitable[Found]]) -> Found:
        """Read, and once more by a new discovery if the API server no longer serves what the last one said."""
        _refuse_secrets(kind)
        info = await self.kind(kind, api_version)
        _refuse_secrets(info.kind)
        try:
            return await read(info)
        except ClusterError as error:
            if error.reason is not ClusterReason.UNKNOWN_KIND or not self._discovery.forget(info):
                raise
            if (now := await self.kind(kind, api_version)) == info:
                raise
        return await read(now)

    async def _get(self, info: KindInfo, ref: ObjectRef) -> Manifest:
        manifest = await self._document(object_path(info, ref.namespace, ref.name))
        if not isinstance(manifest.get("metadata"), dict):
            raise ClusterError(ClusterReason.UNAVAILABLE, "the answer is not a Kubernetes object")
        return {"apiVersion": info.api_version, "kind": info.kind, **manifest}

    async def _list(self, info: KindInfo, query: ListQuery) -> Listing:
        path = collection_path(info, query.namespace)
        selectors = _selectors(query)
        pages = _Pages(info, max(1, min(query.limit, MAX_LIST_ITEMS)), query.keep)
        deadline = self._api.deadline()
        while not pages.done:
            try:
                document, size = await self._api.json(path, [*selectors, *pages.params()], deadline=deadline)
                pages.add(document, size)
                del document  # not while the next page is read
            except BodyTooLargeError as error:
                if not pages.smaller() and not pages.read:
                    message = "an object of this list is too large to be read: get it by name"
                    raise ClusterError(ClusterReason.UNAVAILABLE, message) from error
            except ExpiredListError as expired:
                if not pages.resume(expired.token) and not pages.read:
                    raise
            except ClusterError:
                if not pages.read:
                    raise
                pages.stop()
        return Listing(tuple(pages.items), complete=pages.complete)

    async def logs(self, query: LogQuery) -> bytes:
        """The newest lines of a container, at most the last `limit_bytes` of them. Raises ClusterError."""
        path = object_path(await self.kind("Pod", "v1"), query.namespace, query.pod) + "/log"
        params: list[tuple[str, str | int]] = [
            ("tailLines", max(1, min(query.tail_lines, MAX_LOG_LINES))),
            ("limitBytes", MAX_LOG_TRANSFER_BYTES),
            ("previous", "true" if query.previous else "false"),
        ]
        if query.container:
            params.append(("container", container_name(query.container)))
        if query.since_seconds is not None:
            params.append(("sinceSeconds", max(1, query.since_seconds)))
        keep = max(1, min(query.limit_bytes, MAX_LOG_TRANSFER_BYTES))
        return await self._api.text_tail(path, params, keep)

    async def kind(self, kind: str, api_version: str = "") -> KindInfo:
        """The kind that the cluster serves under that name. Raises ClusterError."""
        return await self._discovery.resolve(kind, api_version)

    async def _document(self, path: str, accept: str = JSON) -> Manifest:
        try:
            document, _ = await self._api.json(path, accept=accept)
        except BodyTooLargeError as error:
            raise ClusterError(ClusterReason.UNAVAILABLE, "the answer is too large to be read") from error
        return document

    @property
    def _api(self) -> ApiReader:
        if self._reader is None:
            raise ClusterError(ClusterReason.UNAVAILABLE, "the connection to the cluster is not open")
        return self._reader


class _Pages:
    """Pages of one list: `read` objects so far, of which `items` are kept."""

    def __init__(self, info: KindInfo, limit: int, keep: Keep = None) -> None:
        self.items: list[Manifest] = []
        self.read = 0
        self._keep = keep
        self.done = False
        self.complete = True
        self._info = info
        self._limit = limit
        self._page = min(limit, LARGE_PAGE_ITEMS.get(info.kind, PAGE_ITEMS))
        self._bytes_left = MAX_LIST_BYTES
        self._token = ""
        self._resumed = False

    def params(self) -> list[tuple[str, str | int]]:
        """Query of the next page."""
        params: list[tuple[str, str | int]] = [("limit", min(self._page, self._limit - self.read))]
        return [*params, ("continue", self._token)] if self._token else params

    def add(self, document: Manifest, size: int) -> None:
        """Add a page. Raises ClusterError UNAVAILABLE if it is not a list of objects."""
        items = document.get("items")
        if items is None and str(document.get("kind")).endswith("List"):
            items = []
        if not isinstance(items, list) or not all(isinstance(dig(item, "metadata"), dict) for item in items):
            raise ClusterError(ClusterReason.UNAVAILABLE, "the answer is not a list of Kubernetes objects")
        room = self._limit - self.read
        filled = {"apiVersion": self._info.api_version, "kind": self._info.kind}
        whole = ({**filled, **item} for item in items[:room])
        self.items += whole if self._keep is None else filter(None, map(self._keep, whole))
        self.read += len(items[:room])
        self._token = str(meta(document).get("continue") or "")
        self._bytes_left -= size
        if len(items) > room:
            self.stop()
        elif not self._token:
            self.done = True
        elif self.read >= self._limit or self._bytes_left <= 0 or not items:
            self.stop()

    def smaller(self) -> bool:
        """Request fewer items per page; False if that is no longer possible."""
        if self._page == 1:
            self.stop()
            return False
        self._page = max(1, self._page // 8)
        return True

    def resume(self, token: str) -> bool:
        """Continue at the token, or start again without one.

        False if this has been done before: the list then ends.
        """
        if self._resumed:
            self.stop()
            return False
        self._resumed, self._token = True, token
        if not token:
            self.items.clear()
            self.read = 0
        return True

    def stop(self) -> None:
        """End the list; it is not complete."""
        self.done = True
        self.complete = False


def _selectors(query: ListQuery) -> list[tuple[str, str | int]]:
    pairs = (("labelSelector", query.label_selector), ("fieldSelector", query.field_selector))
    if any(len(text) > MAX_SELECTOR_CHARS for _, text in pairs):
        message = f"a selector is longer than {MAX_SELECTOR_CHARS} characters"
        raise ClusterError(ClusterReason.BAD_REQUEST, message)
    return [(name, text) for name, text in pairs if text]


def _refuse_secrets(kind: str) -> None:
    """Raise ClusterError for Secrets: the worker has no right to read them, and does not try."""
    if kind.strip().lower().partition(".")[0] in {"secret", "secrets"}:
        message = "Secrets are not read; look at the objects that use them, and at their events"
        raise ClusterError(ClusterReason.FORBIDDEN, message)
