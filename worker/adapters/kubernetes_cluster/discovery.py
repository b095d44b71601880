"""Finds the resource behind a kind as humans and models write it: kind, plural or short name, in any case.

Built-in kinds need no discovery. A kind whose API version is given is looked up there (`GET
/apis/<group>/<version>`). A kind by its name alone is searched in aggregated discovery, or on servers before
1.26 in each group version by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from worker.adapters.kubernetes_cluster.paths import group_path, version_path
from worker.adapters.kubernetes_cluster.served import (
    AGGREGATED,
    JSON,
    KIND,
    MAX_GROUPS,
    Served,
    ServedGroup,
    aggregated_groups,
    group_versions,
    matching,
    resource_list,
)
from worker.domain.cluster.fields import mappings
from worker.domain.cluster.kinds import built_in
from worker.domain.values.bounded import BoundedDict
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import KindInfo, Manifest

MAX_CACHED = 512
RECHECKS, RECHECK_SECONDS = 5, 10.0
"""How often, in how many seconds, documents are read again because they do not list a kind.

After that they are believed.
"""
FAILED_SECONDS = 30.0
"""How long a group version that failed is left out of searches."""
LEGACY_GROUPS = {"", "extensions"}
NOT_SERVED = {ClusterReason.UNKNOWN_KIND, ClusterReason.NOT_FOUND}
DEAD = {ClusterReason.UNAVAILABLE, ClusterReason.TIMEOUT}


@dataclass(slots=True)
class _CachedDocument:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    document: Manifest = field(default_factory=dict)
    read_at: float | None = None
    read_number: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Discovery:
    """Kinds of one cluster. Documents are kept for `keep_seconds`; missing kinds are cached as well.

    `fetch` takes a path and the media types that are accepted.
    """

    fetch: Callable[[str, str], Awaitable[Manifest]]
    _: KW_ONLY
    keep_seconds: float
    monotonic: Callable[[], float]
    _cache: BoundedDict[str, _CachedDocument] = field(default_factory=lambda: BoundedDict(MAX_CACHED))
    _failed: dict[str, tuple[float, ClusterError]] = field(default_factory=dict)
    _reads: int = 0
    _rechecks: deque[float] = field(default_factory=lambda: deque(maxlen=RECHECKS))

    async def resolve(self, name: str, api_version: str = "") -> KindInfo:
        """The resource behind `name`, which may carry its group (`rollouts.argoproj.io`).

        When the named version of a group does not serve it, another version of that group does as well: owner
        references outlive API versions. Before a kind is called unknown, documents that were read for an
        earlier question are read again: it may be new. Raises ClusterError: UNKNOWN_KIND, BAD_REQUEST for a
        name that cannot be one or that means several kinds, else the reason why the API server did not tell.
        """
        before = self._reads
        try:
            return await self._resolve(name, api_version)
        except ClusterError as error:
            if error.reason is not ClusterReason.UNKNOWN_KIND or not self._forget(before):
                raise
            return await self._resolve(name, api_version)

    def forget(self, info: KindInfo) -> bool:
        """Drop cached discovery that names a resource which is no longer served.

        False for a built-in kind, which is not known by discovery, and if this was done too often.
        """
        return built_in(info.kind.lower(), info.api_version) != info and self._forget(self._reads)

    async def _resolve(self, name: str, api_version: str) -> KindInfo:
        wanted, _, group = name.strip().partition(".")
        if not KIND.fullmatch(wanted):
            raise ClusterError(ClusterReason.BAD_REQUEST, f"not a valid kind: {name[:80]!r}")
        wanted = wanted.lower()
        group = api_version.rpartition("/")[0] if api_version else group.lower()
        if known := _known(wanted, group, api_version):
            return known
        if not api_version and not group:
            found, silent = await self._search(wanted)
            return _single(name, found, silent)
        found = await self._in_group(wanted, group, api_version)
        return _single(name, found, where=f" in {api_version or group}")

    async def _in_group(self, wanted: str, group: str, api_version: str) -> list[KindInfo]:
        if api_version:
            found = matching(wanted, await self._served(api_version))
            if found or not group:
                return found
        for served in group_versions(await self._document(group_path(group))):
            if found := matching(wanted, await self._served(served)):
                return found
        return []

    async def _search(self, wanted: str) -> tuple[list[KindInfo], Sequence[str]]:
        """The meanings of the name in any group, and the group versions that did not tell what they serve."""
        document = await self._document("/apis", f"{AGGREGATED},{JSON}")
        groups = aggregated_groups(document)
        if groups is None:
            return await self._search_each(wanted, document)
        core = aggregated_groups(await self._document("/api", f"{AGGREGATED},{JSON}")) or []
        found = _in_groups(wanted, [*core, *groups])
        return found, [silent for group in groups for silent in group.silent]

    async def _search_each(self, wanted: str, document: Manifest) -> tuple[list[KindInfo], Sequence[str]]:
        versions = [group_versions(group) for group in mappings(document.get("groups"))[:MAX_GROUPS]]
        preferred = ["v1", *(served[0] for served in versions if served)]
        failures: dict[str, ClusterError] = {}
        for batch in (preferred, [version for served in versions for version in served[1:]]):
            answers = await concurrently([self._try(version) for version in batch])
            told = dict(zip(batch, answers, strict=True))
            failures |= {name: answer for name, answer in told.items() if isinstance(answer, ClusterError)}
            served = [one for answer in answers if not isinstance(answer, ClusterError) for one in answer]
            if found := matching(wanted, served):
                return found, ()
        for api_version, failure in failures.items():
            if failure.reason not in DEAD or api_version == "v1":
                message = f"{api_version} did not say whether it serves {wanted!r}: {failure.message}"
                raise ClusterError(failure.reason, message[:300])
        return [], tuple(failures)

    async def _try(self, api_version: str) -> Sequence[Served] | ClusterError:
        """The resources of a group version.

        After a failure it is skipped for a while, so that one dead API does not slow down every look-up.
        """
        until, failure = self._failed.get(api_version, (0.0, None))
        if failure and self.monotonic() < until:
            return failure
        try:
            return await self._served(api_version)
        except ClusterError as error:
            self._failed[api_version] = (self.monotonic() + FAILED_SECONDS, error)
            return error

    def _forget(self, read: int) -> bool:
        """Drop the cached documents among the first `read` reads.

        Returns False if there are none, or if this was done too often.
        """
        old = [path for path, cached in self._cache.items() if 0 < cached.read_number <= read]
        now = self.monotonic()
        if not old or (len(self._rechecks) == RECHECKS and now < self._rechecks[0] + RECHECK_SECONDS):
            return False
        self._rechecks.append(now)
        for path in old:
            del self._cache[path]
        return True

    async def _served(self, api_version: str) -> Sequence[Served]:
        return resource_list(await self._document(version_path(api_version)), api_version)

    async def _document(self, path: str, accept: str = JSON) -> Manifest:
        cached = self._cache.setdefault(path, _CachedDocument())
        async with cached.lock:
            if cached.read_at is None or self.monotonic() >= cached.read_at + self.keep_seconds:
                try:
                    cached.document = await self.fetch(path, accept)
                except ClusterError as error:
                    if error.reason not in NOT_SERVED:
                        raise
                    cached.document = {}
                self._reads += 1
                cached.read_at, cached.read_number = self.monotonic(), self._reads
            return cached.document


def _known(wanted: str, group: str, api_version: str) -> KindInfo | None:
    """The built-in kind, whatever version of its group is named.

    Every supported release serves the built-in kinds.
    """
    known = built_in(wanted, api_version) or built_in(wanted)
    own_group = known.api_version.rpartition("/")[0] if known else ""
    return known if group in LEGACY_GROUPS | {own_group} else None


def _in_groups(wanted: str, groups: Sequence[ServedGroup]) -> list[KindInfo]:
    """The matching kinds, those in preferred versions first.

    A kind that another group serves only in an older version does not count if a preferred version has a
    match.
    """
    preferred = [one for group in groups for versions in group.versions[:1] for one in versions]
    others = [one for group in groups for versions in group.versions[1:] for one in versions]
    return matching(wanted, preferred) or matching(wanted, others)


def _single(name: str, found: Sequence[KindInfo], silent: Sequence[str] = (), where: str = "") -> KindInfo:
    if not found:
        dead = f" (these APIs do not answer: {', '.join(silent[:5])})" if silent else ""
        message = f"the cluster serves no kind {name[:80]!r}{where[:120]}{dead}"
        raise ClusterError(ClusterReason.UNKNOWN_KIND, message[:300])
    if len(found) > 1:
        versions = ", ".join(sorted(info.api_version for info in found))
        message = f"{name[:80]!r} is served by several groups: give api_version, one of {versions}"
        raise ClusterError(ClusterReason.BAD_REQUEST, message[:300])
    return found[0]
