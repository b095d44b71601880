from __future__ import annotations

import json
import logging

import pytest
import structlog

from worker.app.logs import configure

SECRET = "ghp_FAKE0123456789abcdefghijklmnopqrstuv"


@pytest.fixture(autouse=True)
def untouched():
    """Logging as it was before."""
    root = logging.getLogger()
    handlers, level, kept = root.handlers[:], root.level, structlog.get_config()
    levels = {name: logging.getLogger(name).level for name in ("httpx2", "faststream", "openai")}
    yield
    root.handlers[:], root.level = handlers, level
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()
    structlog.configure(**kept)
    structlog.contextvars.clear_contextvars()


def lines(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def events(capsys):
    return [json.loads(line) for line in lines(capsys)]


def logger():
    return structlog.stdlib.get_logger("worker.test")


def test_one_json_object_a_line_with_name_time_and_fields(capsys):
    configure("info", json_lines=True)
    with structlog.contextvars.bound_contextvars(sequence=7):
        logger().info("result_published", request="rr-1", llm_calls=2, text="two\nlines")
    [event] = events(capsys)
    assert ("result_published", "info", "worker.test", "rr-1", 2, 7, "two\nlines") == tuple(
        event[name] for name in ("event", "level", "logger", "request", "llm_calls", "sequence", "text")
    )
    assert event["timestamp"].endswith("Z")


def test_the_level_is_kept(capsys):
    configure("warning", json_lines=True)
    logger().info("quiet")
    logger().warning("loud")
    logging.getLogger("library").info("quiet too")
    assert ["loud"] == [event["event"] for event in events(capsys)]


def test_libraries_log_the_same_way(capsys):
    configure("info", json_lines=True)
    logging.getLogger("nats.aio").warning("lost %s", "connection")
    [event] = events(capsys)
    assert ("lost connection", "warning", "nats.aio") == (event["event"], event["level"], event["logger"])


@pytest.mark.parametrize("name", ["httpx2", "openai", "anthropic", "aiohttp.access", "faststream"])
def test_noisy_libraries_only_warn(capsys, name):
    configure("debug", json_lines=True)
    logging.getLogger(name).info("request to ...")
    logging.getLogger(name).warning("retrying")
    assert ["retrying"] == [event["event"] for event in events(capsys)]


@pytest.mark.parametrize("json_lines", [True, False])
def test_secrets_are_in_no_line(capsys, json_lines):
    configure("debug", json_lines=json_lines)
    logger().info(
        "model_blocked", error=f"bad key {SECRET}", password=SECRET, nested={"api_key": SECRET, "x": [SECRET]}
    )
    logging.getLogger("library").error("failed with %s", SECRET)
    try:
        raise ValueError(f"inner {SECRET}")
    except ValueError:
        logger().exception("analysis_failed")
        logging.getLogger("library").exception("failed")
    text = "\n".join(lines(capsys))
    assert "FAKE" not in text
    assert text.count("REDACTED") >= 5
    assert "ValueError" in text


def test_what_cannot_be_written_as_json_is_logged_anyway(capsys):
    configure("info", json_lines=True)
    logger().info("odd", value=object(), ratio=float("nan"), key=b"\xff", text="half \ud800")
    [event] = events(capsys)
    assert event["event"] == "odd"


def test_a_line_break_cannot_forge_a_line(capsys):
    configure("info", json_lines=True)
    logger().info("rejected", got='x\n{"event": "forged"}')
    assert ["rejected"] == [event["event"] for event in events(capsys)]


def test_people_get_text(capsys):
    configure("info", json_lines=False)
    logger().info("result_published", request="rr-1")
    [line] = lines(capsys)
    assert "result_published" in line
    assert "request=rr-1" in line


def test_configuring_twice_does_not_double_the_lines(capsys):
    configure("info", json_lines=True)
    configure("info", json_lines=True)
    logger().info("once")
    logging.getLogger("library").info("once")
    assert ["once", "once"] == [event["event"] for event in events(capsys)]


def test_a_line_begins_with_what_a_reader_looks_for(capsys):
    configure("info", json_lines=True)
    logger().info("happened", request="rr-1")
    assert ["timestamp", "level", "event"] == list(events(capsys)[0])[:3]
