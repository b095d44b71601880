"""`rca console`: the incidents as web pages."""

from __future__ import annotations

from worker.app.cli.console import asynchronous, listening_on, progress, session, until_interrupted
from worker.app.cli.report_page import events_of


@asynchronous
async def console() -> int:
    """Serve incidents, figures and dead letters as web pages, read only, on loopback.

    Prints the address and a token to log in with, unless RCA_CONSOLE__TOKEN sets one.
    """
    from worker.adapters.nats.stream import FencedStream
    from worker.app.auditing import Auditing
    from worker.app.operations import Operations
    from worker.app.web_console import Console, Sources, new_token, serve

    async with session("rca-console") as opened:
        own, nc, subjects = opened.settings.console, opened.nc, opened.subjects
        operations, auditing = Operations(nc, subjects), Auditing(nc, subjects)
        sources = Sources(
            results=FencedStream(nc, subjects.results_stream),
            subjects=subjects,
            lanes=operations.lanes,
            letters=operations.newest_letters,
            rejections=operations.rejections,
            result=operations.result,
            events=lambda key: events_of(auditing, key),
        )
        given = own.token.get_secret_value()
        web = Console(sources, given or new_token())
        with progress("reading stored results") as show:
            await web.refresh(show)
        advice = "choose another with RCA_CONSOLE__HOST and RCA_CONSOLE__PORT"
        with listening_on(own.host, own.port, advice):
            server = serve(web, own.host, own.port)
            async with server as port:
                token = "" if given else f"\ntoken: {web.token}"
                return await until_interrupted(f"listening on http://{own.host}:{port}/{token}")
