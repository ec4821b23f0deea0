"""A browser under WebDriver (chromedriver), with nothing but the standard library."""
import base64
import json
import time
import urllib.request

KEYS = {"Left": "\ue012", "Right": "\ue014", "Tab": "\ue004"}
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    def __init__(self, driver_port, profile, width=1440, height=1000, extra=()):
        self.base = f"http://127.0.0.1:{driver_port}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update", "--disable-sync",
                     "--disable-dev-shm-usage", f"--user-data-dir={profile}", f"--window-size={width},{height}", *extra]
        # A busy machine may take its time: for a script it has as long as for any question to the driver.
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                                  "timeouts": {"script": 120_000},
                                  "goog:chromeOptions": {"binary": "/usr/bin/chromium", "args": arguments}}}
        answer = self.call("POST", "/session", {"capabilities": wanted}, of_session=False)
        self.session = answer["sessionId"]

    def call(self, method, path, body=None, of_session=True):
        url = self.base + (f"/session/{self.session}" if of_session else "") + path
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)

    def choose(self, selector, value):
        self.run("const s = document.querySelector(arguments[0]); s.value = arguments[1];"
                 "s.dispatchEvent(new Event('change', {bubbles: true}))", selector, value)

    def log(self):
        return self.call("POST", "/se/log", {"type": "browser"})

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    def close(self):
        self.call("DELETE", "")


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    last = None
    while time.monotonic() < end:
        last = condition()
        if last:
            return last
        time.sleep(0.1)
    raise AssertionError(f"{what}: {last!r}")
