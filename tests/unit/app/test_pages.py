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
    DiagnosedCause,
    RootCauseAnalysis,
    SelectedWorkflow,
    Status,
    ValidationAttempt,
)
from schemas.evidence import CausalClaim, ClaimSupport, EvidenceItem
from tests.fakes.audit_chains import accepted, chain, complete
from tests.fakes.messages import review_result
from worker.app.pages import as_html, as_markdown, incident_page
from worker.app.pages.incident import SOURCES
from worker.app.verdict_line import tone_of

NOON = "2026-06-04T12:00:00Z"
ATTACKS = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '" onmouseover="alert(1)', "' autofocus onfocus='x",
    "</pre></details></main><iframe src=//evil.example.com>", "javascript:alert(1)", "{{ 7 * 7 }}", "{% raw %}",
    "<!--", "]]>", "<svg/onload=alert(1)>", "&lt;script&gt;", "\u202egnp.exe", "\x1b[2J", "<style>*{display:none}</style>",
    "[click](https://evil.example.com)", "![x](https://evil.example.com/a.png)", "https://evil.example.com", "www.evil.example.com",
    "<ScRiPt>alert(1)</sCrIpT>", "<script src=//evil.example.com/x.js></script>", "</script><script>alert(1)</script>", "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>", "</textarea><script>alert(1)</script>", "<svg><script>alert(1)</script></svg>", "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<math><mtext><img src=x onerror=alert(1)>", "<details open ontoggle=alert(1)>", "<video><source onerror=alert(1)>", "<body onload=alert(1)>",
    "<input autofocus onfocus=alert(1)>", "<iframe srcdoc='<script>alert(1)</script>'>", "<object data='javascript:alert(1)'>", "<embed src='data:text/html,<script>alert(1)</script>'>",
    "<base href=//evil.example.com/>", "<meta http-equiv=refresh content='0;url=//evil.example.com'>", "<link rel=stylesheet href=//evil.example.com/x.css>", "<form action=//evil.example.com><button>x",
    "<a href='javascript:alert(1)'>x</a>", '"><script>alert(1)</script>', "'-alert(1)-'", "${alert(1)}", "{{constructor.constructor('alert(1)')()}}", "<template><script>alert(1)</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>", "<img src=`x`onerror=alert(1)>", "<img/src/onerror=alert(1)>", r"\u003cscript\u003ealert(1)\u003c/script\u003e", "\uff1cscript\uff1ealert(1)\uff1c/script\uff1e", "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
    "`code` ``` fence", "# heading", "- item", "1. item", "1)", "1.", "+ item", "===", "| a | b |", "<https://evil.example.com>", "*b* _i_ ~~s~~",
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
        if tag not in {"mark", "b", "del", "ins"}:  # of lines that the root cause quotes, and so on
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


def has_own_layout(text):
    """True for names of our tools and for tables, which the page shows differently."""
    return text in SOURCES or text.startswith("NAME | ")


@given(st.text(min_size=1).filter(str.strip).filter(lambda text: not has_own_layout(text)))
def test_no_generated_text_becomes_a_part_of_the_page(text):
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
    assert 'details id="E1"' in html
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
    assert tone == tone_of(page.result)
    assert f'<header class="verdict {tone}">' in as_html(page)
    assert "No root cause" in as_html(page)
    assert "No root cause" in as_markdown(page)


@pytest.mark.parametrize(
    "cause", [None, RootCauseAnalysis(summary="the limit is too small", severity="high")]
)
def test_what_rules_see_is_shown_with_and_without_a_root_cause(cause):
    seen = DiagnosedCause(
        cause="image", object=AffectedResource(kind="Pod", name="api"), summary="the image is missing"
    )
    page = incident_page("rr-1", review_result("rr-1", root_cause_analysis=cause, diagnosis=(seen,)))
    for text in (as_html(page), as_markdown(page)):
        assert text.index("What rules find") < text.index(seen.summary)
        assert (cause is None) is ("No root cause" in text)


def test_markdown_says_what_happened_and_leaves_out_objects_as_json():
    events = "2026-03-17T02:46:18Z Warning BackOff Pod shop/api-1: Back-off restarting"
    items = [
        EvidenceItem(id="E1", source="get_resource", summary="Pod shop/api-1", excerpt='{"kind":"Pod"}'),
        EvidenceItem(id="E2", source="get_events", summary="events", excerpt=events),
    ]
    result = hostile("text").model_copy(update={"evidence": tuple(items)})
    text = as_markdown(incident_page("rr-1", result))
    assert "- 2026-03-17 02:46:18 UTC: BackOff Pod shop/api-1: Back-off restarting" in text
    assert "E1: Pod shop/api-1" in text
    assert "```" not in text
