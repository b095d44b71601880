from __future__ import annotations

import asyncio
import json

import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.errors import NoStreamResponseError

from schemas.permissions import streams
from schemas.subjects import Lane, Subjects
from tests.nats_servers import PATIENCE_SECONDS, Case, connect, one_server, provisioned, three_servers
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import (
    Action,
    Difference,
    ProvisionError,
    _shown,
    compare,
    look,
    provision,
)
from worker.domain.values.errors import Unavailable
from worker.sandbox.nats_server import NatsServer

STREAMS = ("REQUESTS", "RESULTS", "VALIDATION", "AUDIT", "DLQ", "OUTCOMES")
BUCKETS = ("KV_{}_JOURNAL", "KV_{}_CANCEL", "KV_{}_HISTORY", "OBJ_{}_JOURNAL")


@pytest.fixture
async def bare(tmp_path):
    """A server without any stream."""
    async with one_server(tmp_path) as server:
        nc = await connect([server])
        yield Case([server], nc, Subjects())
        await nc.close()


@pytest.fixture
async def case(tmp_path):
    async with one_server(tmp_path) as server, provisioned([server]) as found:
        yield found


def notable(findings: list[Difference]) -> list[Difference]:
    return [finding for finding in findings if finding.action is not Action.SAME]


# --- what differs, without a server


def test_equal_configurations_have_no_differences():
    want = {"name": "S", "subjects": ["a", "b"], "max_age": 5, "allow_direct": False, "description": ""}
    have = {"name": "S", "subjects": ["b", "a"], "max_age": 5, "more": "theirs"}  # false and "" are left out
    assert compare(have, want) == ({}, [])


def test_missing_subjects_are_added_and_foreign_ones_kept_and_told():
    changes, drift = compare({"subjects": ["a", "theirs"]}, {"subjects": ["a", "b"]})
    assert changes == {"subjects": ["a", "b", "theirs"]}
    assert drift == ["subjects: also has ['theirs']"]


@pytest.mark.parametrize(
    ("key", "have", "want", "applied"),
    [
        ("max_age", 10, 20, True),
        ("max_age", 10, 0, True),  # 0 and -1: no limit
        ("max_msgs", 10, -1, True),
        ("max_age", 20, 10, False),
        ("max_age", 0, 10, False),
        ("max_msgs", -1, 10, False),
        ("max_deliver", -1, 50, False),
        ("num_replicas", 1, 3, True),
        ("num_replicas", 3, 1, False),
        ("ack_wait", 60, 30, True),
        ("discard", "old", "new", True),
        ("retention", "limits", "workqueue", False),
        ("storage", "memory", "file", False),
        ("allow_direct", True, False, True),
    ],
)
def test_what_could_lose_messages_is_left_to_a_person(key, have, want, applied):
    changes, drift = compare({key: have}, {key: want})
    assert ({key: want} if applied else {}) == changes
    assert ([] if applied else [key]) == [each.partition(":")[0] for each in drift]


