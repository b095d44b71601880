"""A consumer of results: decides what to do with each, until it is stopped.

NATS_URL=nats://127.0.0.1:4222 NATS_USER=aianalysis NATS_PASSWORD=... python aianalysis.py

Needs `pip install "faststream[nats]"`.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any
from urllib.parse import unquote

from faststream import AckPolicy, FastStream
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub
from faststream.security import SASLPlaintext

broker = NatsBroker(
    os.environ["NATS_URL"],
    security=SASLPlaintext(os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]),
    max_reconnect_attempts=-1,
    js_options={
        "prefix": "RCA.API"
    },  # an account without streams of its own imports the API under this prefix
)
app = FastStream(broker)
handled: dict[str, str] = {}
"""Use a database: a message may be delivered twice, also after a restart."""


def decide(result: dict[str, Any]) -> tuple[str, Any]:
    """What docs/consumers.md says to do. A status that is not known here is escalated."""
    match result["status"]:
        case "completed" if result["approval"]["required"]:
            return "ask", result["approval"]["reasons"]
        case "completed":
            return "execute", result["selected_workflow"]
        case "not_actionable" | "resolved":
            return "close", None
        case _:
            return "escalate", [result["human_review_reason"], result["human_review_detail"]]


@broker.subscriber(
    "rca.result.>",
    durable="aianalysis",
    stream=JStream("RCA_RESULTS", declare=False),
    pull_sub=PullSub(batch_size=1),
    ack_policy=AckPolicy.MANUAL,
)
async def handle(result: dict[str, Any], message: NatsMessage) -> None:
    """Decide, store, then acknowledge."""
    # The request key. CloudEvents headers are percent-encoded; ce-type says whether it is an incident or a recovery.
    key = unquote(message.headers["ce-subject"])
    # Only a `failed` result has a successor: an operator sent the request again.
    if handled.get(key, "failed") == "failed":
        action, detail = decide(result)
        print(f"{key}: {action}", json.dumps(detail), flush=True)
        handled[key] = result["status"]
    await message.ack()


if __name__ == "__main__":
    asyncio.run(app.run())
