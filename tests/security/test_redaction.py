"""Redaction on real incidents: no credential of the corpus survives, no name of it is damaged."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from worker.domain.untrusted.redaction.redact import redact, redact_json

CORPUS = Path(__file__).parent.parent / "corpus"
CREDENTIAL = re.compile(r"[\w.+/=-]*(?:FAKE|NotARealKey|[a-z]Pass_)[\w.+/=-]*")


@cache
def texts() -> dict[str, str]:
    files = (p for p in sorted(CORPUS.rglob("*")) if p.is_file() and p.stat().st_size < 300_000)
    return {
        str(p.relative_to(CORPUS)): p.read_text("utf-8", "replace") for p in files if p.name != "SOURCE.md"
    }


@cache
def objects() -> list[dict]:
    found = []
    for path in sorted(CORPUS.glob("cases/*/cluster/*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            found += document.get("items", [document]) if document else []
    return found


def credentials(text: str) -> set[str]:
    """The invented credentials of a text: `FAKE` stands in each of them, or `fakePass`."""
    return {word for word in CREDENTIAL.findall(text) if len(word) > 8}


@pytest.mark.parametrize("name", [n for n, text in texts().items() if credentials(text) and n != "README.md"])
def test_no_credential_of_the_corpus_survives(name):
    shown = redact(texts()[name])
    assert [word for word in credentials(texts()[name]) if word in shown] == []


def test_no_data_of_a_secret_survives():
    values = [v for o in objects() if o["kind"] == "Secret" for v in o.get("data", {}).values()]
    secrets = [o for o in objects() if o["kind"] == "Secret"]
    assert secrets
    for shown in (
        redact(yaml.safe_dump_all(secrets)),
        redact(yaml.safe_dump({"items": secrets})),
        redact(json.dumps(secrets)),
        redact(json.dumps({"items": secrets}, indent=2)),
        json.dumps(redact_json(secrets)),
    ):
        assert [value for value in values if value in shown] == []
        assert all(o["metadata"]["name"] in shown for o in secrets)


def innocent() -> set[str]:
    found: set[str] = set()
    for one in objects():
        meta = one["metadata"]
        found |= {one["kind"], meta["name"], meta.get("namespace", "-"), str(meta.get("uid"))}
        for pairs in (meta.get("labels") or {}, meta.get("annotations") or {}):
            found |= {f"{key}: {value}" for key, value in pairs.items()}
        if one["kind"] == "Event":
            found |= {one.get("message") or "-", one.get("reason") or "-"}
        for container in (one.get("spec") or {}).get("containers", []):
            found |= {container["name"], f"image: {container['image']}"}
        for status in (one.get("status") or {}).get("containerStatuses", []):
            found |= {
                status.get("imageID", "-"),
                status.get("containerID") or "-",
                json.dumps(status["state"]),
            }
    for path in (CORPUS / "catalog").glob("*.yaml"):
        workflow = yaml.safe_load(path.read_text())
        found |= {workflow["workflow_id"], workflow["action_type"], workflow["description"], path.read_text()}
    return found


def test_no_name_message_or_label_of_the_corpus_is_damaged():
    assert len(innocent()) >= 200
    assert [text for text in innocent() if text != redact(text)] == []


def test_objects_keep_their_names_and_states():
    """What grounding looks for is still there: only credentials may differ."""
    for one in objects():
        shown = redact_json(one)
        assert one["metadata"]["name"] == shown["metadata"]["name"]
        if one["kind"] not in {"Secret", "ConfigMap"} and not credentials(json.dumps(one, default=str)):
            assert one == shown, one["metadata"]["name"]


@pytest.mark.parametrize(
    "wrap", [str, json.dumps, lambda t: json.dumps({"log": json.dumps({"message": t})}), repr]
)
@pytest.mark.parametrize(
    "secret",
    [
        "password=Canary00secret", "postgres://u:Canary00secret@db/x", '{"token":"Canary00secret"}',
        "Authorization: Bearer Canary00secret", "ghp_Canary00secretCanary00secret", "API_KEY: Canary00secret",
    ],
)  # fmt: skip
def test_a_secret_that_is_wrapped_again_and_again_goes(wrap, secret):
    assert "Canary00secret" not in redact(wrap(f"line one\n{secret}\nline three"))


def test_a_secret_in_base64_of_base64_goes():
    once = base64.b64encode(b"password=Canary00secret").decode()
    twice = base64.b64encode(once.encode()).decode()
    assert once not in redact(f"blob {once}")
    assert twice not in redact(f"blob {twice}")


def test_a_request_keeps_what_is_no_secret():
    request = json.loads(next(CORPUS.glob("cases/*/incident.json")).read_text())
    planted = request | {
        "error_message": "dial postgres://u:Canary00secret@db/x",
        "signal_labels": {"token": "Canary00"},
    }
    shown = redact_json(planted)
    assert "Canary00" not in json.dumps(shown)
    assert {k: v for k, v in request.items() if k not in {"error_message", "signal_labels"}} == {
        k: v for k, v in shown.items() if k not in {"error_message", "signal_labels"}
    }


def innocent_lines() -> list[str]:
    lines = (Path(__file__).parent / "innocent_lines.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("# ")]


def test_there_are_many_innocent_lines():
    assert len(innocent_lines()) >= 300


@pytest.mark.parametrize("line", innocent_lines())
def test_no_ordinary_line_is_changed(line):
    assert line == redact(line)


def test_ordinary_lines_beside_each_other_stay_as_they_are():
    text = "\n".join(innocent_lines())
    assert text == redact(text)
    assert text == redact_json({"log": text})["log"]
