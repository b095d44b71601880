"""Creates or updates the streams, lanes and buckets; reports what differs; never destroys data.

Speaks the JSON API ($JS.API.STREAM.*, $JS.API.CONSUMER.*) instead of nats-py's typed calls, because an update replaces
the whole configuration: read it, change what is ours, send everything else back as it was. The typed classes drop
fields they don't know, and an update then resets them.
"""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import nats.errors
from nats.aio.client import Client

from schemas.subjects import EXHAUSTED, Lane, Subjects
from worker.domain.values.errors import Unavailable
from worker.domain.values.together import together

Config = dict[str, Any]

SECOND = 1_000_000_000
"""The API counts in nanoseconds."""
HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND

REQUEST_SECONDS = 2.0
PAUSE_SECONDS = 0.25
FIXED = frozenset({"retention", "storage", "ack_policy", "max_waiting", "deny_delete", "durable_name"})
"""What the server can't change in place, or only by force."""
KINDS = frozenset({"retention", "ack_policy"})
"""Where one of these differs, messages are kept or removed by other rules: a worker must not start."""
LOOKS_AT_ONCE = 8
LIMITS = frozenset(
    {"max_age", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_deliver", "num_replicas"}
)
"""Lowering one of these deletes messages or strands them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A stream, or with `stream` set a durable consumer of that stream, as the JSON API writes it."""

    config: Config
    stream: str = ""

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.config['durable_name']}" if self.stream else str(self.config["name"])


class Action(enum.StrEnum):
    """What was done, or would be done by applying."""

    SAME = "same"
    CREATED = "created"
    UPDATED = "updated"
    WOULD_CREATE = "would create"
    WOULD_UPDATE = "would update"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that was looked at. DRIFT is for a person to decide: applying it would destroy something."""

    name: str
    action: Action
    detail: str = ""


def wanted(
    subjects: Subjects,
    *,
    replicas: int = 1,
    ack_wait_seconds: float = 60.0,
    max_deliver: int = 50,
    max_requests: int = 100_000,
    journal_hours: int = 24,
    store_bytes: int = 0,
) -> list[Wanted]:
    """Everything under a prefix. `max_deliver` is a backstop, `journal_hours` how long a request can be resumed.

    `store_bytes` is shared out among the streams as their byte limits; 0 sets none.
    """
    shares = _shares(subjects)
    streams = [*_streams(subjects, replicas, max_requests), *_buckets(subjects, replicas, journal_hours)]
    if store_bytes:
        for stream in streams:
            stream.config["max_bytes"] = int(store_bytes * shares[stream.name] / 100)
    return [
        *streams,
        *_lanes(subjects, int(ack_wait_seconds * SECOND), max_deliver),
        _exhausted(subjects, int(ack_wait_seconds * SECOND)),
    ]


def _shares(s: Subjects) -> dict[str, int]:
    """Percent of the store for each stream; what is left is for the server.

    Requests get little: a queue that is full refuses new ones at the door, while what is needed to finish the others
    (journal, results, dead letters, audit) can always be written.
    """
    return {
        s.requests_stream: 10,
        s.results_stream: 10,
        s.validation_stream: 5,
        s.audit_stream: 25,
        s.dlq_stream: 5,
        s.outcomes_stream: 3,
        f"KV_{s.journal_bucket}": 25,
        f"KV_{s.cancel_bucket}": 1,
        f"KV_{s.history_bucket}": 3,
        f"OBJ_{s.journal_bucket}": 8,
    }


def _stream(name: str, patterns: Iterable[str], replicas: int, **more: Any) -> Wanted:
    # discard new: a full stream refuses (the publisher sees it and holds) instead of dropping the oldest.
    # allow_direct off: direct reads may come from a follower; ours must come from the leader.
    common = {"name": name, "subjects": sorted(patterns), "num_replicas": replicas}
    kind = {"retention": "limits", "storage": "file", "discard": "new", "allow_direct": False}
    return Wanted(common | kind | more)


def _streams(s: Subjects, replicas: int, max_requests: int) -> list[Wanted]:
    # The server's advisory is the only trace of a message that ran out of deliveries: it stays stored, pending shows 0.
    dead_letters = (s.dead_letter(">"), s.max_deliveries_advisory())
    month, quarter = 30 * DAY, 90 * DAY
    kept = [
        (s.results_stream, s.result_subjects(), month),
        (s.validation_stream, s.validation_subjects(), month),
        (s.audit_stream, (s.audit(">"),), quarter),
        (s.dlq_stream, dead_letters, quarter),
        (s.outcomes_stream, (s.outcome(">"),), quarter),
    ]
    queue = {"retention": "workqueue", "max_msgs": max_requests, "duplicate_window": HOUR}
    return [
        _stream(s.requests_stream, s.request_subjects(), replicas, **queue),
        *(_stream(name, p, replicas, max_age=age, duplicate_window=DAY) for name, p, age in kept),
    ]


def _buckets(s: Subjects, replicas: int, journal_hours: int) -> list[Wanted]:
    """As a client of NATS ADR-8 (key-value) and ADR-20 (object store) would make them. max_age is a bucket's TTL."""
    like_kv = {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "deny_delete": True}
    ages = {
        s.journal_bucket: journal_hours * HOUR,
        s.cancel_bucket: DAY,
        s.history_bucket: 90 * DAY,
    }
    journal = s.journal_bucket
    return [
        *(
            _stream(
                f"KV_{name}",
                [f"$KV.{name}.>"],
                replicas,
                max_age=age,
                duplicate_window=120 * SECOND,
                **like_kv,
            )
            for name, age in ages.items()
        ),
        # Large journal steps. Twice the journal's age: a part must never expire before its step.
        _stream(
            f"OBJ_{journal}",
            [f"$O.{journal}.C.>", f"$O.{journal}.M.>"],
            replicas,
            max_age=2 * journal_hours * HOUR,
            allow_rollup_hdrs=True,
        ),
    ]


