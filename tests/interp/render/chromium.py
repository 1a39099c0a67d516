"""A headless Chromium over its debugging pipe: what a page asks for, what it complains about, what it shows."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from headlab.interp.render import browser


class Chromium:
    """One browser with one page. `requests` and `complaints` gather what happened since the last `open`."""

    def __init__(self) -> None:
        program = browser.find()
        assert program is not None
        self._profile = tempfile.TemporaryDirectory(prefix="headlab-", ignore_cleanup_errors=True)
        reads, self._out = os.pipe()
        self._in, writes = os.pipe()

        def wire() -> None:
            # The browser reads commands from descriptor 3 and writes answers to 4: neither may overwrite the other.
            first, second = os.dup(reads), os.dup(writes)
            os.dup2(first, 3)
            os.dup2(second, 4)

        command = [program, *browser.FLAGS, f"--user-data-dir={self._profile.name}", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [*command, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=wire,
            close_fds=False,
            pass_fds=(),
        )
        os.close(reads)
        os.close(writes)
        self._number = 0
        self._rest = b""
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(one for one in targets if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(60)
            assert answer is not None, f"no answer to {method}"
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def _read(self, seconds: float) -> dict[str, Any] | None:
        end = time.monotonic() + seconds
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(end - time.monotonic(), 0))
            if not ready:
                return None
            self._rest += os.read(self._in, 1 << 16)
        line, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            address = told["request"]["url"]
            if not address.startswith(("data:", "blob:", "about:")) and told.get("documentURL") != address:
                self.requests.append(address)
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"])[:300])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(told["args"])[:300])
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"][:300])
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"a label was executed: {told['message']}")
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, page: Path, width: int = 1280, *, dark: bool = False, scripts: bool = True) -> None:
        """Open a file in a window of this width and wait until it is laid out."""
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.width(width)
        self.requests, self.complaints, self._loaded = [], [], False
        self.call("Page.navigate", url=page.as_uri())
        while not self._loaded:
            assert self._read(30) is not None, "the page did not load"

    def width(self, width: int, height: int = 900) -> None:
        """Change the window's width."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def wait(self, seconds: float) -> None:
        """Take in what happens for a while."""
        end = time.monotonic() + seconds
        while self._read(max(end - time.monotonic(), 0)) is not None:
            pass

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is worth."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, target: Path) -> None:
        """A screenshot of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        target.write_bytes(self._shot(0, 0, size["width"], size["height"]))

    def pictures(self, selector: str) -> list[bytes]:
        """A screenshot of each visible element, also where scripts are off."""
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        shots = []
        for node in self.call("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"]:
            left, top, _, _, right, bottom, *_ = self.call("DOM.getBoxModel", nodeId=node)["model"]["content"]
            shots.append(self._shot(left, top, right - left, bottom - top))
        return shots

    def _shot(self, x: float, y: float, width: float, height: float) -> bytes:
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    def press(self, key: str, code: int) -> None:
        """Press and release a key where the focus is."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def point(self, x: float, y: float) -> None:
        """Move the pointer there."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
