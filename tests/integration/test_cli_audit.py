"""`rca audit` on files, archives and heads that were kept elsewhere."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from tests.commands import rca
from tests.fakes.audit_chains import bodies, whole
from tests.integration.test_audit import SEED
from tests.nats_servers import one_server, provisioned
from worker.adapters.ed25519_keys import Ed25519Signer

KEY, SIGNER = "rr-1", Ed25519Signer(SEED)

pytestmark = pytest.mark.process


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "public.key"
    path.write_bytes(base64.b64encode(bytes(SIGNER._key.verify_key)))
    return ("--key", str(path))


def signed():
    """The events of a request that was answered a moment ago."""
    return bodies(whole(KEY, 4, signer=SIGNER, start=datetime.now(UTC) - timedelta(seconds=10)))


def written(path, messages):
    path.write_bytes(b"".join(body + b"\n" for body in messages))
    return ("--file", str(path))


async def problems(*arguments, env=None):
    ended = await rca("audit", "verify", "--json", *arguments, env=env or {})
    document = ended.json()
    assert (0 if document["good"] else 1, "") == (ended.code, ended.err)
    return [finding["problem"] for finding in document["findings"]]


async def test_a_file_whose_head_was_dropped_is_refused_with_a_key_unless_it_may_be_open(tmp_path, key):
    events = signed()
    assert [] == await problems(*written(tmp_path / "whole", events), *key)
    cut = written(tmp_path / "cut", events[:-1])
    assert [] == await problems(*cut)
    assert ["truncated"] == await problems(*cut, *key)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert [] == await problems(*cut, *key, "--exported-at", now)


async def test_heads_kept_elsewhere_are_compared_with_the_trail(tmp_path):
    events, heads = signed(), tmp_path / "heads"
    file = written(tmp_path / "events", events)
    written(heads, events[-1:])
    assert [] == await problems(*file, "--heads", str(heads))
    written(heads, [*events[-1:], events[-1].replace(b'"rr-1"', b'"rr-0"')])
    assert ["head_missing"] == await problems(*file, "--heads", str(heads))
    heads.write_text("{}")
    assert "line 1 is not a head" in (await rca("audit", "verify", *file, "--heads", str(heads))).err


async def test_an_archive_is_kept_and_verified_alone_and_with_the_stream(tmp_path, key):
    archive = tmp_path / "archive"
    async with one_server(tmp_path) as server, provisioned([server]) as case:
        env = {"RCA_NATS__SERVERS": server.url}
        for body in signed():
            await case.js.publish("rca.audit.policy.decided", body)
        exported = await rca("audit", "export", "--to", str(archive), env=env)
        assert (0, True) == (exported.code, "RCA_AUDIT: 4 messages added" in exported.out)
        head = exported.out.split()[-1]
        assert [] == await problems("--file", str(archive), "--head", head, *key)
        assert [] == await problems("--archive", str(archive), *key, env=env)
        await case.js.purge_stream("RCA_AUDIT")
        assert ["stream_emptied"] == await problems(*key, env=env)
        assert [] == await problems("--archive", str(archive), *key, env=env)
    [events] = archive.glob("audit-*.jsonl")
    events.write_bytes(events.read_bytes()[:-10])
    assert ["archive_changed", "unreadable", "truncated"] == await problems("--file", str(archive), *key)
    assert "archive_changed" in await problems("--file", str(archive), "--head", "0" * 64)
