"""The port Recordings: one bundle for each request, in memory and on NATS."""

from __future__ import annotations

import hashlib

import pytest

from schemas.subjects import Subjects
from tests.fakes.memory_recordings import MemoryRecordings
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.adapters.nats.stored import NatsRecordings
from worker.domain.recording.recorder import Recordings
from worker.domain.values.errors import Unavailable


@pytest.fixture(params=["memory", "nats"])
async def recordings(request, own_server):
    if request.param == "memory":
        return MemoryRecordings()
    await provision(own_server.nc, wanted(Subjects(), recording_hours=1, recording_bytes=1 << 23))
    return NatsRecordings(own_server.nc, Subjects())


async def test_the_newest_bundle_of_a_request_is_found(recordings: Recordings):
    assert await recordings.find("rr-1") is None
    for key, bundle in (("rr-1", b"one"), ("rr-1.2", b"recovery"), ("rr-1", b"two")):
        await recordings.keep(key, bundle)
    assert [b"two", b"recovery", None] == [await recordings.find(key) for key in ("rr-1", "rr-1.2", "rr-2")]


async def test_a_bundle_of_the_largest_size_is_kept(recordings: Recordings):
    largest = b"x" * recordings.max_bytes
    await recordings.keep("rr-1", largest)
    assert largest == await recordings.find("rr-1")


async def test_old_bundles_make_room_for_new_ones(own_server):
    limit = 1 << 20
    await provision(own_server.nc, wanted(Subjects(), recording_hours=1, recording_bytes=limit))
    store = NatsRecordings(own_server.nc, Subjects())
    for number in range(8):
        await store.keep(f"rr-{number}", hashlib.sha256(b"%d" % number).digest() * 6_000)
    assert await store.find("rr-0") is None
    assert await store.find("rr-7") is not None
    stored = await own_server.js.stream_info("RCA_RECORDINGS")
    assert stored.state.bytes <= limit


async def test_without_the_stream_it_is_unavailable(own_server):
    store = NatsRecordings(own_server.nc, Subjects(), patience_seconds=0.1)
    with pytest.raises(Unavailable):
        await store.keep("rr-1", b"one")
    with pytest.raises(Unavailable):
        await store.find("rr-1")
