"""How far a command has come, and how long the rest will take."""

from __future__ import annotations

from worker.app.cli.console import LINE_SECONDS, QUIET_SECONDS, progress


async def test_lines_say_how_much_is_left_where_there_is_no_terminal(capsys):
    now = 100.0
    with progress("reading events", lambda: now) as show:
        show(1, 40)
        now += LINE_SECONDS + 10
        show(10, 40)
        show(11, 40)
        now += LINE_SECONDS
        show(40, 40)
    assert [
        "reading events: 10 of 40, about 60 s left",
        "reading events: 40 of 40, about 0 s left",
    ] == capsys.readouterr().err.splitlines()


async def test_a_terminal_has_a_bar_after_a_second(capsys, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    now = 100.0
    with progress("reading events", lambda: now) as show:
        show(1, 40)
        assert not capsys.readouterr().err
        now += QUIET_SECONDS
        show(10, 40)
        shown = capsys.readouterr().err
    assert "reading events" in shown
    assert "10/40" in shown


async def test_nothing_is_said_of_what_is_done_at_once(capsys):
    with progress("reading events") as show:
        show(40, 40)
    assert ("", "") == capsys.readouterr()