def _lanes(s: Subjects, ack_wait: int, max_deliver: int) -> list[Wanted]:
    # No backoff: it would replace ack_wait. max_ack_pending is one number for the whole durable; slots are the real
    # limit, so it is only a backstop (the default, 1000, stalls a large deployment without a word).
    limits = {"max_deliver": max_deliver, "max_ack_pending": 20_000, "max_waiting": 2_048}
    return [
        Wanted(
            {
                "durable_name": lane.value,
                "filter_subjects": list(s.lane_subjects(lane)),
                "ack_policy": "explicit",
                "ack_wait": ack_wait,
                **limits,
            },
            stream=s.requests_stream,
        )
        for lane in Lane
    ]


def _exhausted(s: Subjects, ack_wait: int) -> Wanted:
    """Reads the advisories about requests that are delivered no more. For ever: there is no second net below it."""
    return Wanted(
        {
            "durable_name": EXHAUSTED,
            "filter_subjects": [s.max_deliveries_advisory()],
            "ack_policy": "explicit",
            "ack_wait": ack_wait,
            "max_deliver": -1,
        },
        stream=s.dlq_stream,
    )


def compare(have: Config, want: Config) -> tuple[Config, list[str]]:
    """(changes that are safe to apply, differences that a person must decide)."""
    changes: Config = {}
    drift: list[str] = []
    for key, target in want.items():
        current = have.get(key, type(target)())  # the server leaves out false, 0 and ""
        if isinstance(target, list):
            if missing := set(target) - set(
                current
            ):  # add ours, keep theirs: a dropped subject strands messages
                changes[key] = sorted(set(current) | missing)
            if extra := set(current) - set(target):
                drift.append(f"{key}: also has {sorted(extra)}")
        elif current == target:
            continue
        elif key in LIMITS and _limit(target) < _limit(current):
            drift.append(f"{key}: {current}, wanted {target} (lowering it is yours to do)")
        elif key in FIXED:
            drift.append(f"{key}: {current}, wanted {target} (can't be changed in place)")
        else:
            changes[key] = target
    return changes, drift


def _limit(value: int) -> float:
    return float("inf") if value in {0, -1} else value


