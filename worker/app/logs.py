"""Structured logs on standard error: one event name and fields, as JSON or as text."""

from __future__ import annotations

import logging
import sys

import structlog

from worker.domain.untrusted.redaction.redact import redact_json

NOISY = ("httpx2", "openai", "anthropic", "aiohttp.access", "faststream")


def _without_secrets(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    first = {name: event[name] for name in ("timestamp", "level", "event") if name in event}
    cleaned: structlog.typing.EventDict = redact_json(first | dict(event))
    return cleaned


def configure(level: str, *, json_lines: bool) -> None:
    """Set up structlog, and send what libraries log through the standard library the same way."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _without_secrets,
    ]
    render: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if json_lines
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # It logs each line that it cannot parse with a traceback.
    logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
    for name in NOISY:
        library = logging.getLogger(name)
        library.handlers.clear()  # some bring a handler of their own and do not propagate
        library.propagate = True
        library.setLevel(max(logging.WARNING, root.level))
