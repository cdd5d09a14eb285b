"""Headless Chromium, spoken to over a pipe: the DevTools protocol with nothing but Python's own library."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find_chromium():
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if shutil.which(name):
            return name
    return None


class Browser:
    """One page. `errors` has the exceptions, complaints and violated policies, `requests` the addresses asked for."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="driftless-explain-")
        commands_read, self._commands = os.pipe()
        self._events, events_write = os.pipe()

        def connect():  # to 3 and 4, where Chromium looks for its pipes
            ends = os.dup(commands_read), os.dup(events_write)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        arguments = [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        # What Chromium writes on standard error is about the machine, such as a bus that it does not have.
        self._process = subprocess.Popen(arguments, preexec_fn=connect, close_fds=False, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands_read)
        os.close(events_write)
        self._buffer = b""
        self._count = 0
        self._session = None
        self.errors = []
        self.requests = []
        self._is_loaded = False
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def _receive(self, deadline):
        while b"\0" not in self._buffer:
            if not select.select([self._events], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("expected an answer of Chromium within 60 s, got none")
            piece = os.read(self._events, 1 << 16)
            if not piece:
                raise RuntimeError("expected an answer of Chromium, found that it has ended")
            self._buffer += piece
        message, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(message)
        method, values = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(values["exceptionDetails"]))
        elif method == "Log.entryAdded" or method == "Runtime.consoleAPICalled":
            self.errors.append(json.dumps(values))
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Page.loadEventFired":
            self._is_loaded = True
        return message

    def call(self, method, **values):
        self._count += 1
        message = {"id": self._count, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, path, fragment=""):
        self._is_loaded = False
        self.call("Page.navigate", url="about:blank")
        deadline = time.monotonic() + 60
        while not self._is_loaded:
            self._receive(deadline)
        self._is_loaded = False
        self.requests.clear()
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + fragment)
        while not self._is_loaded:
            self._receive(deadline)

    def run(self, expression):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def press(self, key):
        code = {"Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35,
                "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def resize(self, width, height, scale=1, is_mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=is_mobile)

    def prefer(self, **features):
        """Media features, with _ for -, such as prefers_color_scheme="dark"."""
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
