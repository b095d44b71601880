"""Checks whether the NATS server writes a message to disk before it confirms it.

Only its monitoring port says so.
"""

from __future__ import annotations

from worker.adapters.json_server import JsonServer, TooLongError, UnreachableError
from worker.domain.cluster.fields import dig, text, whole
from worker.domain.untrusted.evidence import one_line

CALL_SECONDS = 5.0
MAX_BYTES = 1 << 20
CONSEQUENCE = "messages that were confirmed since the last write are lost if its machine loses power"
REMEDY = "set `sync_interval: always` in the `jetstream` block of its configuration"
UNKNOWN = (
    "it is unknown whether the NATS server writes each message to disk before it confirms it: "
    f"{REMEDY}, or {CONSEQUENCE}; with --monitoring-url this command checks it"
)


async def sync_advice(monitoring_url: str) -> str:
    """Advice about the server's `sync_interval`; empty when it is `always`.

    Without a URL the setting is unknown.
    """
    if not monitoring_url:
        return UNKNOWN
    server = JsonServer(monitoring_url, token="", call_seconds=CALL_SECONDS, max_bytes=MAX_BYTES)
    try:
        varz = (await server.get("/varz", {})).object()
    except (UnreachableError, TimeoutError, TooLongError) as e:
        return f"--monitoring-url: {monitoring_url} cannot be read ({str(e) or type(e).__name__})"
    finally:
        await server.aclose()
    config = dig(varz, "jetstream", "config")
    if not isinstance(config, dict):
        why = "it is not the monitoring port of a server with JetStream"
        return f"--monitoring-url: {monitoring_url} cannot be read ({why})"
    if config.get("sync_always") is True:
        return ""
    name, seconds = one_line(text(dig(varz, "server_name")), 200), whole(config.get("sync_interval")) / 1e9
    return f"{name or 'the NATS server'} writes to disk every {seconds:g} s: {REMEDY}, or {CONSEQUENCE}"
