from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.workflow import SelectedWorkflow
from tests.fakes.manifests import deployment, obj, pod, replica_set
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_history import MemoryHistory
from tests.fakes.messages import NOON, review_result
from worker.domain.cluster.fields import reference
from worker.domain.cluster.history import (
    KnownHistory,
    Lookback,
    Recurrence,
    declining,
    describe,
    failed_here,
    in_order,
    level,
    record_of,
    recurrences,
    regressions,
    same_as_before,
    spec_hash_of,
)
from worker.domain.cluster.owners import owner_chain
from worker.domain.cluster.spec_hash import absent_config_map_hash, composite, config_map_hash, fingerprint
from worker.domain.values.errors import ClusterReason
from worker.domain.values.remediations import PastRemediation, SpecMatch

NOW = datetime(2026, 6, 4, 15, 30, tzinfo=UTC)
THIS, OLD, OTHER = (f"sha256:{digit * 64}" for digit in "123")


def done(hours=1.0, /, **fields):
    values = {
        "id": f"rr-{hours}",
        "at": NOW - timedelta(hours=hours),
        "workflow_id": "raise-memory-v1",
        "action_type": "RaiseMemory",
        "signal_type": "OOMKilled",
        "outcome": "completed",
    }
    return PastRemediation(**{**values, **fields})


def known(*remediations, spec_hash=THIS, **fields):
    shuffled = list(remediations)
    random.Random(7).shuffle(shuffled)
    return KnownHistory(spec_hash, in_order(shuffled, NOW), **fields)


def told(*remediations, **fields):
    return describe(known(*remediations, **fields), NOW)


# -- reading


async def chain_of(target, *others):
    cluster = MemoryCluster([target, *others])
    return cluster, await owner_chain(cluster, reference(target))


def with_config(name="api-config"):
    made = deployment("api")
    made["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [{"configMapRef": {"name": name}}]
    return made


async def test_the_hash_is_that_of_the_top_owner_with_its_config_maps():
    api, config = with_config(), obj("ConfigMap", "api-config", data={"LISTEN": "0.0.0.0"})
    revision = replica_set(api, "7d9", 1)
    cluster, chain = await chain_of(pod("api-7d9-x", owner=revision), revision, api, config)
    expected = composite(fingerprint(api), {"api-config": config_map_hash(config)})
    assert expected == await spec_hash_of(cluster, chain)


@pytest.mark.parametrize("reason", [ClusterReason.FORBIDDEN, ClusterReason.TIMEOUT])
async def test_a_config_map_that_cannot_be_read_is_hashed_as_absent(reason):
    cluster, chain = await chain_of(with_config(), obj("ConfigMap", "api-config", data={"a": "b"}))
    cluster.fail(reason, kind="ConfigMap")
    expected = composite(fingerprint(with_config()), {"api-config": absent_config_map_hash("api-config")})
    assert expected == await spec_hash_of(cluster, chain)


async def test_what_could_not_be_read_has_no_hash():
    cluster, chain = await chain_of(deployment("api"))
    cluster.fail(ClusterReason.FORBIDDEN, kind="Deployment")
    assert "" == await spec_hash_of(cluster, await owner_chain(cluster, chain.root))


async def test_a_look_back_asks_for_the_top_owner():
    api = deployment("api")
    revision = replica_set(api, "7d9", 1)
    cluster, chain = await chain_of(pod("api-7d9-x", owner=revision), revision, api)
    history = MemoryHistory.of(reference(api), done())
    found = await Lookback(history, cluster, NOW).look_up(chain)
    assert KnownHistory(fingerprint(api), (done(),)) == found
    assert [(("Deployment", "shop", "api"), fingerprint(api))] == history.asked


async def test_a_store_that_is_down_is_told_and_ends_nothing():
    cluster, chain = await chain_of(deployment("api"))
    found = await Lookback(MemoryHistory(down=True), cluster, NOW).look_up(chain)
    assert (fingerprint(deployment("api")), "the store is down") == (found.spec_hash, found.problem)


async def test_hash_and_history_are_read_at_the_same_time():
    """Each of the two waits for the other one to have begun."""
    begun = {"hash": asyncio.Event(), "history": asyncio.Event()}

    class Cluster(MemoryCluster):
        async def get(self, ref):
            if ref.kind == "ConfigMap":
                begun["hash"].set()
                await begun["history"].wait()
            return await super().get(ref)

    class History(MemoryHistory):
        async def past(self, target, spec_hash):
            begun["history"].set()
            await begun["hash"].wait()
            return await super().past(target, spec_hash)

    cluster = Cluster([with_config(), obj("ConfigMap", "api-config")])
    chain = await owner_chain(cluster, reference(deployment("api")))
    found = await asyncio.wait_for(Lookback(History(), cluster, NOW).look_up(chain), 100)
    assert found.spec_hash


# -- matching


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"pre_hash": THIS, "post_hash": OLD}, SpecMatch.BEFORE),
        ({"pre_hash": OLD, "post_hash": THIS}, SpecMatch.AFTER),
        ({"pre_hash": THIS, "post_hash": THIS}, SpecMatch.BEFORE),
        ({"pre_hash": OLD, "post_hash": OTHER}, SpecMatch.NONE),
        ({"pre_hash": OLD}, None),
        ({}, None),
        ({"match": SpecMatch.AFTER}, SpecMatch.AFTER),
        ({"match": SpecMatch.NONE, "pre_hash": THIS}, SpecMatch.BEFORE),
    ],
)
def test_the_present_spec_is_compared_with_the_one_before_and_after(fields, expected):
    assert expected is done(**fields).matches(THIS)