@dataclass(frozen=True, slots=True)
class Found:
    """What is there of an item: the server's answer with its `config`, and for a stream its `state`. None: nothing."""

    item: Wanted
    info: Config | None

    @property
    def server_time(self) -> datetime | None:
        """When the server answered, by its clock; None for servers before 2.10, and for what is not there."""
        return datetime.fromisoformat(self.info["ts"]) if self.info and "ts" in self.info else None

    @property
    def unusable(self) -> str:
        """Why a worker cannot work with it; empty when it can."""
        if self.info is None:
            return f"{self.item.name} is not there yet; run `rca provision`"
        for key in KINDS & self.item.config.keys():
            if (have := self.info["config"].get(key)) != (want := self.item.config[key]):
                return f"{self.item.name} has {key} {have}, which must be {want}: create it anew"
        return ""


async def look(nc: Client, items: Sequence[Wanted], *, patience_seconds: float = 30.0) -> list[Found]:
    """What is there of each item. Changes nothing. Raises Unavailable as `provision` does."""
    api = _Api(nc, patience_seconds)
    return await together([api.look(item) for item in items], at_once=LOOKS_AT_ONCE)


async def provision(
    nc: Client, items: Sequence[Wanted], *, apply: bool = True, patience_seconds: float = 30.0
) -> list[Difference]:
    """Safe to run from several places at once. `apply=False` only looks, for a worker at start.

    Raises Unavailable when the server doesn't answer for so long, or refuses (no right, no JetStream).
    """
    api = _Api(nc, patience_seconds)
    return [finding for item in items for finding in await api.ensure(item, apply=apply)]


class _ApiError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


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

    async def ensure(self, item: Wanted, *, apply: bool) -> list[Difference]:
        _, create, update = _paths(item)
        info = (await self.look(item)).info
        if info is None:
            if not apply:
                return [Difference(item.name, Action.WOULD_CREATE)]
            await self._create(item, create)
            return [Difference(item.name, Action.CREATED)]
        have = info["config"]
        changes, drift = compare(have, item.config)
        found = [Difference(item.name, Action.DRIFT, each) for each in drift]
        if changes and apply:
            try:
                await self._call(update, _body(item, {**have, **changes}, "update"))
            except _ApiError as e:
                return [*found, Difference(item.name, Action.DRIFT, f"{sorted(changes)} refused: {e}")]
        if changes:
            action = Action.UPDATED if apply else Action.WOULD_UPDATE
            found.append(Difference(item.name, action, ", ".join(sorted(changes))))
        return found or [Difference(item.name, Action.SAME)]

    async def _create(self, item: Wanted, path: str) -> None:
        try:
            await self._call(path, _body(item, item.config, "create"))
        except _ApiError as e:
            raise Unavailable(f"{item.name}: {e}") from e

    async def _call(self, path: str, body: Config | None = None) -> Config:
        """A young cluster has no leader yet: no answer, no responders or 503 until it has."""
        end = asyncio.get_running_loop().time() + self._patience_seconds
        while True:
            try:
                return await self._ask(path, body or {})
            except (TimeoutError, nats.errors.Error, _ApiError) as e:
                if isinstance(e, _ApiError) and e.code != 503:
                    raise
                if self._nc.is_closed or asyncio.get_running_loop().time() > end:
                    raise Unavailable(f"$JS.API.{path}: {e!r}") from e
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ask(self, path: str, body: Config) -> Config:
        if self._nc.is_reconnecting:  # it would be buffered, and sent after the reconnect to nobody
            raise nats.errors.ConnectionReconnectingError
        answer = await self._nc.request(f"$JS.API.{path}", json.dumps(body).encode(), timeout=REQUEST_SECONDS)
        reply: Config = json.loads(answer.data)
        if error := reply.get("error"):
            raise _ApiError(int(error["code"]), f"{error.get('err_code', 0)}: {error.get('description', '')}")
        return reply


def _paths(item: Wanted) -> tuple[str, str, str]:
    """API paths to look at, create and update."""
    if item.stream:
        path = f"{item.stream}.{item.config['durable_name']}"
        return f"CONSUMER.INFO.{path}", f"CONSUMER.CREATE.{path}", f"CONSUMER.CREATE.{path}"
    path = item.name
    return f"STREAM.INFO.{path}", f"STREAM.CREATE.{path}", f"STREAM.UPDATE.{path}"


def _body(item: Wanted, config: Config, action: str) -> Config:
    # `action` makes the server refuse a create that would change an existing consumer, and the other way round.
    return {"stream_name": item.stream, "config": config, "action": action} if item.stream else config
