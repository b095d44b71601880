"""The console and the report in a real browser: how they look, who can use them, and that no text runs.

Screenshots of every page are left in build/screenshots.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from schemas import audit
from schemas.analysis import (
    AlternativeWorkflow,
    AnalysisResult,
    Approval,
    ApprovalFactor,
    HumanReviewReason,
    ValidationAttempt,
)
from schemas.audit import AuditEvent
from schemas.evidence import CausalClaim, ClaimSupport, EvidenceItem
from schemas.failure import FieldError
from schemas.subjects import Header
from schemas.usage import Usage
from tests.browser import AXE, CHROMIUM, browser
from tests.commands import rca
from tests.fakes.audit_chains import accepted, chain, complete
from tests.fakes.messages import dead, refused, review_result
from tests.integration.test_web_console import TOKEN, opened
from tests.unit.app.test_pages import ATTACKS, NOON, hostile
from worker.app.pages import as_html, incident_page

SHOTS = Path(__file__).parents[2] / "build/screenshots"
KEY = "rr-2026-03-17-0305-checkout"
PAGES = {
    "list": "/", "incident": f"/incident/{KEY}", "figures": "/figures", "letters": "/letters",
    "search": "/?q=undo-rollout&status=completed", "review": "/incident/rr-0", "message": "/incident/unknown",
}  # fmt: skip
PHONE = 390
"""Width of a phone in CSS pixels."""
FOCUSABLE = """[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
  .filter(each => each.checkVisibility())"""
FOCUSED = f"""(() => {{
  const style = getComputedStyle(document.activeElement);
  return [({FOCUSABLE}).indexOf(document.activeElement), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2];
}})()"""
WIDER = f"""[...document.querySelectorAll('body *')].filter(each => each.getBoundingClientRect().right > {PHONE} + 1
  && !each.closest('.scroll, pre, svg')).map(each => each.outerHTML.slice(0, 100)).slice(0, 3)"""
SKELETON = """[...document.querySelectorAll('*')].filter(each => !['MARK', 'B', 'DEL', 'INS'].includes(each.tagName))
  .map(each => each.tagName + ' ' + each.getAttributeNames().join(' ')).join('\\n')"""

STRANGE = 'script:not([src^="/static"]), img, iframe, object, embed, base, svg, math, style, video, template'

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(
        not AXE.is_file(), reason="axe-core is not installed: npm ci --prefix tests/contract/node"
    ),
]


@pytest.fixture
async def demo():
    ended = await rca("demo", "--json")
    return json.loads(ended.out)


@asynccontextmanager
async def visited(tmp_path):
    """A console without results, and a page of a browser that has logged in."""
    async with opened(tmp_path) as place, browser(tmp_path) as chromium, chromium.page() as page:
        await page.look()
        await page.open(f"{place.url}/login")
        await page.evaluate(f"document.querySelector('input').value = {TOKEN!r}")
        page.loaded.clear()
        await page.evaluate("document.querySelector('form').requestSubmit()")
        await page.loaded.wait()
        assert place.url + "/" == await page.evaluate("location.href")
        yield place, page


async def fill(place, demo):
    for number, reason in enumerate(HumanReviewReason):
        result = review_result(
            f"rr-{number}", human_review_reason=reason, environment="staging", usage=Usage(cost_usd=0.01)
        )
        await place.publish(result, f"rr-{number}")
    await place.publish(AnalysisResult.model_validate(demo["result"]), KEY)
    for event in demo["audit_events"]:
        await place.js.publish(f"rca.audit.{event['event_type']}", json.dumps(event).encode())
    for number in (1, 2):
        letter = dead(number, error="HTTP 400 from the provider: this model does not exist")
        await place.js.publish(f"rca.dlq.{letter.reason}", b"{}", headers=letter.headers())
    await place.js.publish("rca.validation.request", refused(1).model_dump_json().encode())


def expected_problems(name):
    """Chromium reports the status of the page itself as an error."""
    return ["network: Failed to load resource: the server responded with a status of 404 (Not Found)"] * (
        name == "message"
    )


async def test_every_page_is_accessible_in_both_themes_and_fits_on_a_phone(tmp_path, demo):
    found = []
    async with visited(tmp_path) as (place, page):
        await fill(place, demo)
        for name, path in {**PAGES, "login": "/login"}.items():
            for look, options in {
                "light": {},
                "dark": {"dark": True},
                "phone": {"width": PHONE, "phone": True},
            }.items():
                page.problems.clear()
                await page.look(**options)
                await page.open(place.url + path)
                await page.screenshot(SHOTS / f"{name}-{look}.png")
                found += [(name, look, fault) for fault in await page.faults()]
                found += [(name, look, each) for each in page.problems if each not in expected_problems(name)]
                if look == "phone":
                    assert PHONE == await page.evaluate("document.documentElement.scrollWidth"), name
                    found += [(name, look, wide) for wide in await page.evaluate(WIDER)]
    assert [] == found


async def test_the_checks_find_what_is_wrong(tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<body style='color: #999; background: #aaa'><img src=x><p style='width: 900px'>low contrast<script>alert(1)</script>"
    )
    async with browser(tmp_path) as chromium, chromium.page() as page:
        await page.look(width=PHONE, phone=True)
        await page.open(bad.as_uri())
        rules = {fault.partition(":")[0] for fault in await page.faults()}
        assert {"image-alt", "color-contrast"} <= rules
        assert await page.evaluate("document.documentElement.scrollWidth") > PHONE
        assert "dialog: 1" in page.problems


async def test_everything_is_reached_with_the_keyboard_and_shows_its_focus(tmp_path, demo):
    async with visited(tmp_path) as (place, page):
        await fill(place, demo)
        for name, path in PAGES.items():
            await page.open(place.url + path)
            count, reached = await page.evaluate(f"({FOCUSABLE}).length"), set()
            for _ in range(count):
                await page.press("Tab")
                index, visible = await page.evaluate(FOCUSED)
                assert visible, (name, index)
                reached.add(index)
            assert set(range(count)) == reached, name


async def test_evidence_is_folded_and_opens_with_the_keyboard_and_by_its_link(tmp_path, demo):
    async with visited(tmp_path) as (place, page):
        await fill(place, demo)
        await page.open(place.url + PAGES["incident"])
        first = await page.evaluate("document.querySelector('.chain a').getAttribute('href')")
        seen = f"document.querySelector('{first} pre').checkVisibility()"
        assert not await page.evaluate(seen)
        await page.evaluate(f"location.hash = '{first}'")
        assert await page.evaluate(seen)
        await page.evaluate("document.querySelector('details:not(:target) summary').focus()")
        await page.press("Enter", "\r")
        assert 1 == await page.evaluate("document.querySelectorAll('details[open]').length")


def attacked(texts):
    """A result with every text in every list, and all of them in every other place."""
    joined = "\n".join(texts)
    one = hostile(joined)
    claims = tuple(
        CausalClaim(claim=text, evidence=("E1",), support=ClaimSupport.NOT_SHOWN) for text in texts
    )
    evidence = (
        EvidenceItem(id=f"E{n}", source=text, summary=text, excerpt=text) for n, text in enumerate(texts, 1)
    )
    events = EvidenceItem(
        id="E0",
        source="get_events",
        summary=joined,
        excerpt=f"2026-06-04T12:00:00Z Warning Failed {''.join(texts)}",
    )
    attempt = ValidationAttempt(attempt=1, is_valid=False, errors=texts, workflow_id=joined, timestamp=NOON)
    return AnalysisResult.model_validate(
        one.model_copy(
            update={
                "root_cause_analysis": one.root_cause_analysis.model_copy(update={"causal_claims": claims}),
                "selected_workflow": one.selected_workflow.model_copy(
                    update={"parameters": dict(zip(texts, texts, strict=True))}
                ),
                "alternative_workflows": tuple(
                    AlternativeWorkflow(workflow_id=text, rationale=text) for text in texts
                ),
                "approval": Approval(
                    required=True, reasons=texts, factors=tuple(ApprovalFactor(code=text) for text in texts)
                ),
                "evidence": (events, *evidence),
                "validation_attempts": (attempt,),
                "warnings": texts,
            }
        ).model_dump()
    )


def attacking_events(texts, key):
    calls = [
        audit.LLMToolCall(index=1, name=text, arguments={text: text}, succeeded=False, result_chars=1)
        for text in texts
    ]
    rejected = audit.ValidationAttempted(attempt=1, max_attempts=3, is_valid=False, errors=texts)
    return chain(key, [accepted(), *calls, rejected, complete(key)])


async def test_no_text_runs_or_becomes_a_part_of_any_page(tmp_path):
    assert len(ATTACKS) >= 50
    corpora = {"rr-0": tuple(f"text {n}" for n in range(len(ATTACKS))), "rr-1": ATTACKS}
    async with visited(tmp_path) as (place, page):
        for key, texts in corpora.items():
            await place.publish(attacked(texts), key)
            for event in attacking_events(texts, key):
                await place.js.publish(f"rca.audit.{event.event_type}", event.model_dump_json().encode())
        for text in ATTACKS:
            letter = dead(1, error=text)
            headers = {**letter.headers(), Header.ERROR: quote(text)}
            await place.js.publish(f"rca.dlq.{letter.reason}", b"{}", headers=headers)
            rejected = refused(1, errors=(FieldError(path=text, expected=text, got=text),), request_key=text)
            await place.js.publish("rca.validation.request", rejected.model_dump_json().encode())
        page.requests.clear()
        skeletons = {}
        for key, texts in corpora.items():
            await page.open(f"{place.url}/incident/{key}")
            skeletons[key] = await page.evaluate(SKELETON)
            report = tmp_path / f"{key}.html"
            made = as_html(incident_page(key, attacked(texts), attacking_events(texts, key)))
            report.write_text(made, encoding="utf-8", errors="replace")
            await page.open(report.as_uri())
            skeletons[report] = await page.evaluate(SKELETON)
        on_console, in_report, *attacked_ones = skeletons.values()
        for expected, got in zip((on_console, in_report), attacked_ones, strict=True):
            assert expected.splitlines() == got.splitlines()
        for path in (
            "/",
            "/figures",
            "/letters",
            "/?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&status=%3Cimg%20src=x%3E",
        ):
            await page.open(place.url + path)
            assert 0 == await page.evaluate(f"document.querySelectorAll({STRANGE!r}).length"), path
        assert [] == page.problems, page.requests
        assert {"file:", place.url} == {
            url.split("/")[0] if url.startswith("file") else "/".join(url.split("/")[:3])
            for url in page.requests
        }


async def test_long_words_do_not_widen_a_page(tmp_path):
    async with visited(tmp_path) as (place, page):
        await place.publish(attacked(("W" * 300,)))
        for path in ("/", "/incident/rr-1"):
            await page.open(place.url + path)
            assert 1_100 >= await page.evaluate("document.documentElement.scrollWidth"), path


async def test_a_report_is_accessible_and_loads_nothing(tmp_path, demo):
    events = [AuditEvent.model_validate(event) for event in demo["audit_events"]]
    report = tmp_path / "report.html"
    report.write_text(as_html(incident_page(KEY, AnalysisResult.model_validate(demo["result"]), events)))
    async with browser(tmp_path) as chromium, chromium.page() as page:
        for look, options in {
            "light": {},
            "dark": {"dark": True},
            "phone": {"width": PHONE, "phone": True},
        }.items():
            await page.look(**options)
            await page.open(report.as_uri())
            await page.screenshot(SHOTS / f"report-{look}.png")
            assert [] == await page.faults()
        assert PHONE == await page.evaluate("document.documentElement.scrollWidth")
        assert {report.as_uri()} == set(page.requests)
        assert [] == page.problems


async def test_five_thousand_incidents_are_a_small_page(tmp_path, record_property, capsys):
    async with visited(tmp_path) as (place, page):
        for number in range(5_000):
            result = review_result(f"rr-{number}", human_review_reason=list(HumanReviewReason)[number % 7])
            place.console.index.add(f"rr-{number}", result)
        for name, path, total in (
            ("list", "/", 5_000),
            ("search", "/?q=rr-499&status=needs_human_review", 11),
        ):
            await page.open(place.url + path)
            took = await page.evaluate(
                "(() => { const it = performance.getEntriesByType('navigation')[0];"
                " return [it.domContentLoadedEventEnd, it.decodedBodySize]; })()"
            )
            nodes, rows = await page.evaluate(
                "[document.querySelectorAll('*').length, document.querySelectorAll('#rows tr').length]"
            )
            figures = f"{name} of 5,000: usable after {took[0]:.0f} ms, {took[1]:,} bytes, {nodes:,} elements"
            record_property(name, figures)
            with capsys.disabled():
                print(f"\n{figures}")
            assert f"{total:,} found" in await page.evaluate("document.getElementById('count').textContent")
            assert min(total, 100) == rows
            assert took[1] < 100_000
            assert nodes < 2_000


async def test_a_new_result_appears_by_itself(tmp_path):
    async with visited(tmp_path) as (place, page):
        await page.open(place.url)
        assert "0 found" == await page.evaluate("document.getElementById('count').textContent")
        opened_ = "new Promise(done => { const it = new EventSource('/events'); it.onopen = () => { it.close(); done(true) } })"
        assert await page.evaluate(opened_)
        await place.publish(review_result("rr-1"))
        assert await page.evaluate(
            """new Promise(done => {
              const seen = () => document.getElementById('count').textContent === '1 found' && done(true);
              new MutationObserver(seen).observe(document.body, { childList: true, subtree: true }); seen();
            })"""
        )
