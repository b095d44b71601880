"""Checks whether the NATS server writes a message to disk before it confirms it. Only its monitoring port
says so.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from worker.adapters.json_server import JsonServer, TooLongError, UnreachableError

CALL_SECONDS = 5.0
MAX_BYTES = 1 << 20
CONSEQUENCE = "messages that were confirmed since the last write are lost if its machine loses power"
REMEDY = "set `sync_interval: always` in the `jetstream` block of its configuration"
UNKNOWN = (
    "whether the NATS server writes each message to disk before it confirms it is not known: "
    f"{REMEDY}, or {CONSEQUENCE}; with --monitoring-url this command checks it"
)


class _JetStreamConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    sync_always: bool = False
    sync_interval: int = 0
    """In nanoseconds."""


class _JetStream(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    config: _JetStreamConfig


class _Varz(BaseModel):
    """The fields that are read of `/varz`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    server_name: str = Field("the NATS server", max_length=200)
    jetstream: _JetStream


async def sync_advice(monitoring_url: str) -> str:
    """Advice about the server's `sync_interval`; empty when it is `always`. Without a URL the setting is
    unknown.
    """
    if not monitoring_url:
        return UNKNOWN
    server = JsonServer(monitoring_url, token="", call_seconds=CALL_SECONDS, max_bytes=MAX_BYTES)
    try:
        answer = await server.get("/varz", {})
        varz = _Varz.model_validate_json(answer.body)
    except (UnreachableError, TimeoutError, TooLongError, ValidationError) as e:
        why = (
            "it is not the monitoring port of a server with JetStream"
            if isinstance(e, ValidationError)
            else e
        )
        return f"--monitoring-url: {monitoring_url} cannot be read ({why or type(e).__name__})"
    finally:
        await server.aclose()
    config = varz.jetstream.config
    if config.sync_always:
        return ""
    seconds = config.sync_interval / 1e9
    return f"{varz.server_name} writes to disk every {seconds:g} s: {REMEDY}, or {CONSEQUENCE}"
