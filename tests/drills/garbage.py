"""A hundred thousand bodies: none brings a worker down, each is answered."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

from schemas.failure import ValidationFailure
from schemas.taxonomy import RequestKind
from tests.drills.accounts import stream_messages, subject_counts
from tests.drills.bodies import Tally, generated, mutations
from tests.drills.stage import Ground, Stage, stage
from tests.drills.table import Outcome
from worker.app.client import readable_key

MAX_ACCEPTED = 60
"""Of the sample that goes through the server: each costs a whole analysis."""


async def generated_bodies(
    ground: Ground, *, bodies: int = 100_000, by_hypothesis: int = 3_000, sample: int = 5_000
) -> Outcome:
    """All are decoded in this process, a sample goes through a server and a worker."""
    tally = Tally()
    await asyncio.to_thread(_decode_all, tally, bodies - by_hypothesis, by_hypothesis)
    ground.tell(f"{tally.all} decoded: {tally.accepted} accepted, {tally.rejected} rejected")
    async with stage(ground, "garbage", ack_wait_seconds=30.0, slots=8) as s:
        [worker] = await s.start(1)
        sent = await _publish_sample(s, sample)
        drained = await s.settled(0, 240)
        alive = worker.exit_code is None
        unanswered = await _unanswered(s, sent)
    wrong = tally.crashes + tally.wordless
    return Outcome(
        not wrong and drained and alive and not unanswered,
        f"{tally.all} decoded, crashes {tally.crashes}, rejected without a reason {tally.wordless}; of {len(sent)} "
        f"through the server unanswered {len(unanswered)}{'' if alive else ', WORKER DEAD'}"
        + (f"; {tally.first_crash}" if tally.first_crash else ""),
    )


def _decode_all(tally: Tally, mutated: int, by_hypothesis: int) -> None:
    for body, kind in itertools.islice(mutations(1), mutated):
        tally.decode(body, kind)
    generated(by_hypothesis, lambda body, kind: tally.decode(body, kind) and None)


def _sample(count: int) -> Iterator[tuple[bytes, RequestKind]]:
    """Another part of the mutations, with a bounded number of acceptable ones."""
    tally = Tally()
    made = 0
    for body, kind in mutations(2):
        if made == count:
            return
        if tally.decode(body, kind) and tally.accepted > MAX_ACCEPTED:
            continue
        made += 1
        yield body, kind


async def _publish_sample(s: Stage, count: int) -> dict[int, tuple[bytes, RequestKind]]:
    """Sequence -> what was stored there."""
    js, sent = s.nc.jetstream(timeout=5), {}
    for body, kind in _sample(count):
        ack = await js.publish(s.subjects.request(kind), body)
        sent[ack.seq] = (body, kind)
    return sent


async def _unanswered(s: Stage, sent: dict[int, tuple[bytes, RequestKind]]) -> list[int]:
    """Sequences that got neither a list of errors nor a result under their key."""
    rejected = set()
    async for message in stream_messages(s.nc, s.subjects.validation_stream, s.subjects.validation_request()):
        failure = ValidationFailure.model_validate_json(message.data)
        if failure.errors:
            rejected.add(failure.origin_sequence)
    results = await subject_counts(s.nc, s.subjects.results_stream)
    return [
        sequence
        for sequence, (body, kind) in sent.items()
        if sequence not in rejected
        and s.subjects.result(kind, readable_key(body, kind) or "-") not in results
    ]
