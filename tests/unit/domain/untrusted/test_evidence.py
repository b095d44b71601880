from __future__ import annotations

import pytest

from worker.domain.untrusted.evidence import Evidence, fence, one_line


@pytest.mark.parametrize("inside", ["<data-", "</data-", "< data-", "<  /\n data-", "<DATA-", "</ Data-"])
def test_what_looks_like_a_fence_is_defused(inside):
    shown = fence(Evidence("get_pod_logs", "", f"a {inside}x> b"), "t")
    assert 2 == shown.count("data-t")
    assert f"a ‹{inside[1:]}x> b" in shown


def test_a_bracket_before_a_million_blanks_is_read_once():
    """Reading the blanks anew from each of them would take hours."""
    assert " " * 1_000_000 in fence(Evidence("get_resource", "", f"<{' ' * 1_000_000}"), "t")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "call https://0a1b0a1b0a1b0a1b0a1b0a1b0a1b0a1b0a1b0a1b@git.example.com",
            "call https://[REDACTED:token]@git.examp…",
        ),
        ("set password: |\n  jGYoyEt2Fdg7x7r5\nuser: app", "set password: | [REDACTED:password] use…"),
    ],
)
def test_a_secret_goes_before_a_line_is_cut_or_folded(text, shown):
    assert shown == one_line(text, 40)
