"""Every name on the wire: streams, subjects, durables, buckets, headers, CloudEvents types, and keys.

Ids are free text, so they are encoded before they become part of a name: every byte of their UTF-8 outside
`[A-Za-z0-9_-]` is written as `%XX` in subjects and as `=XX` in keys of key-value buckets (which refuse `%`),
with upper-case hexadecimal digits. A dot in an encoded key is therefore always ours.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from typing import Final

from schemas.taxonomy import RequestKind

DEFAULT_PREFIX: Final = "rca"
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,32}(?:\.[A-Za-z0-9_-]{1,32}){0,3}", re.ASCII)
_UNSAFE: Final = re.compile(rb"[^A-Za-z0-9_-]")


class Lane(enum.StrEnum):
    """Priority lanes: bulkheads with their own durable and their own slots."""

    P0 = "p0"
    P1 = "p1"
    P2 = "p2"
    P3 = "p3"


DEFAULT_LANE: Final = Lane.P2
"""The lane of subjects without a suffix."""


EXHAUSTED: Final = "exhausted"
"""Durable on the dead letters: advisories about requests that the server no longer delivers."""

OUTCOMES: Final = "outcomes"
"""Durable on the outcomes: each is checked once, so that a bad one is rejected like any other message."""


class Header(enum.StrEnum):
    """Header names: our own, CloudEvents 1.0 in binary mode, and W3C trace context.

    Names that begin with `Nats-` belong to the server.
    """

    REASON = "Rca-Reason"
    ORIGIN_STREAM = "Rca-Origin-Stream"
    ORIGIN_SEQUENCE = "Rca-Origin-Seq"
    ORIGIN_STORED_AT = "Rca-Origin-Stored-At"
    ORIGIN_SUBJECT = "Rca-Origin-Subject"
    DELIVERIES = "Rca-Deliveries"
    ERROR = "Rca-Error"
    CE_SPECVERSION = "ce-specversion"
    CE_ID = "ce-id"
    CE_SOURCE = "ce-source"
    CE_TYPE = "ce-type"
    CE_SUBJECT = "ce-subject"
    CONTENT_TYPE = "Content-Type"
    TRACEPARENT = "traceparent"


REPLAY_HEADER: Final = "Rca-Replay"
"""On a replayed request: the id of its dead letter. Its `failed` result may be replaced."""


def subject_token(text: str) -> str:
    """Encode a text as one subject token, which is empty only for an empty text."""
    return _UNSAFE.sub(lambda m: b"%%%02X" % m[0][0], text.encode()).decode()


def request_key(remediation_id: str, attempt: int | None = None) -> str:
    """Key of a request in subjects: `<id>` for an incident, `<id>.<attempt>` for a recovery."""
    token = subject_token(remediation_id)
    return token if attempt is None else f"{token}.{attempt}"


def kind_of_key(key: str) -> RequestKind:
    """The kind of the request with this key."""
    return RequestKind.RECOVERY if "." in key else RequestKind.INCIDENT


def kv_key(key: str) -> str:
    """A request key as it is written in keys of key-value buckets."""
    return key.replace("%", "=")


def history_key(kind: str, namespace: str, name: str) -> str:
    """Key of a resource in the history bucket: the SHA-256 of its kind (lower case), namespace and name."""
    canonical = json.dumps([kind.lower(), namespace, name], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def result_type(kind: RequestKind) -> str:
    """`ce-type` of a result."""
    return f"rca.{kind}.result.v1"


REQUEST_REJECTED_TYPE: Final = "rca.validation.request.v1"
RESPONSE_REJECTED_TYPE: Final = "rca.validation.response.v1"


def audit_type(event_type: str) -> str:
    """`ce-type` of an audit event."""
    return f"rca.audit.{event_type}.v1"


def cloud_source(cluster_name: str = "") -> str:
    """`ce-source` of everything a worker publishes."""
    return f"/rca-worker/{subject_token(cluster_name) or 'default'}"


def folded(text: str) -> str:
    """A prefix in the form that stream names use.

    Prefixes that differ only in case, dots, `-` and `_` give the same names.
    """
    return text.upper().replace(".", "_").replace("-", "_")


class Subjects:
    """All names under one prefix. Streams and buckets carry it too, so prefixes can share an account.

    Prefixes with the same `stem` cannot: `rca provision` and workers refuse the second one.
    `prefix` is one to four subject tokens of `[A-Za-z0-9_-]`; raises ValueError otherwise.
    """

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(
                f"prefix {prefix!r}: 1 to 4 words of letters, digits, '-' and '_', joined by dots"
            )
        self.prefix: Final = prefix
        stem = folded(prefix)
        self.stem: Final = stem
        """What names of streams, buckets and accounts begin with."""
        self.requests_stream: Final = f"{stem}_REQUESTS"
        """Work queue of requests."""
        self.results_stream: Final = f"{stem}_RESULTS"
        self.validation_stream: Final = f"{stem}_VALIDATION"
        """Rejected messages and rejected answers."""
        self.audit_stream: Final = f"{stem}_AUDIT"
        self.dlq_stream: Final = f"{stem}_DLQ"
        """Dead letters, and the server's advisories about exhausted deliveries."""
        self.outcomes_stream: Final = f"{stem}_OUTCOMES"
        """Outcomes of remediations."""
        self.recordings_stream: Final = f"{stem}_RECORDINGS"
        """Recorded analyses, if recording is enabled."""
        self.journal_bucket: Final = f"{stem}_JOURNAL"
        """Steps of running requests; also the name of the object store for large steps."""
        self.cancel_bucket: Final = f"{stem}_CANCEL"
        self.history_bucket: Final = f"{stem}_HISTORY"
        """Past results and outcomes per resource."""

    def request(self, kind: RequestKind, lane: Lane | None = None) -> str:
        """Where to publish a request; without a lane, the default one."""
        bare = f"{self.prefix}.request.{kind}"
        return bare if lane is None else f"{bare}.{lane}"

    def lane_subjects(self, lane: Lane) -> tuple[str, ...]:
        """All request subjects of a lane, listed exactly, upper-case lane names too."""
        bare = [self.request(kind) for kind in RequestKind]
        suffixed = [f"{subject}.{name}" for subject in bare for name in (lane.lower(), lane.upper())]
        return tuple((bare if lane is DEFAULT_LANE else []) + suffixed)

    def request_subjects(self) -> tuple[str, ...]:
        """All request subjects of all lanes."""
        return tuple(subject for lane in Lane for subject in self.lane_subjects(lane))

    def parse_request(self, subject: str) -> tuple[RequestKind, Lane] | None:
        """Kind and lane of a request subject; None for any other subject."""
        for lane in Lane:
            if subject in self.lane_subjects(lane):
                tail = subject.removeprefix(f"{self.prefix}.request.")
                return RequestKind(tail.partition(".")[0]), lane
        return None

    def result(self, kind: RequestKind, key: str) -> str:
        """Where the result of a request is published."""
        return f"{self.prefix}.result.{kind}.{key}"

    def result_subjects(self) -> tuple[str, ...]:
        """Patterns of the result stream: a key has one token (incident) or two (recovery)."""
        return (self.result(RequestKind.INCIDENT, "*"), self.result(RequestKind.RECOVERY, "*.*"))

    def key_of(self, subject: str) -> str:
        """The request key in the subject of a result or of an outcome."""
        kind, _, rest = subject.removeprefix(f"{self.prefix}.").partition(".")
        return rest.partition(".")[2] if kind == "result" else rest

    def validation_request(self) -> str:
        """Where rejected messages are reported."""
        return f"{self.prefix}.validation.request"

    def validation_response(self, key: str) -> str:
        """Where rejected answers of a model are reported, per request."""
        return f"{self.prefix}.validation.response.{key}"

    def validation_subjects(self) -> tuple[str, ...]:
        """Patterns of the validation stream."""
        return (self.validation_request(), self.validation_response(">"))

    def audit(self, event_type: str) -> str:
        """Where audit events of a type are published."""
        return f"{self.prefix}.audit.{event_type}"

    def dead_letter(self, reason: str) -> str:
        """Where dead letters are published."""
        return f"{self.prefix}.dlq.{reason}"

    def max_deliveries_advisory(self) -> str:
        """Pattern of the server's advisories about requests that ran out of deliveries."""
        return f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{self.requests_stream}.*"

    def recording(self, key: str) -> str:
        """Where the recorded analysis of a request is kept."""
        return f"{self.prefix}.recording.{key}"

    def outcome(self, key: str) -> str:
        """Where the executor of a workflow reports what it did."""
        return f"{self.prefix}.outcome.{key}"
