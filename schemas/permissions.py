"""What each role around a worker may publish and subscribe to on NATS: least privilege.

Worker, provisioner and operator share the account that holds the streams. Every other role has an account of
its own and imports what it needs. Permissions alone would not be enough: a client that may publish anything
may name any subject as the reply, and the server's answer (an acknowledgement, or a message it was asked for)
is then published there, for example into the stream of results. The answer to an import goes back to the
importing account and nowhere else.

Whoever can update a stream can empty it (a short `max_age`) or feed it from elsewhere (`sources`). Only the
provisioner can, and nothing that runs all the time has its credentials.

An account without JetStream can't import `$JS.API` under that name. Roles outside ask for it below
`<STEM>.API`: clients call that the API prefix (`nc.jetstream(prefix="RCA.API")`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from schemas.subjects import EXHAUSTED, OUTCOMES, Lane, Subjects

API: Final = "$JS.API"
INBOX: Final = "_INBOX"
"""The default prefix of subjects on which clients wait for answers."""


class Role(enum.StrEnum):
    """The roles that use the streams."""

    WORKER = "worker"
    """Takes requests, publishes everything else."""
    PROVISIONER = "provisioner"
    """Creates and updates streams, durables and buckets, and does nothing else. It reads and publishes no
    message."""
    OPERATOR = "operator"
    """Submits and cancels requests, handles dead letters, verifies the audit trail. It cannot change a
    stream."""
    GATEWAY = "gateway"
    """Publishes requests, cancels them, reads which were rejected."""
    AIANALYSIS = "aianalysis"
    """Reads results."""
    EXECUTOR = "executor"
    """Reports what an executed workflow did."""
    AUDIT_READER = "audit-reader"
    """Reads audit events, results and outcomes."""


INSIDE: Final = (Role.WORKER, Role.PROVISIONER, Role.OPERATOR)
"""Roles in the account of the streams."""


@dataclass(frozen=True, slots=True)
class Import:
    """A subject in the account of the streams, and how the role writes it."""

    subject: str
    local: str


@dataclass(frozen=True, slots=True)
class Access:
    """What one role may do. `publish` and `subscribe` are subjects as the role writes them.

    `services` (published to) and `feeds` (subscribed to) are what its account imports: nothing for a role
    inside.
    """

    role: Role
    account: str
    inbox_prefix: str
    api_prefix: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    services: tuple[Import, ...] = ()
    feeds: tuple[Import, ...] = ()


def access(role: Role, subjects: Subjects) -> Access:
    """The rights of a role under a prefix.

    Roles inside the worker's account have an inbox of their own; all others have an account of their own.
    """
    asked, heard = RIGHTS[role](subjects)
    if role in INSIDE:
        inbox = f"{INBOX}_{subjects.stem.lower()}_{role}"
        return Access(role, subjects.stem, inbox, API, asked, (f"{inbox}.>", *heard))
    account = f"{subjects.stem}_{role.upper().replace('-', '_')}"
    prefix = f"{subjects.stem}.API"
    services = tuple(Import(subject, subject.replace(API, prefix)) for subject in asked)
    return Access(
        role,
        account,
        INBOX,
        prefix,
        tuple(each.local for each in services),
        (f"{INBOX}.>", *heard),
        services,
        tuple(Import(subject, subject) for subject in heard),
    )


Rights = tuple[tuple[str, ...], tuple[str, ...]]
"""Subjects to publish to, subjects to listen to; in the names of the streams' account."""


def _worker(s: Subjects) -> Rights:
    journal, cancel, history = s.journal_bucket, s.cancel_bucket, s.history_bucket
    read = [s.requests_stream, s.results_stream, s.outcomes_stream]
    read += [f"KV_{journal}", f"KV_{cancel}", f"KV_{history}", f"OBJ_{journal}"]
    asked = [
        *s.result_subjects(),
        *s.validation_subjects(),
        s.audit(">"),
        s.dead_letter(">"),
        f"$KV.{journal}.>",
        f"$O.{journal}.C.>",
        f"$O.{journal}.M.>",
        f"$KV.{history}.>",
        s.recording(">"),
        *(_api("STREAM.INFO", stream) for stream in streams(s)),
        *(_api("STREAM.MSG.GET", stream) for stream in read),
        # A request that the server no longer delivers. Acknowledging a request removes it as well: no further
        # power.
        _api("STREAM.MSG.DELETE", s.requests_stream),
        # The journal of a request whose result is stored. The worker may write what it likes there: no
        # further power.
        _api("STREAM.PURGE", f"KV_{journal}"),
        _api("STREAM.PURGE", f"OBJ_{journal}"),
    ]
    for stream, durable in _durables(s):
        asked += [_api("CONSUMER.INFO", f"{stream}.{durable}"), *_taking(stream, durable)]
    return tuple(asked), ()


