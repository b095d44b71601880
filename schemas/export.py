"""Writes the contract for other languages: `python -m schemas.export [DIRECTORY]`, by default `schemas/v1`.

One JSON Schema (2020-12) per message, and an AsyncAPI 3.0 document of the subjects. The samples are written
by hand, and completed here: fields that a model gained, and the places and hashes of the audit events. The files are
committed; a test compares them with what is generated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from schemas.analysis import AnalysisResult
from schemas.asyncapi import asyncapi
from schemas.audit import AuditEvent
from schemas.chain import genesis, sealed
from schemas.failure import DeadLetter, ValidationFailure
from schemas.fields import Message
from schemas.incident import IncidentRequest
from schemas.outcome import RemediationOutcome
from schemas.recovery import RecoveryRequest

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
V1: Final = Path(__file__).parent / "v1"

MODELS: Final[Mapping[str, type[Message]]] = MappingProxyType(
    {
        "incident-request": IncidentRequest,
        "recovery-request": RecoveryRequest,
        "analysis-result": AnalysisResult,
        "validation-failure": ValidationFailure,
        "dead-letter": DeadLetter,
        "audit-event": AuditEvent,
        "remediation-outcome": RemediationOutcome,
    }
)
"""Every message, by the name of its schema."""

RECEIVED: Final = frozenset({"incident-request", "recovery-request", "remediation-outcome"})
"""Messages that others write: their schemas describe accepted input, the other ones the complete output."""

VECTORS: Final = ("keys", "spec-hashes")
"""Test vectors for other languages, beside the samples and also written by hand: how ids become keys, and the hashes
of specs. Executors store these hashes, so no vector may ever change.
"""


class _Untitled(GenerateJsonSchema):
    """Generates schemas without field titles, which would only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature of the base class
        return False

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> dict[str, Any]:
        """Without the object `discriminator` of OpenAPI, which neither JSON Schema nor AsyncAPI has."""
        described = super().tagged_union_schema(schema)
        described.pop("discriminator", None)
        return described


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a message."""
    mode: Literal["validation", "serialization"] = "validation" if name in RECEIVED else "serialization"
    schema = MODELS[name].model_json_schema(mode=mode, schema_generator=_Untitled)
    return {"$schema": DIALECT, "$id": f"urn:rca-worker:v1:{name}", **schema}


def samples() -> dict[str, Message]:
    """The committed samples by file name, which starts with the name of the schema.

    The audit events form a chain.
    """
    files = {path.stem: path for path in sorted((V1 / "samples").glob("*.json")) if path.stem not in VECTORS}
    models = {stem: next(model for name, model in MODELS.items() if stem.startswith(name)) for stem in files}
    read = {name: models[name].model_validate_json(path.read_bytes()) for name, path in files.items()}
    events = {name: event for name, event in read.items() if isinstance(event, AuditEvent)}
    previous = ""
    in_order = sorted(events.items(), key=lambda item: item[1].sequence)
    for number, (name, event) in enumerate(in_order, 1):
        start = previous or genesis(event.request_key, event.chain)
        place = {"event_id": f"{event.request_key}.{number}", "sequence": number, "prev": start}
        read[name] = linked = sealed(event.model_copy(update=place))
        previous = linked.hash
    return read


def documents() -> dict[str, str]:
    """All files, by path inside the directory."""
    bodies = {name: message.model_dump(mode="json") for name, message in samples().items()}
    written = {name: schema_of(name) for name in MODELS}
    files: dict[str, Any] = {f"{name}.schema.json": schema for name, schema in written.items()}
    files["asyncapi.json"] = asyncapi(written, bodies)
    files |= {f"samples/{name}.json": body for name, body in bodies.items()}
    vectors = [f"samples/{name}.json" for name in VECTORS]
    files |= {path: json.loads((V1 / path).read_bytes()) for path in vectors}
    return {path: json.dumps(body, indent=2, ensure_ascii=False) + "\n" for path, body in files.items()}


def export(directory: Path) -> None:
    """Write all files. Files that are no longer generated stay; the drift test names them."""
    for path, text in documents().items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")


def drift(directory: Path) -> list[str]:
    """Files in the directory that are missing, differ, or are no longer generated."""
    generated = documents()
    there = {p.relative_to(directory).as_posix(): p.read_text("utf-8") for p in directory.rglob("*.json")}
    return sorted(path for path in generated.keys() | there.keys() if generated.get(path) != there.get(path))


def main() -> int:
    """The command line: write the files, or with --check only report differences (exit code 1)."""
    parser = argparse.ArgumentParser(
        prog="python -m schemas.export", description="Write schemas/v1 from the models."
    )
    parser.add_argument("directory", nargs="?", type=Path, default=V1)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file differs")
    arguments = parser.parse_args()
    if not arguments.check:
        export(arguments.directory)
        return 0
    different = drift(arguments.directory)
    for path in different:
        sys.stderr.write(
            f"{arguments.directory / path} is not what the models say: run python -m schemas.export\n"
        )
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
