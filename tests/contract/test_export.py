"""The committed contract is the generated one, and its parts agree with each other and with the models."""

from __future__ import annotations

import json
import sys
from urllib.parse import unquote

import pytest
from jsonschema import Draft202012Validator

from schemas.export import MODELS, V1, documents, drift, export, main, samples, schema_of
from schemas.incident import request_digest
from schemas.subjects import Subjects, history_key, kv_key, request_key, subject_token
from schemas.taxonomy import RequestKind
from tests.corpus_files import corpus_path, payload_rows
from tests.fakes.samples import COMPLETED, EVENTS, INCIDENT, RECOVERY, REVIEW


def schema_name(sample: str) -> str:
    return next(name for name in sorted(MODELS, reverse=True) if sample.startswith(name))


def test_committed_files_are_the_generated_ones():
    assert [] == drift(V1), "run python -m schemas.export"


def test_drift_names_what_is_missing_changed_or_left_over(tmp_path):
    export(tmp_path)
    (tmp_path / "asyncapi.json").write_text("{}")
    (tmp_path / "samples" / "keys.json").unlink()
    (tmp_path / "old.schema.json").write_text("{}")
    assert ["asyncapi.json", "old.schema.json", "samples/keys.json"] == drift(tmp_path)


def test_the_command_writes_the_files_or_says_which_differ(tmp_path, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["export", str(tmp_path), *arguments])
        return main()

    assert 1 == run("--check")
    assert 0 == run()
    assert 0 == run("--check")
    capsys.readouterr()
    (tmp_path / "asyncapi.json").write_text("{}")
    assert 1 == run("--check")
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(str(tmp_path / "asyncapi.json"))


def test_export_writes_all_documents(tmp_path):
    export(tmp_path)
    assert documents() == {
        p.relative_to(tmp_path).as_posix(): p.read_text("utf-8") for p in tmp_path.rglob("*") if p.is_file()
    }


@pytest.mark.parametrize("name", MODELS)
def test_schemas_are_valid(name):
    Draft202012Validator.check_schema(schema_of(name))


@pytest.mark.parametrize("name", MODELS)
def test_every_field_is_described(name):
    schema = schema_of(name)
    blank = [
        (part.get("title"), field)
        for part in (schema, *schema.get("$defs", {}).values())
        for field, about in part.get("properties", {}).items()
        if not about.get("description") and not about.get("const")
    ]
    assert blank == []


@pytest.mark.parametrize(("name", "message"), samples().items())
def test_samples_are_valid(name, message):
    schema = schema_of(schema_name(name))
    assert list(Draft202012Validator(schema).iter_errors(message.model_dump(mode="json"))) == []


def test_every_message_has_a_sample():
    assert set(MODELS) == {schema_name(sample) for sample in samples()}


def test_samples_that_repeat_a_request_have_its_digest():
    incident = request_digest(INCIDENT)
    assert (incident, request_digest(RECOVERY)) == (COMPLETED.request_digest, REVIEW.request_digest)
    assert incident == EVENTS["request.accepted"].payload.request_digest


@pytest.mark.parametrize("name", MODELS)
def test_schemas_reject_an_empty_object(name):
    assert not Draft202012Validator(schema_of(name)).is_valid({})


@pytest.mark.parametrize(
    "row", [row for row in payload_rows() if row.accepted and row.strictness == "must"], ids=lambda r: r.file
)
def test_accepted_payloads_pass_the_published_schema(row):
    schema = schema_of("recovery-request" if row.is_recovery else "incident-request")
    body = json.loads(corpus_path(f"payloads/{row.file}").read_bytes())
    assert list(Draft202012Validator(schema).iter_errors(body)) == []


def test_removed_fields_are_refused_by_the_schema():
    body = INCIDENT.model_dump(mode="json") | {"failed_action": {"type": "restart"}}
    assert not Draft202012Validator(schema_of("incident-request")).is_valid(body)


def asyncapi():
    return json.loads(documents()["asyncapi.json"])


def test_asyncapi_is_one_file_with_everything_in_it():
    document = asyncapi()
    assert all(reference.startswith("#/") for reference in references(document))
    assert document["servers"]
    for name, message in document["components"]["messages"].items():
        assert "Nats-Msg-Id" in message["headers"]["properties"], name
        assert "traceparent" in message["headers"]["properties"], name
        assert message["examples"], name


def test_asyncapi_lists_every_request_subject():
    addresses = {channel["address"] for channel in asyncapi()["channels"].values()}
    assert set(Subjects().request_subjects()) <= addresses
    assert {
        "rca.result.incident.{key}",
        "rca.validation.request",
        "rca.audit.{event}",
        "rca.dlq.{reason}",
    } <= addresses


def references(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def test_asyncapi_references_resolve():
    document = asyncapi()
    for reference in references(document):
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
        assert isinstance(node, dict)


def test_asyncapi_operations_and_parameters_are_complete():
    document = asyncapi()
    assert set(document["channels"]) == set(document["operations"])
    for channel in document["channels"].values():
        named = {part[1:-1] for part in channel["address"].split(".") if part.startswith("{")}
        assert named == set(channel.get("parameters", {}))


def test_the_functions_encode_as_the_key_vectors_say():
    vectors = json.loads((V1 / "samples" / "keys.json").read_bytes())
    for vector in vectors["request_keys"]:
        remediation_id, attempt = vector["remediation_id"], vector["recovery_attempt_number"]
        kind, key = (
            RequestKind.RECOVERY if attempt else RequestKind.INCIDENT,
            request_key(remediation_id, attempt),
        )
        assert (vector["request_key"], vector["kv_key"]) == (key, kv_key(key))
        assert vector["result_subject"] == Subjects().result(kind, key)
        assert vector["kv_key"].split(".")[0] == kv_key(subject_token(remediation_id))
        assert remediation_id == unquote(vector["request_key"].split(".")[0])
    for vector in vectors["history_keys"]:
        assert vector.pop("key") == history_key(**vector)
