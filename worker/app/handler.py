"""What happens to one message: decoded, looked up, analysed, published, settled. The only place that catches everything.

Order of the life of a request: reject what cannot be read; ack what has its result; begin a journal run, which fences
every older one; analyse; publish the result once; ack. A message is settled only after what became of it is confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog

from schemas.analysis import AnalysisResult
from schemas.failure import DeadLetter, DeadLetterReason, FieldError, ValidationCode, ValidationFailure, excerpt
from schemas.incident import request_digest
from schemas.subjects import Subjects, kv_key, request_key
from worker.app.metrics import Metrics
from worker.domain.analyse import Job
from worker.domain.audit_trail import Subject
from worker.domain.decode import Decoded, Rejected, decode
from worker.domain.delivery import ACK, LET_GO, Delivery, Settlement, retry, term
from worker.domain.errors import GiveUp, GiveUpReason, JournalGap, LostClaim, Retry, Unavailable
from worker.domain.evidence import one_line
from worker.domain.journal import FAILED, RELEASED, count
from worker.domain.outcome import Ending
from worker.domain.ports import Clock, Events, Journal, JournalRun, Results
from worker.domain.redact import redact
from worker.domain.retry import RetryPolicy, next_delay

BROKER_SECONDS = 5.0
BLOCKED_SECONDS = 60.0
BLOCKING = {GiveUpReason.MODEL_REFUSED_CREDENTIALS, GiveUpReason.MODEL_SPEND_CAP}
"""Nothing can be analysed until a person acts: messages are kept, readiness says why."""
ERROR_CHARS = 300

log = structlog.stdlib.get_logger(__name__)
