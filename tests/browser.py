"""A headless Chromium that tests drive over the DevTools protocol, and notes of everything that goes wrong on its pages.

async with browser(tmp_path) as chromium, chromium.page() as page:
    await page.open(url)
    assert not page.problems
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).parent / "contract/node/node_modules/axe-core/axe.min.js"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0",
)  # fmt: skip
PATIENCE_SECONDS = 60
DOMAINS = ("Page", "Runtime", "Log", "Network")


class Page:
    """One tab. `problems` are dialogs, errors of the console, exceptions and violations of the security policy."""

    def __init__(self, chromium: Browser, session: str) -> None:
        self._chromium, self._session = chromium, session
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.loaded = asyncio.Event()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._chromium.call(method, parameters, self._session)

    def on_event(self, method: str, told: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self.loaded.set()
            case "Page.javascriptDialogOpening":
                self.problems.append(f"dialog: {told['message']}")
                asyncio.get_running_loop().create_task(self.call("Page.handleJavaScriptDialog", accept=True))
            case "Runtime.exceptionThrown":
                self.problems.append(f"exception: {told['exceptionDetails']}")
            case "Runtime.consoleAPICalled" if told["type"] in {"error", "assert"}:
                self.problems.append(f"console: {told['args']}")
            case "Log.entryAdded" if told["entry"]["level"] == "error":
                self.problems.append(f"{told['entry']['source']}: {told['entry']['text']}")
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])

    async def open(self, url: str) -> None:
        """Go to an address and wait until it is loaded."""
        self.loaded.clear()
        told = await self.call("Page.navigate", url=url)
        assert "errorText" not in told, told
        await asyncio.wait_for(self.loaded.wait(), PATIENCE_SECONDS)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        told = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def look(self, *, dark: bool = False, width: int = 1_100, phone: bool = False) -> None:
        """Choose the theme and the size of the window."""
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=phone,
        )

    async def press(self, key: str, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                text=text,
                windowsVirtualKeyCode={"Tab": 9, "Enter": 13}[key],
            )

    async def screenshot(self, file: Path) -> None:
        """The whole page as PNG."""
        told = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        await asyncio.to_thread(_write, file, base64.b64decode(told["data"]))

    async def faults(self) -> list[str]:
        """Serious and critical faults of accessibility that axe finds."""
        if not await self.evaluate("!!window.axe"):
            await self.evaluate(f"{AXE.read_text(encoding='utf-8')};0")
        found = await self.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)"
        )
        return [
            f"{each['id']}: {node['html'][:200]}"
            for each in found
            if each["impact"] in {"serious", "critical"}
            for node in each["nodes"]
        ]


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


class Browser:
    """A running Chromium."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._ids = socket, itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}

    async def call(self, method: str, parameters: dict[str, Any], session: str = "") -> dict[str, Any]:
        number, answer = next(self._ids), asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        command = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json({**command, "sessionId": session} if session else command)
        told = await asyncio.wait_for(answer, PATIENCE_SECONDS)
        assert "error" not in told, (method, told["error"])
        return told["result"]

    async def listen(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
            elif page := self._pages.get(told.get("sessionId", "")):
                page.on_event(told["method"], told["params"])

    @asynccontextmanager
    async def page(self) -> AsyncIterator[Page]:
        """A tab with cookies of its own."""
        context = (await self.call("Target.createBrowserContext", {}))["browserContextId"]
        target = (
            await self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})
        )["targetId"]
        session = (await self.call("Target.attachToTarget", {"targetId": target, "flatten": True}))[
            "sessionId"
        ]
        page = self._pages[session] = Page(self, session)
        for domain in DOMAINS:
            await page.call(f"{domain}.enable")
        yield page
        await self.call("Target.disposeBrowserContext", {"browserContextId": context})


@asynccontextmanager
async def browser(directory: Path) -> AsyncIterator[Browser]:
    """A Chromium with an empty profile below the directory."""
    assert CHROMIUM
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={directory / 'profile'}",
        env={**os.environ, "HOME": str(directory)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr
    try:
        async with aiohttp.ClientSession() as http:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while b"DevTools listening on" not in (line := await process.stderr.readline()):
                    assert line, "Chromium did not start"
            url = line.decode().split()[-1]
            drained = asyncio.create_task(process.stderr.read())
            async with http.ws_connect(url, max_msg_size=0) as socket:
                chromium = Browser(socket)
                listening = asyncio.create_task(chromium.listen())
                yield chromium
                with contextlib.suppress(ConnectionError):
                    await chromium.call("Browser.close", {})
                await asyncio.wait_for(listening, PATIENCE_SECONDS)
            await drained
    finally:
        if process.returncode is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 10)
        if process.returncode is None:
            process.kill()
            await process.wait()
