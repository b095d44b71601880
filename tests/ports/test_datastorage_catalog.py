"""The catalog of a DataStorage on loopback: how it is asked, what is believed of its answers, and what when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from dataclasses import replace

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from schemas.taxonomy import Severity
from tests.fakes import datastorage
from tests.fakes.datastorage_catalog import record_of
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.memory_catalog import workflow
from tests.fakes.memory_embedder import MemoryEmbedder
from tests.waiting import until
from worker.adapters.datastorage.records import BadRecordError, read_playbook, read_workflow
from worker.domain.catalog.selection import signal_types_of
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflow_search import SearchQuery
from worker.domain.values.workflows import ActionText, Parameter, ParameterType, SelectionContext

RESTART = workflow()
SCALE = workflow("scale-v1", "ScaleReplicas")
ANYTHING = SelectionContext()
INCIDENT = SelectionContext(
    environment="Production",
    priority="p1",
    severity="error",
    signal_type="CrashLoopBackOff",
    components=(("v1", "Pod"), ("apps/v1", "Deployment")),
    detected_labels={
        "gitops_managed": True,
        "gitops_tool": "argocd",
        "stateful": False,
        "pdb_protected": None,
    },
    custom_labels={"team": ("payments",)},
)
LIST, ACTIONS = "/api/v1/workflows", "/api/v1/workflows/actions"
SEARCH = "/api/v1/playbooks/search"


@pytest.fixture
async def storage():
    async with datastorage.serve() as found:
        found.catalog.records = [record_of(RESTART), record_of(SCALE)]
        yield found


@pytest.fixture
def stored(storage):
    return storage.catalog


@pytest.fixture
def clock():
    return FixedClock()


@pytest.fixture
async def catalog(storage, clock):
    async with datastorage.catalog_of(
        f"{storage.url}/", token="t0ken", monotonic=clock.monotonic, sleep=clock.sleep
    ) as opened:
        yield opened


async def offered(catalog, context=ANYTHING):
    """Ids of everything that is listed."""
    found = []
    for action in await catalog.actions(context):
        page = await catalog.workflows(action.action_type, context)
        found += [w.workflow_id for w in page.workflows]
    return found


async def down(catalog, about=ANYTHING):
    with pytest.raises(CatalogUnavailable) as caught:
        await catalog.actions(about)
    return str(caught.value)


def is_away(storage, clock, seconds):
    back = clock.monotonic() + seconds

    async def refuse(request):
        del request
        if clock.monotonic() < back:
            raise web.HTTPServiceUnavailable

    storage.before = refuse


# -- how it is asked


async def test_the_whole_catalog_is_asked_for_in_three_steps_without_filters(catalog, storage, stored):
    stored.texts = {"ScaleReplicas": ActionText("Changes the number\nof replicas.", "Load is too high.")}
    actions = await catalog.actions(ANYTHING)
    assert [ACTIONS, f"{ACTIONS}/RestartWorkload", f"{ACTIONS}/ScaleReplicas"] == stored.paths()[:3]
    assert {f"{LIST}/restart-v1", f"{LIST}/scale-v1"} == set(stored.paths()[3:])
    unfiltered = {"severity": "", "component": "", "environment": "", "priority": ""}
    assert {**unfiltered, "offset": "0", "limit": "100"} == stored.asked[0][1]
    assert {} == stored.asked[-1][1]
    assert ActionText("Changes the number of replicas.", "Load is too high.") == actions[1].text
    assert {"Bearer t0ken"} == {headers["Authorization"] for headers in storage.headers}


async def test_without_a_token_none_is_sent(storage):
    async with datastorage.catalog_of(storage.url) as opened:
        await opened.actions(ANYTHING)
    assert not any("Authorization" in headers for headers in storage.headers)


async def test_the_final_choice_is_asked_for_with_the_filters_of_the_incident(catalog, stored):
    assert RESTART == await catalog.get("restart-v1", INCIDENT)
    path, query = stored.asked[-1]
    assert f"{LIST}/restart-v1" == path
    assert {"severity": "high", "environment": "Production", "priority": "P1"} == {
        name: value for name, value in query.items() if not name.endswith("labels")
    }
    assert {"team": ["payments"]} == json.loads(query["custom_labels"])
    assert {"gitOpsManaged": True, "gitOpsTool": "argocd"} == json.loads(query["detected_labels"])


async def test_what_constrains_nothing_is_no_filter(catalog, stored):
    stored.strict = True
    context = SelectionContext(environment="unknown", priority="urgent", severity="unknown")
    assert RESTART == await catalog.get("restart-v1", context)
    assert {} == stored.asked[-1][1]


async def test_many_workflows_come_in_pages(catalog, stored):
    stored.records = [record_of(workflow(f"restart-{n:03}")) for n in range(230)]
    [action] = await catalog.actions(ANYTHING)
    assert 230 == action.workflow_count
    assert ["0", "100", "200"] == [q["offset"] for p, q in stored.asked if p == f"{ACTIONS}/RestartWorkload"]
    seen, cursor = [], ""
    while page := await catalog.workflows("RestartWorkload", ANYTHING, cursor):
        seen += [w.workflow_id for w in page.workflows]
        if not (cursor := page.next_cursor):
            break
    assert 230 == len(set(seen))


async def test_ids_that_nobody_listed_are_not_asked_for(catalog, stored):
    await catalog.actions(ANYTHING)
    before = len(stored.asked)
    for odd in ("..", "../../api/v1/audit", "actions", "restart-v1/x?y=z", "", "x" * 5000):
        assert None is await catalog.get(odd, INCIDENT)
    assert before == len(stored.asked)


async def test_odd_names_stay_within_their_segment(catalog, stored):
    odd = workflow("a/../b?c#d", "..")
    stored.records = [record_of(odd)]
    assert ["a/../b?c#d"] == await offered(catalog)
    assert odd == await catalog.get("a/../b?c#d", ANYTHING)
    assert LIST not in stored.paths()


# -- a server that insists on filters


async def test_a_server_that_insists_on_filters_is_asked_for_its_list(catalog, stored):
    stored.strict = True
    stored.records = [record_of(workflow(f"restart-{n:02}")) for n in range(60)]
    [action] = await catalog.actions(ANYTHING)
    assert 60 == action.workflow_count
    assert [ACTIONS, LIST, LIST, LIST] == stored.paths()
    assert (await catalog.get("restart-07", INCIDENT)).workflow_id == "restart-07"


async def test_a_server_with_other_severities_is_asked_without_filters(catalog, stored):
    def other_words(request):
        return web.json_response({}, status=400) if request.query.get("severity") == "medium" else None

    stored.override = other_words
    stored.records = [record_of(workflow(labels={**RESTART.labels, "severity": ("warning",)}))]
    context = replace(INCIDENT, severity="medium")
    assert (await catalog.get("restart-v1", context)).workflow_id == "restart-v1"
    assert {} == stored.asked[-1][1]


# -- what is believed


async def test_a_server_that_ignores_labels_gets_nothing_through(catalog, stored):
    def anything(request):
        name = request.match_info.get("workflow_id")
        return name and web.json_response(next(r for r in stored.records if r["workflowId"] == name))

    stored.override = anything
    staging = workflow("staging-v1", labels={**RESTART.labels, "environment": ("staging",)})
    stored.records.append(record_of(staging))
    assert ["restart-v1", "scale-v1"] == await offered(catalog, INCIDENT)
    assert None is await catalog.get("staging-v1", INCIDENT)
    page = await catalog.search(SearchQuery("CrashLoopBackOff", Severity.HIGH), INCIDENT)
    assert {"restart-v1", "scale-v1"} == {m.workflow.workflow_id for m in page.matches}
    assert {"environment": 1} == page.excluded


async def test_a_record_that_changes_its_labels_after_it_was_listed_is_gated_again(catalog, stored):
    assert ["restart-v1", "scale-v1"] == await offered(catalog, INCIDENT)
    liar = record_of(workflow(labels={**RESTART.labels, "environment": ("staging",)}))
    stored.override = lambda request: web.json_response(liar) if "workflow_id" in request.match_info else None
    assert None is await catalog.get("restart-v1", INCIDENT)


@pytest.mark.parametrize(
    "answer",
    [
        record_of(workflow("another-v1")),
        record_of(RESTART, status="Disabled"),
        record_of(RESTART, labels={"severity": ["*"]}),
        record_of(RESTART, parameters="none"),
        {},
        [],
        None,
    ],
    ids=["other id", "disabled", "no labels", "odd parameters", "empty", "list", "null"],
)
async def test_a_final_choice_that_cannot_be_used_is_none(catalog, stored, answer):
    await catalog.actions(ANYTHING)
    stored.override = lambda request: (
        web.json_response(answer) if request.path == f"{LIST}/restart-v1" else None
    )
    assert None is await catalog.get("restart-v1", INCIDENT)
    assert SCALE == await catalog.get("scale-v1", INCIDENT)


async def test_the_server_has_its_say_on_the_final_choice(catalog, stored):
    assert RESTART == await catalog.get("restart-v1", INCIDENT)
    stored.override = lambda request: (
        web.json_response({}, status=404)
        if "severity" in request.query and "workflow_id" in request.match_info
        else None
    )
    assert None is await catalog.get("restart-v1", INCIDENT)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"workflowId": "x" * 200}, "workflow_id"),
        ({"actionType": None}, "action_type"),
        ({"actionType": "ScaleReplicas"}, "listed under RestartWorkload"),
        ({"labels": {"severity": ["*"], "component": ["*"], "environment": []}}, "environment is missing"),
        ({"labels": None}, "labels"),
        ({"labels": {**RESTART.labels, "severity": ["sev1"]}}, "labels.severity: sev1 is not a severity"),
        ({"detectedLabels": {"gitOpsTool": ["argocd"]}}, "detected_labels.gitOpsTool"),
        ({"detectedLabels": "argocd"}, "detected_labels"),
        ({"labels": {**RESTART.labels, "signalName": [{}]}}, "labels.signalName"),
        ({"parameters": {"schema": {"parameters": "all"}}}, "parameters"),
        ({"parameters": {"schema": "all"}}, "parameters"),
        (
            {"parameters": {"schema": {"parameters": [{"name": "A", "pattern": "(?=x)"}]}}},
            "regular expression",
        ),
        ({"parameters": {"schema": {"parameters": [{"name": "A"}, {"name": "A"}]}}}, "declared twice"),
        ({"parameters": {"schema": {"parameters": [{"name": "A", "type": "secret"}]}}}, "type"),
        ({"description": {"what": 7}}, "description"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_bad_record_is_left_out_and_told(catalog, stored, changes, why):
    stored.override = lambda request: (
        web.json_response(record_of(RESTART, **changes)) if request.path == f"{LIST}/restart-v1" else None
    )
    assert ["scale-v1"] == await offered(catalog)
    assert catalog.problem.startswith("1 records of the catalog are left out: restart-v1: ")
    assert why in catalog.problem


async def test_a_record_without_an_id_is_left_out(catalog, stored):
    stored.strict = True
    stored.records = [record_of(RESTART, workflowId=["restart-v1"]), record_of(SCALE), 7]
    assert ["scale-v1"] == await offered(catalog)
    assert "2 records" in catalog.problem


async def test_an_id_that_is_no_text_is_no_workflow(catalog, stored):
    stored.override = lambda request: (
        web.Response(text='{"workflows": [{"workflowId": "\\ud800"}]}')
        if request.path == f"{ACTIONS}/RestartWorkload"
        else None
    )
    assert ["scale-v1"] == await offered(catalog)


async def test_nothing_that_can_be_used_is_no_empty_catalog(catalog, stored):
    stored.strict = True
    stored.records = [{"id": "restart-v1"}, {"id": "scale-v1"}]
    assert "no record of its answer can be used" in await down(catalog)


async def test_an_empty_catalog_is_told(catalog, stored):
    stored.records = []
    assert () == tuple(await catalog.actions(ANYTHING))
    assert "the catalog has no workflows" == catalog.problem


async def test_what_is_not_active_is_not_offered(catalog, stored):
    stored.strict = True
    states = ("active", "Disabled", "Deprecated", "Archived", "Superseded")
    stored.records = [record_of(workflow(f"{state}-v1"), status=state) for state in states]
    assert ["active-v1"] == await offered(catalog)
    assert "" == catalog.problem


async def test_a_workflow_that_is_gone_before_it_is_read_is_not_offered(catalog, stored):
    stored.override = lambda request: (
        web.json_response({}, status=404) if request.path == f"{LIST}/restart-v1" else None
    )
    assert ["scale-v1"] == await offered(catalog)
    assert "" == catalog.problem


@pytest.mark.parametrize(
    "body", ["404 page not found\n", "<html>404 Not Found</html>", "", '"gone"', "[" * 100_000]
)
async def test_a_404_that_is_not_of_the_api_is_an_outage(catalog, stored, body):
    await catalog.actions(ANYTHING)
    stored.override = lambda request: web.Response(status=404, text=body)
    with pytest.raises(CatalogUnavailable):
        await catalog.get("restart-v1", INCIDENT)
    assert "it answered 404" in catalog.problem


async def test_a_catalog_that_has_nothing_of_what_it_lists_is_an_outage(catalog, stored):
    stored.override = lambda request: (
        web.json_response({"title": "Not Found"}, status=404) if "workflow_id" in request.match_info else None
    )
    assert "lists 2 workflows and returned no record for any of them" in await down(catalog)


def test_older_spellings_are_read():
    record = {
        "workflow_id": "restart-v1",
        "workflow_name": "restart",
        "version": 1.2,
        "action_type": "RestartWorkload",
        "description": "Restarts it.",
        "labels": {
            "signal_type": "OOMKilled",
            "severity": "*",
            "component": "Pod",
            "environment": "*",
            "priority": "*",
        },
        "detected_labels": {"gitops_managed": True, "helm_managed": False, "service_mesh": ""},
        "parameters": [{"name": "WAIT", "type": "int", "required": True}],
        "container_image": "registry.example.com/restart@sha256:00ff",
    }
    found = read_workflow(record)
    assert ("restart-v1", "1.2", "Restarts it.") == (found.workflow_id, found.version, found.description)
    assert {"gitops_managed": True} == found.detected_labels
    assert (Parameter("WAIT", ParameterType.INTEGER, required=True),) == found.parameters
    assert "registry.example.com/restart@sha256:00ff" == found.container_image


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*record_of(RESTART), "playbook_id"]), JSON), st.booleans())
def test_a_record_may_hold_anything(changes, as_playbook):
    record = {**record_of(RESTART, playbook_id="restart-v1"), **changes}
    with contextlib.suppress(BadRecordError):
        found = read_playbook(record) if as_playbook else read_workflow(record)
        assert found is None or found.workflow_id


# -- how long it is believed


async def test_workflows_are_read_once_for_a_while(catalog, stored, clock):
    await offered(catalog)
    asked = len(stored.asked)
    clock.advance(29)
    await offered(catalog, INCIDENT)
    await catalog.search(SearchQuery("CrashLoopBackOff", Severity.HIGH), INCIDENT)
    assert asked == len(stored.asked)
    stored.records.pop()
    clock.advance(2)
    assert ["restart-v1"] == await offered(catalog)


async def test_the_time_that_reading_takes_counts(catalog, storage, stored, clock):
    async def slow(request):
        clock.advance(10 if request.path == ACTIONS else 0)

    storage.before = slow
    await offered(catalog)
    clock.advance(21)
    await offered(catalog)
    assert 2 == stored.paths().count(ACTIONS)


async def test_what_has_expired_is_never_used(catalog, storage, clock):
    await offered(catalog)
    clock.advance(31)
    is_away(storage, clock, 600)
    assert "503" in await down(catalog)
    with pytest.raises(CatalogUnavailable):
        await catalog.get("restart-v1", INCIDENT)
    with pytest.raises(CatalogUnavailable):
        await catalog.search(SearchQuery("CrashLoopBackOff", Severity.HIGH), INCIDENT)


async def test_who_asks_at_the_same_time_shares_one_look(catalog, stored):
    await asyncio.gather(*(catalog.actions(ANYTHING) for _ in range(8)))
    assert 1 == stored.paths().count(ACTIONS)


async def test_lists_that_are_fresh_are_given_while_the_server_is_away(catalog, storage, clock):
    await offered(catalog)
    is_away(storage, clock, 600)
    for _ in range(4):
        with pytest.raises(CatalogUnavailable):
            await catalog.get("restart-v1", INCIDENT)
    assert ["restart-v1", "scale-v1"] == await offered(catalog)


# -- when it fails


async def test_a_failure_names_the_server_and_the_reason(catalog, storage):
    storage.answers = [401]
    told = f"DataStorage at {storage.url}: it answered 401: it does not accept the token"
    assert told == await down(catalog)
    assert told == catalog.problem
    await offered(catalog)
    assert "" == catalog.problem


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_what_may_pass_is_tried_again_once(catalog, storage, status):
    storage.answers = [status]
    assert ["restart-v1", "scale-v1"] == await offered(catalog)


async def test_a_short_wait_that_the_server_asks_for_is_kept(catalog, storage, clock):
    storage.answers = [web.Response(status=429, headers={"Retry-After": "2"})]
    before = clock.monotonic()
    await offered(catalog)
    assert 2.0 == clock.monotonic() - before


@pytest.mark.parametrize("after", ["40", "Thu, 04 Jun 2026 15:34:40 GMT"], ids=["seconds", "date"])
async def test_a_long_wait_that_the_server_asks_for_is_kept_without_waiting(catalog, storage, clock, after):
    headers = {"Retry-After": after, "Date": "Thu, 04 Jun 2026 15:34:00 GMT"}
    storage.answers = [web.Response(status=429, headers=headers)]
    assert "429" in await down(catalog)
    assert "paused after repeated failures" in await down(catalog)
    assert 1 == len(storage.requests)
    clock.advance(41)
    assert ["restart-v1", "scale-v1"] == await offered(catalog)


async def test_a_server_cannot_have_itself_left_alone_for_ever(catalog, storage, clock):
    storage.answers = [web.Response(status=503, headers={"Retry-After": "9999999"})]
    await down(catalog)
    clock.advance(301)
    assert ["restart-v1", "scale-v1"] == await offered(catalog)


async def test_after_three_failures_it_is_left_alone_for_a_while(catalog, storage, clock):
    storage.answers = [403] * 3
    for _ in range(5):
        await down(catalog)
    assert 3 == len(storage.requests)
    assert "paused after repeated failures (it answered 403" in catalog.problem
    clock.advance(31)
    assert ["restart-v1", "scale-v1"] == await offered(catalog)


async def test_a_server_that_is_away_for_a_moment_is_waited_for(catalog, storage, clock):
    await offered(catalog)
    is_away(storage, clock, 10)
    assert RESTART == await catalog.get("restart-v1", INCIDENT)
    clock.advance(31)
    is_away(storage, clock, 10)
    assert ["restart-v1", "scale-v1"] == await offered(catalog)
    assert "" == catalog.problem


async def test_a_server_that_is_away_for_long_is_waited_for_once(catalog, storage, clock):
    await offered(catalog)
    clock.advance(31)
    is_away(storage, clock, 600)
    began = clock.monotonic()
    assert "503" in await down(catalog)
    gave_up = clock.monotonic()
    assert 10 < gave_up - began < 20
    assert "503" in await down(catalog)
    assert clock.monotonic() - gave_up < 1


async def test_a_server_that_is_away_at_the_start_is_used_soon_after_it_has_come_back(
    catalog, storage, clock
):
    is_away(storage, clock, 12)
    for _ in range(3):
        assert "503" in await down(catalog)
        clock.advance(5)
    clock.advance(5)
    assert ["restart-v1", "scale-v1"] == await offered(catalog)


async def test_a_server_that_hangs_ends_with_the_deadline(storage):
    storage.answers = [None] * 4
    async with datastorage.catalog_of(storage.url, call_seconds=0.3) as catalog:
        assert f"DataStorage at {storage.url}: no answer within 0.3 s" == await down(catalog)


async def test_a_server_that_is_slow_every_time_ends_with_the_same_deadline(storage, stored):
    """Each answer comes in time, all of them together do not."""
    stored.records = [record_of(workflow(f"restart-{n:03}")) for n in range(200)]

    async def slow(_):
        await asyncio.sleep(0.05)

    async with datastorage.catalog_of(storage.url, call_seconds=0.4) as catalog:
        storage.before = slow
        assert "no answer within 0.4 s" in await down(catalog)
    assert len(storage.requests) < 100


async def test_a_server_that_is_not_there_is_unavailable():
    async with datastorage.catalog_of("http://127.0.0.1:9") as catalog:
        told = "DataStorage at http://127.0.0.1:9: it cannot be reached (Connection refused)"
        assert told == await down(catalog)


async def test_an_address_with_an_impossible_port_is_unavailable():
    async with datastorage.catalog_of("http://127.0.0.1:99999") as catalog:
        assert "DataStorage at http://127.0.0.1:99999: it cannot be reached" in await down(catalog)


@pytest.mark.parametrize(
    "answer",
    [b"", b"\0\xff no http\r\n\r\n", b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"actionTypes": [{"ac'],
    ids=["nothing", "garbage", "half"],
)
async def test_an_answer_that_breaks_off_is_told_apart_from_a_server_that_is_not_there(answer):
    async def answering(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(answering, "127.0.0.1", 0)
    async with (
        server,
        datastorage.catalog_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as catalog,
    ):
        assert "it closed the connection (" in await down(catalog)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b" " * (3 << 20), "too long"),
        (b"<html>", "not JSON"),
        (b'{"actionTypes": [' + b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{}", "not a list of actionTypes"),
        (b"[]", "not a list of actionTypes"),
        (b'{"actionTypes": {}}', "not a list of actionTypes"),
    ],
    ids=["huge", "html", "deep", "bytes", "empty", "list", "mapping"],
)
async def test_an_answer_of_another_shape_is_a_failure(catalog, storage, body, said):
    storage.answers = [web.Response(body=body)]
    assert said in await down(catalog)


async def test_packed_answers_are_neither_asked_for_nor_unpacked(catalog, storage):
    packed = gzip.compress(b'{"actionTypes": []}')
    storage.answers = [web.Response(body=packed, headers={"Content-Encoding": "gzip"})]
    assert "not JSON" in await down(catalog)
    assert "identity" == storage.headers[0]["Accept-Encoding"]


async def test_all_answers_of_one_look_are_bounded_together(catalog, stored):
    stored.records = [record_of(workflow(f"restart-{n:03}"), content="x" * 1_500_000) for n in range(30)]
    assert "the answers are too long" in await down(catalog)


@pytest.mark.parametrize("fresh", [False, True], ids=["the same", "new ones"])
async def test_pages_without_an_end_are_a_failure(catalog, stored, fresh):
    def endless(request):
        start = int(request.query.get("offset", "0")) if fresh else 0
        entries = [{"actionType": f"Action{start + n}", "description": {}} for n in range(10)]
        return web.json_response({"actionTypes": entries, "pagination": {"hasMore": True}})

    stored.override = endless
    assert "more than" in await down(catalog)
    assert len(stored.asked) <= 50


async def test_a_page_that_is_longer_than_asked_for_is_a_failure(catalog, stored):
    entries = [{"actionType": f"Action{n}", "description": {}} for n in range(101)]
    stored.override = lambda request: web.json_response({"actionTypes": entries})
    assert "more than the 100 actionTypes" in await down(catalog)


async def test_a_page_without_entries_is_the_last(catalog, stored):
    stored.override = lambda request: (
        web.json_response({"actionTypes": None, "pagination": {"hasMore": True}})
        if request.path == ACTIONS
        else None
    )
    assert [] == await offered(catalog)


async def test_too_many_workflows_are_a_failure(catalog, stored):
    def many(request):
        start = int(request.query.get("offset", "0"))
        entries = [{"workflowId": f"w-{start + n}"} for n in range(100)]
        if request.path == f"{ACTIONS}/RestartWorkload":
            return web.json_response({"workflows": entries, "pagination": {"hasMore": start < 1_100}})
        return None

    stored.override = many
    assert "more than 1000 workflows" in await down(catalog)


async def test_a_redirect_is_not_followed(catalog, stored):
    async with datastorage.serve() as other:
        stored.override = lambda request: web.Response(
            status=302, headers={"Location": f"{other.url}{request.path}"}
        )
        assert "302: redirects are not followed" in await down(catalog)
        assert [] == other.requests


# -- the older search


def playbook(name, description, confidence=0.9, **about):
    parameters = {
        "NAMESPACE": {"type": "string", "required": True, "description": "Kubernetes namespace"},
        "MEMORY_INCREMENT_MB": {"type": "integer", "required": True, "default": 256},
    }
    return {
        "playbook_id": name,
        "version": "v1.2",
        "description": description,
        "confidence": confidence,
        "parameters": parameters,
        "labels": {"environment": ["production"], **about},
    }


@pytest.fixture
def older(stored):
    stored.api = "search"
    stored.playbooks = [
        playbook(
            "increase-memory-oom",
            "OOMKilled critical: Increases memory limits without restart",
            **{"signal-type": ["oomkilled"]},
        ),
        playbook("scale-oom", "OOMKilled low: Adds replicas", 0.1, **{"signal-type": ["oomkilled"]}),
        playbook("free-disk", "Evicted high: Deletes old logs", **{"signal-type": ["evicted"]}),
        playbook("rotate", "CertificateExpired high: Renews it", **{"signal-type": ["certificateexpired"]}),
        playbook("mystery", "Does something.", **{"signal-type": ["oomkilled"]}),
    ]
    return stored


OOM = SearchQuery("OOMKilled", Severity.CRITICAL)
PRODUCTION = SelectionContext(
    environment="production", priority="P0", risk_tolerance="low", business_category="revenue-critical"
)


async def test_a_server_that_has_only_the_older_search_is_searched(catalog, older):
    page = await catalog.search(OOM, PRODUCTION)
    [match] = page.matches
    assert ("increase-memory-oom", "v1.2", 0.99) == (
        match.workflow.workflow_id,
        match.workflow.version,
        match.confidence,
    )
    assert (
        Parameter("NAMESPACE", required=True, description="Kubernetes namespace"),
        Parameter("MEMORY_INCREMENT_MB", ParameterType.INTEGER, required=True, default=256),
    ) == match.workflow.parameters
    assert {"severity": 2, "signal_type": 1} == page.excluded
    assert ACTIONS == older.paths()[0]
    assert {SEARCH} == set(older.paths()[1:])
    asked = next(q for p, q in older.asked if p == SEARCH and q["label.signal-type"] == "OOMKilled")
    assert {
        "query": "OOMKilled critical",
        "label.signal-type": "OOMKilled",
        "label.environment": "production",
        "label.priority": "P0",
        "label.risk-tolerance": "low",
        "label.business-category": "revenue-critical",
        "min_confidence": "0",
        "max_results": "100",
    } == asked


async def test_playbooks_are_listed_and_chosen_like_workflows(catalog, older):
    actions = await catalog.actions(ANYTHING)
    assert ["free-disk", "increase-memory-oom", "scale-oom"] == [a.action_type for a in actions]
    assert {"OOMKilled", "Evicted"} == signal_types_of(actions)
    assert None is await catalog.get("free-disk", replace(PRODUCTION, severity="critical"))
    assert (await catalog.get("free-disk", replace(PRODUCTION, severity="high"))).workflow_id == "free-disk"


async def test_the_server_compares_business_labels(catalog, older):
    assert [] == await offered(catalog, replace(PRODUCTION, environment="staging"))
    assert 3 == len(await offered(catalog, PRODUCTION))
    assert 3 == len(await offered(catalog, SelectionContext(environment="unknown")))
    assert not any(name.startswith("label.env") for name in older.asked[-1][1])


async def test_a_playbook_whose_description_says_no_labels_is_left_out(catalog, older):
    await offered(catalog)
    assert "mystery: its description is not of the form" in catalog.problem


async def test_a_playbook_that_was_not_asked_for_is_not_offered_for_it(catalog, older):
    older.override = lambda request: (
        web.json_response({"playbooks": [playbook("drain", "NodeNotReady low: Drains it")]})
        if request.path == SEARCH
        else None
    )
    page = await catalog.search(OOM, PRODUCTION)
    assert ((), {"signal_type": 1, "severity": 1}) == (page.matches, page.excluded)


async def test_a_signal_type_of_its_own_is_known_once_it_was_searched_for(catalog, older):
    assert "rotate" not in await offered(catalog, PRODUCTION)
    page = await catalog.search(SearchQuery("CertificateExpired", Severity.HIGH), PRODUCTION)
    assert ["rotate"] == [m.workflow.workflow_id for m in page.matches]
    assert (await catalog.get("rotate", PRODUCTION)).workflow_id == "rotate"


async def test_a_signal_type_of_its_own_may_be_searched_for_first(catalog, older):
    page = await catalog.search(SearchQuery("CertificateExpired", Severity.HIGH), PRODUCTION)
    assert ["rotate"] == [m.workflow.workflow_id for m in page.matches]


async def test_a_server_that_learns_the_newer_api_is_asked_by_it(catalog, older, clock):
    await offered(catalog)
    older.api = "steps"
    clock.advance(31)
    assert ["restart-v1", "scale-v1"] == await offered(catalog)


async def test_a_server_that_has_neither_is_no_datastorage(catalog, stored):
    stored.api = ""
    assert "404: no such API at this address" in await down(catalog)


async def test_an_older_answer_of_another_shape_is_a_failure(catalog, older):
    older.override = lambda request: web.json_response({"results": []}) if request.path == SEARCH else None
    assert "not a list of playbooks" in await down(catalog)


# -- ranked by meaning


async def test_meaning_ranks_once_everything_is_embedded(storage, stored):
    fields = {**RESTART.labels, "signal_type": ("OOMKilled",)}
    stored.records = [
        record_of(workflow("a-restart", labels=fields, description="Restarts pods that use a bigger cache.")),
        record_of(workflow("b-limit", labels=fields, description="Raises the memory of a container.")),
    ]
    query = SearchQuery("OOMKilled", Severity.CRITICAL, ("bigger", "ram"))
    embedder = MemoryEmbedder()
    async with datastorage.catalog_of(storage.url, embedder=embedder, cache_seconds=0.0) as catalog:
        before = (await catalog.search(query, ANYTHING)).matches[0]
        following = asyncio.create_task(catalog.follow(0.005))
        await until(lambda: len(embedder.texts) >= 2)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        after = (await catalog.search(query, ANYTHING)).matches[0]
    assert ("a-restart", "b-limit") == (before.workflow.workflow_id, after.workflow.workflow_id)
    assert "" == catalog.meaning_problem


async def test_the_log_says_why_words_rank(storage):
    embedder = MemoryEmbedder(down=True)
    with capture_logs() as logs:
        async with datastorage.catalog_of(storage.url, embedder=embedder) as catalog:
            following = asyncio.create_task(catalog.follow(0.005))
            await until(lambda: catalog.meaning_problem)
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
    assert ["the embedder is down"] == [e["error"] for e in logs if e["event"] == "catalog_ranked_by_words"]
