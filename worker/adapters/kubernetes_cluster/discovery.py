"""Finds the resource behind a kind as people and models write it: kind, plural or short name, in any case.

Each group version is asked for by itself (`GET /api/v1`, `GET /apis/<group>/<version>`), so that one broken
aggregated API does not hide the others.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from worker.adapters.kubernetes_cluster.paths import LABEL, group_path, version_path
from worker.domain.cluster.kinds import built_in
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import KindInfo, Manifest
from worker.domain.values.together import together

MAX_CACHED = 512
RECHECK_SECONDS = 5.0
"""How old a document may be that shows that a kind is unknown."""
FAILED_SECONDS = 30.0
"""How long a group that failed is left out of searches."""
MAX_GROUPS = 256
KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
LEGACY_GROUPS = {"", "extensions"}
NOT_SERVED = {ClusterReason.UNKNOWN_KIND, ClusterReason.NOT_FOUND}


@dataclass(frozen=True, slots=True)
class _Served:
    info: KindInfo
    names: frozenset[str]
    short_names: frozenset[str]


@dataclass(slots=True)
class _CachedDocument:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    document: Manifest = field(default_factory=dict)
    read_at: float | None = None


class Discovery:
    """Kinds of one cluster. Documents are kept for `keep_seconds`; what is not served is remembered as well."""

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[Manifest]],
        *,
        keep_seconds: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._fetch = fetch
        self._keep_seconds = keep_seconds
        self._monotonic = monotonic
        self._cache: dict[str, _CachedDocument] = {}
        self._failed: dict[str, tuple[float, ClusterError]] = {}

    async def resolve(self, name: str, api_version: str = "") -> KindInfo:
        """The resource behind `name`, which may carry its group (`rollouts.argoproj.io`).

        When the named version of a group does not serve it, another version of that group does as well: owner
        references outlive API versions. Before a kind is called unknown, documents older than a few seconds are read
        again: it may be new. Raises ClusterError: UNKNOWN_KIND, BAD_REQUEST for a name that cannot be one or that means
        several kinds, else why the API server did not tell.
        """
        try:
            return await self._resolve(name, api_version)
        except ClusterError as error:
            if error.reason is not ClusterReason.UNKNOWN_KIND or not self._forget_old():
                raise
            return await self._resolve(name, api_version)

    async def _resolve(self, name: str, api_version: str) -> KindInfo:
        wanted, _, group = name.strip().partition(".")
        if not KIND.fullmatch(wanted):
            raise ClusterError(ClusterReason.BAD_REQUEST, f"not a valid kind: {name[:80]!r}")
        wanted = wanted.lower()
        group = api_version.rpartition("/")[0] if api_version else group.lower()
        known = built_in(wanted)
        own_group = known.api_version.rpartition("/")[0] if known else ""
        if (
            exact := built_in(wanted, api_version)
            if api_version
            else known
            if group in {"", own_group}
            else None
        ):
            return exact
        if not api_version and not group:
            return _single(name, await self._search(wanted))
        found = await self._in_group(wanted, group, api_version)
        if not found and known and group in LEGACY_GROUPS | {own_group}:
            return known
        return _single(name, found, f" in {api_version or group}")

    async def _in_group(self, wanted: str, group: str, api_version: str) -> list[KindInfo]:
        if api_version:
            found = _matching(wanted, await self._served(api_version))
            if found or not group:
                return found
        document = await self._document(group_path(group))
        for served in _versions(document):
            if found := _matching(wanted, await self._served(served)):
                return found
        return []

    async def _search(self, wanted: str) -> list[KindInfo]:
        groups = (await self._document("/apis")).get("groups")
        listed = [g for g in groups if isinstance(g, dict)] if isinstance(groups, list) else []
        versions = [_versions(group) for group in listed[:MAX_GROUPS]]
        preferred = ["v1", *(served[0] for served in versions if served)]
        failures: list[ClusterError] = []
        for batch in (preferred, [version for served in versions for version in served[1:]]):
            answers = await together([self._try(version) for version in batch])
            failures += [answer for answer in answers if isinstance(answer, ClusterError)]
            served = [one for answer in answers if not isinstance(answer, ClusterError) for one in answer]
            if found := _matching(wanted, served):
                return found
        if failures:
            message = f"{len(failures)} API groups did not say whether they serve it: {failures[0].message}"
            raise ClusterError(failures[0].reason, message[:300])
        return []

    async def _try(self, api_version: str) -> Sequence[_Served] | ClusterError:
        """A group that has failed is left alone for a while: one dead API must not slow down every look-up."""
        until, failure = self._failed.get(api_version, (0.0, None))
        if failure and self._monotonic() < until:
            return failure
        try:
            return await self._served(api_version)
        except ClusterError as error:
            self._failed[api_version] = (self._monotonic() + FAILED_SECONDS, error)
            return error

    def _forget_old(self) -> bool:
        """Drop the documents that are old enough to be read again; False if there are none."""
        before = self._monotonic() - RECHECK_SECONDS
        old = [
            path
            for path, cached in self._cache.items()
            if cached.read_at is not None and cached.read_at <= before
        ]
        for path in old:
            del self._cache[path]
        return bool(old)

    async def _served(self, api_version: str) -> Sequence[_Served]:
        document = await self._document(version_path(api_version))
        resources = document.get("resources")
        if not isinstance(resources, list):
            return ()
        entries = (_entry(resource, api_version) for resource in resources if isinstance(resource, dict))
        return [entry for entry in entries if entry]

    async def _document(self, path: str) -> Manifest:
        cached = self._cache.setdefault(path, _CachedDocument())
        async with cached.lock:
            if cached.read_at is None or self._monotonic() >= cached.read_at + self._keep_seconds:
                try:
                    cached.document = await self._fetch(path)
                except ClusterError as error:
                    if error.reason not in NOT_SERVED:
                        raise
                    cached.document = {}
                cached.read_at = self._monotonic()
            while len(self._cache) > MAX_CACHED:
                self._cache.pop(next(iter(self._cache)))
            return cached.document


def _versions(group: Manifest) -> list[str]:
    """Group versions that an APIGroup lists, the preferred one first."""
    preferred, listed = group.get("preferredVersion"), group.get("versions")
    entries: list[Any] = [preferred, *(listed if isinstance(listed, list) else ())]
    names = (entry.get("groupVersion") for entry in entries if isinstance(entry, dict))
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _entry(resource: Manifest, api_version: str) -> _Served | None:
    """An APIResource that can be read; subresources are left out."""
    plural, kind, verbs = str(resource.get("name")), str(resource.get("kind")), resource.get("verbs")
    if not (LABEL.fullmatch(plural) and KIND.fullmatch(kind) and isinstance(verbs, list)):
        return None
    if not {"get", "list"} & {verb for verb in verbs if isinstance(verb, str)}:
        return None
    info = KindInfo(kind, api_version, plural, namespaced=resource.get("namespaced") is True)
    short = resource.get("shortNames")
    return _Served(
        info,
        names=frozenset({kind.lower(), plural, str(resource.get("singularName"))}),
        short_names=frozenset(str(name) for name in short) if isinstance(short, list) else frozenset(),
    )


def _matching(wanted: str, served: Iterable[_Served]) -> list[KindInfo]:
    """Full names win over short ones, the first version of a group over its others."""
    entries = list(served)
    found = [entry.info for entry in entries if wanted in entry.names]
    found = found or [entry.info for entry in entries if wanted in entry.short_names]
    by_group = {info.api_version.rpartition("/")[0]: info for info in reversed(found)}
    return list(by_group.values())


def _single(name: str, found: Sequence[KindInfo], where: str = "") -> KindInfo:
    if not found:
        raise ClusterError(
            ClusterReason.UNKNOWN_KIND, f"the cluster serves no kind {name[:80]!r}{where[:120]}"
        )
    if len(found) > 1:
        versions = ", ".join(sorted(info.api_version for info in found))
        message = f"{name[:80]!r} is served by several groups: give api_version, one of {versions}"
        raise ClusterError(ClusterReason.BAD_REQUEST, message[:300])
    return found[0]
