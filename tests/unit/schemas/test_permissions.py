"""Who may do what: properties that hold for every role and prefix."""

from __future__ import annotations

import pytest

from schemas.permissions import INSIDE, Role, access, streams
from schemas.subjects import Subjects

PREFIXES = ["rca", "east.rca", "a-b.c_d"]
PAIRS = [(role, Subjects(prefix)) for role in Role for prefix in PREFIXES]
DESTROYING = ("DELETE", "PURGE", "RESTORE", "SNAPSHOT", "STEPDOWN", "REMOVE")


@pytest.mark.parametrize(("role", "subjects"), PAIRS)
def test_nothing_is_open(role, subjects):
    rights = access(role, subjects)
    for subject in (*rights.publish, *rights.subscribe):
        assert subject.partition(".")[0] not in {"*", ">"}
        own = (subjects.prefix, subjects.stem, rights.inbox_prefix, "$JS.API.INFO", "$JS.API.STREAM.")
        assert any(name in subject for name in own), subject


@pytest.mark.parametrize(("role", "subjects"), PAIRS)
def test_what_destroys_is_named(role, subjects):
    destroying = {s for s in access(role, subjects).publish if any(f".{word}." in s for word in DESTROYING)}
    allowed = {
        Role.OPERATOR: {f"MSG.DELETE.{subjects.dlq_stream}"},
        Role.WORKER: {
            f"MSG.DELETE.{subjects.requests_stream}",
            f"PURGE.KV_{subjects.journal_bucket}",
            f"PURGE.OBJ_{subjects.journal_bucket}",
        },
    }
    assert {f"$JS.API.STREAM.{what}" for what in allowed.get(role, ())} == destroying


@pytest.mark.parametrize("prefix", PREFIXES)
def test_nobody_outside_shares_an_account_or_hears_an_inbox_of_another(prefix):
    everybody = [access(role, Subjects(prefix)) for role in Role]
    outside = [each for each in everybody if each.role not in INSIDE]
    assert len(outside) == len({each.account for each in outside} - {Subjects(prefix).stem})
    inboxes = [each.inbox_prefix for each in everybody if each.role in INSIDE]
    assert len(inboxes) == len(set(inboxes))
    assert not any(other.startswith(f"{inbox}.") for inbox in inboxes for other in inboxes)


@pytest.mark.parametrize(("role", "subjects"), PAIRS)
def test_roles_outside_use_nothing_but_imports(role, subjects):
    rights = access(role, subjects)
    if role in INSIDE:
        assert ((), (), subjects.stem, "$JS.API") == (
            rights.services,
            rights.feeds,
            rights.account,
            rights.api_prefix,
        )
        return
    assert [each.local for each in rights.services] == list(rights.publish)
    assert ["_INBOX.>", *(each.local for each in rights.feeds)] == list(rights.subscribe)
    assert not [s for s in rights.publish if s.startswith("$JS.API")]
    assert all(each.subject.replace("$JS.API", rights.api_prefix) == each.local for each in rights.services)


def test_both_forms_of_acknowledgement_are_there():
    publish = access(Role.WORKER, Subjects()).publish
    assert {"$JS.ACK.RCA_REQUESTS.p0.>", "$JS.ACK.*.*.RCA_REQUESTS.p0.>"} <= set(publish)


def test_only_the_worker_writes_results():
    subject = "rca.result.incident.*"
    assert [Role.WORKER] == [role for role in Role if subject in access(role, Subjects()).publish]


def test_all_streams_are_known():
    assert 11 == len(set(streams(Subjects())))


@pytest.mark.parametrize(("role", "subjects"), PAIRS)
def test_only_the_provisioner_changes_streams_and_consumers(role, subjects):
    changing = [s for s in access(role, subjects).publish if ".CREATE." in s or ".UPDATE." in s]
    assert bool(changing) == (role is Role.PROVISIONER)


def test_the_provisioner_moves_no_message():
    rights = access(Role.PROVISIONER, Subjects())
    assert all(subject.startswith("$JS.API.") for subject in rights.publish)
    assert not [subject for subject in rights.publish if ".MSG." in subject]
    assert ("_INBOX_rca_provisioner.>",) == rights.subscribe
