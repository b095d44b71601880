"""Records an analysis while it runs.

Recordings go to a store, and a failure there never fails the analysis.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Protocol

from pydantic import TypeAdapter

from schemas.analysis import AnalysisResult
from worker.domain.analyse import Analysis, Rules
from worker.domain.investigation.prompt import PROMPT_VERSION
from worker.domain.journal.run import Run
from worker.domain.journal.steps import done
from worker.domain.recording.bundle import Bundle, RecordedCall, SavedStep, Versions, encode_within
from worker.domain.recording.tape import PORTS, Recorder, Taped, masked, taped
from worker.domain.untrusted.redaction.redact import redact_json
from worker.domain.values.errors import Unavailable
from worker.domain.values.ports import Outside, Step
from worker.domain.values.step_kinds import RESULT

RULES = TypeAdapter(Rules)


class Recordings(Protocol):
    """Bundles of finished requests, by request key. `keep` replaces the one before. Both raise Unavailable.

    `max_bytes` is the size that one bundle may have.
    """

    @property
    def max_bytes(self) -> int: ...
    async def keep(self, key: str, bundle: bytes) -> None: ...
    async def find(self, key: str) -> bytes | None: ...


class RecordedAnalysis(Analysis):
    """An analysis that keeps a bundle of each request which ends with an answer of this run.

    `program` is the version of this program. `failed` is called with the key and the reason if a bundle could
    not be kept.
    """

    def __init__(
        self,
        outside: Outside,
        rules: Rules,
        recordings: Recordings,
        *,
        program: str,
        failed: Callable[[str, str], None],
    ) -> None:
        super().__init__(outside, rules)
        self._recordings, self._program, self._failed = recordings, program, failed

    async def run(self, run: Run) -> AnalysisResult:
        """Like `Analysis.run`, and record it."""
        if done(run, RESULT):
            return await super().run(run)
        recorder = Recorder()
        run.new_token = Taped("run", run, recorder).new_token
        result = await Analysis(taped(self._outside, recorder), self.rules).run(run)
        exchanges = await recorder.exchanges()
        try:
            bundle = await asyncio.to_thread(self._bundle, run, result, exchanges)
            await self._recordings.keep(run.accepted.key, bundle)
        except (Unavailable, ValueError) as e:
            self._failed(run.accepted.key, str(e))
        return result

    def _bundle(self, run: Run, result: AnalysisResult, exchanges: Sequence[RecordedCall]) -> bytes:
        accepted, outside = run.accepted, self._outside
        bundle = Bundle(
            key=accepted.key,
            kind=accepted.kind,
            request=redact_json(accepted.request.model_dump(mode="json")),
            digest=accepted.digest,
            lane=accepted.delivery.durable,
            notes=run.notes,
            rules=RULES.dump_python(self.rules, mode="json"),
            versions=Versions(
                program=self._program,
                prompt=PROMPT_VERSION,
                model=outside.model.name,
                shadow=outside.shadow.name if outside.shadow else "",
                catalog=catalog_digest(exchanges),
            ),
            ports=tuple(name for name in PORTS if getattr(outside, name) is not None),
            steps=tuple(map(_saved, run.past)),
            exchanges=tuple(exchanges),
            result=result.model_dump_json(),
        )
        return encode_within(bundle, self._recordings.max_bytes)


def catalog_digest(exchanges: Sequence[RecordedCall]) -> str:
    """SHA-256 of the questions to the catalog and its answers, in any order."""
    told = sorted(f"{e.call}{e.asked}{e.answer}" for e in exchanges if e.call.startswith("catalog."))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _saved(step: Step) -> SavedStep:
    """A step for the bundle. Its data is JSON, or nothing."""
    data = json.dumps(masked(json.loads(step.data))) if step.data else ""
    return SavedStep(kind=step.kind, run=step.run, data=data, notes=dict(step.notes))
