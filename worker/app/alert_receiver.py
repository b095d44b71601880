"""Receives webhooks of Alertmanager and publishes requests, for platforms without a gateway of their own.

An answer of 200 means that every alert is published, known already, or about no object that can be analysed;
503 lets Alertmanager send the notification again. An alert is decided once: if its request could not be
published, the same request is published later.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiohttp import web

from schemas.taxonomy import RequestKind
from worker.app.http_server import has_bearer, listening, livez
from worker.domain.alerts.request import (
    NAME_CHARS,
    address_of,
    alert_id,
    is_incident,
    request_of,
    resource_of,
    storm_request,
)
from worker.domain.alerts.storm import Decision, Stormwatch
from worker.domain.alerts.webhook import Alert, InvalidWebhook, Webhook, read_webhook
from worker.domain.cluster.fields import dig, mappings, name_of, text
from worker.domain.cluster.owners import owner_chain
from worker.domain.intake.decode import InvalidRequest, decode
from worker.domain.values.bounded import BoundedDict
from worker.domain.values.errors import ClusterError, ClusterReason, ReportedError
from worker.domain.values.objects import ListQuery, Manifest, ObjectRef
from worker.domain.values.ports import Clock, Cluster

MAX_BODY_BYTES = 8 * 1024 * 1024
KEPT = 50_000
OWNER_SECONDS = 60.0
MANY_NODES = 2_000
Publish = Callable[[bytes], Awaitable[object]]
"""Publishes the body of a request. Raises ReportedError when it is not known to be stored."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class AlertReceiver:
    """Turns alerts into requests. `counts` says how many alerts were published, duplicates, and so on."""

    cluster: Cluster
    publish: Publish
    clock: Clock
    environment: str = "unknown"
    """Of alerts whose labels do not say it."""
    cluster_name: str = ""
    storms: Stormwatch = field(default_factory=Stormwatch)
    counts: Counter[str] = field(default_factory=Counter)
    _requests: BoundedDict[str, bytes | None] = field(default_factory=lambda: BoundedDict(KEPT))
    """By alert: the request that is still to be published, or None if nothing is left to do."""
    _owners: BoundedDict[ObjectRef, tuple[float, ObjectRef]] = field(
        default_factory=lambda: BoundedDict(KEPT)
    )
    _nodes: tuple[float, dict[str, str]] | None = None
    """Names of nodes by their addresses, and when they were read."""
    _one_by_one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def receive(self, webhook: Webhook) -> None:
        """Publish the alerts that are new.

        Raises ReportedError if the webhook must be sent again, because something could not be published.
        """
        if webhook.truncated:
            log.warning("alerts_truncated", left_out=webhook.truncated, advice="raise max_alerts")
        if webhook.invalid:
            self.counts["invalid"] += len(webhook.invalid)
            log.error("alerts_unreadable", errors=webhook.invalid[:3])
        failed: ReportedError | None = None
        async with self._one_by_one:
            for alert in filter(is_incident, webhook.alerts):
                try:
                    await self._take(alert)
                    await asyncio.sleep(0)  # of many alerts, not all lead to a publish
                except ReportedError as e:  # the others may succeed
                    failed = failed or e
        if failed is not None:
            raise failed

    async def _take(self, alert: Alert) -> None:
        name = alert_id(alert)
        if name not in self._requests:
            self._requests[name] = await self._decide(alert)
        if (body := self._requests[name]) is not None:
            await self.publish(body)
            self.counts["published"] += 1
            self._requests[name] = None

    async def _decide(self, alert: Alert) -> bytes | None:
        """The request to publish, or None."""
        target = await self._target(alert)
        if target is None:
            self.counts["no_resource"] += 1
            log.warning("alert_without_resource", alert=alert.name[:NAME_CHARS])
            return None
        body = request_of(alert, target, environment=self.environment, cluster_name=self.cluster_name)
        checked = self._checked(body)
        if checked is None:  # labels with names that no object has must not count towards a storm
            return None
        decision, storm = self.storms.decide(alert.name, target, self.clock.now())
        if storm is not None:
            window = f"{int(self.storms.rule.window.total_seconds())}s"
            log.warning("alert_storm", alert=alert.name, type=storm.type, alerts=storm.alerts)
            return self._checked(storm_request(body, storm, window=window))
        if decision is not Decision.PUBLISH:
            self.counts[str(decision)] += 1
            return None
        return checked

    def _checked(self, body: dict[str, Any]) -> bytes | None:
        """The request, or None if a worker would reject it: sending it again would not help."""
        encoded = json.dumps(body).encode()
        found = decode(encoded, RequestKind.INCIDENT, self.clock.now())
        if isinstance(found, InvalidRequest):
            self.counts["invalid"] += 1
            log.error("alert_invalid", alert=body["signal_type"], errors=[str(e) for e in found.errors[:3]])
            return None
        return encoded

    async def _target(self, alert: Alert) -> ObjectRef | None:
        """The top owner of the object of the alert, so that ten pods of a Deployment are one incident."""
        found = resource_of(alert.labels)
        if (found is None or found.kind == "Namespace") and (host := address_of(alert.labels)):
            found = await self._node(host) or found
        if found is None or found.kind not in {"Pod", "ReplicaSet", "Job"}:
            return found
        kept = self._owners.get(found)
        if kept is not None and self.clock.monotonic() - kept[0] < OWNER_SECONDS:
            return kept[1]
        root = (await owner_chain(self.cluster, found)).root
        self._owners[found] = self.clock.monotonic(), root
        return root

    async def _node(self, host: str) -> ObjectRef | None:
        """The node with this address or name, for alerts of node-exporter.

        Raises ClusterError if it may be there.
        """
        if self._nodes is None or self.clock.monotonic() - self._nodes[0] >= OWNER_SECONDS:
            try:
                listed = (await self.cluster.list(ListQuery("Node", limit=MANY_NODES))).items
            except ClusterError as e:
                if e.reason is not ClusterReason.FORBIDDEN:
                    raise
                log.warning("nodes_unreadable", error=e.message)
                listed = ()
            table = {address: name_of(node) for node in listed for address in _addresses(node)}
            self._nodes = self.clock.monotonic(), table
        name = self._nodes[1].get(host)
        return ObjectRef("Node", name) if name else None


