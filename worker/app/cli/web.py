"""`rca console`: the incidents as web pages."""

from __future__ import annotations

from worker.app.cli.console import asynchronous, listening_on, progress, session, until_interrupted


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
            server = serve(web, own.host, own.port)
            async with server as port:
                said = "" if own.token.get_secret_value() else f"\ntoken: {token}"
                return await until_interrupted(f"listening on http://{own.host}:{port}/{said}")
