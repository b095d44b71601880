"""`rca console` over HTTP and a real NATS server: who may see it, what it shows, and that text stays text."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

import aiohttp
import nats
import pytest

from schemas.subjects import Subjects
from tests.fakes.audit_chains import accepted, chain, complete
from tests.fakes.messages import dead, refused, review_result
from tests.nats_servers import one_server
from tests.processes import running
from tests.unit.app.test_pages import ATTACKS, hostile
from worker.adapters.nats.layout import wanted
from worker.adapters.nats.provision import provision
from worker.adapters.nats.stream import FencedStream
from worker.app.auditing import Auditing
from worker.app.operations import Operations
from worker.app.web_console import LETTERS_SHOWN, Console, serve

TOKEN = "FAKE-console-token"
PAGES = ("/", "/incident/rr-1", "/figures", "/letters", "/events", "/static/console.js")


class Place:
    """A console over a provisioned server without results, and a browser that has logged in."""

    def __init__(self, nc, console, url, http):
        self.nc, self.console, self.url, self.http = nc, console, url, http
        self.js = nc.jetstream()

    async def publish(self, result, key="rr-1"):
        await self.js.publish(f"rca.result.incident.{key}", result.model_dump_json().encode())
        await self.console.refresh()

    async def get(self, path, status=200):
        async with self.http.get(self.url + path, allow_redirects=False) as answer:
            assert status == answer.status, path
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            return await answer.text()


@asynccontextmanager
async def opened(tmp_path, *, logged_in=True):
    async with one_server(tmp_path) as server:
        nc, subjects = await nats.connect(server.url), Subjects()
        await provision(nc, wanted(subjects))
        results = FencedStream(nc, subjects.results_stream)
        console = Console(Operations(nc, subjects), Auditing(nc, subjects), results, subjects, TOKEN)
        jar = aiohttp.CookieJar(unsafe=True)
        async with serve(console, "127.0.0.1", 0) as port, aiohttp.ClientSession(cookie_jar=jar) as http:
            place = Place(nc, console, f"http://127.0.0.1:{port}", http)
            if logged_in:
                async with http.post(f"{place.url}/login", data={"token": TOKEN}) as answer:
                    assert 200 == answer.status
            yield place
        await nc.close()


async def test_nobody_sees_anything_without_the_token(tmp_path):
    async with opened(tmp_path, logged_in=False) as place:
        for path in PAGES:
            await place.get(path, 303)
        async with place.http.post(f"{place.url}/login", data={"token": "wrong"}) as answer:
            assert 403 == answer.status
        for forged in ("", "x", TOKEN):
            async with place.http.get(
                place.url + "/", cookies={"rca_console": forged}, allow_redirects=False
            ) as answer:
                assert 303 == answer.status
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        async with place.http.get(place.url + "/", headers=bearer, allow_redirects=False) as answer:
            assert 200 == answer.status


async def test_bytes_that_are_no_text_are_no_token(tmp_path):
    async with opened(tmp_path, logged_in=False) as place:
        for headers in ({"Cookie": "rca_console=\udcff"}, {"Authorization": "Bearer \udcff"}):
            async with place.http.get(place.url + "/", headers=headers, allow_redirects=False) as answer:
                assert 303 == answer.status
        form = {"Content-Type": "application/x-www-form-urlencoded; charset=nope"}
        async with place.http.post(f"{place.url}/login", data=b"token=%ff", headers=form) as answer:
            assert 403 == answer.status


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Encoding": "gzip"}, b"not gzip"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"--x\r\nno header"),
        (
            {"Content-Type": "multipart/form-data; boundary=x"},
            b"--x\r\nContent-Disposition: form-data; name=token\r\nContent-Transfer-Encoding: none\r\n\r\nt\r\n--x--",
        ),
    ],
)
async def test_a_body_that_is_no_form_holds_no_token(tmp_path, headers, body):
    headers = {"Content-Type": "application/x-www-form-urlencoded"} | headers
    async with (
        opened(tmp_path, logged_in=False) as place,
        place.http.post(f"{place.url}/login", data=body, headers=headers) as answer,
    ):
        assert 403 == answer.status


async def test_a_list_that_cannot_be_brought_up_to_date_says_so(tmp_path):
    async with opened(tmp_path) as place:
        await place.console.refresh()  # after the first one of its own, which would clear the problem
        place.console.problem = "no answer"
        assert "not current: no answer" in await place.get("/?from=" + "9" * 5_000)


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(tmp_path):
    async with (
        opened(tmp_path, logged_in=False) as place,
        place.http.post(f"{place.url}/login", data={"token": TOKEN}, allow_redirects=False) as answer,
    ):
        cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    assert TOKEN not in cookie


async def test_an_incident_is_listed_searched_and_shown_with_its_timeline(tmp_path):
    async with opened(tmp_path) as place:
        await place.publish(review_result("rr-2"), "rr-2")
        await place.publish(review_result("rr-1"))
        for event in chain("rr-1", [accepted(), complete("rr-1")]):
            await place.js.publish(f"rca.audit.{event.event_type}", event.model_dump_json().encode())
        listed = await place.get("/")
        assert listed.index("/incident/rr-1") < listed.index("/incident/rr-2")
        found = await place.get("/?q=rr-2&status=needs_human_review&from=x")
        assert "/incident/rr-1" not in found
        page = await place.get("/incident/rr-1")
        assert "HUMAN REVIEW NEEDED" in page
        assert "request accepted" in page
        assert "no result" in await place.get("/incident/unknown", 404)


async def test_a_long_list_comes_in_pages(tmp_path):
    async with opened(tmp_path) as place:
        for number in range(120):
            place.console.index.add(f"rr-{number}", review_result("rr"))
        first = await place.get("/")
        assert (100, True) == (first.count("/incident/"), "120 found, 100 shown" in first)
        [older] = re.findall(r'href="(/\?q=[^"]*)"', first)
        assert 20 == (await place.get(older.replace("&amp;", "&"))).count("/incident/")


async def test_figures_and_dead_letters_say_what_to_do(tmp_path):
    async with opened(tmp_path) as place:
        await place.publish(review_result("rr-1"))
        letter = dead(1, error="the model <b>said</b>")
        await place.js.publish(f"rca.dlq.{letter.reason}", b"{}", headers=letter.headers())
        assert "needs human review" in await place.get("/figures")
        page = await place.get("/letters")
        assert "rca dlq replay 1" in page
        assert "<b>said" not in page


async def test_dead_letters_come_in_pages_and_after_them_what_was_rejected(tmp_path):
    async with opened(tmp_path) as place:
        for number in range(LETTERS_SHOWN + 3):
            letter = dead(number)
            await place.js.publish(f"rca.dlq.{letter.reason}", b"{}", headers=letter.headers())
        await place.js.delete_msg("RCA_DLQ", 30)
        await place.js.publish("rca.validation.request", refused(4_711).model_dump_json().encode())
        await place.js.publish("rca.validation.request", b"of a newer version")
        first = await place.get("/letters")
        assert (LETTERS_SHOWN, 1) == (first.count("rca dlq replay "), first.count("4711"))
        [older] = re.findall(r'href="(/letters\?before=[^"]*)"', first)
        second = await place.get(older)
        assert ["2", "1"] == re.findall("rca dlq replay ([0-9]+)", second)
        assert "before=" not in second


async def test_the_list_begins_again_with_a_new_stream(tmp_path):
    async with opened(tmp_path) as place:
        for key in ("rr-1", "rr-2"):
            await place.publish(review_result(key), key)
        await place.js.delete_stream("RCA_RESULTS")
        await provision(place.nc, wanted(Subjects()))
        await place.publish(review_result("rr-3"), "rr-3")
        assert ["rr-3"] == [row.key for row in place.console.index.newest()]


async def test_a_listener_is_told_of_a_new_result(tmp_path):
    async with opened(tmp_path) as place, place.http.get(place.url + "/events") as stream:
        assert "text/event-stream" == stream.headers["Content-Type"]
        await place.publish(review_result("rr-1"))
        async for line in stream.content:
            if line == b"event: changed\n":
                break


@pytest.mark.parametrize("attack", ATTACKS)
async def test_hostile_text_stays_text_on_every_page(hostile_place, attack):
    place = hostile_place
    place.console.index.add("rr-1", hostile(attack))
    text = await place.get("/")
    assert "<script>alert" not in text
    assert "onerror=alert(1)>" not in text


@pytest.fixture
async def hostile_place(tmp_path):
    async with opened(tmp_path) as place:
        yield place


async def test_the_page_says_that_the_server_is_unreachable(tmp_path):
    async with opened(tmp_path) as place:
        await place.js.delete_stream("RCA_RESULTS")
        assert "stream not found" in await place.get("/incident/rr-1", 503)


@pytest.mark.process
async def test_the_command_prints_its_address_and_ends_on_sigterm(tmp_path):
    async with one_server(tmp_path) as server:
        nc = await nats.connect(server.url)
        await provision(nc, wanted(Subjects()))
        await nc.close()
        env = {"RCA_NATS__SERVERS": server.url, "RCA_CONSOLE__PORT": "0"}
        async with running("console", env=env) as process, aiohttp.ClientSession() as http:
            url = (await process.stdout.readline()).decode().split()[-1]
            token = (await process.stdout.readline()).decode().split()[-1]
            async with http.get(url, headers={"Authorization": f"Bearer {token}"}) as answer:
                assert 200 == answer.status
