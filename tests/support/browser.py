"""A real Chromium without a window, spoken to over the DevTools protocol: on a pipe, with no port and no driver."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.support.waiting import PATIENCE_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",  # a container's root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """One Chromium with one tab; it stops when the `with` ends.

    `troubles` are the console's errors and warnings and uncaught exceptions, `requests` the addresses that the page
    asked for: both since the last `open`, the page itself left out.
    """

    def __init__(self) -> None:
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self._events: list[dict[str, Any]] = []
        self._number = 0
        self._rest = b""

    def __enter__(self) -> Self:
        program = next((found for name in NAMES if (found := shutil.which(name))), None)
        assert program is not None, f"the tests need one of {', '.join(NAMES)}: apt-get install chromium"
        self._folder = tempfile.TemporaryDirectory(prefix="kquota-browser-", ignore_cleanup_errors=True)
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        # The protocol's pipe is at descriptors 3 and 4, whatever numbers these have here.
        line = f'exec "$@" 3<&{commands} 4>&{answers}'
        arguments = [program, *QUIET, f"--user-data-dir={self._folder.name}", "--remote-debugging-pipe", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", line, "bash", *arguments],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, AssertionError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command of the protocol; what happens meanwhile is kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        number = self._number
        answer = self._until(lambda message: message.get("id") == number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        if not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._until(lambda message: message.get("method") == "Page.loadEventFired")
        # What was said and asked for before the page was loaded is among the events now.
        self.troubles = [text for event in self._events if (text := _trouble(event))]
        asked = [event["params"]["request"]["url"] for event in self._events if event["method"] == _REQUEST]
        self.requests = [url for url in asked if url != page.resolve().as_uri()]

    def resize(self, width: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def evaluate(self, script: str) -> Any:
        """What a JavaScript expression is; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def screenshot(self, *, whole: bool = True) -> bytes:
        """The page as PNG: the whole, or what fits into the window."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def _until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first message that is wanted; events before it are kept."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            head, end, rest = self._rest.partition(b"\0")
            if end:
                self._rest = rest
                message: dict[str, Any] = json.loads(head)
                if "method" in message:
                    self._events.append(message)
                if wanted(message):
                    return message
                continue
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self._from, 1 << 20) if ready else b""
            assert part, "the browser is gone" if ready else f"the browser is silent for {PATIENCE_S} s"
            self._rest += part


_REQUEST = "Network.requestWillBeSent"


def _trouble(event: dict[str, Any]) -> str:
    """What is wrong, or nothing."""
    params = event["params"]
    if event["method"] == "Runtime.exceptionThrown":
        return json.dumps(params["exceptionDetails"])
    if event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
        return str(params["entry"]["text"])
    if event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
        return json.dumps(params["args"])
    return ""
