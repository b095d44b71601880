"""Watches the streams and consumers of a worker: whether they are usable, how full they are, their ack_wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from nats.aio.client import Client

from worker.adapters.nats.layout import SECOND, Wanted
from worker.adapters.nats.provision import Found, look
from worker.app.server_clock import ServerClock
from worker.domain.values.delays import WATCH_SECONDS
from worker.domain.values.errors import Unavailable

FULL, FILLING = 0.98, 0.9
"""Shares of a stream's byte limit: it may soon refuse messages (first), and needs attention (second).
"""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamFill:
    """Bytes of a stream, the limit at which it refuses messages (0 for none), and how many messages it holds."""

    stored: int
    limit: int
    messages: int = 0

    @property
    def share(self) -> float:
        """The share of the limit that is used; 0 without a limit."""
        return self.stored / self.limit if self.limit > 0 else 0.0


@dataclass(slots=True)
class StreamWatch:
    """Watches the streams and consumers of a worker.

    `problem` says why messages cannot be served, `notice` what will need attention; both are empty if all is
    well.

    `ack_waits` are those of the consumers on the server, in seconds, which take precedence over the settings.
    Each look also tells `clock` the time of the server.
    """

    items: Sequence[Wanted]
    clock: ServerClock
    queue: str = ""
    """The stream of requests. While it is full, producers are refused, but the worker continues."""
    problem: str = ""
    notice: str = ""
    ack_waits: dict[str, float] = field(default_factory=dict)
    usage: dict[str, StreamFill] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    """Requests in each lane that no worker has begun."""

    async def run(self, nc: Client, on_look: Callable[[Mapping[str, float]], None]) -> None:
        """Look periodically until cancelled. `on_look` receives the ack waits of the consumers."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if nc.is_connected:  # else the connection is at fault
                await self.look(nc)
                on_look(self.ack_waits)
            else:
                self.waiting.clear()  # others may have emptied the queue by now

    async def look(self, nc: Client) -> str:
        """Look once. Returns `problem`."""
        before, asked = self.problem, self.clock.monotonic()
        try:
            found = await look(nc, self.items, patience_seconds=WATCH_SECONDS)
        except Unavailable as e:
            self.problem = str(e)
        else:
            self._note(found)
            self.clock.compare([each.server_time for each in found if each.server_time], asked)
        if self.problem and self.problem != before:
            log.error("streams_unusable", reason=self.problem)
        elif before and not self.problem:
            log.info("streams_usable")
        return self.problem

    def _note(self, found: Sequence[Found]) -> None:
        unusable = [each.unusable for each in found if each.unusable]
        for each in found:
            if each.info and each.item.stream:
                lane = str(each.item.config["durable_name"])
                self._note_ack_wait(lane, each.info["config"])
                if each.item.stream == self.queue:
                    self.waiting[lane] = each.info.get("num_pending", 0)
            elif each.info:
                config = each.info["config"]
                refuses = config.get("discard") == "new"  # other streams drop old messages
                limit = max(0, config.get("max_bytes", 0)) if refuses else 0
                state = each.info["state"]
                self.usage[each.item.name] = StreamFill(state["bytes"], limit, state["messages"])
        shares = {name: usage.share for name, usage in self.usage.items()}
        full = [f"{name} is full" for name, share in shares.items() if share > FULL and name != self.queue]
        self.problem = "; ".join([*unusable, *full])
        self.notice = "; ".join(
            f"{name} holds {share:.0%} of its byte limit"
            for name, share in shares.items()
            if share > FILLING and f"{name} is full" not in full
        )

    def _note_ack_wait(self, durable: str, config: Mapping[str, int]) -> None:
        seconds = config.get("ack_wait", 0) / SECOND
        if seconds > 0 and self.ack_waits.get(durable) != seconds:
            if durable in self.ack_waits:
                log.warning("ack_wait_changed", lane=durable, seconds=seconds)
            self.ack_waits[durable] = seconds
