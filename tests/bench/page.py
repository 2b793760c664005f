"""How large the offline page is, and how soon a browser paints it from its file: the best of five."""

import shutil
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from dpdemo.prediction.lesson import make_lesson
from dpdemo.render.page import as_page

GOAL_MS = 500
GOAL_BYTES = 300_000
PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def paints(path):
    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tempfile.mkdtemp()}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        for _ in range(5):
            browser.get("about:blank")
            browser.get(f"file://{path}")
            browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 100))")
            yield browser.execute_script(PAINT)
    finally:
        browser.quit()


if __name__ == "__main__":
    page = Path(tempfile.mkdtemp()) / "page.html"
    page.write_text(as_page(make_lesson(), "0"))
    print(f"{page.stat().st_size} bytes, at most {GOAL_BYTES} wanted")
    if shutil.which("chromedriver"):
        print(f"first paint after {min(paints(page)):.0f} ms, at most {GOAL_MS} wanted")
    else:
        print("first paint not measured: no Chromium with its driver is installed")
