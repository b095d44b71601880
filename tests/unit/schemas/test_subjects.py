from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.subjects import (
    Lane,
    Subjects,
    audit_type,
    cloud_source,
    history_key,
    kind_of_key,
    kv_key,
    request_key,
    result_type,
    subject_token,
)
from schemas.taxonomy import RequestKind

RCA = Subjects()
IDS = st.text(st.characters(exclude_categories=("Cs",)))


@given(IDS)
def test_tokens_use_safe_characters_only_and_can_be_read_back(text):
    assert re.fullmatch(r"[A-Za-z0-9_%-]*", subject_token(text))
    assert re.fullmatch(r"[A-Za-z0-9_=-]*", kv_key(subject_token(text)))
    assert text == unquote(subject_token(text))


@given(IDS, IDS, st.none() | st.integers(1, 99), st.none() | st.integers(1, 99))
def test_different_requests_have_different_keys(one, other, attempt, other_attempt):
    same = (one, attempt) == (other, other_attempt)
    assert same == (request_key(one, attempt) == request_key(other, other_attempt))
    assert same == (kv_key(request_key(one, attempt)) == kv_key(request_key(other, other_attempt)))
    assert (attempt is None) == (kind_of_key(request_key(one, attempt)) is RequestKind.INCIDENT)


def test_request_subjects_are_listed_exactly():
    assert RCA.lane_subjects(Lane.P2) == (
        "rca.request.incident",
        "rca.request.recovery",
        "rca.request.incident.p2",
        "rca.request.incident.P2",
        "rca.request.recovery.p2",
        "rca.request.recovery.P2",
    )
    assert len(RCA.request_subjects()) == len(set(RCA.request_subjects())) == 18


@pytest.mark.parametrize(
    ("subject", "parsed"),
    [
        ("rca.request.incident", (RequestKind.INCIDENT, Lane.P2)),
        ("rca.request.recovery.P0", (RequestKind.RECOVERY, Lane.P0)),
        ("rca.request.incident.p3", (RequestKind.INCIDENT, Lane.P3)),
        ("rca.request.incident.p4", None),
        ("rca.request.audit", None),
        ("other.request.incident", None),
        ("", None),
    ],
)
def test_kind_and_lane_of_a_subject(subject, parsed):
    assert parsed == RCA.parse_request(subject)


@pytest.mark.parametrize("kind", RequestKind)
@pytest.mark.parametrize("lane", [None, *Lane])
def test_what_is_published_is_received(kind, lane):
    assert (kind, lane or Lane.P2) == RCA.parse_request(RCA.request(kind, lane))


def test_every_name_carries_the_prefix():
    eu = Subjects("eu-1.rca")
    assert eu.requests_stream == "EU_1_RCA_REQUESTS"
    assert eu.request(RequestKind.INCIDENT) == "eu-1.rca.request.incident"
    names = [getattr(eu, name) for name in vars(eu) if name.endswith(("_stream", "_bucket"))]
    assert 10 == len(names) == len(set(names))
    assert all(name.startswith("EU_1_RCA_") for name in names)


@pytest.mark.parametrize("prefix", ["", ".", "rca.", "a..b", "rca.>", "r*", "rc a", "a.b.c.d.e", "é"])
def test_prefixes_that_are_refused(prefix):
    with pytest.raises(ValueError, match="prefix"):
        Subjects(prefix)


def test_output_subjects():
    key = request_key("a.b", 2)
    assert RCA.result(RequestKind.RECOVERY, key) == "rca.result.recovery.a%2Eb.2"
    assert RCA.result_subjects() == ("rca.result.incident.*", "rca.result.recovery.*.*")
    assert RCA.validation_subjects() == ("rca.validation.request", "rca.validation.response.>")
    assert RCA.validation_response(key) == "rca.validation.response.a%2Eb.2"
    assert RCA.audit("llm.request") == "rca.audit.llm.request"
    assert RCA.dead_letter("too_old") == "rca.dlq.too_old"
    assert RCA.outcome(key) == "rca.outcome.a%2Eb.2"
    assert RCA.max_deliveries_advisory() == "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.RCA_REQUESTS.*"


def test_cloud_event_attributes():
    assert result_type(RequestKind.INCIDENT) == "rca.incident.result.v1"
    assert audit_type("llm.request") == "rca.audit.llm.request.v1"
    assert (cloud_source(), cloud_source("eu.1")) == ("/rca-worker/default", "/rca-worker/eu%2E1")


@given(st.tuples(IDS, IDS, IDS), st.tuples(IDS, IDS, IDS))
def test_history_keys_tell_resources_apart(one, other):
    same = (one[0].lower(), *one[1:]) == (other[0].lower(), *other[1:])
    assert same == (history_key(*one) == history_key(*other))
    assert re.fullmatch(r"[0-9a-f]{64}", history_key(*one))
