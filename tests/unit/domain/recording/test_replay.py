"""An analysis is recorded while it runs, and comes to the same bytes when it is replayed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta

import pytest

from schemas.analysis import AnalysisResult, Approval
from tests.fakes.canaries import FORMS, Aviary
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_catalog import MemoryCatalog, workflow
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_external import MemoryExternal
from tests.fakes.memory_history import MemoryHistory
from tests.fakes.memory_metrics import MemoryMetrics
from tests.fakes.memory_model import MemoryModel, calls, final, says
from tests.fakes.memory_policy import MemoryPolicy
from tests.fakes.memory_recordings import MemoryRecordings
from tests.fakes.scripted import (
    CONTEXT,
    LOGS,
    LOOK,
    World,
    answer,
    chosen,
    incident,
    recovery,
    rollback,
    shop,
)
from worker.domain.recording.bundle import BundleError, RecordedCall
from worker.domain.recording.recorder import RecordedAnalysis
from worker.domain.recording.replay import Changes, replay
from worker.domain.recording.tape import CALLS, PORTS, Player, Recorder, Taped
from worker.domain.values.errors import (
    ClusterError,
    ExternalToolError,
    GiveUp,
    GiveUpReason,
    MetricsError,
    ReportedError,
    Retry,
    RetryReason,
)
from worker.domain.values.limits import Limits
from worker.domain.values.objects import LogQuery, ObjectRef
from worker.domain.values.ports import Outside, Series
from worker.domain.values.remediations import TrackRecord

READ_LOGS = ("get_pod_logs", {"pod": "api-7d9-x2x", "namespace": "shop", "previous": True})
QUERY = ("query_prometheus", {"query": "up"})
OVER_TIME = ("query_prometheus", {"query": "up", "since": "1h"})
SEARCH = ("docs_search", {"query": "crash loop"})
ACTIONS = ("list_available_actions", {"signal_type": "CrashLoopBackOff", "severity": "critical"})
UP = Series({"pod": "api"}, ((1.0, 1.0), (2.0, float("nan"))))
CHANGES = Changes(clock=FixedClock())


class RunningClock(FixedClock):
    """Never says the same twice."""

    def now(self):
        self.advance(0.001)
        return super().now()

    def monotonic(self):
        self.advance(0.001)
        return super().monotonic()


class Records:
    def of(self, action_type, environment):
        return TrackRecord(3, 2, 1)


@dataclass
class RecordedWorld(World):
    recordings: MemoryRecordings = field(default_factory=MemoryRecordings)
    not_kept: list = field(default_factory=list)

    def analysis(self):
        inner = super().analysis()
        return RecordedAnalysis(
            replace(inner._outside, clock=RunningClock()),
            inner.rules,
            self.recordings,
            program="1.2.3",
            failed=lambda key, why: self.not_kept.append(key),
        )


def everything(*said, **ports):
    """A world with every optional port."""
    given = {
        "history": MemoryHistory(),
        "metrics": MemoryMetrics((UP,)),
        "external": MemoryExternal(),
        "track_records": Records(),
        "shadow": MemoryModel([says('{"object": null, "workflow_id": null}')]),
    }
    return RecordedWorld.saying(*said, **{**given, **ports})


async def recorded(world, request=None):
    result = await world.analyse(request)
    bundle = world.recordings.bundle()
    assert bundle.result == result.model_dump_json()
    return bundle


async def replayed_alike(bundle):
    again = await replay(bundle, CHANGES)
    assert bundle.result == again.result.model_dump_json()
    assert ((), 0) == (again.gaps, again.diverged)
    return again


SCRIPTS = {
    "answers at once": [final(answer())],
    "looks around": [calls(LOOK, CONTEXT, READ_LOGS, ACTIONS), final(answer())],
    "asks other servers": [calls(QUERY, OVER_TIME, SEARCH), final(answer())],
    "is corrected": [final(chosen(workflow_id="no-such")), final(answer())],
    "never answers": [says("?")] * 5,
    "fails first": [Retry(RetryReason.MODEL_UNAVAILABLE, "away", 0.5), final(answer())],
    "gives up": [calls(LOOK), GiveUp(GiveUpReason.CONTEXT_OVERFLOW, "too long")],
}


@pytest.mark.parametrize("ports", [RecordedWorld.saying, everything], ids=["few ports", "all ports"])
@pytest.mark.parametrize("said", SCRIPTS.values(), ids=SCRIPTS)
async def test_a_replay_gives_the_same_bytes(said, ports):
    world = ports(*said)
    bundle = await recorded(world)
    await replayed_alike(bundle)
    assert ("1.2.3", "memory-model") == (bundle.versions.program, bundle.versions.model)
    assert len(bundle.versions.catalog) == 64


async def test_a_recovery_is_replayed():
    world = RecordedWorld.saying(final(answer()))
    await world.analyse(recovery())
    [key] = world.recordings.kept
    await replayed_alike(world.recordings.bundle(key))


async def test_errors_of_the_outside_are_replayed():
    external = MemoryExternal(answers={"search": ExternalToolError("it is away", passing=True)})
    metrics = MemoryMetrics(error=MetricsError("no such metric"))
    world = everything(calls(QUERY, SEARCH), final(answer()), external=external, metrics=metrics)
    world.catalog.down = world.history.down = True
    bundle = await recorded(world)
    await replayed_alike(bundle)
    kinds = {each.error["type"] for each in bundle.exchanges if each.error}
    assert {"ExternalToolError", "MetricsError", "CatalogUnavailable", "HistoryUnavailable"} <= kinds


@pytest.mark.slow
async def test_a_read_that_was_given_up_is_given_up_again():
    class Slow(MemoryCluster):
        async def list(self, query):
            if query.kind == "Event":
                await asyncio.Event().wait()
            return await super().list(query)

    world = RecordedWorld.saying(final(answer()), cluster=Slow(shop(), LOGS))
    world.rules = replace(world.rules, enrichment_seconds=0.3)
    bundle = await recorded(world)
    await replayed_alike(bundle)
    assert "NoAnswer" in {each.error["type"] for each in bundle.exchanges if each.error}


async def test_a_resumed_run_is_replayed_from_the_steps_it_found():
    world = RecordedWorld.saying(calls(LOOK), Retry(RetryReason.MODEL_UNAVAILABLE, "away", 500.0))
    with pytest.raises(Retry):
        await world.analyse()
    assert {} == world.recordings.kept
    world.model = MemoryModel([final(answer())])
    await world.analyse(run="run-2")
    bundle = world.recordings.bundle()
    assert {"opening", "llm", "tools"} <= {step.kind for step in bundle.steps}
    await replayed_alike(bundle)


async def test_a_result_that_is_only_published_again_leaves_the_recording_alone():
    world = RecordedWorld.saying(final(answer()))
    await world.analyse()
    before = dict(world.recordings.kept)
    await world.analyse(run="run-2")
    assert before == world.recordings.kept


async def test_a_store_that_is_away_costs_only_the_recording():
    world = RecordedWorld.saying(final(answer()))
    world.recordings.down = True
    assert "completed" == (await world.analyse()).status
    assert ["rr-1"] == world.not_kept


async def test_answers_that_do_not_fit_are_gaps():
    world = RecordedWorld.saying(calls(LOOK, CONTEXT), final(answer()), recordings=MemoryRecordings(4_000))
    await world.analyse()
    bundle = world.recordings.bundle()
    assert bundle.left_out
    assert (await replay(bundle, CHANGES)).gaps


async def test_a_recording_is_bounded_in_memory():
    recorder, cluster = Recorder(max_chars=300), MemoryCluster(shop(), LOGS)
    taped = Taped("cluster", cluster, recorder)
    refs = [
        ObjectRef("Node", "worker-1"),
        ObjectRef("Deployment", "api", "shop"),
        ObjectRef("Pod", "api-7d9-x2x", "shop"),
    ]
    found = [await taped.get(ref) for ref in refs]
    assert [await cluster.get(ref) for ref in refs] == found
    assert [False, True, True] == [each.answer is None for each in await recorder.exchanges()]


async def test_secrets_are_in_no_bundle():
    """Wherever the outside may say them."""
    aviary = Aviary()

    def lines(place):
        return "".join(f"{c.line}\n" for c in aviary.at(place))

    def pairs(place, forms):
        return {c.marker: c.text for c in aviary.at(place, forms=forms)}

    objects = shop()
    for item in objects:
        item["metadata"]["annotations"] = pairs(f"note-{item['kind']}", list(FORMS)[::3])
        if item["kind"] == "ConfigMap":
            item["data"] |= pairs("data", list(FORMS)[::6])
        if item["kind"] == "Pod":
            item["spec"]["containers"][0]["env"] = [
                {"name": c.marker, "value": c.text} for c in aviary.at("env")
            ] + [
                {
                    "name": "DB_PASSWORD",
                    "value": aviary.at("keyed", forms=["key_value"])[0].text.partition("=")[2],
                }
            ]
    logs = {key: lines(f"log-{number}").encode() for number, key in enumerate(LOGS)}
    external = MemoryExternal(answers={"search": lines("external")})
    metrics = MemoryMetrics((Series(pairs("series", FORMS), ((1.0, 1.0),)),))
    request = incident(
        error_message=lines("error"), signal_labels=pairs("labels", FORMS), description=lines("description")
    )
    looks = (LOOK, CONTEXT, READ_LOGS, QUERY, SEARCH)
    world = everything(
        calls(*looks, text=lines("said")),
        final(answer()),
        external=external,
        metrics=metrics,
        cluster=MemoryCluster(objects, logs),
    )
    bundle = await recorded(world, request)
    told = bundle.model_dump_json()
    assert [] == aviary.seen_in([told])
    places = {c.place for c in aviary.planted if c.marker in told}
    assert {"data", "env", "log-0", "external", "series", "error", "labels", "said"} <= places
    assert bundle.result == (await replay(bundle, CHANGES)).result.model_dump_json()


# -- with something else


async def test_another_catalog_leads_to_another_workflow():
    bundle = await recorded(RecordedWorld.saying(calls(ACTIONS), final(answer())))
    catalog = MemoryCatalog([rollback()])
    again = await replay(bundle, replace(CHANGES, catalog=catalog, policy=MemoryPolicy()))
    assert again.result.selected_workflow is None
    assert again.diverged, "the model was told of other workflows"
    same = MemoryCatalog([workflow(), rollback()])
    assert (await replay(bundle, replace(CHANGES, catalog=same))).result.selected_workflow is not None


async def test_another_policy_decides_about_the_same_answer():
    bundle = await recorded(RecordedWorld.saying(final(answer())))
    policy = MemoryPolicy(lambda given: Approval(required=True, reasons=("Friday.",)))
    again = await replay(bundle, replace(CHANGES, policy=policy))
    assert again.result.approval.required
    assert "Friday." in again.result.approval.reasons
    assert ((), 0) == (again.gaps, again.diverged)


async def test_another_model_reads_the_recorded_cluster():
    bundle = await recorded(RecordedWorld.saying(calls(LOOK), final(answer())))
    model = MemoryModel([calls(LOOK, READ_LOGS), final(chosen(workflow_id="rollback-v1", version=None))])
    clock = RunningClock()
    clock.advance(1e7)
    again = await replay(bundle, Changes(clock=clock, model=model, policy=MemoryPolicy()))
    shown, missing = model.requests[1].turns[-1].results
    assert "0.0.0.0:8080" in shown.content
    assert "not recorded" in missing.content
    assert "cluster.logs" in " ".join(again.gaps)
    recorded_at = AnalysisResult.model_validate_json(bundle.result).completed_at
    assert abs(again.result.completed_at - recorded_at) < timedelta(minutes=5)


async def test_the_limits_of_this_place_bound_another_model():
    bundle = await recorded(RecordedWorld.saying(final(answer())))
    generous = bundle.model_copy(update={"rules": {**bundle.rules, "limits": {"llm_calls": 10**9}}})
    talkative = MemoryModel(
        lambda request, number: calls(("get_resource", {"kind": "Node", "name": f"n{number}"}))
    )
    again = await replay(generous, replace(CHANGES, model=talkative, limits=Limits(llm_calls=4)))
    assert (4, True) == (again.result.usage.llm_calls, again.result.needs_human_review)


async def test_a_model_that_refuses_is_reported():
    bundle = await recorded(RecordedWorld.saying(final(answer())))
    refusing = MemoryModel([GiveUp(GiveUpReason.MODEL_REFUSED_CREDENTIALS, "401")])
    with pytest.raises(ReportedError, match="401"):
        await replay(bundle, replace(CHANGES, model=refusing))


# -- bundles of other people


async def test_what_was_not_recorded_is_a_named_gap_and_never_invented():
    bundle = await recorded(everything(calls(LOOK, QUERY, SEARCH), final(answer())))
    empty = bundle.model_copy(
        update={"exchanges": tuple(e for e in bundle.exchanges if e.call.startswith("model."))}
    )
    again = await replay(empty, CHANGES)
    assert again.result.needs_human_review
    named = {gap.partition(" ")[0] for gap in again.gaps}
    assert {"cluster.get", "cluster.list", "catalog.actions", "external.tools"} <= named
    silent = await replay(bundle.model_copy(update={"exchanges": ()}), CHANGES)
    assert "model.ask" in {gap.partition(" ")[0] for gap in silent.gaps}


@pytest.mark.parametrize(
    "broken",
    [
        {"rules": {"limits": 7}},
        {"request": {}},
        {"request": {"received_time": "later"}},
        {"steps": ({"kind": "opening", "run": "a", "data": "[]"},)},
    ],
)
async def test_a_bundle_that_makes_no_sense_is_refused(broken):
    bundle = await recorded(RecordedWorld.saying(final(answer())))
    made = type(bundle).model_validate(bundle.model_dump() | broken)
    with pytest.raises(BundleError, match="rr-1"):
        await replay(made, CHANGES)


@pytest.mark.parametrize(
    "change",
    [
        {"answer": "{"},
        {"answer": "[" * 100_000},
        {"answer": '{"items": 7}'},
        {"answer": None, "error": {"type": "SystemExit", "message": "no"}},
        {"answer": None, "error": {"type": "ClusterError", "reason": "tired", "message": ""}},
        {"answer": None, "error": {}},
    ],
)
async def test_answers_made_by_hand_are_gaps(change):
    bundle = await recorded(RecordedWorld.saying(final(answer())))
    exchanges = [
        RecordedCall(**{**each.model_dump(), **change}) if each.call.startswith("cluster.l") else each
        for each in bundle.exchanges
    ]
    again = await replay(bundle.model_copy(update={"exchanges": tuple(exchanges)}), CHANGES)
    assert "cluster.list" in {gap.partition(" ")[0] for gap in again.gaps}


@pytest.mark.parametrize("call", ["cluster.kind", "policy.decide"])
async def test_a_text_that_is_no_unicode_is_refused(call):
    bundle = await recorded(RecordedWorld.saying(final(answer())))
    exchanges = tuple(
        each.model_copy(update={"answer": each.answer.replace(':"', ':"\\ud800')})
        if each.call == call
        else each
        for each in bundle.exchanges
    )
    with pytest.raises(BundleError, match="rr-1"):
        await replay(bundle.model_copy(update={"exchanges": exchanges}), CHANGES)


async def test_a_bundle_makes_nobody_wait_for_ever():
    call, asked = CALLS["cluster.get"], ObjectRef("Node", "worker-1")
    given_up = RecordedCall(call=call.name, asked=call.question((asked,)), error={"type": "NoAnswer"})
    player = Player([given_up], longest_wait=0.01)
    with pytest.raises(ClusterError):
        await Taped("cluster", MemoryCluster(shop()), player).get(asked)
    assert 1 == len(player.gaps)


async def test_what_cannot_be_written_down_is_a_gap_and_no_failure():
    class Odd(MemoryCluster):
        async def get(self, ref):
            return {**await super().get(ref), "odd": {1, object()}}

    world = RecordedWorld.saying(final(answer()), cluster=Odd(shop(), LOGS))
    bundle = await recorded(world)
    assert bundle.left_out


async def test_bytes_of_logs_survive():
    odd = b"\xff\xfe\x00 caf\xc3\xa9 \xed\xa0\x80\n"
    recorder, asked = Recorder(), LogQuery("shop", "api-7d9-x2x", "app")
    cluster = MemoryCluster(shop(), {("shop", "api-7d9-x2x", "app", False): odd})
    assert odd == await Taped("cluster", cluster, recorder).logs(asked)
    assert odd == await Taped("cluster", cluster, Player(await recorder.exchanges())).logs(asked)


def test_every_port_of_an_analysis_is_recorded():
    assert {"jitter", "cluster_problem"} == {port.name for port in fields(Outside)} - set(PORTS)
