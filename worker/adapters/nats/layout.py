"""The streams, lanes and buckets under a prefix, and their configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from schemas.permissions import Role
from schemas.subjects import EXHAUSTED, OUTCOMES, Lane, Subjects

Config = dict[str, Any]

SECOND = 1_000_000_000
"""The API counts in nanoseconds."""
HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND


@dataclass(frozen=True, slots=True)
class Wanted:
    """A stream, or with `stream` set a durable consumer of that stream, as the JSON API writes it.

    `share` is the percentage of the server's store that a stream may use.
    """

    config: Config
    stream: str = ""
    share: int = 0

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.config['durable_name']}" if self.stream else str(self.config["name"])


def wanted(
    subjects: Subjects,
    *,
    replicas: int = 1,
    ack_wait_seconds: float = 60.0,
    max_deliver: int = 50,
    max_requests: int = 100_000,
    journal_hours: int = 24,
    store_bytes: int = 0,
    recording_hours: int = 0,
    recording_bytes: int = 0,
) -> list[Wanted]:
    """Everything under a prefix.

    `max_deliver` is a backstop, `journal_hours` how long a request can be resumed.

    `store_bytes` is the size of a server's store; it is shared out among the streams as their byte limits. 0
    sets none. With `recording_hours` there is a stream of recordings, whose `recording_bytes` are taken off
    it.

    A full queue refuses new requests, while accepted ones can be finished, because the other streams have
    shares of their own. The dead letters have more room than the queue, so that all of it could become dead
    letters. The journal holds unfinished requests only. Audit events and results stay for months. 5 percent
    are for the server's own files.
    """
    streams = [*_streams(subjects, replicas, max_requests), *_buckets(subjects, replicas, journal_hours)]
    if store_bytes:
        taken = recording_bytes * 100 // sum(stream.share for stream in streams)
        for stream in streams:
            stream.config["max_bytes"] = (store_bytes - taken) * stream.share // 100
    return [
        *streams,
        *(_recordings(subjects, replicas, recording_hours, recording_bytes) if recording_hours else ()),
        *_lanes(subjects, int(ack_wait_seconds * SECOND), max_deliver),
        *_readers(subjects, int(ack_wait_seconds * SECOND)),
    ]


def result_reader(s: Subjects) -> Wanted:
    """The durable from which a consumer pulls results.

    No worker needs it, and its owner may set whatever else it has.
    """
    return Wanted({"durable_name": Role.AIANALYSIS.value, "ack_policy": "explicit"}, stream=s.results_stream)


def _stream(name: str, patterns: Iterable[str], replicas: int, share: int = 0, **more: Any) -> Wanted:
    # discard new: a full stream refuses messages (the publisher notices and waits) instead of dropping the
    # oldest. allow_direct off: direct reads may come from a follower; ours must come from the leader.
    common = {"name": name, "subjects": sorted(patterns), "num_replicas": replicas}
    kind = {"retention": "limits", "storage": "file", "discard": "new", "allow_direct": False}
    return Wanted(common | kind | more, share=share)


def _streams(s: Subjects, replicas: int, max_requests: int) -> list[Wanted]:
    # The server's advisory is the only trace of a message that ran out of deliveries: it stays stored,
    # pending shows 0.
    dead_letters = (s.dead_letter(">"), s.max_deliveries_advisory())
    month, quarter = 30 * DAY, 90 * DAY
    kept = [
        (s.results_stream, 16, s.result_subjects(), month, "new"),
        # Old ones make room: a sender that floods the queue with invalid messages must not stop all others.
        (s.validation_stream, 4, s.validation_subjects(), month, "old"),
        (s.audit_stream, 34, (s.audit(">"),), quarter, "new"),
        (s.dlq_stream, 12, dead_letters, quarter, "new"),
        (s.outcomes_stream, 3, (s.outcome(">"),), quarter, "new"),
    ]
    queue: Config = {"retention": "workqueue", "max_msgs": max_requests, "duplicate_window": HOUR}
    return [
        _stream(s.requests_stream, s.request_subjects(), replicas, 8, **queue),
        *(
            # No compression: after a kill -9, nats-server 2.15 could not read a compressed block ("s2:
            # unsupported input"). Its copy of the stream was gone, or it led the stream and could not write
            # to it.
            _stream(
                name,
                patterns,
                replicas,
                share,
                max_age=age,
                duplicate_window=DAY,
                discard=discard,
                compression="none",
            )
            for name, share, patterns, age, discard in kept
        ),
    ]


def _recordings(s: Subjects, replicas: int, hours: int, limit: int) -> list[Wanted]:
    # One for each request. Old ones make room: an analysis is never held up by a recording.
    limits: Config = {
        "max_age": hours * HOUR,
        "max_bytes": limit,
        "max_msgs_per_subject": 1,
        "discard": "old",
    }
    return [_stream(s.recordings_stream, (s.recording(">"),), replicas, **limits)]


def _buckets(s: Subjects, replicas: int, journal_hours: int) -> list[Wanted]:
    """As clients of NATS ADR-8 (key-value) and ADR-20 (object store) create them. max_age is the TTL."""
    like_kv = {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "deny_delete": True}
    kept = [
        (s.journal_bucket, 10, journal_hours * HOUR),
        (s.cancel_bucket, 1, DAY),
        (s.history_bucket, 3, 90 * DAY),
    ]
    journal = s.journal_bucket
    return [
        *(
            _stream(
                f"KV_{name}",
                [f"$KV.{name}.>"],
                replicas,
                share,
                max_age=age,
                duplicate_window=120 * SECOND,
                **like_kv,
            )
            for name, share, age in kept
        ),
        # Large journal steps. Twice the journal's age: a part must never expire before its step.
        _stream(
            f"OBJ_{journal}",
            [f"$O.{journal}.C.>", f"$O.{journal}.M.>"],
            replicas,
            share=4,
            max_age=2 * journal_hours * HOUR,
            allow_rollup_hdrs=True,
        ),
    ]


def _lanes(s: Subjects, ack_wait: int, max_deliver: int) -> list[Wanted]:
    # No backoff: it would replace ack_wait. max_ack_pending is one number for the whole durable; slots are
    # the real limit, so it is only a backstop (the default, 1000, stalls a large deployment without a word).
    limits = {"max_deliver": max_deliver, "max_ack_pending": 20_000, "max_waiting": 2_048}
    return [_durable(s.requests_stream, lane, s.lane_subjects(lane), ack_wait, **limits) for lane in Lane]


def _readers(s: Subjects, ack_wait: int) -> list[Wanted]:
    """The readers of advisories about requests that are no longer delivered, and of outcomes.

    They retry for ever, because no sweep would find these messages.
    """
    return [
        _durable(s.dlq_stream, EXHAUSTED, [s.max_deliveries_advisory()], ack_wait, max_deliver=-1),
        _durable(s.outcomes_stream, OUTCOMES, [s.outcome(">")], ack_wait, max_deliver=-1),
    ]


def _durable(stream: str, name: str, subjects: Iterable[str], ack_wait: int, **limits: int) -> Wanted:
    config = {"durable_name": str(name), "filter_subjects": list(subjects)}
    return Wanted({**config, "ack_policy": "explicit", "ack_wait": ack_wait, **limits}, stream=stream)
