"""The corpus with its large files: those above 100 KB are generated into a cached temporary directory.

`corpus_path("payloads/19-error-message-600kb.json")` works for vendored and generated files alike.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
PREVIOUS_LOG = (
    "cases/038-prometheus-oom-loop-wal-replay-1mb-log/logs/"
    "otel-demo_prometheus-6c9d5b7f88-w7kdz_prometheus-server.previous.log"
)


@dataclass(frozen=True, slots=True)
class PayloadRow:
    """One row of payloads/index.csv."""

    file: str
    bytes: int
    why: str
    expected: str
    strictness: str
    note: str

    @property
    def accepted(self) -> bool:
        return self.expected == "accept"

    @property
    def is_recovery(self) -> bool:
        """Recovery payloads go to the recovery subject."""
        return "recovery" in self.file


@dataclass(frozen=True, slots=True)
class ReplyRow:
    """One row of llm_replies/index.csv."""

    file: str
    should_parse: bool
    firmness: str
    usable_after_validation: bool
    case: str
    expected_facts: dict[str, Any]
    note: str


def _rows(index: str) -> list[dict[str, str]]:
    with (CORPUS / index).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def payload_rows() -> tuple[PayloadRow, ...]:
    """All payloads, good and bad."""
    return tuple(PayloadRow(**{**row, "bytes": int(row["bytes"])}) for row in _rows("payloads/index.csv"))


@cache
def reply_rows() -> tuple[ReplyRow, ...]:
    """All replies of models."""
    return tuple(
        ReplyRow(
            file=row["file"],
            should_parse=row["should_parse"] == "yes",
            firmness=row["firmness"],
            usable_after_validation=row["usable_after_validation"] == "yes",
            case=row["case"],
            expected_facts=json.loads(row["expected_facts_json"] or "{}"),
            note=row["note"],
        )
        for row in _rows("llm_replies/index.csv")
    )


@cache
def corpus_path(relative: str) -> Path:
    """A file of the corpus; the large ones are written on first use."""
    vendored = CORPUS / relative
    if vendored.exists():
        return vendored
    path = _cache_directory() / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(GENERATED[relative]())
    partial.replace(path)
    return path


def full_cases_dir(tmp: Path) -> Path:
    """All cases, copied to a directory below `tmp`, with the generated files."""
    cases = shutil.copytree(CORPUS / "cases", tmp / "cases")
    for relative in GENERATED:
        if relative.startswith("cases/"):
            shutil.copyfile(corpus_path(relative), tmp / relative)
    return cases


@cache
def _cache_directory() -> Path:
    directory = Path(tempfile.gettempdir()) / f"rca-corpus-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to somebody else")
    return directory


# -- generators


def _payload(number: int, **changes: Any) -> dict[str, Any]:
    base = json.loads((CORPUS / "payloads/01-valid-full.json").read_bytes())
    return base | {"remediation_id": f"rr-9001-{number}"} | changes


def _error_message_600kb() -> bytes:
    return json.dumps(_payload(19, error_message="x" * 600 * 1024), indent=1).encode()


def _count_long_digits() -> bytes:
    text = json.dumps(_payload(84, occurrence_count=987654321))
    return text.replace("987654321", "9" * 100_000).encode()


def _deep_nesting_50k_objects() -> bytes:
    text = json.dumps(_payload(89, x=0))
    return text.replace('"x": 0', '"x": ' + '{"a":' * 50_000 + "1" + "}" * 50_000).encode()


def _very_long_prose_200kb() -> bytes:
    log = "".join(
        f"- checked {what}: nothing unusual ({n})\n"
        for n in range(1500)
        for what in ("pods", "events", "nodes")
    )
    answer = {
        "root_cause_analysis": {
            "summary": "HPA is capped at maxReplicas 3 while CPU is at 200 percent of request against a 50 percent target.",
            "severity": "warning",
            "contributing_factors": ["ScalingLimited TooManyReplicas"],
            "affected_resource": {
                "kind": "HorizontalPodAutoscaler",
                "name": "api-frontend",
                "namespace": "edge-gateway",
            },
        },
        "selected_workflow": {
            "workflow_id": "patch-hpa-v1",
            "confidence": 0.92,
            "rationale": "Load is real and nodes have room.",
            "parameters": {
                "TARGET_RESOURCE_NAMESPACE": "edge-gateway",
                "TARGET_RESOURCE_NAME": "api-frontend",
                "TARGET_RESOURCE_KIND": "HorizontalPodAutoscaler",
                "NEW_MAX_REPLICAS": 12,
            },
        },
        "needs_human_review": False,
    }
    return f"## Investigation log\n{log}\n## Result\n```json\n{json.dumps(answer, indent=2)}\n```\n".encode()


SEGMENTS = 6400
LOG_START = datetime(2026, 8, 6, 9, 28, 2, tzinfo=UTC)
VERSION = "(version=3.13.1, branch=HEAD, revision=fb09cc5757b5fe88078f76062cdb5f18b27da704)"
DURATIONS = "checkpoint_replay_duration=31.2ms wal_replay_duration=42.883s wbl_replay_duration=1.1s total_replay_duration=44.4s"
LOG_HEAD = (
    (8, f'main.go:725 msg="Starting Prometheus Server" mode=server version="{VERSION}"'),
    (14, 'head.go:669 msg="Replaying on-disk memory mappable chunks if any" component=tsdb'),
    (
        23,
        'head.go:755 msg="On-disk memory mappable chunks replay completed" component=tsdb duration=412.223391ms',
    ),
    (24, 'head.go:763 msg="Replaying WAL, this may take a while" component=tsdb'),
)
LOG_TAIL = (
    (43_759, f'head.go:873 msg="WAL replay completed" component=tsdb {DURATIONS}'),
    (43_760, 'main.go:1289 msg="TSDB started"'),
    (43_766, 'main.go:1032 msg="Server is ready to receive web requests."'),
    (43_773, 'manager.go:190 msg="Starting rule manager..." component="rule manager"'),
)


def _line(milliseconds: int, rest: str, level: str = "INFO") -> str:
    time = (LOG_START + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    return f"time={time.replace('+00:00', 'Z')} level={level} source={rest}\n"


def _previous_log() -> bytes:
    """A start of Prometheus: every segment of the write-ahead log, and now and then a warning."""
    lines = [_line(*head) for head in LOG_HEAD]
    for n in range(SEGMENTS):
        at = 30 + n * 43_720 // SEGMENTS
        duration = 400_256 + n * 7_919 % 10_599_000
        segment = f"segment={n} maxSegment={SEGMENTS - 1} duration={duration / 1e6:.6f}ms"
        lines.append(_line(at, f'head.go:836 msg="WAL segment loaded" component=tsdb {segment}'))
        if n % 17 == 3:
            target = f"target=http://10.244.{n % 4}.{n % 250}:8888/metrics num_dropped={1 + n % 40}"
            warning = (
                'scrape.go:1850 msg="Error on ingesting out-of-order samples" component="scrape manager"'
            )
            lines.append(_line(at + 3, f"{warning} scrape_pool=kubernetes-pods-{n % 23:02} {target}", "WARN"))
    lines += [_line(*tail) for tail in LOG_TAIL]
    return "".join(lines).encode()


GENERATED: dict[str, Callable[[], bytes]] = {
    "payloads/19-error-message-600kb.json": _error_message_600kb,
    "payloads/84-count-long-digits.json": _count_long_digits,
    "payloads/89-deep-nesting-50k-objects.json": _deep_nesting_50k_objects,
    "llm_replies/101-very-long-prose-200kb.txt": _very_long_prose_200kb,
    PREVIOUS_LOG: _previous_log,
}
"""The files above 100 KB. All but the log are the corpus files byte for byte; the log has their lines and size."""
