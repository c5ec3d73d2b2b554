"""The report of an evaluation in a real browser: it loads nothing, complains of nothing, and opens what is clicked."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from treadle.evals.results.html_report import write_page
from unit.evals.results.samples import EVIDENCE, SCENARIO, info, row

pytestmark = pytest.mark.browser


def test_a_cell_opens_the_transcript_behind_it(browser: Browser, tmp_path: Path) -> None:
    """Without a script: the link leads inside the sample, which the browser opens; markup of a model is only text."""
    rows = [
        row("a.add", "fail", 1, reason="<img src=x onerror=alert(1)>"),
        row("a.add", "pass", 2),
        row("b.sub", "pass", 1),
    ]
    file = tmp_path / "report.html"
    file.write_text(write_page(info(SCENARIO), rows, lambda key: EVIDENCE), encoding="utf-8")
    page = browser.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    expect(page.locator("details[open]")).to_have_count(0)
    page.get_by_role("link", name="1/2").click()
    expect(page.locator("details[open]")).to_have_count(1)
    expect(page.locator("details[open]")).to_contain_text("It is 3.")
    expect(page.locator("details[open]")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator("img, script")).to_have_count(0)
    assert complaints == []
    assert {url.partition("#")[0] for url in requests} == {file.as_uri()}
    page.close()