def _addresses(node: Manifest) -> set[str]:
    return {name_of(node)} | {
        text(entry.get("address")) for entry in mappings(dig(node, "status", "addresses"))
    }


@asynccontextmanager
async def serve(receiver: AlertReceiver, host: str, port: int, token: str) -> AsyncIterator[int]:
    """`POST /webhook` with the token as bearer, and `GET /livez`. Yields the port. Raises OSError."""

    async def webhook(request: web.Request) -> web.Response:
        if token and not has_bearer(request, token):
            return web.json_response({"error": "a bearer token is needed"}, status=401)
        if request.content_type != "application/json":  # browsers cannot send it across sites
            return web.json_response({"error": "Content-Type must be application/json"}, status=415)
        try:
            received = read_webhook(await request.read())
        except web.HTTPRequestEntityTooLarge:
            log.warning("webhook_too_large", limit=MAX_BODY_BYTES, advice="set max_alerts of the receiver")
            return web.json_response({"error": f"above {MAX_BODY_BYTES} bytes: set max_alerts"}, status=413)
        except (InvalidWebhook, web.RequestPayloadError) as e:  # the latter: not encoded as the header says
            log.warning("webhook_invalid", reason=str(e))
            return web.json_response({"error": str(e)}, status=400)
        try:
            await receiver.receive(received)
        except ReportedError as e:
            log.warning("alerts_not_published", reason=str(e))
            return web.json_response({"error": str(e)}, status=503)
        return web.json_response(dict(receiver.counts))

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/webhook", webhook)
    app.router.add_get("/livez", livez)
    async with listening(app, host, port) as taken:
        yield taken