def test_without_a_hash_nothing_matches_by_itself():
    assert done(pre_hash="", post_hash="").matches("") is None
    assert done(pre_hash=THIS, post_hash=OLD).matches("") is None
    assert SpecMatch.BEFORE is done(match=SpecMatch.BEFORE).matches("")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"outcome": "failed"}, True),
        ({"outcome": "completed"}, False),
        ({"outcome": "completed", "resolved": False}, True),
        ({"outcome": "completed", "score": 0.39}, True),
        ({"outcome": "completed", "score": 0.4}, False),
        ({"outcome": "completed", "score": 0.0, "drifted": True}, False),
        ({"outcome": "failed", "drifted": True}, True),
        ({"outcome": "cancelled", "score": 0.0}, False),
        ({"outcome": "", "score": 0.0}, False),
    ],
)
def test_what_counts_as_unsuccessful(fields, expected):
    assert expected is done(**fields).unsuccessful


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"pre_hash": THIS, "post_hash": OLD}, 1),
        ({"pre_hash": THIS}, 1),
        ({"pre_hash": THIS, "post_hash": THIS}, 0),
        ({"pre_hash": OLD, "post_hash": THIS}, 0),
        ({"pre_hash": THIS, "outcome": ""}, 0),
        ({"match": SpecMatch.BEFORE, "post_hash": OLD}, 1),
    ],
)
def test_an_old_spec_that_is_back_is_a_regression(fields, expected):
    assert expected == len(regressions(known(done(**fields))))


FAILED = {"outcome": "failed", "pre_hash": THIS}


@pytest.mark.parametrize(
    ("workflow_id", "action_type", "fields", "expected"),
    [
        ("raise-memory-v1", "", FAILED, 1),
        ("raise-memory-v2", "raisememory", FAILED, 1),
        ("other", "Other", FAILED, 0),
        ("raise-memory-v1", "RaiseMemory", {**FAILED, "pre_hash": OLD}, 0),
        ("raise-memory-v1", "RaiseMemory", {"outcome": "failed", "post_hash": THIS}, 1),
        ("raise-memory-v1", "RaiseMemory", {"outcome": "completed", "pre_hash": THIS}, 0),
        ("raise-memory-v1", "RaiseMemory", {**FAILED, "at": NOW - timedelta(days=91)}, 0),
        ("raise-memory-v1", "RaiseMemory", {**FAILED, "at": None}, 1),
        ("", "", {**FAILED, "workflow_id": "", "action_type": ""}, 0),
    ],
)
def test_what_failed_for_this_resource_and_spec_is_found(workflow_id, action_type, fields, expected):
    assert expected == len(same_as_before(workflow_id, action_type, failed_here(known(done(**fields)))))


# -- trends


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.8, 0.5, 0.3], True),
        ([0.8, 0.5], False),
        ([0.8, 0.5, 0.5], False),
        ([0.3, 0.5, 0.8], False),
        ([0.9, 0.8, None, 0.1], True),
    ],
)
def test_three_strictly_falling_scores_are_declining(scores, expected):
    remediations = [done(9 - i, score=score) for i, score in enumerate(scores)]
    assert expected is bool(declining(remediations))


