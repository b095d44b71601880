"""What a page draws over time, and which lines of evidence it marks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas import audit
from schemas.analysis import ReportedSignal
from schemas.evidence import EvidenceItem
from schemas.failure import DeadLetterReason
from schemas.usage import Usage
from tests.fakes.audit_chains import accepted, chain, complete, failed
from tests.fakes.manifests import deployment, replica_set
from tests.fakes.messages import review_result
from worker.app.pages.incident import SOURCES, axis, in_the_cluster, in_the_investigation, incident_page
from worker.app.telling import Line, lines
from worker.domain.cluster.changes import describe_changes
from worker.domain.cluster.events import Happening
from worker.domain.values.objects import ObjectRef

EVENTS = """2026-03-17T02:46:18Z Normal Killing Pod shop/api-1: Stopping container api
2026-03-17T03:10:55Z Warning BackOff x88 (since 2026-03-17T02:47:40Z) Pod shop/api-2: Back-off restarting"""
CHANGES = "revision 7 (created 2026-03-17T02:46:29Z, ReplicaSet api-65b, 0/1 ready) changed:"
PODS = """NAME | READY | REASON
api-2 | 0/1 | api: waiting CrashLoopBackOff, last ended OOMKilled exit 137 at 2026-03-17T03:07:33Z | node-1"""


def at(hour, minute, second):
    return datetime(2026, 3, 17, hour, minute, second, tzinfo=UTC)


def item(source, excerpt):
    return EvidenceItem(id="E1", source=source, summary="s", excerpt=excerpt)


def test_events_revisions_and_restarts_are_rows_in_the_order_of_time():
    found = in_the_cluster(
        [
            item("enrichment:pods", PODS),
            item("enrichment:changes", CHANGES),
            item("get_events", EVENTS),
            item("get_events", EVENTS),
        ]
    )
    assert [
        (at(2, 46, 18), at(2, 46, 18), "", "Killing Pod shop/api-1: Stopping container api"),
        (at(2, 46, 29), at(2, 46, 29), "calm", "revision 7 (ReplicaSet api-65b)"),
        (at(2, 47, 40), at(3, 10, 55), "warn", "BackOff x88 Pod shop/api-2: Back-off restarting"),
        (at(3, 7, 33), at(3, 7, 33), "bad", "container api of api-2 ended: OOMKilled exit 137"),
    ] == [(row.at, row.until, row.tone, row.text) for row in found]


@pytest.mark.parametrize(
    ("received", "evidence", "texts"),
    [
        (
            at(3, 5, 0),
            PODS,
            ["alert PodDown, Pod shop/api-2", "container api of api-2 ended: OOMKilled exit 137"],
        ),
        (
            at(3, 9, 0),
            PODS,
            ["container api of api-2 ended: OOMKilled exit 137", "alert PodDown, Pod shop/api-2"],
        ),
        (datetime.max.replace(tzinfo=UTC), PODS, ["container api of api-2 ended: OOMKilled exit 137"]),
        (at(3, 9, 0), "", []),
    ],
)
def test_the_signal_is_a_row_between_what_happened_around_it(received, evidence, texts):
    signal = ReportedSignal(
        signal_type="PodDown", severity="high", resource_kind="Pod", resource_name="api-2", resource_namespace="shop",
        received_time=received,
    )  # fmt: skip
    result = review_result("rr-1", signal=signal, evidence=(item("enrichment:pods", evidence),))
    assert texts == [row.text for row in incident_page("rr-1", result).cluster]


@pytest.mark.parametrize("first", [at(2, 47, 40), at(2, 47, 40) - timedelta(days=1)])
def test_a_repeated_event_lasts_from_its_first_to_its_last_time(first):
    told = Happening(
        first, at(3, 10, 55), 88, "Warning", "BackOff", ObjectRef("Pod", "api-2", "shop"), "again"
    )
    [row] = in_the_cluster([item("get_events", told.line())])
    assert (first, at(3, 10, 55), "BackOff x88 Pod shop/api-2: again") == (row.at, row.until, row.text)


def test_revisions_are_drawn_when_they_were_created():
    api = deployment("api")
    old, new = replica_set(api, "a", 1, image="api:1"), replica_set(api, "b", 2, image="api:2")
    old["spec"]["replicas"] = 0
    rows = in_the_cluster([item("enrichment:changes", "\n".join(describe_changes([old, new])))])
    assert [
        (datetime(2026, 6, 1, 10, tzinfo=UTC), "revision 1"),
        (datetime(2026, 6, 2, 10, tzinfo=UTC), "revision 2 (ReplicaSet api-b)"),
    ] == [(row.at, row.text) for row in rows]


@pytest.mark.parametrize("source", ["enrichment:logs", "get_pod_logs", "tickets_search"])
def test_logs_and_external_tools_tell_nothing_about_the_cluster(source):
    assert [] == in_the_cluster([item(source, f"{EVENTS}\n{CHANGES}\n{PODS}")])


@pytest.mark.parametrize("time", ["2026-99-99T99:99:99Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_what_has_no_time_that_can_be_drawn_is_left_out(time):
    told = f"{time} Normal Killing Pod shop/api-1: Stopping container api"
    assert [] == in_the_cluster(
        [item("get_events", told), item("enrichment:changes", f"revision 1 (created {time}, ReplicaSet a)")]
    )


def test_an_annotation_is_no_rollout():
    assert [] == in_the_cluster([item("list_resources", f'{{"annotations":{{"note":"{CHANGES}"}}}}')])


@pytest.mark.parametrize("unit", ["a", "a: ", "a: last ended ", "a: last ended a at ", "a | "])
def test_a_line_that_is_made_to_be_searched_for_long_is_read_at_once(unit):
    assert [] == in_the_cluster([item("enrichment:pods", "a | " + unit * 16_000)])


def test_a_line_that_names_no_container_is_no_restart():
    assert [] == in_the_cluster(
        [item("enrichment:pods", "b c | api: last ended Error exit 1 at 2026-03-17T03:07:33Z")]
    )


@given(st.sampled_from(sorted(SOURCES)), st.text(), st.datetimes(), st.datetimes())
def test_any_evidence_can_be_drawn(source, text, since, time):
    lines = (
        f"{time:%Y-%m-%dT%H:%M:%SZ} Warning {text} (since {since:%Y-%m-%dT%H:%M:%SZ}) {text}",
        f"revision 1 (created {since:%Y-%m-%dT%H:%M:%SZ}, ReplicaSet a)",
        f"a | {text}: last ended {text} at {time:%Y-%m-%dT%H:%M:%SZ}",
    )
    rows = in_the_cluster([item(source, "\n".join(lines))])
    assert not rows or axis(rows)[1] > 0


def test_the_picture_shows_the_last_two_hours_to_scale():
    long = "2026-03-17T03:00:00Z Normal Pulled x9 (since 2026-03-16T23:00:00Z) Pod shop/api-1: pulled"
    rows = in_the_cluster([item("get_events", f"{EVENTS}\n{long}")])
    assert (at(2, 46, 18), (at(3, 10, 55) - at(2, 46, 18)).total_seconds()) == axis(rows)
    alone = rows[:1]
    assert alone[0].until == axis(alone)[0]
    assert axis(alone)[1] > 0


def test_each_call_of_the_model_says_what_it_cost():
    usage = Usage(input_tokens=6_251, output_tokens=253, cost_usd=0.0123)
    reply = audit.LLMResponse(
        call=1,
        model="m",
        finish="stop",
        response_chars=1,
        response_preview="It was killed.",
        usage=usage,
        duration_seconds=2.5,
    )
    free = reply.model_copy(update={"usage": Usage(input_tokens=5)})
    tool = audit.LLMToolCall(index=1, name="get_events", succeeded=False, result_chars=1)
    checks = [audit.ValidationAttempted(attempt=n, max_attempts=3, is_valid=n == 2) for n in (1, 2)]
    rows = in_the_investigation(chain("rr-1", [accepted(), reply, tool, free, *checks, complete("rr-1")]))
    assert ["", "calm", "warn", "calm", "bad", "good", ""] == [row.tone for row in rows]
    assert "6,251 tokens in, 253 out, $0.0123" == rows[1].note
    assert "5 tokens in, 0 out" == rows[3].note
    assert "It was killed." == rows[1].said
    assert timedelta(seconds=2.5) == rows[1].until - rows[1].at
    assert [False, False, True] == [row.nested for row in rows[:3]]
    [*_, dead] = in_the_investigation(chain("rr-1", [accepted(), failed("rr-1")]))
    assert ("bad", f"dead letter: {DeadLetterReason.INTERNAL_ERROR}") == (dead.tone, dead.text)


@given(
    st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    st.datetimes(max_value=datetime(9999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
)
@example(1e300, datetime.min.replace(tzinfo=UTC))
def test_any_steps_can_be_drawn(seconds, start):
    tool = audit.LLMToolCall(
        index=1, name="get_events", succeeded=True, result_chars=1, duration_seconds=seconds
    )
    rows = in_the_investigation(chain("rr-1", [accepted(), tool, complete("rr-1")], start=start))
    assert 3 == len(rows)
    assert axis(rows)[1] > 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  spec.image: a:1 -> a:2", Line("  spec.image: ", old="a:1", new="a:2")),
        ('{"a": "x -> y"}', Line('{"a": "x -> y"}')),
        ("level=error msg=failed", Line("level=error msg=failed", "bad")),
        ("level=info msg=restoring done=62%", Line("level=info msg=restoring done=62%", "quoted")),
        ("level=info", Line("level=info")),
    ],
)
def test_lines_that_matter_are_marked(text, line):
    assert [line] == list(lines(text, "the log ends with: level=info msg=restoring done=62%"))