def _provisioner(s: Subjects) -> Rights:
    asked = [
        *_looking(s),
        *(_api(f"STREAM.{verb}", name) for verb in ("CREATE", "UPDATE") for name in streams(s)),
        # Some clients write DURABLE.
        *(
            _api(f"CONSUMER.{verb}", name)
            for verb in ("CREATE", "DURABLE.CREATE")
            for name in _all_durables(s)
        ),
        # With a filter, as clients write it.
        _api("CONSUMER.CREATE", f"{s.results_stream}.{Role.AIANALYSIS}.>"),
    ]
    return tuple(asked), ()


def _operator(s: Subjects) -> Rights:
    # Requests: does one wait that is cancelled? Rejections: was this one published before? Journal: why does a
    # request wait that has begun?
    buckets = (f"KV_{s.cancel_bucket}", f"KV_{s.journal_bucket}")
    # Outcomes: `rca outcomes report` compares them with the results.
    kept = (s.dlq_stream, s.results_stream, s.outcomes_stream, s.audit_stream, s.recordings_stream)
    read = (*kept, *buckets, s.requests_stream, s.validation_stream)
    asked = [
        *s.request_subjects(),
        f"$KV.{s.cancel_bucket}.>",
        *_looking(s),
        *(_api("STREAM.MSG.GET", name) for name in read),
        _api("STREAM.MSG.DELETE", s.dlq_stream),
    ]
    heard = [*s.result_subjects(), *s.validation_subjects(), s.dead_letter(">"), s.audit(">")]
    return tuple(asked), tuple(heard)


def _gateway(s: Subjects) -> Rights:
    return (*s.request_subjects(), f"$KV.{s.cancel_bucket}.>"), (s.validation_request(),)


def _aianalysis(s: Subjects) -> Rights:
    durable = f"{s.results_stream}.{Role.AIANALYSIS}"
    asked = [
        *_reading(s.results_stream),
        _api("CONSUMER.INFO", durable),
        *_taking(s.results_stream, Role.AIANALYSIS),
    ]
    return tuple(asked), s.result_subjects()


def _executor(s: Subjects) -> Rights:
    return (s.outcome(">"),), ()


def _audit_reader(s: Subjects) -> Rights:
    # Of the requests, only how far back they reach: `rca audit verify` looks for chains without an end.
    read = (s.audit_stream, s.results_stream, s.outcomes_stream)
    asked = (
        *(right for stream in read for right in _reading(stream)),
        _api("STREAM.INFO", s.requests_stream),
    )
    return asked, (s.audit(">"),)


RIGHTS: Final = {
    Role.WORKER: _worker,
    Role.PROVISIONER: _provisioner,
    Role.OPERATOR: _operator,
    Role.GATEWAY: _gateway,
    Role.AIANALYSIS: _aianalysis,
    Role.EXECUTOR: _executor,
    Role.AUDIT_READER: _audit_reader,
}


def streams(s: Subjects) -> tuple[str, ...]:
    """All streams under a prefix, those of buckets too."""
    buckets = (s.journal_bucket, s.cancel_bucket, s.history_bucket)
    kept = (s.requests_stream, s.results_stream, s.validation_stream, s.audit_stream, s.dlq_stream)
    later = (s.outcomes_stream, s.recordings_stream)
    return (*kept, *later, *(f"KV_{bucket}" for bucket in buckets), f"OBJ_{s.journal_bucket}")


def _durables(s: Subjects) -> Iterable[tuple[str, str]]:
    """The durable consumers of the worker, as (stream, durable)."""
    lanes = ((s.requests_stream, lane.value) for lane in Lane)
    return [*lanes, (s.dlq_stream, EXHAUSTED), (s.outcomes_stream, OUTCOMES)]


def _all_durables(s: Subjects) -> list[str]:
    """The durables of the worker and of the consumers of results, as the API names them."""
    return [f"{stream}.{durable}" for stream, durable in (*_durables(s), (s.results_stream, Role.AIANALYSIS))]


def _looking(s: Subjects) -> list[str]:
    """Rights to read the configuration and the state of every stream and durable."""
    return [
        f"{API}.INFO",
        f"{API}.STREAM.NAMES",
        f"{API}.STREAM.LIST",
        *(_api("STREAM.INFO", name) for name in streams(s)),
        *(_api(f"CONSUMER.{verb}", name) for verb in ("NAMES", "LIST") for name in streams(s)),
        *(_api("CONSUMER.INFO", name) for name in _all_durables(s)),
    ]


def _api(verb: str, what: str) -> str:
    return f"{API}.{verb}.{what}"


def _reading(stream: str) -> tuple[str, ...]:
    """Rights to read message by message, without a consumer."""
    return _api("STREAM.INFO", stream), _api("STREAM.MSG.GET", stream)


def _taking(stream: str, durable: str) -> tuple[str, ...]:
    """Rights to pull and acknowledge; in acknowledgements, servers may put domain and account first."""
    acks = (f"$JS.ACK.{stream}.{durable}.>", f"$JS.ACK.*.*.{stream}.{durable}.>")
    return _api("CONSUMER.MSG.NEXT", f"{stream}.{durable}"), *acks
