"""`rca alertmanager` and `rca console`: the commands that listen for HTTP.

The first turns webhooks of Alertmanager into requests, the second serves incidents as web pages.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

from worker.app.cli.console import asynchronous, listening_on, progress, session, until_interrupted

if TYPE_CHECKING:
    from worker.app.settings.listeners import AlertmanagerSettings

LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@asynchronous
async def alertmanager() -> int:
    """Receive webhooks of Alertmanager (version 4) and publish a request for each new alert.

    Finds the object of an alert by its labels and its owners in the cluster, drops duplicates, and turns an
    alert storm into one request. Clients POST to /webhook, with RCA_ALERTMANAGER__TOKEN as bearer token.
    """
    from schemas.taxonomy import RequestKind
    from worker.app import logs
    from worker.app.alert_receiver import AlertReceiver, serve
    from worker.app.client import RequestClient
    from worker.app.settings.environment import load
    from worker.app.wiring.clock import SystemClock
    from worker.app.wiring.outside import open_cluster, within_scope
    from worker.domain.alerts.storm import StormRule, Stormwatch

    settings = load()
    own = settings.alertmanager
    _require_token(own)
    logs.configure(settings.log.level, json_lines=settings.log.json_lines)
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(session("rca-alertmanager"))
        client = RequestClient(opened.nc, opened.subjects)
        rule = StormRule(timedelta(seconds=own.window_seconds), own.storm_alerts, own.storm_objects)
        receiver = AlertReceiver(
            within_scope(await open_cluster(settings, stack), settings.kubernetes),
            lambda body: client.submit(body, RequestKind.INCIDENT),
            SystemClock(),
            own.environment,
            settings.worker.cluster_name,
            Stormwatch(rule),
        )
        advice = "choose another with RCA_ALERTMANAGER__HOST and RCA_ALERTMANAGER__PORT"
        server = serve(receiver, own.host, own.port, own.token.get_secret_value())
        with listening_on(own.host, own.port, advice):
            port = await stack.enter_async_context(server)
        return await until_interrupted(f"listening on http://{own.host}:{port}/webhook")


def _require_token(settings: AlertmanagerSettings) -> None:
    """Raise ConfigurationError if no token is set.

    Without one, whoever reaches the port could have incidents analysed, which costs money.
    """
    from worker.app.settings.environment import ConfigurationError

    if settings.host not in LOOPBACK and not settings.token.get_secret_value():
        raise ConfigurationError(
            f"RCA_ALERTMANAGER__TOKEN is needed to listen on {settings.host}: set it here and in Alertmanager's http_config"
        )


@asynchronous
async def console() -> int:
    """Serve incidents, figures and dead letters as web pages, read only, on loopback.

    Prints the address and a token to log in with, unless RCA_CONSOLE__TOKEN sets one.
    """
    from worker.adapters.nats.stream import FencedStream
    from worker.app.auditing import Auditing
    from worker.app.operations import Operations
    from worker.app.web_console import Console, new_token, serve

    async with session("rca-console") as opened:
        own, nc, subjects = opened.settings.console, opened.nc, opened.subjects
        token = own.token.get_secret_value() or new_token()
        results = FencedStream(nc, subjects.results_stream)
        web = Console(Operations(nc, subjects), Auditing(nc, subjects), results, subjects, token)
        with progress("reading stored results") as show:
            await web.refresh(show)
        advice = "choose another with RCA_CONSOLE__HOST and RCA_CONSOLE__PORT"
        with listening_on(own.host, own.port, advice):
            async with serve(web, own.host, own.port) as port:
                said = "" if own.token.get_secret_value() else f"\ntoken: {token}"
                return await until_interrupted(f"listening on http://{own.host}:{port}/{said}")
