"""A small read-only web page over the streams: incidents, one incident, figures, dead letters.

Pages are rendered here and work without scripts; the only script replaces the rows of the list. Text from the
cluster, the sender and the model is escaped by the templates, and the Content-Security-Policy allows nothing
but the files of this server.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import structlog
from aiohttp import web
from jinja2 import Environment
from pydantic import ValidationError

from schemas.analysis import AnalysisResult, Status
from schemas.audit import AuditEvent
from schemas.subjects import Subjects
from worker.adapters.nats.stream import FencedStream
from worker.app.auditing import Auditing
from worker.app.http_server import has_bearer, is_same, listening
from worker.app.operations import OperationError, Operations, read_key
from worker.app.pages import environment, incident_page
from worker.app.pages.results import PAGE_ROWS, ResultIndex, figures
from worker.app.supervisor import Supervisor
from worker.domain.values.bounded import BoundedDict
from worker.domain.values.errors import ReportedError, Unavailable

REFRESH_SECONDS = 2.0
COOKIE = "rca_console"
LETTERS_SHOWN, REJECTIONS_SHOWN, TRAILS_KEPT = 50, 20, 200
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
OPEN_PATHS = frozenset({"/login", "/static/style.css"})
TYPES = {"style.css": "text/css", "console.js": "text/javascript"}

log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class Console:
    """The index of results, kept up to date, and the pages over it."""

    operations: Operations
    auditing: Auditing
    results: FencedStream
    subjects: Subjects
    token: str
    index: ResultIndex = field(default_factory=ResultIndex)
    problem: str = ""
    _created: datetime | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _trails: BoundedDict[tuple[str, datetime], list[AuditEvent]] = field(
        default_factory=lambda: BoundedDict(TRAILS_KEPT)
    )
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _templates: Environment = field(default_factory=environment)

    async def follow(self) -> None:
        """Read new results until cancelled."""
        while True:
            try:
                await self.refresh()
                self.problem = ""
            except Unavailable as e:
                self.problem = str(e)
                log.warning("results_unreadable", reason=self.problem)
            await asyncio.sleep(REFRESH_SECONDS)

    async def refresh(self, progress: Callable[[int, int], None] = lambda _done, _all: None) -> None:
        """Read the results that have come since the last time. Raises Unavailable."""
        info = await self.results.info()
        if self._created not in {None, info.created}:  # a new stream counts from 1 again
            self.index = ResultIndex()
        self._created = info.created
        extent = info.extent(datetime.now(UTC))
        before, first = self.index.last_sequence, max(extent.first, self.index.last_sequence + 1)
        try:
            async for message in self.results.messages(replace(extent, first=first)):
                self.index.last_sequence = message.sequence
                progress(message.sequence - first + 1, extent.last - first + 1)
                key = self.subjects.key_of(message.subject)
                try:
                    self.index.add(key, AnalysisResult.model_validate_json(message.body))
                except ValidationError:
                    log.warning("result_unreadable", key=key)  # of a newer version
        finally:
            if self.index.last_sequence != before:
                self._changed.set()
                self._changed = asyncio.Event()

    # --- pages

    async def list_page(self, request: web.Request) -> web.Response:
        """`/`: the newest results, or those that a search finds."""
        q, status = request.query.get("q", "")[:200], request.query.get("status", "")
        start = _number(request.query.get("from", ""))
        found = self.index.search(q, status)
        more = start + PAGE_ROWS
        return self._page(
            "list.html",
            here="/",
            rows=found[start:more],
            total=len(found),
            q=q,
            status=status,
            statuses=list(map(str, Status)),
            next=more if len(found) > more else 0,
            problem=self.problem,
        )

    async def incident(self, request: web.Request) -> web.Response:
        """`/incident/KEY`."""
        key = read_key(request.match_info["key"])
        result = await self.operations.result(key)
        if result is None:
            return self._page(
                "message.html", 404, here="/", title="No such result", text=f"{key} has no result (yet)."
            )
        page = incident_page(key, result, await self._events(key, result))
        return self._page("one.html", here="/incident", page=page)

    async def _events(self, key: str, result: AnalysisResult) -> list[AuditEvent]:
        """The audit events of a request that has ended.

        The whole stream is read for each request, once, and for one request at a time.
        """
        async with self._reading:
            mark = (key, result.completed_at)
            if mark not in self._trails:
                self._trails[mark] = await self.auditing.events_of(key)
            return self._trails[mark]

    async def figures_page(self, _: web.Request) -> web.Response:
        """`/figures`."""
        lanes = await self.operations.lanes()
        return self._page("figures.html", here="/figures", f=figures(self.index.newest()), lanes=lanes)

    async def letters_page(self, request: web.Request) -> web.Response:
        """`/letters`: the newest dead letters and rejected messages, or the letters before an id."""
        before = _number(request.query.get("before", ""))
        letters = await self.operations.newest_letters(LETTERS_SHOWN, before)
        return self._page(
            "letters.html",
            here="/letters",
            letters=letters,
            rejections=[] if before else await self.operations.rejections(REJECTIONS_SHOWN),
            older=letters[-1].id if len(letters) == LETTERS_SHOWN else 0,
        )

    async def changes(self, request: web.Request) -> web.StreamResponse:
        """`/events`: server-sent events, one when results have come."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **HEADERS})
        await response.prepare(request)
        await response.write(b"retry: 5000\n\n")
        with suppress(ConnectionError):  # the browser has left
            while True:
                told = b": alive\n\n"
                with suppress(TimeoutError):
                    async with asyncio.timeout(15):
                        await self._changed.wait()
                    told = b"event: changed\ndata: \n\n"
                await response.write(told)
        return response

    # --- access

    async def login_page(self, _: web.Request) -> web.Response:
        """`GET /login`."""
        return self._page("login.html", here="", wrong=False)

    async def login(self, request: web.Request) -> web.Response:
        """`POST /login`: a cookie for the right token."""
        given = ""
        if request.content_type == "application/x-www-form-urlencoded":  # never files or parts
            with suppress(ValueError, LookupError, web.RequestPayloadError):  # an unknown or invalid encoding
                given = str((await request.post()).get("token", ""))
        if not is_same(given, self.token):
            await asyncio.sleep(0.5)
            return self._page("login.html", 403, here="", wrong=True)
        response = web.Response(status=303, headers={"Location": "/", **HEADERS})
        response.set_cookie(COOKIE, self._mark(), httponly=True, samesite="Strict", path="/")
        return response

    def _mark(self) -> str:
        """The content of the cookie: proof of the token, not the token."""
        return hmac.new(self.token.encode(), b"rca console", hashlib.sha256).hexdigest()

    @web.middleware
    async def guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Admits requests with the token, as a cookie or as a bearer. Nobody gets a traceback."""
        by_cookie = is_same(request.cookies.get(COOKIE, ""), self._mark())
        known = by_cookie or has_bearer(request, self.token)
        if not known and request.path not in OPEN_PATHS:
            return web.Response(status=303, headers={"Location": "/login", **HEADERS})
        try:
            return await handler(request)
        except OperationError as e:
            return self._page("message.html", 404, here="/", title="No such request", text=str(e))
        except ReportedError as e:
            return self._page("message.html", 503, here="/", title="Not available", text=str(e))

    def _page(self, template: str, code: int = 200, /, **values: Any) -> web.Response:
        text = self._templates.get_template(template).render(**values)
        return web.Response(text=text, status=code, content_type="text/html", headers=HEADERS)


def _number(text: str) -> int:
    """The number in a query; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in TYPES:
        raise web.HTTPNotFound
    text = (files("worker.app.pages") / "templates" / name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=TYPES[name], headers={**HEADERS, "Cache-Control": "no-cache"})


@asynccontextmanager
async def serve(console: Console, host: str, port: int) -> AsyncIterator[int]:
    """Serve until the context ends; yields the port. Raises OSError."""
    app = web.Application(middlewares=[console.guard], client_max_size=4_096)
    app.router.add_get("/", console.list_page)
    app.router.add_get("/incident/{key}", console.incident)
    app.router.add_get("/figures", console.figures_page)
    app.router.add_get("/letters", console.letters_page)
    app.router.add_get("/events", console.changes)
    app.router.add_get("/login", console.login_page)
    app.router.add_post("/login", console.login)
    app.router.add_get("/static/{name}", _static)
    async with listening(app, host, port) as taken, Supervisor().running("results", console.follow()):
        yield taken


def new_token() -> str:
    """A token for a console without a configured one."""
    return secrets.token_urlsafe(18)
