"""A real Chromium, driven over the pipe of its DevTools protocol; nothing is installed for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from typing import Any

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome", "chrome")
     if (found := shutil.which(name))), None,
)  # fmt: skip
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-extensions", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One page of a browser of its own; ``problems`` are what it complained of."""

    def __init__(self) -> None:
        assert PROGRAM is not None
        self._home = tempfile.mkdtemp(prefix="chromium-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, PROGRAM, *_FLAGS, f"--user-data-dir={self._home}"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Ask for something and wait for the answer; events in between are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            self._note(found)

    def _next(self) -> Any:
        while b"\0" not in self._buffer:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser is gone"
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(head)

    def _note(self, event: Any) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(parameters["exceptionDetails"]["text"])
        elif event.get("method") == "Log.entryAdded":
            self.problems.append(parameters["entry"]["text"])
        elif event.get("method") == "Page.javascriptDialogOpening":
            self.problems.append(f"dialog: {parameters['message']}")
            self.call("Page.handleJavaScriptDialog", accept=False)

    def open(
        self, url: str, *, width: int = 1280, dark: bool = False, scripts: bool = True
    ) -> None:
        """Show a page: how wide, in which colours, with or without JavaScript."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        for _ in range(600):
            if self.run("location.href !== 'about:blank' && document.readyState") == "complete":
                return
            time.sleep(0.05)
        raise AssertionError("the page does not load")

    def run(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True, userGesture=True)  # fmt: skip
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(30)
        os.close(self._read)
        os.close(self._write)
        shutil.rmtree(self._home, ignore_errors=True)
