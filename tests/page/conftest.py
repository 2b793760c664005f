"""A real browser, where there is one, that notes whatever it asks a network for."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from processes import run

from dpdemo.cli.page import start_of
from dpdemo.config.fields import Config
from dpdemo.page import as_page

ROOT = Path(__file__).parent.parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--window-size=1100,900"),
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """Start Chromium once for all tests."""
    selenium = pytest.importorskip("selenium", reason="Selenium is not installed")
    if not (CHROMIUM and DRIVER):
        pytest.skip("no Chromium with its driver is installed: apt-get install chromium chromium-driver")
    del selenium
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield found
    found.quit()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(as_page(start_of(Config()), "0.0"), encoding="utf-8")
    return path


class Page:
    """The page in the browser: what a test does to it and asks of it."""

    def __init__(self, browser, path):
        self.browser = browser
        self.path = path

    def open(self, fragment=""):
        self.browser.get("about:blank")
        self.browser.get_log("performance")
        self.browser.get_log("browser")
        self.browser.get(f"{self.path.as_uri()}{fragment}")
        return self

    def ask(self, script, *args):
        return self.browser.execute_script(f"return {script}", *args)

    def text(self, css):
        return self.ask("document.querySelector(arguments[0]).textContent", css)

    def element(self, css):
        return self.browser.find_element("css selector", css)

    def type(self, css, text):
        """Write into a field, as a keyboard does."""
        field = self.element(css)
        self.ask("arguments[0].select()", field)
        field.send_keys(text)

    def requests(self):
        """The addresses of all that was asked for since the page was opened."""
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return {params["request"]["url"].partition("#")[0] for params in sent}


@pytest.fixture
def page(chromium, page_file):
    """Open a fresh page, as wide as a desk's screen and in light colours."""
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    return Page(chromium, page_file).open()


@pytest.fixture
def dpdemo_main():
    """Call the program as a process of its own."""

    def call(*args):
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return run([sys.executable, "-m", "dpdemo", *map(str, args)], env=env)

    return call
