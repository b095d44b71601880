from __future__ import annotations

import asyncio
import json

import nats.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.errors import NoStreamResponseError

from schemas.subjects import Lane, Subjects
from tests.nats_servers import PATIENCE_SECONDS, Case, connect, one_server, provisioned, three_servers
from worker.adapters.nats.provision import Action, Difference, compare, provision, wanted
from worker.domain.values.errors import Unavailable

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
    names |= {*(f"RCA_REQUESTS/{lane}" for lane in Lane), "RCA_DLQ/exhausted"}
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


async def test_an_update_keeps_what_is_not_ours(case):
    config = (await case.js.stream_info("RCA_RESULTS")).config
    await case.js.update_stream(config.evolve(max_bytes=10**9, max_age=86_400.0))
    items = wanted(case.subjects, ack_wait_seconds=2)
    assert notable(await provision(case.nc, items, apply=False)) == [
        Difference("RCA_RESULTS", Action.WOULD_UPDATE, "max_age")
    ]
    assert notable(await provision(case.nc, items)) == [Difference("RCA_RESULTS", Action.UPDATED, "max_age")]
    config = (await case.js.stream_info("RCA_RESULTS")).config
    assert (config.max_bytes, config.max_age) == (10**9, 30 * 86_400)


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
    updated = [*(f"RCA_REQUESTS/{lane}" for lane in Lane), "RCA_DLQ/exhausted"]
    assert [Difference(name, Action.UPDATED, "ack_wait") for name in updated] == found
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
    with pytest.raises(Unavailable) as raised:
        await provision(nc, wanted(Subjects()))
    assert isinstance(raised.value.__cause__, nats.errors.ConnectionClosedError)
