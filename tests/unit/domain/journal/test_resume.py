"""A worker that takes over goes on where the one before stopped: nothing is paid for or read twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.recovery import RecoveryRequest
from tests.fakes.dying_run import Killed, die_at
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_catalog import MemoryCatalog, workflow
from tests.fakes.memory_cluster import MemoryCluster
from tests.fakes.memory_model import MemoryModel, calls, final, says
from tests.fakes.memory_nats import MemoryEvents
from tests.fakes.scripted import (
    CONTEXT,
    LOGS,
    LOOK,
    World,
    answer,
    chosen,
    event_types,
    incident,
    planted_note,
    recovery,
    rollback,
    shop,
)
from worker.domain.analyse import Rules
from worker.domain.investigation.models.tries import TryRule
from worker.domain.values.errors import JournalGap, LostClaim, Retry, RetryReason, Unavailable
from worker.domain.values.limits import Limits
from worker.domain.values.step_kinds import BEGIN, CLAIM, LLM, OPENING, RESULT, TOOLS, TRIED

LOGS_CALL = ("get_pod_logs", {"pod": "api-7d9-x2x", "namespace": "shop", "previous": True})
ACTIONS = ("list_available_actions", {"signal_type": "CrashLoopBackOff", "severity": "critical"})
WRONG = chosen(workflow_id="no-such-workflow")
SCRIPT = [
    calls(LOOK, LOGS_CALL),
    calls(CONTEXT, ACTIONS, ("get_resource", {"kind": "Deployment", "name": "gone", "namespace": "shop"})),
    says("It is the image."),
    says("I think it is the image."),
    final(WRONG),
    final(answer()),
]
"""A run with everything in it: parallel tools, one that fails, an unreadable answer that is no attempt, one that is, a wrong one,
a right one."""


def scripted(number_of_replies_before):
    """The model of a successor: it goes on where the journal ends, and knows nothing before that."""
    return MemoryModel(SCRIPT[number_of_replies_before:])


def steps(world, kind):
    return [step for step in world.journal.steps["rr-1"] if step.kind == kind]


async def undisturbed(request):
    world = World(model=MemoryModel(SCRIPT))
    result = await world.analyse(request)
    return world, result


REQUESTS = [incident(), recovery()]


@pytest.mark.parametrize("request_", REQUESTS, ids=["incident", "recovery"])
async def test_the_script_covers_tools_a_rejection_and_an_answer(request_):
    world, result = await undisturbed(request_)
    [journal] = world.journal.steps.values()
    assert [BEGIN, OPENING, *[CLAIM, LLM, TOOLS] * 2, *[CLAIM, LLM] * 4, RESULT] == [s.kind for s in journal]
    last = not isinstance(request_, RecoveryRequest)  # the answer repeats what has failed
    assert [False, False, last] == [a.is_valid for a in result.validation_attempts]


@pytest.mark.parametrize("append", range(1, 17))
@pytest.mark.parametrize("request_", REQUESTS, ids=["incident", "recovery"])
async def test_killed_after_any_step_the_successor_comes_to_the_same_result_and_pays_for_nothing_twice(
    request_, append
):
    _, expected = await undisturbed(request_)
    world = World(model=MemoryModel(SCRIPT))
    assert await die_at(world, request_, append) is True
    [journal] = world.journal.steps.values()
    replies, tools, result_there = (
        sum(step.kind == kind for step in journal) for kind in (LLM, TOOLS, RESULT)
    )
    world.model = scripted(replies)
    world.cluster.calls.clear()
    result = await world.analyse(request_, "run-2")
    assert expected.model_dump_json() == result.model_dump_json()
    assert world.model.calls == (0 if result_there else len(SCRIPT) - replies)
    logs_read = [call for call in world.cluster.calls if call.method == "logs"]
    diagnosed = not result_there and isinstance(request_, RecoveryRequest)  # rules read it for the diagnosis
    assert len(logs_read) == (not tools) + diagnosed  # by the model's own call; the first look is journaled
    assert len([s for s in journal if s.kind == RESULT]) == 1


async def test_the_first_look_is_not_taken_again():
    world = World(model=MemoryModel(SCRIPT))
    await die_at(world, incident(), 1)
    world.cluster = MemoryCluster()  # nothing is left of what the first run saw
    world.model = MemoryModel([says("-"), final(answer())])
    await world.analyse(run="run-2")
    assert "api-7d9-x2x" in world.model.requests[0].turns[0].text


@pytest.mark.parametrize("dies", range(1, 17))
async def test_any_number_of_deaths_costs_no_more_than_the_outstanding_calls(dies):
    """Each run dies one append further than the one before, some before and some after the append."""
    _, expected = await undisturbed(incident())
    world, asked, paid_for_nothing = World(), 0, 0
    for number in range(1, 40):
        before = (number + dies) % 3 == 0
        world.model = scripted(len(steps(world, LLM)) if world.journal.steps else 0)
        there = len(steps(world, LLM)) if world.journal.steps else 0
        died = await die_at(world, incident(), 2 if before else 1, before=before, name=f"run-{number}")
        asked += world.model.calls
        paid_for_nothing += world.model.calls - (len(steps(world, LLM)) - there)
        if not died:
            break
    world.model = scripted(len(steps(world, LLM)))
    result = await world.analyse(run="last")
    asked += world.model.calls
    assert expected.model_dump_json() == result.model_dump_json()
    assert len(SCRIPT) + paid_for_nothing == asked


async def test_the_successor_says_to_the_model_exactly_what_would_have_been_said():
    whole, _ = await undisturbed(incident())
    for replies in range(1, len(SCRIPT)):
        world = World(model=MemoryModel(SCRIPT))
        appends = {1: 3, 2: 6, 3: 9, 4: 11, 5: 13}[replies]
        await die_at(world, incident(), appends)
        world.model = scripted(replies)
        await world.analyse(run="run-2")
        assert whole.model.requests[replies:] == world.model.requests


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("append", range(1, 17))
async def test_every_event_is_in_the_journal_before_it_is_published_and_none_is_lost_or_told_twice(
    append, before
):
    whole, _ = await undisturbed(incident())
    world = World(model=MemoryModel(SCRIPT))
    await die_at(world, incident(), append, before=before)
    finished = steps(world, RESULT)
    world.model = scripted(len(steps(world, LLM)))
    await world.analyse(run="run-2")
    kept = [record.body for step in world.journal.steps["rr-1"] for record in step.events]
    assert kept == list(world.events.bodies.values())
    assert list(range(1, len(kept) + 1)) == [e.sequence for e in world.events.audits]
    told = event_types(world)
    assert told.count("request.resumed") == (0 if finished else 1)
    told = [kind for kind in told if kind != "request.resumed"]
    if told != event_types(whole):  # the call that was outstanding is made again, and told again
        told.remove("llm.request")
    assert sorted(event_types(whole)) == sorted(told)
    assert len(whole.events.rejections) == len(world.events.rejections)


async def test_events_cost_no_step_of_their_own():
    world, _ = await undisturbed(incident())
    told = {step.kind: len(step.events) for step in world.journal.steps["rr-1"]}
    assert {BEGIN, OPENING, CLAIM, LLM, TOOLS, RESULT} == set(told)
    assert len(world.events.audits) > len(world.journal.steps["rr-1"])


class Forgetful:
    """Events of a process that dies between a step and the publishing of its events."""

    def __init__(self, events, dies_at):
        self.events, self.left = events, dies_at

    def __getattr__(self, name):
        return getattr(self.events, name)

    async def audit(self, record):
        self.left -= 1
        if self.left < 0:
            raise Killed
        await self.events.audit(record)


@pytest.mark.parametrize("published", range(22))
async def test_events_that_a_dead_run_kept_and_did_not_publish_are_published_as_they_are(published):
    world, events = World(model=MemoryModel(SCRIPT)), MemoryEvents()
    world.events = Forgetful(events, published)
    with pytest.raises(Killed):
        await world.analyse()
    assert published == len(events.audits)
    world.events = events
    world.clock.advance(100.0)
    world.model = scripted(len(steps(world, LLM)))
    await world.analyse(run="run-2")
    kept = [record.body for step in world.journal.steps["rr-1"] for record in step.events]
    assert kept == list(events.bodies.values())


async def test_a_refused_answer_is_not_judged_again_after_the_model_was_told():
    world = World(model=MemoryModel([final(WRONG), final(answer())]))
    await die_at(world, incident(), 4)  # after the claim of the second call
    world.catalog = MemoryCatalog([workflow(), rollback(), workflow("no-such-workflow")])
    world.model = MemoryModel([final(answer())])
    result = await world.analyse(run="run-2")
    assert [(False, "no-such-workflow"), (True, "restart-v1")] == [
        (a.is_valid, a.workflow_id) for a in result.validation_attempts
    ]


async def test_a_successor_with_another_clock_takes_the_way_of_the_journal():
    """The time was nearly up in the first run: its successor, whose clock starts anew, must see it the same way."""
    limits = Limits(wall_seconds=100.0)
    said = [calls(LOOK), calls(LOOK), says("no answer"), final(answer())]

    def slow(clock):
        def script(_, number):
            clock.advance(42.0 if number <= 2 else 1.0)
            return said[number - 1]

        return script

    async def run(dies_at):
        clock = FixedClock()
        world = World(model=MemoryModel(slow(clock)), clock=clock, rules=Rules(limits=limits))
        if not dies_at:
            return world, await world.analyse()
        await die_at(world, incident(), dies_at)
        replies = len(steps(world, LLM))
        script = slow(clock)
        world.model = MemoryModel(lambda request, number: script(request, number + replies))
        return world, await world.analyse(run="run-2")

    whole, expected = await run(None)
    assert [True, True, False, False] == [r.tools_allowed for r in whole.model.requests]
    assert expected.usage.wall_seconds == 86.0
    for append in range(1, 10):
        world, result = await run(append)
        assert expected.usage == result.usage
        assert [a.errors for a in expected.validation_attempts] == [
            a.errors for a in result.validation_attempts
        ]
        assert len(steps(world, TOOLS)) == len(steps(whole, TOOLS))


async def test_a_call_that_asked_for_tools_too_late_is_a_failed_attempt_in_every_run():
    limits = Limits(llm_calls=5, attempts=3)
    said = [calls(LOOK), calls(CONTEXT), calls(LOGS_CALL), final(answer())]
    world = World(model=MemoryModel(said), rules=Rules(limits=limits))
    expected = await world.analyse()
    assert [False, True] == [a.is_valid for a in expected.validation_attempts]
    for append in range(1, 12):
        world = World(model=MemoryModel(said), rules=Rules(limits=limits))
        await die_at(world, incident(), append)
        world.model = MemoryModel(said[len(steps(world, LLM)) :])
        result = await world.analyse(run="run-2")
        assert expected.model_dump_json() == result.model_dump_json()


async def test_a_run_that_was_replaced_finds_out_before_it_spends():
    world = World(model=MemoryModel(SCRIPT))
    request = incident()
    stale = await world.open(request, "stale")
    await world.open(request, "newer")
    with pytest.raises(LostClaim):
        await world.analysis().run(stale)
    assert world.model.calls == 0


async def test_a_run_that_is_replaced_in_the_middle_of_a_call_stops_before_the_next():
    request = incident()
    world = World()
    said = list(SCRIPT)

    def script(_, number):
        if number == 2:
            steps_ = world.journal.steps["rr-1"]
            steps_.append(replace(steps_[-1], number=len(steps_) + 1, kind=BEGIN, run="newer", data=b""))
        return said[number - 1]

    world.model = MemoryModel(script)
    with pytest.raises(LostClaim):
        await world.analyse(request)
    assert world.model.calls == 2
    assert world.events.results == {}


async def test_a_journal_that_is_down_stops_the_run_before_it_spends():
    world, request = World(), incident()
    run = await world.open(request)
    world.journal.down = True
    with pytest.raises(Unavailable):
        await world.analysis().run(run)
    assert world.model.calls == 0


async def test_a_claim_without_its_reply_is_asked_again_once():
    world = World.saying(calls(LOOK), Retry(RetryReason.MODEL_UNAVAILABLE, "busy"), final(answer()))
    world.rules = Rules(tries=TryRule(patience_seconds=0))
    with pytest.raises(Retry):
        await world.analyse()
    assert [CLAIM, LLM, TOOLS, CLAIM, TRIED] == [s.kind for s in world.journal.steps["rr-1"][2:]]
    world.model = MemoryModel([final(answer())])
    result = await world.analyse(run="run-2")
    assert (1, 2) == (world.model.calls, result.usage.llm_calls)


@pytest.mark.parametrize("kind", [OPENING, LLM, TOOLS, RESULT])
@pytest.mark.parametrize("garbage", [b"", b"{}", b"\xff\xfe", b'{"reply": 1}', b"null"])
async def test_a_step_that_cannot_be_read_is_a_gap_and_not_asked_for_again(kind, garbage):
    world = World(model=MemoryModel([calls(LOOK), final(answer())]))
    await world.analyse()
    journal = world.journal.steps["rr-1"]
    world.journal.steps["rr-1"] = [replace(s, data=garbage) if s.kind == kind else s for s in journal]
    if kind != RESULT:
        world.journal.steps["rr-1"].pop()
    world.model = MemoryModel([final(answer())])
    with pytest.raises(JournalGap):
        await world.analyse(run="run-2")
    assert world.model.calls == 0


async def test_text_of_every_kind_survives_the_journal():
    odd = "NUL \x00, BOM \ufeff, bidi \u202e, emoji \U0001f525, quotes \"'`, \\u0041, line\u2028separator"
    arguments = {"kind": odd, "name": odd, "n": 1.5, "deep": {"a": [None, True, odd]}}
    said = [calls(("get_resource", arguments), text=odd), says(odd), final(answer(), prose=odd)]
    world = World(model=MemoryModel(said))
    expected = await world.analyse()
    again = World(model=MemoryModel(said))
    await die_at(again, incident(), 7)
    again.model = MemoryModel(said[2:])
    result = await again.analyse(run="run-2")
    assert expected.model_dump_json() == result.model_dump_json()
    assert world.model.requests[2:] == again.model.requests


async def test_evidence_of_a_successor_has_the_numbers_of_the_run_before():
    world = World(
        cluster=MemoryCluster([*shop(), planted_note("plain text")], LOGS),
        model=MemoryModel([calls(LOOK), calls(LOGS_CALL), final(answer())]),
    )
    await die_at(world, incident(), 4)  # after the tools of the first reply
    world.model = MemoryModel([calls(LOGS_CALL), final(answer())])
    result = await world.analyse(run="run-2")
    ids = [item.id for item in result.evidence]
    assert [f"E{number}" for number in range(1, len(ids) + 1)] == ids
    asked = [item.source for item in result.evidence if item.source != "corroboration"]
    assert ["get_resource", "get_pod_logs"] == asked[-2:]