def test_each_action_has_a_trend_of_its_own():
    mixed = [
        done(9 - i, score=s, action_type=a)
        for i, (a, s) in enumerate([("A", 0.9), ("B", 0.2), ("A", 0.8), ("B", 0.1), ("A", 0.7)])
    ]
    assert {"A": [0.9, 0.8, 0.7]} == declining(mixed)


def test_scores_of_a_drifted_spec_are_no_trend():
    assert {} == declining([done(3, score=0.9), done(2, score=0.5), done(1, score=0.0, drifted=True)])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([{}, {}], [Recurrence("RaiseMemory", "OOMKilled", 2, futile=True)]),
        (
            [{"score": 0.0, "resolved": False}, {"score": 0.0}],
            [Recurrence("RaiseMemory", "OOMKilled", 2, futile=True)],
        ),
        ([{"score": 0.8}, {}], [Recurrence("RaiseMemory", "OOMKilled", 2, futile=False)]),
        ([{"resolved": True}, {}], [Recurrence("RaiseMemory", "OOMKilled", 2, futile=False)]),
        ([{}], []),
        ([{}, {"signal_type": "Evicted"}], []),
        ([{}, {"outcome": "failed"}], []),
        ([{}, {"drifted": True}], []),
        ([{"signal_type": ""}, {"signal_type": ""}], []),
    ],
)
def test_what_completes_again_and_again_recurs(changes, expected):
    assert expected == recurrences([done(i, **change) for i, change in enumerate(changes)])


# -- what the model is told


def test_nothing_known_and_nothing_there_are_told_apart():
    assert "none in the last 90 days" == told()
    assert "none in the last 90 days" == told(done(24 * 91))
    unknown = describe(KnownHistory(problem="connection refused"), NOW)
    assert unknown == "unknown: connection refused; go on without it, but do not take this for no history"


def test_remediations_stand_in_their_tiers_in_order_of_time():
    shown = told(done(2, outcome="failed"), done(1, score=0.75), done(48, score=0.55), done(1500, score=0.2))
    assert [
        "2026-06-04T13:30:00Z RaiseMemory (raise-memory-v1) for OOMKilled: failed",
        "2026-06-04T14:30:00Z RaiseMemory (raise-memory-v1) for OOMKilled: completed, effectiveness 0.75 good",
    ] == shown["last_24_hours"]
    assert [
        "2026-04-03T03:30:00Z RaiseMemory (raise-memory-v1) for OOMKilled: completed, effectiveness 0.20 poor",
        "2026-06-02T15:30:00Z RaiseMemory (raise-memory-v1) for OOMKilled: completed, effectiveness 0.55 moderate",
    ] == shown["last_90_days"]


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.7, "good"), (0.69, "moderate"), (0.4, "moderate"), (0.39, "poor"), (0.0, "poor")],
)
def test_scores_have_words(score, expected):
    assert expected == level(score)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"outcome": ""}, "chosen, no outcome reported"),
        ({"resolved": True}, "completed, signal resolved"),
        ({"resolved": False}, "completed, signal not resolved"),
        ({"pre_hash": OLD, "post_hash": THIS}, "completed; the spec is still as it left it"),
        ({"pre_hash": THIS, "post_hash": OLD}, "completed; the spec is now as it was before it"),
        ({"pre_hash": OLD, "post_hash": OTHER}, "completed; the spec has changed since"),
        (
            {"score": 0.0, "resolved": False, "drifted": True},
            "completed; inconclusive: the spec was changed while it was assessed",
        ),
        ({"side_effects": ("a", "b")}, "completed; side effects: a, b"),
    ],
)
def test_a_remediation_is_one_line(fields, expected):
    [line] = told(done(**fields))["last_24_hours"]
    assert f"2026-06-04T14:30:00Z RaiseMemory (raise-memory-v1) for OOMKilled: {expected}" == line


def test_a_result_without_a_workflow_is_told_as_such():
    fields = {"workflow_id": "", "action_type": "", "outcome": "", "status": "needs_human_review"}
    [line] = told(done(**fields))["last_24_hours"]
    assert "2026-06-04T14:30:00Z no workflow chosen for OOMKilled: needs_human_review" == line


def test_what_a_drifted_spec_led_to_is_named():
    first = done(3, drifted=True, pre_hash=OTHER, post_hash=OLD)
    shown = told(first, done(2, pre_hash=OLD, post_hash=THIS))
    assert "led to the one of 2026-06-04T13:30:00Z" in shown["last_24_hours"][0]


