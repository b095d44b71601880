"""A gateway: publishes each FILE (one request as JSON), then says which requests are rejected until it is stopped.

NATS_URL=nats://127.0.0.1:4222 NATS_USER=gateway NATS_PASSWORD=... python gateway.py FILE...

Needs `pip install "faststream[nats]" jsonschema`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import nats.errors
from faststream import FastStream
from faststream.nats import NatsBroker
from faststream.security import SASLPlaintext
from jsonschema import Draft202012Validator
from nats.js.errors import APIError, NoStreamResponseError

SCHEMAS = Path(__file__).parents[3] / "schemas" / "v1"
VALIDATOR = Draft202012Validator(json.loads((SCHEMAS / "incident-request.schema.json").read_text("utf-8")))

broker = NatsBroker(
    os.environ["NATS_URL"],
    security=SASLPlaintext(os.environ["NATS_USER"], os.environ["NATS_PASSWORD"]),
    max_reconnect_attempts=-1,
)
app = FastStream(broker)


@broker.subscriber("rca.validation.request")
async def show_rejection(failure: dict[str, Any]) -> None:
    """Whatever a worker cannot accept, with every error: requests of other gateways, too."""
    errors = "; ".join(f"{error['path']}: expected {error['expected']}" for error in failure["errors"])
    print(f"rejected {failure['request_key']}: {failure['code']}: {errors}", flush=True)


@app.after_startup
async def publish_all() -> None:
    """Validate and publish the files."""
    for request in map(read, sys.argv[1:]):
        if errors := [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(request)]:
            print("not sent:", "; ".join(errors), flush=True)
            continue
        sequence, duplicate = await publish(request)
        said = "was stored before" if duplicate else "stored"
        print(f"{said} {request['remediation_id']}: sequence {sequence}", flush=True)


def read(file: str) -> dict[str, Any]:
    """The request in a file."""
    request: dict[str, Any] = json.loads(Path(file).read_text("utf-8"))
    return request


async def publish(request: dict[str, Any]) -> tuple[int, bool]:
    """Return when the server has stored the request. Only the acknowledgement proves that."""
    lane = request.get("priority", "P2").lower()
    seconds = 1
    while True:
        try:
            # The id is the same for every try, so that the server stores the request once.
            stored = await broker.publish(
                request,
                f"rca.request.incident.{lane}",
                headers={"Nats-Msg-Id": request["remediation_id"]},
                stream="RCA_REQUESTS",
                timeout=5,
            )
        except (nats.errors.Error, APIError, NoStreamResponseError, TimeoutError) as error:
            print(f"{request['remediation_id']} is not stored ({error!r}); again in {seconds} s", flush=True)
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, 30)
        else:
            return stored.seq, bool(stored.duplicate)


if __name__ == "__main__":
    asyncio.run(app.run())
