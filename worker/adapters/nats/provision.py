"""Creates or updates streams, consumers and buckets, and reports differences. Never deletes a message.

Uses the JSON API ($JS.API.STREAM.*, $JS.API.CONSUMER.*) in place of the typed calls of nats-py, since an
update replaces the whole configuration: the present one is read, our fields are changed, and all others are
sent back as they were. The typed classes drop fields that they do not know, and an update would then reset
them.
"""

from __future__ import annotations

import asyncio
import enum
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import nats.errors
from nats.aio.client import Client

from schemas.subjects import folded
from worker.adapters.nats.layout import Config, Wanted
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ReportedError, Unavailable, system_message

MEBIBYTE = 1 << 20
NO_ROOM = 10047
"""JetStream's code for byte limits above what the server or the account may store (nats-server, errors.json).
"""

REQUEST_SECONDS = 2.0
PAUSE_SECONDS = 0.25
FIXED = frozenset({"retention", "storage", "ack_policy", "max_waiting", "deny_delete", "durable_name"})
"""Fields that the server cannot change in place, or only by force."""
KINDS = frozenset({"retention", "ack_policy"})
"""If one of these differs, messages are kept or removed by other rules, so that a worker must not start."""
DURATIONS = frozenset({"max_age", "ack_wait", "duplicate_window", "inactive_threshold"})
"""Fields in nanoseconds."""
LOOKS_AT_ONCE = 8
LIMITS = frozenset(
    {"max_age", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_deliver", "num_replicas"}
)
"""Lowering one of these deletes messages or strands them."""


class Action(enum.StrEnum):
    """The action that was taken, or would be taken when applying."""

    SAME = "same"
    CREATED = "created"
    UPDATED = "updated"
    WOULD_CREATE = "would create"
    WOULD_UPDATE = "would update"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Difference:
    """One stream or consumer, and the action about it.

    DRIFT needs an operator: applying it could destroy something.
    """

    name: str
    action: Action
    detail: str = ""


def compare(have: Config, want: Config, stored_bytes: int | None = None) -> tuple[Config, list[str]]:
    """Returns the changes that are safe to apply, and the differences that an operator must resolve.

    `stored_bytes` is what a stream holds now: a byte limit above that is safe although it is lower than the
    present one.
    """
    changes: Config = {}
    drift: list[str] = []
    for key, target in want.items():
        current = have.get(key, type(target)())  # the server leaves out false, 0 and ""
        if isinstance(target, list):
            if missing := set(target) - set(current):  # a dropped subject would strand messages
                changes[key] = sorted(set(current) | missing)
            if extra := set(current) - set(target):
                drift.append(f"{key}: also has {sorted(extra)}")
        elif current == target:
            continue
        elif key in LIMITS and _limit(target) < _limit(current) and not _has_room(key, target, stored_bytes):
            told = f"{key}: {_shown(key, current)}, should be {_shown(key, target)}"
            drift.append(f"{told} (not lowered, because that could delete or strand messages)")
        elif key in FIXED:
            drift.append(f"{key}: {current}, should be {target} (cannot be changed in place)")
        else:
            changes[key] = target
    return changes, drift


def _shown(key: str, value: Any) -> Any:
    """The value of a field for a human, such as `30 days, 0:00:00` or `655.4 MiB`."""
    if value and key in DURATIONS:
        return timedelta(microseconds=value / 1_000)
    if key == "max_bytes" and value is not None:
        return "no limit" if _limit(value) == math.inf else f"{value / 2**20:,.1f} MiB"
    return "not set" if value is None else value


def _limit(value: int) -> float:
    return math.inf if value in {0, -1} else value


def _has_room(key: str, target: int, stored_bytes: int | None) -> bool:
    return key == "max_bytes" and stored_bytes is not None and stored_bytes < target


@dataclass(frozen=True, slots=True)
class Found:
    """A stream or consumer as it is on the server.

    `info` has its `config` and the `state` of a stream; None if it is missing.
    """

    item: Wanted
    info: Config | None

    @property
    def server_time(self) -> datetime | None:
        """When the server answered, by its clock; None for servers before 2.10, and for what is not there."""
        return datetime.fromisoformat(self.info["ts"]) if self.info and "ts" in self.info else None

    @property
    def unusable(self) -> str:
        """Why a worker cannot use the stream or consumer; empty if it can."""
        if self.info is None:
            return f"{self.item.name} is not there yet; run `rca provision`"
        for key in KINDS & self.item.config.keys():
            if (have := self.info["config"].get(key)) != (want := self.item.config[key]):
                return f"{self.item.name} has {key} {have}, which must be {want}: delete it and run `rca provision`"
        return self.taken

    @property
    def taken(self) -> str:
        """Why the name belongs to another prefix with the same spelling; empty if it does not."""
        have = set(self.info["config"].get("subjects", ())) if self.info else set[str]()
        ours = set(self.item.config.get("subjects", ()))
        folds = {folded(subject) for subject in ours}
        other = sorted(subject for subject in have - ours if folded(subject) in folds)
        if not other:
            return ""
        return (
            f"{self.item.name} belongs to another prefix, since it has the subject {other[0]}: "
            "choose a prefix that differs in more than case, dots, - and _"
        )


async def look(nc: Client, items: Sequence[Wanted], *, patience_seconds: float = 30.0) -> list[Found]:
    """Look at each stream and consumer. Changes nothing. Raises Unavailable as `provision` does."""
    api = _Api(nc, patience_seconds)
    return await concurrently([api.look(item) for item in items], at_once=LOOKS_AT_ONCE)


async def provision(
    nc: Client, items: Sequence[Wanted], *, apply: bool = True, patience_seconds: float = 30.0
) -> list[Difference]:
    """Create and update the items, and return the differences. Safe to run from several places at once.

    `apply=False` only compares, for a worker at its start. Raises Unavailable if the server does not answer
    within `patience_seconds`, or refuses (no right, no JetStream), and ProvisionError if another prefix has
    the same names, or if the byte limits exceed what the server or the account offers.
    """
    api = _Api(nc, patience_seconds)
    found = await look(nc, items, patience_seconds=patience_seconds)
    if taken := next((each.taken for each in found if each.taken), ""):
        raise ProvisionError(taken)
    await api.check_account(items)
    return [finding for each in found for finding in await api.ensure(each, apply=apply)]


class ProvisionError(ReportedError):
    """The streams cannot be provisioned as the settings say.

    Nothing was changed, or only harmless objects were created.
    """


class _ApiError(Exception):
    def __init__(self, code: int, message: str, number: int) -> None:
        super().__init__(message)
        self.code, self.number = code, number


class _Api:
    def __init__(self, nc: Client, patience_seconds: float) -> None:
        self._nc, self._patience_seconds = nc, patience_seconds

    async def look(self, item: Wanted) -> Found:
        try:
            return Found(item, await self._call(_paths(item)[0]))
        except _ApiError as e:
            if e.code != 404:
                raise Unavailable(f"{item.name}: {e}") from e
            return Found(item, None)

    async def check_account(self, items: Sequence[Wanted]) -> None:
        """Raises ProvisionError if the account may store less than the byte limits add up to."""
        total = sum(item.config.get("max_bytes", 0) * item.config.get("num_replicas", 1) for item in items)
        if not total:
            return
        try:
            limits = (await self._call("INFO")).get("limits", {})
        except _ApiError as e:
            raise Unavailable(f"JetStream: {e}") from e
        offered = limits.get("max_storage", -1)
        if 0 < offered < total:
            raise ProvisionError(_too_large(total, f"the account may store {offered // MEBIBYTE} MiB"))

    async def ensure(self, looked: Found, *, apply: bool) -> list[Difference]:
        item, info = looked.item, looked.info
        _, create, update = _paths(item)
        if info is None:
            if not apply:
                return [Difference(item.name, Action.WOULD_CREATE)]
            await self._create(item, create)
            return [Difference(item.name, Action.CREATED)]
        have = info["config"]
        changes, drift = compare(have, item.config, info.get("state", {}).get("bytes"))
        found = [Difference(item.name, Action.DRIFT, each) for each in drift]
        if changes and apply:
            try:
                await self._call(update, _body(item, {**have, **changes}, "update"))
            except _ApiError as e:
                _raise_if_too_large(item, e)
                return [*found, Difference(item.name, Action.DRIFT, f"{sorted(changes)} refused: {e}")]
        if changes:
            action = Action.UPDATED if apply else Action.WOULD_UPDATE
            detail = (f"{k}: {_shown(k, have.get(k))} -> {_shown(k, changes[k])}" for k in sorted(changes))
            found.append(Difference(item.name, action, "; ".join(detail)))
        return found or [Difference(item.name, Action.SAME)]

    async def _create(self, item: Wanted, path: str) -> None:
        try:
            await self._call(path, _body(item, item.config, "create"))
        except _ApiError as e:
            _raise_if_too_large(item, e)
            raise Unavailable(f"{item.name}: {e}") from e

    async def _call(self, path: str, body: Config | None = None) -> Config:
        """Call the API. A young cluster has no leader yet: no answer, no responders or 503 until it has one."""
        end = asyncio.get_running_loop().time() + self._patience_seconds
        while True:
            try:
                return await self._ask(path, body or {})
            except (TimeoutError, nats.errors.Error, _ApiError) as e:
                if isinstance(e, _ApiError) and e.code != 503:
                    raise
                if self._nc.is_closed or asyncio.get_running_loop().time() > end:
                    raise Unavailable(f"$JS.API.{path}: {system_message(e)}") from e
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ask(self, path: str, body: Config) -> Config:
        if self._nc.is_reconnecting:  # it would be buffered, and sent after the reconnect to nobody
            raise nats.errors.ConnectionReconnectingError
        answer = await self._nc.request(f"$JS.API.{path}", json.dumps(body).encode(), timeout=REQUEST_SECONDS)
        reply: Config = json.loads(answer.data)
        if error := reply.get("error"):
            number = error.get("err_code", 0)
            raise _ApiError(int(error["code"]), f"{number}: {error.get('description', '')}", number)
        return reply


def _raise_if_too_large(item: Wanted, refused: _ApiError) -> None:
    if refused.number == NO_ROOM and "max_bytes" in item.config:
        said = f"the server has no room for {item.name}: {refused}"
        raise ProvisionError(_too_large(item.config["max_bytes"], said)) from refused


def _too_large(total: int, why: str) -> str:
    return (
        f"byte limits of {total / MEBIBYTE:.0f} MiB do not fit, since {why}; set RCA_NATS__STORE_MEBIBYTES to the part of "
        "max_file_store that these streams may use (a limit of an account counts each replica)"
    )


def _paths(item: Wanted) -> tuple[str, str, str]:
    """API paths to look at, create and update."""
    if item.stream:
        path = f"{item.stream}.{item.config['durable_name']}"
        return f"CONSUMER.INFO.{path}", f"CONSUMER.CREATE.{path}", f"CONSUMER.CREATE.{path}"
    path = item.name
    return f"STREAM.INFO.{path}", f"STREAM.CREATE.{path}", f"STREAM.UPDATE.{path}"


def _body(item: Wanted, config: Config, action: str) -> Config:
    # `action` makes the server refuse a create that would change an existing consumer, and the other way
    # round.
    return {"stream_name": item.stream, "config": config, "action": action} if item.stream else config
