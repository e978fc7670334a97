"""A real headless Chromium, driven over its debugging pipe; needs nothing but the browser."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
EXEC = (
    "import fcntl, os, sys\n"
    "pipes = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]\n"
    "os.dup2(pipes[0], 3); os.dup2(pipes[1], 4)\n"
    "os.execvp(sys.argv[3], sys.argv[3:])"
)


FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
]


class Chromium:
    """One page of one browser. `url`s asked for since the last `open` are in `requests`."""

    def __init__(self, binary: str, profile: Path) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                EXEC,
                str(theirs_in),
                str(theirs_out),
                binary,
                *FLAGS,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.reader, self.writer, self.buffer, self.number = ours_in, ours_out, b"", 0
        self.session: str | None = None
        self.requests: list[str] = []
        self.events: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self.number:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]

    def _read(self, seconds: float = 60) -> dict[str, Any]:
        """The next message; events are noted on the way."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reader], [], [], max(end - time.monotonic(), 0))
            if not ready:
                raise TimeoutError("chromium did not answer")
            chunk = os.read(self.reader, 1 << 16)
            if not chunk:
                raise RuntimeError("chromium ended")
            self.buffer += chunk
        raw, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(raw)
        name = message.get("method", "")
        if name == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        if name:
            self.events.append(name)
        return message

    def open(
        self, path: Path, width: int, height: int = 900, dark: bool = False, script: bool = True
    ) -> None:
        """Load a file at a width, in a colour scheme, with or without JavaScript."""
        scheme = "dark" if dark else "light"
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.requests.clear()
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self.events:
            self._read()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; works with the page's own scripts disabled."""
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(str(reply["exceptionDetails"]))
        return reply["result"].get("value")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)
        os.close(self.reader)
        os.close(self.writer)
