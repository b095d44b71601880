from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.cluster.rendering.logs import clean_lines, fold, matching, render_log
from worker.domain.values.tokens import estimate_tokens


def folded(*lines):
    return [item.text for item in fold(list(lines))]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"one\ntwo\n", ["one", "two"]),
        (b"no newline at the end", ["no newline at the end"]),
        (b"", []),
        (b"\x1b[31mred\x1b[0m", ["red"]),
        (b"\x1b]0;title\x07text", ["text"]),
        (b" 10%\r 50%\r100%", ["100%"]),
        (b"windows\r\nline", ["windows", "line"]),
        (b"bad \xff\xfe bytes", ["bad \ufffd\ufffd bytes"]),
        (b"nul \x00 byte", ["nul \\u{0} byte"]),
        ("zero\u200bwidth".encode(), ["zero\\u{200b}width"]),
    ],
)
def test_lines_are_decoded_and_cleaned(raw, expected):
    assert expected == clean_lines(raw)


def test_a_line_of_a_megabyte_keeps_head_and_tail():
    (line,) = clean_lines(b"begin " + b"x" * 1_000_000 + b" end")
    assert line.startswith("begin ")
    assert line.endswith(" end")
    assert len(line) < 800


def test_repeats_are_folded():
    assert ["retry  (repeated 12 times)", "done"] == folded(*["retry"] * 12, "done")


def test_repeats_that_differ_only_in_time_and_process_show_the_newest():
    found = folded(
        "2026-05-09 10:09:00.000 UTC [300] FATAL:  too many clients",
        "2026-05-09 10:09:11.037 UTC [301] FATAL:  too many clients",
    )
    assert ["2026-05-09 10:09:11.037 UTC [301] FATAL:  too many clients  (repeated 2 times)"] == found


def test_a_repeated_block_is_folded():
    assert ["fatal", "detail", "  (the 2 lines above repeated 3 times)"] == folded(*["fatal", "detail"] * 3)


def test_lines_that_differ_in_a_status_code_are_not_folded():
    lines = ['"GET /" 200 15', '"GET /" 500 15']
    assert lines == folded(*lines)


def test_matching_takes_plain_texts_and_ignores_case():
    assert ["A Timeout", "(refused)"] == matching(["A Timeout", "fine", "(refused)"], "timeout|(refused)")
    assert [] == matching(["anything"], " | ")


def test_a_log_that_fits_is_shown_whole():
    shown = render_log(["a", "b"], 100)
    assert ("a\nb", 0) == (shown.body, shown.left_out)


def test_a_long_log_keeps_its_end_its_errors_and_its_beginning():
    letters = "abcdefghijklmnopqrstuvwxyz"
    noise = [f"handled request {a}{b} for user {b}{c}" for a in letters for b in letters for c in "xyz"]
    lines = [
        "server 1.2.3 starting",
        *noise[:800],
        "panic: nil pointer in cart.go:42",
        *noise[800:],
        "shutting down",
    ]
    shown = render_log(lines, 400)
    assert shown.body.startswith("server 1.2.3 starting")
    assert "panic: nil pointer in cart.go:42" in shown.body
    assert shown.body.endswith("shutting down")
    assert "lines cut" in shown.body


def test_a_long_log_folds_neighbours_that_differ_in_numbers():
    lines = [f"segment loaded segment={i} duration={i * 7}ms" for i in range(3000)]
    shown = render_log([*lines, "ready"], 120)
    assert 0 == shown.left_out
    assert "(repeated 3000 times, with other numbers)" in shown.body


def test_counts_add_up_when_lines_are_cut():
    lines = [f"line {chr(97 + i % 26)} {chr(97 + i // 26)}" for i in range(600)]
    shown = render_log(lines, 200)
    assert 600 == shown.total == shown.shown + shown.left_out
    cut = [int(line.split()[1]) for line in shown.body.split("\n") if line.startswith("[…")]
    assert shown.left_out == sum(cut)


@given(st.binary(max_size=4000), st.integers(min_value=30, max_value=300))
def test_any_bytes_become_text_within_the_budget(raw, budget):
    shown = render_log(clean_lines(raw), budget)
    assert estimate_tokens(shown.body) <= budget
    assert 0 <= shown.left_out <= shown.total
    assert "\x1b" not in shown.body


@given(
    st.lists(st.sampled_from(("a", "b", "error 500", "error 501", "at 10:00:00", "at 10:00:01")), max_size=60)
)
def test_folding_loses_no_line(lines):
    assert len(lines) == sum(item.count for item in fold(lines))


def test_of_lines_that_are_all_too_long_the_end_of_the_last_one_is_shown():
    shown = render_log(["first " * 500, "last " * 500 + "the end"], 40)
    assert shown.body.startswith("[… 1 lines cut …]")
    assert shown.body.endswith("the end")
    assert (1, 2) == (shown.shown, shown.total)
