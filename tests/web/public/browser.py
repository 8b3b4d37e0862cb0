"""Debian's chromium, headless, driven by its DevTools protocol over a WebSocket."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium")


class Tab:
    """One page. Calls are answered in any order, so each waits for its own."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.requested: list[str] = []
        self.complaints: list[str] = []
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": number, "method": method, "params": params})
        return await asyncio.wait_for(answer, 30)

    async def listen(self) -> None:
        async for message in self.socket:
            said = message.json()
            match said.get("method"):
                case None:
                    self._answer(said)
                case "Page.loadEventFired":
                    self._loaded.set()
                case "Network.requestWillBeSent":
                    self.requested.append(said["params"]["request"]["url"])
                case "Log.entryAdded":
                    self.complaints.append(said["params"]["entry"]["text"])

    async def open(self, url: str) -> None:
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), 30)

    async def press(self, key: str, code: int, text: str = "") -> None:
        """On the keyboard, as a person without a mouse does."""
        more: Mapping[str, Any] = {"text": text} if text else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def press_and_load(self, key: str, code: int, text: str = "") -> None:
        self._loaded.clear()
        await self.press(key, code, text)
        await asyncio.wait_for(self._loaded.wait(), 30)

    async def accessible(self) -> list[tuple[str, str]]:
        """Role and name of what a screen reader finds, in its order."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        ]

    async def evaluate(self, expression: str) -> Any:
        """By the inspector, which the page's own rules do not bind."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _answer(self, said: dict[str, Any]) -> None:
        answer = self._answers.pop(said["id"])
        if "error" in said:
            answer.set_exception(RuntimeError(str(said["error"])))
        else:
            answer.set_result(said["result"])


@contextmanager
def browser(home: Path) -> Iterator[int]:
    """The port of a browser of the tests' own: starting one takes longer than all that is done with it."""
    assert CHROMIUM is not None
    command = [
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--remote-debugging-port=0", f"--user-data-dir={home}", "--disable-background-networking", "about:blank"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            assert process.stderr is not None
            found = (re.search(rb"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line) for line in process.stderr)
            yield next(int(one[1]) for one in found if one)
        finally:
            process.kill()


@asynccontextmanager
async def browsing(port: int, *, scripts: bool = False, language: str = "en") -> AsyncIterator[Tab]:
    """A tab, with scripts switched off as some readers have them."""
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
            opened = await answer.json(content_type=None)
        async with session.ws_connect(opened["webSocketDebuggerUrl"], max_msg_size=1 << 24) as socket:
            tab = Tab(socket)
            listening = asyncio.ensure_future(tab.listen())
            for domain in ("Page", "Network", "Log", "Accessibility", "Runtime"):
                await tab.call(f"{domain}.enable")
            await tab.call("Page.bringToFront")
            await tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
            await tab.call("Network.setExtraHTTPHeaders", headers={"Accept-Language": language})
            yield tab
            listening.cancel()
        async with session.get(f"http://127.0.0.1:{port}/json/close/{opened['id']}") as answer:
            await answer.read()