@pytest.mark.parametrize(("stored", "applied"), [(9, True), (10, False), (None, False)])
def test_a_lower_byte_limit_is_applied_where_what_is_stored_has_room(stored, applied):
    for have in ({}, {"max_bytes": -1}, {"max_bytes": 20}):
        changes, drift = compare(have, {"max_bytes": 10}, stored)
        assert (applied, not applied) == (changes == {"max_bytes": 10}, bool(drift))


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("mebibytes", [16, 8192, 100_000])
def test_the_byte_limits_fit_into_the_store_and_leave_room_to_finish_what_is_queued(mebibytes, recorded):
    subjects, store = Subjects(), mebibytes << 20
    recordings = {"recording_hours": 1, "recording_bytes": store // 4} if recorded else {}
    items = wanted(subjects, store_bytes=store, **recordings)
    limits = {item.name: item.config["max_bytes"] for item in items if not item.stream}
    assert len(streams(subjects)) - (not recorded) == len(limits)
    assert store // 4 == limits.get(subjects.recordings_stream, store // 4)
    assert 0.9 * store < sum(limits.values()) <= 0.95 * store
    assert (
        limits[subjects.dlq_stream] > limits[subjects.requests_stream]
    )  # all of it could become dead letters


def test_only_rejections_and_recordings_make_room_for_newer_ones():
    items = wanted(Subjects(), recording_hours=1, recording_bytes=1 << 23)
    discards = {item.name: item.config["discard"] for item in items if not item.stream}
    assert ["RCA_VALIDATION", "RCA_RECORDINGS"] == [
        name for name, discard in discards.items() if discard != "new"
    ]


LIMIT = st.integers(min_value=-1, max_value=5)
CONFIG = st.fixed_dictionaries(
    {},
    optional={
        "subjects": st.lists(st.sampled_from("abc"), unique=True),
        "max_age": LIMIT,
        "max_msgs": LIMIT,
        "retention": st.sampled_from(["limits", "workqueue"]),
        "discard": st.sampled_from(["old", "new"]),
        "allow_direct": st.booleans(),
        "theirs": st.integers(),
    },
)


@given(have=CONFIG, want=CONFIG)
def test_applying_changes_settles_it_and_drops_nothing(have, want):
    changes, drift = compare(have, want)
    after = {**have, **changes}
    assert compare(after, want) == ({}, drift)
    assert set(have.get("subjects", [])) <= set(after.get("subjects", []))
    assert have.items() >= {k: v for k, v in after.items() if k not in want}.items()


def test_lanes_share_all_request_subjects_without_overlap():
    items = wanted(Subjects())
    filters = [
        subject
        for item in items
        if item.stream == "RCA_REQUESTS"
        for subject in item.config["filter_subjects"]
    ]
    assert len(filters) == len(set(filters)) == 18
    assert set(filters) == set(items[0].config["subjects"])


# --- on servers


async def test_everything_is_created_once(bare):
    items = wanted(Subjects())
    names = {f"RCA_{name}" for name in STREAMS} | {name.format("RCA") for name in BUCKETS}
    names |= {*(f"RCA_REQUESTS/{lane}" for lane in Lane), "RCA_DLQ/exhausted", "RCA_OUTCOMES/outcomes"}
    looked = await provision(bare.nc, items, apply=False)
    assert {(name, Action.WOULD_CREATE) for name in names} == {(f.name, f.action) for f in looked}
    assert await bare.js.streams_info() == []
    created = await provision(bare.nc, items)
    assert {(name, Action.CREATED) for name in names} == {(f.name, f.action) for f in created}
    assert notable(await provision(bare.nc, items)) == []


async def test_several_at_once_agree(bare):
    items = wanted(Subjects())
    found = await asyncio.gather(*(provision(bare.nc, items) for _ in range(3)))
    assert {Action.CREATED, Action.SAME} >= {finding.action for findings in found for finding in findings}
    assert notable(await provision(bare.nc, items, apply=False)) == []


async def test_three_servers_keep_three_replicas(tmp_path):
    async with three_servers(tmp_path) as servers, provisioned(servers) as case:
        for name in (*(f"RCA_{name}" for name in STREAMS), *(name.format("RCA") for name in BUCKETS)):
            assert (await case.js.stream_info(name)).config.num_replicas == 3
        items = wanted(case.subjects, replicas=3, ack_wait_seconds=2)
        assert notable(await provision(case.nc, items, apply=False)) == []


@pytest.mark.parametrize(
    ("limit", "text"), [(-1, "no limit"), (0, "no limit"), (687_194_767, "655.4 MiB"), (None, "not set")]
)
def test_a_limit_is_shown_in_mebibytes(limit, text):
    assert text == _shown("max_bytes", limit)


async def test_an_update_keeps_what_is_not_ours(case):
    config = (await case.js.stream_info("RCA_RESULTS")).config
    await case.js.update_stream(config.evolve(max_bytes=10**9, max_age=86_400.0))
    items = wanted(case.subjects, ack_wait_seconds=2)
    change = "max_age: 1 day, 0:00:00 -> 30 days, 0:00:00"
    assert notable(await provision(case.nc, items, apply=False)) == [
        Difference("RCA_RESULTS", Action.WOULD_UPDATE, change)
    ]
    assert notable(await provision(case.nc, items)) == [Difference("RCA_RESULTS", Action.UPDATED, change)]
    config = (await case.js.stream_info("RCA_RESULTS")).config
    assert (config.max_bytes, config.max_age) == (10**9, 30 * 86_400)


async def test_compression_is_switched_off_and_what_was_stored_stays_readable(case):
    """nats-server 2.15 can lose compressed blocks when it is killed."""
    config = (await case.js.stream_info("RCA_AUDIT")).config
    await case.js.update_stream(config.evolve(compression="s2"))
    stored = await case.js.publish("rca.audit.request.accepted", b"event")
    found = notable(await provision(case.nc, wanted(case.subjects, ack_wait_seconds=2)))
    assert [Difference("RCA_AUDIT", Action.UPDATED, "compression: s2 -> none")] == found
    assert b"event" == (await case.js.get_msg("RCA_AUDIT", seq=stored.seq)).data
    assert not {info.config.compression for info in await case.js.streams_info()} - {None, "none"}


async def test_a_consumer_is_updated_without_losing_fields_the_client_does_not_know(case):
    info = json.loads(
        (await case.nc.request("$JS.API.CONSUMER.INFO.RCA_REQUESTS.p1", b"", timeout=PATIENCE_SECONDS)).data
    )
    config = {**info["config"], "metadata": {**info["config"].get("metadata", {}), "owner": "ops"}}
    body = {"stream_name": "RCA_REQUESTS", "config": config, "action": "update"}
    await case.nc.request(
        "$JS.API.CONSUMER.CREATE.RCA_REQUESTS.p1", json.dumps(body).encode(), timeout=PATIENCE_SECONDS
    )
    found = notable(await provision(case.nc, wanted(case.subjects, ack_wait_seconds=7)))
    updated = [*(f"RCA_REQUESTS/{lane}" for lane in Lane), "RCA_DLQ/exhausted", "RCA_OUTCOMES/outcomes"]
    assert [Difference(name, Action.UPDATED, "ack_wait: 0:00:02 -> 0:00:07") for name in updated] == found
    after = json.loads(
        (await case.nc.request("$JS.API.CONSUMER.INFO.RCA_REQUESTS.p1", b"", timeout=PATIENCE_SECONDS)).data
    )["config"]
    assert (after["ack_wait"], after["metadata"]["owner"]) == (7_000_000_000, "ops")


async def test_drift_is_reported_and_nothing_destroyed(case):
    await case.js.publish("rca.request.incident", b"kept")
    await case.js.publish("rca.request.incident", b"kept")
    items = wanted(case.subjects, ack_wait_seconds=2, max_requests=1, journal_hours=1)
    found = notable(await provision(case.nc, items))
    assert {
        ("RCA_REQUESTS", Action.DRIFT),
        ("KV_RCA_JOURNAL", Action.DRIFT),
        ("OBJ_RCA_JOURNAL", Action.DRIFT),
    } == {(finding.name, finding.action) for finding in found}
    assert await case.count("RCA_REQUESTS") == 2


async def test_what_the_server_refuses_to_change_is_drift(bare):
    """Another stream has the subject; the rest of the update is refused with it."""
    await bare.js.add_stream(name="RCA_OUTCOMES", subjects=["rca.somewhere"])
    await bare.js.add_stream(name="THEIRS", subjects=["rca.outcome.b"])
    items = [item for item in wanted(Subjects()) if item.name == "RCA_OUTCOMES"]
    found = await provision(bare.nc, items)
    assert found[-1].action is Action.DRIFT
    assert "refused: 10065: subjects overlap" in found[-1].detail
    assert (await bare.js.stream_info("RCA_OUTCOMES")).config.subjects == ["rca.somewhere"]


async def test_two_prefixes_share_an_account(case):
    found = await provision(case.nc, wanted(Subjects("eu-1.rca")))
    assert {finding.action for finding in found} == {Action.CREATED}
    await case.js.publish("eu-1.rca.request.incident.p1", b"x")
    puller = await case.js.pull_subscribe_bind(consumer="p1", stream="EU_1_RCA_REQUESTS")
    assert [b"x"] == [message.data for message in await puller.fetch(1, timeout=PATIENCE_SECONDS)]
    assert await case.count("RCA_REQUESTS") == 0


@pytest.mark.parametrize("prefix", ["rca_a", "rca-a", "RCA.a"])
async def test_a_prefix_that_gives_the_names_of_another_one_is_refused(bare, prefix):
    await provision(bare.nc, wanted(Subjects("rca.a")))
    before = await bare.js.streams_info()
    for apply in (False, True):
        with pytest.raises(
            ProvisionError, match=r"RCA_A_REQUESTS belongs to another prefix.*rca\.a\.request"
        ):
            await provision(bare.nc, wanted(Subjects(prefix)), apply=apply)
    assert [info.config for info in before] == [info.config for info in await bare.js.streams_info()]
    found = await look(bare.nc, wanted(Subjects(prefix)))
    assert "belongs to another prefix" in found[0].unusable
    assert notable(await provision(bare.nc, wanted(Subjects("rca.a")))) == []


async def test_a_store_that_is_too_small_for_the_byte_limits_is_told_and_nothing_half_done_stays_wrong(bare):
    items = wanted(Subjects(), store_bytes=100 << 30)
    with pytest.raises(ProvisionError, match="RCA_NATS__STORE_MEBIBYTES"):
        await provision(bare.nc, items)
    fitting = wanted(Subjects(), store_bytes=1 << 30)
    await provision(bare.nc, fitting)
    assert notable(await provision(bare.nc, fitting)) == []
    with pytest.raises(ProvisionError, match="RCA_NATS__STORE_MEBIBYTES"):  # raised later on
        await provision(bare.nc, items)


async def test_streams_without_limits_get_them_and_limits_follow_the_setting(case):
    async def limit(name):
        return (await case.js.stream_info(name)).config.max_bytes

    assert await limit("RCA_AUDIT") == -1
    for mebibytes in (100, 50, 200):
        await provision(case.nc, wanted(case.subjects, ack_wait_seconds=2, store_bytes=mebibytes << 20))
        assert await limit("RCA_AUDIT") == (mebibytes << 20) * 34 // 100
    await case.js.publish("rca.audit.policy.decided", bytes(500_000))
    items = wanted(case.subjects, ack_wait_seconds=2, store_bytes=1 << 20)
    assert {("RCA_AUDIT", Action.DRIFT)} == {
        (each.name, each.action) for each in await provision(case.nc, items) if each.action is Action.DRIFT
    }
    assert (await limit("RCA_AUDIT"), await case.count("RCA_AUDIT")) == ((200 << 20) * 34 // 100, 1)


@pytest.mark.parametrize(("offered", "fits"), [("10MB", False), ("200MB", True)])
async def test_what_the_account_may_store_is_checked_before_anything_is_created(tmp_path, offered, fits):
    users = f"{{ jetstream: {{ max_file: {offered} }}, users: [{{user: a, password: secret}}] }}"
    server = NatsServer(tmp_path / "limited", cluster=f"accounts {{ A {users} }}")
    await server.start()
    nc = await nats.connect(server.url, user="a", password="secret")
    items = wanted(Subjects(), store_bytes=100 << 20)
    try:
        if fits:
            await provision(nc, items)
            return
        with pytest.raises(ProvisionError, match="the account may store 10 MiB"):
            await provision(nc, items)
        assert await nc.jetstream().streams_info() == []
    finally:
        await nc.close()
        await server.stop()


async def test_lanes_take_exactly_their_subjects(case):
    for subject in ("rca.request.incident", "rca.request.recovery.P0", "rca.request.incident.p3"):
        await case.js.publish(subject, b"x")
    for subject in ("rca.request.other", "rca.request.incident.p9", "rca.request.incident.p0.x"):
        with pytest.raises(NoStreamResponseError):  # an error, never silence
            await case.js.publish(subject, b"x")
    pending = [(await case.js.consumer_info("RCA_REQUESTS", lane)).num_pending for lane in Lane]
    assert pending == [1, 0, 1, 1]


async def test_a_message_out_of_deliveries_leaves_its_trace_among_the_dead_letters(case):
    info = await case.js.consumer_info("RCA_REQUESTS", "p0")
    info.config.max_deliver = 1
    await case.js.add_consumer("RCA_REQUESTS", info.config)
    await case.js.publish("rca.request.incident.p0", b"x")
    puller = await case.js.pull_subscribe_bind(consumer="p0", stream="RCA_REQUESTS")
    advisories = await case.nc.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    await (await puller.fetch(1, timeout=PATIENCE_SECONDS))[0].nak(delay=0.05)
    await advisories.next_msg(timeout=PATIENCE_SECONDS)
    while not await case.count("RCA_DLQ"):  # noqa: ASYNC110 - what is waited for happens in the server
        await asyncio.sleep(0.02)
    (advisory,) = await case.messages("RCA_DLQ", "$JS.EVENT.ADVISORY.>")
    facts = json.loads(advisory.data)
    assert (facts["stream"], facts["consumer"], facts["stream_seq"]) == ("RCA_REQUESTS", "p0", 1)
    assert await case.count("RCA_REQUESTS") == 1


async def test_a_server_that_does_not_answer_is_unavailable(bare):
    await bare.servers[0].kill()
    with pytest.raises(Unavailable):
        await provision(bare.nc, wanted(Subjects()), patience_seconds=0.1)


async def test_a_closed_connection_is_unavailable_at_once(bare):
    nc = await connect(bare.servers)
    await nc.close()
    with pytest.raises(Unavailable, match="connection closed"):
        await provision(nc, wanted(Subjects()))
