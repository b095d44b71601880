"""Every request body of the corpus is decoded as its index says; where the index leaves a choice, ours is below."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest

from schemas.failure import ValidationCode
from schemas.taxonomy import RequestKind
from tests.corpus_files import (
    CORPUS,
    GENERATED,
    PREVIOUS_LOG,
    PayloadRow,
    corpus_path,
    full_cases_dir,
    payload_rows,
    reply_rows,
)
from worker.domain.intake.decode import Decoded, InvalidRequest, decode

NOW = datetime(2026, 5, 11, 21, 43, tzinfo=UTC)

CHOICES = {
    "21-count-large-valid.json": True,  # any integer of 64 bits
    "72-labels-number-value.json": False,  # labels are text to text; nothing is coerced
    "78-count-null.json": True,  # null in an optional field is the same as leaving it out
    "87-duplicate-key-case.json": True,  # names are case-sensitive: the odd one is an unknown field, and listed
    "93-lone-surrogate.json": False,  # no text that cannot be written back as UTF-8
    "95-utf8-bom.json": False,  # RFC 8259: no byte order mark
    "110-received-at-number.json": False,  # times are RFC 3339
}
"""Whether we accept what the index only recommends a choice for."""

CODES = {
    "19-error-message-600kb.json": ValidationCode.TOO_LARGE,
    "25-empty-body.json": ValidationCode.NOT_JSON,
    "82-count-infinity.json": ValidationCode.NOT_JSON,
    "85-duplicate-key.json": ValidationCode.NOT_JSON,
    "89-deep-nesting-50k-objects.json": ValidationCode.TOO_DEEP,
    "91-invalid-utf8.json": ValidationCode.NOT_UTF8,
    "104-gzip-without-header.json": ValidationCode.NOT_UTF8,
    "74-count-zero.json": ValidationCode.SCHEMA,
}

PATHS = {
    "35-detected-label-string-bool.json": "enrichment_results.detectedLabels.gitOpsManaged",
    "43-safety-negative-downtime.json": "safety_context.safety_constraints.max_downtime_seconds",
    "47-recovery-reason-prose.json": "previous_execution.failure.reason",
    "50-recovery-flag-false.json": "is_recovery_attempt",
    "61-name-path-traversal.json": "resource_name",
    "65-namespace-missing-for-pod.json": "resource_namespace",
    "84-count-long-digits.json": "occurrence_count",
    "85-duplicate-key.json": "severity",
    "93-lone-surrogate.json": "error_message",
}

IGNORED = {
    "11-valid-unknown-fields.json": ("foo", "fingerprint"),
    "39-removed-owner-chain.json": ("enrichment_results.ownerChain",),
    "87-duplicate-key-case.json": ("RESOURCE_NAME",),
    "01-valid-full.json": (),
}


def outcome_of(file: str, *, recovery: bool = False) -> Decoded | InvalidRequest:
    kind = RequestKind.RECOVERY if recovery else RequestKind.INCIDENT
    return decode(corpus_path(f"payloads/{file}").read_bytes(), kind, NOW)


def wanted(row: PayloadRow) -> bool:
    return row.accepted if row.strictness == "must" else CHOICES[row.file]


@pytest.mark.parametrize("row", payload_rows(), ids=lambda row: row.file)
def test_payload_is_accepted_or_rejected_as_the_index_says(row):
    outcome = outcome_of(row.file, recovery=row.is_recovery)
    assert wanted(row) == isinstance(outcome, Decoded), outcome
    if isinstance(outcome, InvalidRequest):
        assert all(error.expected for error in outcome.errors)


def test_every_optional_rejection_of_the_corpus_is_decided():
    assert {row.file for row in payload_rows() if row.strictness == "should"} == set(CHOICES)


@pytest.mark.parametrize(("file", "code"), CODES.items())
def test_rejection_names_the_kind_of_fault(file, code):
    outcome = outcome_of(file)
    assert isinstance(outcome, InvalidRequest)
    assert code == outcome.code


@pytest.mark.parametrize(("file", "path"), PATHS.items())
def test_rejection_names_the_place(file, path):
    outcome = outcome_of(file, recovery="recovery" in file)
    assert isinstance(outcome, InvalidRequest)
    assert [path] == [error.path for error in outcome.errors]


@pytest.mark.parametrize(("file", "fields"), IGNORED.items())
def test_fields_that_are_not_read_are_listed(file, fields):
    outcome = outcome_of(file)
    assert isinstance(outcome, Decoded)
    assert fields == outcome.ignored_fields


@pytest.mark.parametrize("file", ["19-error-message-600kb.json", "23-truncated-inside-string.json"])
def test_ids_are_found_in_a_body_that_is_no_json(file):
    outcome = outcome_of(file)
    assert isinstance(outcome, InvalidRequest)
    number = file.partition("-")[0]
    assert (f"rr-9001-{number}", "inc-9001") == (outcome.remediation_id, outcome.incident_id)


@pytest.mark.parametrize(
    "path", sorted((CORPUS / "cases").glob("*/incident.json")), ids=lambda path: path.parent.name
)
def test_the_incident_of_every_case_is_accepted(path):
    outcome = decode(path.read_bytes(), RequestKind.INCIDENT, NOW)
    assert isinstance(outcome, Decoded), outcome
    assert outcome.ignored_fields == ()


@pytest.mark.parametrize("row", payload_rows(), ids=lambda row: row.file)
def test_payload_files_have_the_size_of_the_index(row):
    assert row.bytes == corpus_path(f"payloads/{row.file}").stat().st_size


DIGESTS = {
    "payloads/19-error-message-600kb.json": "dea3c34003da7c0c0f852e7d6b55d52c17c6ea7f64a2f4e551403415bbd7497a",
    "payloads/84-count-long-digits.json": "5cebebb77c0201ff6f1901f232a68c4ca159cbfbbc1700eab370b0172da6c7b0",
    "payloads/89-deep-nesting-50k-objects.json": "b69c294ca232132fd9df52de121420dde4cfbb1fe0ef8c1e8df57314bc471dec",
    "llm_replies/101-very-long-prose-200kb.txt": "074f21175efe6573fab06a1f2304885433121a8d36795baea7d0cc32e9aa389f",
}


@pytest.mark.parametrize(("relative", "digest"), DIGESTS.items())
def test_generated_files_are_the_corpus_files(relative, digest):
    assert digest == hashlib.sha256(corpus_path(relative).read_bytes()).hexdigest()


def test_generated_log_has_the_shape_of_the_corpus_file():
    lines = corpus_path(PREVIOUS_LOG).read_text().splitlines()
    assert len(lines) == 6785
    assert lines == sorted(lines, key=lambda line: line[5:29])
    assert 'msg="Starting Prometheus Server"' in lines[0]
    assert lines[-1].endswith('msg="Starting rule manager..." component="rule manager"')


def test_all_cases_are_complete(tmp_path):
    cases = full_cases_dir(tmp_path)
    missing = [
        file
        for file in (CORPUS / "cases").rglob("*")
        if not (cases / file.relative_to(CORPUS / "cases")).exists()
    ]
    assert missing == []
    assert all((tmp_path / relative).exists() for relative in GENERATED if relative.startswith("cases/"))


def test_every_reply_of_the_index_exists():
    assert [row.file for row in reply_rows() if not corpus_path(f"llm_replies/{row.file}").is_file()] == []
