"""A result as a page: what is on it, and that no text from outside means anything on it."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from schemas.analysis import (
    AffectedResource,
    AlternativeWorkflow,
    Approval,
    Corroboration,
    CorroborationSource,
    RootCauseAnalysis,
    SelectedWorkflow,
    Status,
    ValidationAttempt,
)
from schemas.evidence import CausalClaim, ClaimSupport, EvidenceItem
from tests.fakes.audit_chains import accepted, chain, complete
from tests.fakes.messages import review_result
from worker.app.pages import as_html, as_markdown, incident_page

NOON = "2026-06-04T12:00:00Z"
ATTACKS = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '" onmouseover="alert(1)', "' autofocus onfocus='x",
    "</pre></details></main><iframe src=//evil.example.com>", "javascript:alert(1)", "{{ 7 * 7 }}", "{% raw %}",
    "<!--", "]]>", "<svg/onload=alert(1)>", "&lt;script&gt;", "\u202egnp.exe", "\x1b[2J", "<style>*{display:none}</style>",
    "[click](https://evil.example.com)", "![x](https://evil.example.com/a.png)", "https://evil.example.com", "www.evil.example.com",
    "`code` ``` fence", "# heading", "- item", "1. item", "+ item", "===", "| a | b |", "<https://evil.example.com>", "*b* _i_ ~~s~~",
)  # fmt: skip


def hostile(text):
    """A result with the text wherever one may stand."""
    return review_result(
        "rr-1",
        status=Status.COMPLETED,
        needs_human_review=False,
        human_review_reason=None,
        is_actionable=True,
        affected_resource=AffectedResource(kind="Deployment", name=text, namespace=text),
        root_cause_analysis=RootCauseAnalysis(
            summary=text,
            severity="high",
            signal_type=text,
            causal_claims=(CausalClaim(claim=text, evidence=("E1",), support=ClaimSupport.CITED),),
        ),
        selected_workflow=SelectedWorkflow(
            workflow_id=text,
            version=text,
            action_type=text,
            rationale=text,
            confidence=0.9,
            parameters={text: text},
        ),
        alternative_workflows=(AlternativeWorkflow(workflow_id=text, rationale=text),),
        approval=Approval(required=True, reasons=(text,)),
        corroboration=Corroboration(by=CorroborationSource.RULES, reason=text, evidence=("E2",)),
        evidence=tuple(EvidenceItem(id=f"E{n}", source=text, summary=text, excerpt=text) for n in (1, 2, 3)),
        validation_attempts=(ValidationAttempt(attempt=1, is_valid=False, errors=(text,), timestamp=NOON),),
        warnings=(text,),
        model=text,
        environment=text,
    )


class Skeleton(HTMLParser):
    """Tags and attributes of a document, without its text."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(attrs)))

    def handle_comment(self, data):
        self.found.append(("comment", data))


def skeleton(text):
    parser = Skeleton()
    parser.feed(as_html(incident_page("rr-1", hostile(text))))
    return parser.found


HARMLESS = "text"


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_becomes_a_part_of_the_page(attack):
    assert skeleton(HARMLESS) == skeleton(attack)


@given(st.text(min_size=1).filter(str.strip))
def test_nor_does_any_other(text):
    assert skeleton(HARMLESS) == skeleton(text)
    page = as_html(incident_page("rr-1", hostile(text)))
    assert not {"\x1b", "\u202e", "\x00"} & set(page)


def structure(text):
    """Block and inline tokens of the Markdown, without what they say."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(
        as_markdown(incident_page("rr-1", hostile(text)))
    )
    inner = [child.type for token in tokens for child in token.children or () if child.type != "text"]
    blocks = [token.type for token in tokens if token.type != "inline"]
    return blocks, [kind for kind in inner if kind != "text_special"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_text_becomes_a_part_of_the_markdown(attack):
    assert structure(HARMLESS) == structure(attack)


def test_the_page_says_first_what_is_decided_and_links_claims_to_evidence():
    events = chain("rr-1", [accepted(), complete("rr-1")])
    page = incident_page("rr-1", hostile("text"), events)
    html = as_html(page)
    assert "APPROVAL NEEDED" in html.split("</header>")[0]
    assert '<a href="#E1">E1</a>' in html
    assert 'id="E1" open' in html
    assert ["request accepted", "result: completed"] == [moment.text for moment in page.timeline]
    assert [["E1"], ["E3"], ["E2"]] == [
        [item.id for item in items] for items in (page.cited, page.uncited, page.confirming)
    ]


@pytest.mark.parametrize(
    ("fields", "tone"),
    [
        ({}, "warn"),
        ({"status": Status.FAILED}, "bad"),
        (
            {
                "status": Status.RESOLVED,
                "needs_human_review": False,
                "human_review_reason": None,
                "approval": Approval(required=False),
            },
            "calm",
        ),
    ],
)
def test_the_colour_follows_the_verdict(fields, tone):
    page = incident_page("rr-1", review_result("rr-1", **fields))
    assert tone == page.tone
    assert "No root cause" in as_html(page)
    assert "No root cause" in as_markdown(page)