@pytest.mark.parametrize(
    ("remediations", "expected"),
    [
        ([done(pre_hash=THIS, post_hash=OLD)], "regression: the spec is again what it was before RaiseMemory of 2026-06-04T14:30:00Z"),
        ([done(3, score=0.8, outcome="partial"), done(2, score=0.5, outcome="partial"), done(1, score=0.41)], "declining: RaiseMemory worked less each time (0.80, 0.50, 0.41)"),
        ([done(3, score=0.8), done(48)], "recurring: RaiseMemory completed 2 times for OOMKilled"),
        ([done(3), done(48)], "repeated failure: RaiseMemory completed 2 times for OOMKilled and never helped"),
        ([done(outcome="failed", pre_hash=THIS, post_hash=THIS)], "failed on this very spec: RaiseMemory"),
    ],
)  # fmt: skip
def test_warnings_say_what_speaks_against_doing_it_again(remediations, expected):
    assert [expected] == [line[: len(expected)] for line in told(*remediations)["warnings"]]


def test_a_store_that_sees_a_regression_is_believed():
    assert "regression" in told(done(), regression=True)["warnings"][0]


def test_old_scores_are_no_decline():
    falling = [done(30, score=0.9), done(2, score=0.8), done(1, score=0.7)]
    assert ["recurring"] == [line.split(":")[0] for line in told(*falling)["warnings"]]


def test_a_long_history_is_cut_from_its_old_end():
    shown = told(*(done(i + 1, id=f"rr-{i}", signal_type=f"S{i}") for i in range(12)))
    assert "4 earlier ones are left out" == shown["last_24_hours"][0]
    assert shown["last_24_hours"][-1].startswith("2026-06-04T14:30:00Z")


TEXT = st.text(max_size=12)
SCORES = st.one_of(st.none(), st.floats(0, 1))
REMEDIATIONS = st.builds(
    PastRemediation,
    id=TEXT,
    at=st.one_of(st.none(), st.datetimes(timezones=st.just(UTC))),
    workflow_id=TEXT,
    action_type=TEXT,
    signal_type=TEXT,
    outcome=st.one_of(st.sampled_from(("completed", "failed", "cancelled", "")), TEXT),
    score=SCORES,
    resolved=st.one_of(st.none(), st.booleans()),
    drifted=st.booleans(),
    pre_hash=st.sampled_from(("", THIS, OLD)),
    post_hash=st.sampled_from(("", THIS, OLD)),
    match=st.one_of(st.none(), st.sampled_from(SpecMatch)),
    side_effects=st.lists(TEXT, max_size=3).map(tuple),
)


@given(st.lists(REMEDIATIONS, max_size=30))
def test_whatever_a_store_says_is_told_in_lines_and_without_hashes(remediations):
    shown = describe(KnownHistory(THIS, in_order(remediations, NOW)), NOW)
    lines = [shown] if isinstance(shown, str) else [line for part in shown.values() for line in part]
    assert lines
    assert not any("\n" in line or THIS in line or OLD in line for line in lines)


# -- what is kept


def test_a_result_is_kept_small_and_without_its_parameters():
    chosen = SelectedWorkflow(
        workflow_id="raise-memory-v1",
        action_type="RaiseMemory",
        confidence=0.9,
        parameters={"PASSWORD": "hunter2"},
    )
    result = review_result("rr/1").model_copy(update={"selected_workflow": chosen, "status": "completed"})
    kept = record_of(result, THIS)
    assert ("rr%2F1", NOON, "raise-memory-v1", "RaiseMemory", THIS, "completed") == (
        kept.id, kept.at, kept.workflow_id, kept.action_type, kept.pre_hash, kept.status,
    )  # fmt: skip
    assert kept.parameters_digest.startswith("sha256:")
    assert "hunter2" not in str(kept)


def test_a_result_without_a_workflow_is_kept_too():
    kept = record_of(review_result("rr-1", 2), "")
    assert ("rr-1.2", "", "needs_human_review") == (kept.id, kept.workflow_id, kept.status)


async def test_a_workload_of_too_many_config_maps_has_no_hash():
    sources = [{"configMapRef": {"name": f"c-{i}"}} for i in range(101)]
    api = deployment("api")
    api["spec"]["template"]["spec"]["containers"][0]["envFrom"] = sources
    assert "" == await spec_hash_of(*await chain_of(api))
