"""History in memory, in our own broker, and in a DataStorage on loopback."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from urllib.parse import unquote

import pytest
from aiohttp import web

from schemas.analysis import AffectedResource
from schemas.outcome import RemediationOutcome
from schemas.subjects import history_key
from schemas.taxonomy import RequestKind
from tests.fakes import datastorage
from tests.fakes.datastorage import document, written
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_history import MemoryHistory, place_of
from tests.fakes.messages import NOON, new_id
from tests.nats_servers import connect, provisioned
from worker.adapters.nats.history import MAX_KEPT, NatsHistory
from worker.adapters.nats.stream import FencedStream
from worker.domain.values.errors import HistoryUnavailable
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import Past, PastRemediation, SpecMatch

THIS, OLD = (f"sha256:{digit * 64}" for digit in "12")


def target(**fields):
    return ObjectRef(**{"kind": "Deployment", "name": f"api-{new_id()}", "namespace": "shop", **fields})


def executed(**fields):
    values = {
        "id": new_id(),
        "at": NOON,
        "action_type": "RaiseMemory",
        "signal_type": "OOMKilled",
        "outcome": "completed",
        "score": 0.25,
        "resolved": False,
        "pre_hash": THIS,
        "post_hash": OLD,
        "side_effects": ("restarted twice",),
    }
    return PastRemediation(**{**values, **fields})


async def hashed(value=THIS):
    return value


async def look(history, about, spec_hash=THIS):
    waiting = asyncio.ensure_future(hashed(spec_hash))
    found = await history.past(about, waiting)
    await waiting
    return found


class InMemory:
    def __init__(self):
        self.history = MemoryHistory()

    async def happened(self, about, remediation):
        self.history.kept.setdefault(place_of(about), {})[remediation.id] = remediation


class InBroker:
    """What executors publish stands in the outcomes stream, what we chose in the bucket."""

    def __init__(self, case):
        self.case = case
        self.history = nats_history(case.nc, case.subjects)

    async def happened(self, about, remediation):
        chosen = replace(
            remediation, outcome="", score=None, resolved=None, post_hash="", side_effects=(), drifted=False
        )
        await self.history.remember(about, replace(chosen, workflow_id="w-1"))
        await self.publish(outcome_of(about, remediation), remediation.id)

    async def publish(self, outcome, key):
        await self.case.js.publish(self.case.subjects.outcome(key), outcome.model_dump_json().encode())


class InDataStorage:
    def __init__(self, storage, history):
        self.storage, self.history = storage, history

    async def happened(self, about, remediation):
        self.storage.put(about, remediation)


def nats_history(nc, subjects, patience_seconds=5.0):
    def stream(name):
        return FencedStream(nc, name, patience_seconds=patience_seconds)

    return NatsHistory(stream(f"KV_{subjects.history_bucket}"), stream(subjects.outcomes_stream), subjects)


def outcome_of(about, remediation, **fields):
    values = {
        "kind": RequestKind.INCIDENT,
        "incident_id": "inc-1",
        "remediation_id": unquote(remediation.id),
        "target": AffectedResource(kind=about.kind, name=about.name, namespace=about.namespace),
        "workflow_id": "w-1",
        "action_type": remediation.action_type,
        "signal_type": remediation.signal_type,
        "outcome": remediation.outcome,
        "effectiveness_score": remediation.score,
        "signal_resolved": remediation.resolved,
        "pre_remediation_spec_hash": remediation.pre_hash or None,
        "post_remediation_spec_hash": remediation.post_hash or None,
        "side_effects": remediation.side_effects,
        "assessment_reason": "SpecDrift" if remediation.drifted else "Full",
        "completed_at": remediation.at,
    }
    return RemediationOutcome(**{**values, **fields})


@pytest.fixture
async def storage():
    async with datastorage.serve() as found:
        yield found


@pytest.fixture(
    params=["memory", "one server", pytest.param("three servers", marks=pytest.mark.slow), "DataStorage"]
)
def servers(request):
    """Of the broker, where there is one."""
    names = {"one server": "shared_server", "three servers": "shared_cluster"}
    return request.getfixturevalue(names[request.param]) if request.param in names else request.param


@pytest.fixture
async def store(servers, storage):
    """A History, and the way in which things happen for it."""
    if servers == "memory":
        yield InMemory()
    elif servers == "DataStorage":
        async with datastorage.history_of(storage.url, cache_seconds=0.0) as history:
            yield InDataStorage(storage, history)
    else:
        async with provisioned(servers) as case:
            yield InBroker(case)


# -- what all of them promise


async def test_a_resource_without_a_past_has_none(store):
    assert Past() == await look(store.history, target())


async def test_what_was_executed_is_found_with_what_came_of_it(store):
    about, remediation = target(), executed()
    await store.happened(about, remediation)
    [found] = (await look(store.history, about)).remediations
    assert remediation == replace(found, workflow_id="", match=None)
    assert SpecMatch.BEFORE is found.matches(THIS)
    assert found.unsuccessful


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": "failed", "score": None, "resolved": None, "post_hash": ""},
        {"outcome": "cancelled", "side_effects": ()},
        {"drifted": True, "score": 0.0},
        {"score": 1.0, "resolved": True},
    ],
    ids=",".join,
)
async def test_every_way_to_end_is_reported(store, fields):
    about, remediation = target(), executed(**fields)
    await store.happened(about, remediation)
    [found] = (await look(store.history, about)).remediations
    assert remediation == replace(found, workflow_id="", match=None)


async def test_resources_do_not_answer_for_each_other(store):
    about = target()
    await store.happened(about, executed())
    assert Past() == await look(store.history, replace(about, namespace="blog"))
    assert Past() == await look(store.history, replace(about, kind="StatefulSet"))
    assert Past() == await look(store.history, replace(about, name=f"{about.name}-x"))


async def test_a_resource_of_the_cluster_has_a_past_too(store):
    about = target(kind="Node", namespace="")
    await store.happened(about, executed())
    assert 1 == len((await look(store.history, about)).remediations)


async def test_several_remediations_are_found(store):
    about = target()
    made = [executed(at=NOON + timedelta(hours=i)) for i in (3, 1, 2)]
    for remediation in made:
        await store.happened(about, remediation)
    found = (await look(store.history, about)).remediations
    assert {item.id: item.at for item in made} == {item.id: item.at for item in found}


async def test_a_result_of_ours_may_be_remembered_again(store):
    about = target()
    await store.history.remember(about, executed(outcome=""))
    await store.history.remember(about, executed(outcome=""))


# -- our own broker


@pytest.fixture
def own(own_server):
    return InBroker(own_server)


async def test_a_result_is_found_before_anybody_executed_it(own):
    about, chosen = (
        target(),
        PastRemediation(new_id(), NOON, "w-1", "RaiseMemory", status="completed", pre_hash=THIS),
    )
    await own.history.remember(about, chosen)
    assert Past((chosen,)) == await look(own.history, about)


async def test_a_result_is_kept_once(own):
    about, chosen = target(), PastRemediation("rr-1", NOON, "w-1")
    await own.history.remember(about, chosen)
    await own.history.remember(about, chosen)
    assert 1 == await own.case.count("KV_RCA_HISTORY")
    await own.history.remember(about, replace(chosen, workflow_id="w-2"))
    assert Past((replace(chosen, workflow_id="w-2"),)) == await look(own.history, about)


async def test_results_remembered_at_the_same_time_are_all_kept(own):
    about, others = target(), nats_history(own.case.nc, own.case.subjects)
    made = [PastRemediation(f"rr-{i}", NOON) for i in range(6)]
    await asyncio.gather(
        *(h.remember(about, m) for h, m in zip([own.history, others] * 3, made, strict=True))
    )
    assert set(made) == set((await look(own.history, about)).remediations)


async def test_a_storm_of_results_of_one_resource_is_kept_even_if_some_are_cancelled(own):
    about = target()
    made = [PastRemediation(f"rr-{i}", NOON) for i in range(40)]
    tasks = [asyncio.create_task(own.history.remember(about, m)) for m in made]
    await asyncio.sleep(0)
    for task in tasks[:4]:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [None] * 36 == ended[4:]
    assert set(made[4:]) <= set((await look(own.history, about)).remediations)


async def test_the_oldest_results_are_dropped(own):
    about = target()
    subject = f"$KV.RCA_HISTORY.{history_key(about.kind, about.namespace, about.name)}"
    full = {"v": 1, "kind": "Deployment", "namespace": "shop", "name": about.name}
    entries = [{"id": f"rr-{i}"} for i in range(MAX_KEPT)]
    await own.case.js.publish(subject, json.dumps({**full, "remediations": entries}).encode())
    await own.history.remember(about, PastRemediation("new"))
    stored = json.loads((await own.case.js.get_last_msg("KV_RCA_HISTORY", subject)).data)
    assert ["rr-1", "new"] == [stored["remediations"][0]["id"], stored["remediations"][-1]["id"]]
    assert MAX_KEPT == len(stored["remediations"])


async def test_the_newest_outcome_of_a_request_counts(own):
    about, remediation = target(), executed(score=None, resolved=None)
    await own.happened(about, remediation)
    await own.publish(
        outcome_of(about, remediation, effectiveness_score=0.9, signal_resolved=True), remediation.id
    )
    [found] = (await look(own.history, about)).remediations
    assert (0.9, True) == (found.score, found.resolved)


async def test_another_workflow_than_ours_may_have_been_executed(own):
    about = target()
    chosen = PastRemediation(
        new_id(), NOON, "w-1", "RaiseMemory", "OOMKilled", "sha256:00", "completed", pre_hash=THIS
    )
    await own.history.remember(about, chosen)
    ran = outcome_of(about, executed(id=chosen.id), workflow_id="w-9", action_type="")
    await own.publish(ran, chosen.id)
    [found] = (await look(own.history, about)).remediations
    assert ("w-9", "", "") == (found.workflow_id, found.action_type, found.parameters_digest)


async def test_the_spec_of_another_object_is_not_that_of_the_resource(own):
    about, remediation = target(), executed(pre_hash=THIS)
    await own.happened(about, remediation)
    acted = AffectedResource(kind="Node", name="worker-1")
    ran = outcome_of(about, remediation, target=acted, pre_remediation_spec_hash=OLD)
    await own.publish(ran, remediation.id)
    [found] = (await look(own.history, about)).remediations
    assert (THIS, "", "completed") == (found.pre_hash, found.post_hash, found.outcome)


async def test_an_outcome_that_is_none_is_left_out(own):
    about, chosen = target(), PastRemediation("rr.odd id", NOON, "w-1")
    key = "rr%2Eodd%20id"
    await own.history.remember(about, replace(chosen, id=key))
    await own.case.js.publish(own.case.subjects.outcome(key), b'{"outcome": "great"}')
    assert Past((replace(chosen, id=key),)) == await look(own.history, about)


@pytest.mark.parametrize("body", [b"junk", b'{"v": 2, "kind": "a", "namespace": "b", "name": "c"}', b"[]"])
async def test_an_entry_that_cannot_be_read_is_neither_empty_nor_overwritten(own, body):
    about = target()
    subject = f"$KV.RCA_HISTORY.{history_key(about.kind, about.namespace, about.name)}"
    await own.case.js.publish(subject, body)
    with pytest.raises(HistoryUnavailable):
        await look(own.history, about)
    with pytest.raises(HistoryUnavailable):
        await own.history.remember(about, executed())
    assert body == (await own.case.js.get_last_msg("KV_RCA_HISTORY", subject)).data


async def test_a_deleted_entry_is_empty_and_may_be_written_again(own):
    about = target()
    bucket = await own.case.js.key_value("RCA_HISTORY")
    await own.history.remember(about, executed())
    await bucket.delete(history_key(about.kind, about.namespace, about.name))
    assert Past() == await look(own.history, about)
    await own.history.remember(about, PastRemediation("rr-1"))
    assert Past((PastRemediation("rr-1"),)) == await look(own.history, about)


async def test_a_missing_bucket_does_not_look_like_no_history(own):
    await own.case.js.delete_stream("KV_RCA_HISTORY")
    with pytest.raises(HistoryUnavailable):
        await look(own.history, target())
    with pytest.raises(HistoryUnavailable):
        await own.history.remember(target(), executed())


async def test_a_missing_outcomes_stream_does_not_look_like_no_outcome(own):
    about = target()
    await own.happened(about, executed())
    await own.case.js.delete_stream("RCA_OUTCOMES")
    with pytest.raises(HistoryUnavailable):
        await look(own.history, about)


async def test_a_broker_that_is_away_is_unavailable(own):
    nc = await connect(own.case.servers)
    await own.case.servers[0].kill()
    history = nats_history(nc, own.case.subjects, patience_seconds=0.2)
    with pytest.raises(HistoryUnavailable):
        await look(history, target())
    with pytest.raises(HistoryUnavailable):
        await history.remember(target(), executed())
    await nc.close()


# -- DataStorage


@pytest.fixture
def clock():
    return FixedClock()


@pytest.fixture
async def remote(storage, clock):
    async with datastorage.history_of(
        storage.url, token="t0ken", call_seconds=30.0, monotonic=clock.monotonic, sleep=clock.sleep
    ) as history:
        yield history


ABOUT = ObjectRef("Deployment", "api", "shop", "apps/v1")


async def test_it_is_asked_as_its_api_wants(remote, storage):
    await look(remote, ABOUT)
    asked = {
        "targetKind": "Deployment",
        "targetName": "api",
        "targetNamespace": "shop",
        "currentSpecHash": THIS,
        "tier1Window": "24h",
        "tier2Window": "2160h",
    }
    assert [asked] == storage.requests
    assert "Bearer t0ken" == storage.headers[0]["Authorization"]


async def test_a_cluster_of_several_is_named(storage):
    async with datastorage.history_of(f"{storage.url}/", cluster_id="east") as history:
        await look(history, ABOUT)
    assert "east" == storage.requests[0]["clusterId"]
    assert "Authorization" not in storage.headers[0]


async def test_without_a_hash_it_is_not_asked(remote, storage):
    with pytest.raises(HistoryUnavailable, match="could not be read"):
        await look(remote, ABOUT, "")
    assert [] == storage.requests


async def test_both_tiers_are_read_and_the_detailed_entry_wins(remote, storage):
    recent, old = (
        executed(),
        executed(at=NOON - timedelta(days=9), pre_hash="", post_hash="", match=SpecMatch.AFTER),
    )
    answer = document([written(recent)])
    answer["tier2"]["chain"].append(written(old))
    storage.answers = [web.json_response(answer)]
    found = await look(remote, ABOUT)
    assert [recent, old] == [
        replace(item, match=old.match if item.id == old.id else None) for item in found.remediations
    ]
    assert SpecMatch.AFTER is found.remediations[1].matches(THIS)


@pytest.mark.parametrize("missing", [None, ..., {"chain": None}, {"window": "2160h"}])
async def test_the_older_tier_may_be_missing(remote, storage, missing):
    answer = {**document([written(executed())]), "tier2": missing}
    storage.answers = [web.json_response({k: v for k, v in answer.items() if v is not ...})]
    assert 1 == len((await look(remote, ABOUT)).remediations)


@pytest.mark.parametrize(
    "body", ["{}", "[]", "null", '{"entries": []}', '{"tier1": {"chain": {}}}', "junk", "[" * 9_000]
)
async def test_an_answer_of_another_shape_is_no_empty_history(remote, storage, body):
    storage.answers = [web.Response(text=body)]
    with pytest.raises(HistoryUnavailable):
        await look(remote, ABOUT)


async def test_entries_may_hold_anything(remote, storage):
    junk = [
        7,
        None,
        {},
        {"remediationUID": ["x"], "effectivenessScore": "0.5", "signalResolved": "yes", "completedAt": 3},
    ]
    answer = document([])
    answer["tier1"]["chain"] = junk
    storage.answers = [web.json_response(answer)]
    found = await look(remote, ABOUT)
    assert {PastRemediation("")} == set(found.remediations)


async def test_outcomes_in_other_words_are_understood(remote, storage):
    words = {
        "Completed": "completed",
        "success": "completed",
        "TimedOut": "failed",
        "Failed": "failed",
        "Blocked": "Blocked",
    }
    storage.answers = [web.json_response(document([written(executed(id=w, outcome=w)) for w in words]))]
    found = await look(remote, ABOUT)
    assert words == {item.id: item.outcome for item in found.remediations}


async def test_an_answer_is_kept_for_a_while(remote, storage, clock):
    storage.put(ABOUT, executed())
    first = await look(remote, ABOUT)
    assert first == await look(remote, ABOUT)
    assert 1 == len(storage.requests)
    await look(remote, ABOUT, OLD)
    clock.advance(21)
    await look(remote, ABOUT)
    assert 3 == len(storage.requests)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
async def test_what_may_pass_is_tried_again_once(remote, storage, status):
    storage.answers = [status]
    assert Past() == await look(remote, ABOUT)
    assert 2 == len(storage.requests)


@pytest.mark.parametrize(
    ("status", "said"), [(400, "400"), (401, "token"), (403, "may not"), (404, "no such API")]
)
async def test_what_will_not_pass_is_not_tried_again(remote, storage, status, said):
    storage.answers = [status]
    with pytest.raises(HistoryUnavailable, match=said):
        await look(remote, ABOUT)
    assert 1 == len(storage.requests)


async def test_a_short_wait_that_the_server_asks_for_is_kept(remote, storage, clock):
    storage.answers = [web.Response(status=429, headers={"Retry-After": "2"})]
    before = clock.monotonic()
    await look(remote, ABOUT)
    assert 2.0 == clock.monotonic() - before


async def test_a_long_wait_that_the_server_asks_for_is_kept_without_waiting(remote, storage, clock):
    storage.answers = [web.Response(status=503, headers={"Retry-After": "40"})]
    for _ in range(3):
        with pytest.raises(HistoryUnavailable):
            await look(remote, ABOUT)
    assert 1 == len(storage.requests)
    clock.advance(41)
    assert Past() == await look(remote, ABOUT)


async def test_after_three_failures_it_is_left_alone_for_a_while(remote, storage, clock):
    storage.answers = [404] * 3
    for _ in range(5):
        with pytest.raises(HistoryUnavailable):
            await look(remote, ABOUT)
    assert 3 == len(storage.requests)
    clock.advance(31)
    assert Past() == await look(remote, ABOUT)


async def test_a_server_that_hangs_is_unavailable(storage):
    storage.answers = [None, None]
    async with datastorage.history_of(storage.url, call_seconds=0.5) as history:
        with pytest.raises(HistoryUnavailable, match=r"no answer"):
            await look(history, ABOUT)


async def test_a_server_that_is_not_there_is_unavailable():
    async with datastorage.history_of("http://127.0.0.1:9") as history:
        with pytest.raises(HistoryUnavailable, match="cannot be reached"):
            await look(history, ABOUT)


async def test_an_endless_answer_is_not_read_to_its_end(remote, storage):
    storage.answers = [web.Response(body=b" " * (3 << 20))]
    with pytest.raises(HistoryUnavailable, match="too long"):
        await look(remote, ABOUT)
