"""The report in a browser: nothing is wider than the screen, nothing is loaded, nothing goes wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ppmtf_jax.evaluation.report import ReportSettings, render
from ppmtf_jax.evaluation.report.registry import compose_report
from ppmtf_jax.jobs.report import load_report_data
from tests.evaluation.report_run import run_small_job

sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright, which is not installed")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Where windows of the width of a desk, a tablet and a telephone end.
WIDTHS = (1280, 800, 400)
# Elements that are wider than the screen, other than what scrolls within another one.
TOO_WIDE = """
() => [...document.querySelectorAll("body *")]
    .filter(each => !each.closest(".scroll") && each.getBoundingClientRect().right > window.innerWidth + 1)
    .map(each => each.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Playwright's own Chromium, or that of the system."""
    installed = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    with sync_api.sync_playwright() as playwright:
        for path in (None, installed):
            try:
                found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            except sync_api.Error:
                continue
            yield found
            found.close()
            return
    pytest.skip("needs a browser: playwright install chromium")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    material = load_report_data(run_small_job(folder), ReportSettings(estimators=("ml",)))
    file = folder / "report.html"
    file.write_text(render(compose_report(material)), encoding="utf-8")
    return file


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_fits_and_loads_nothing(browser, page_file, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(page_file.as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(TOO_WIDE) == []
    assert [url for url in requests if not url.startswith("data:")] == [page_file.as_uri()]
    assert complaints == []
    # Text is told from what is below it: black on black would be the same colour.
    ink, ground = page.evaluate("() => ['color', 'backgroundColor'].map(e => getComputedStyle(document.body)[e])")
    assert ink != ground
    context.close()
