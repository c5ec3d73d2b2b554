"""The accessibility checker axe-core, which a package of the test extra brings along, run inside a page."""

from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

_SOURCE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_RUN = "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations)"


def violations(page: Page) -> list[str]:
    """Return what is wrong with the page as it is, one line for each element."""
    page.evaluate(_SOURCE)
    found: list[dict[str, Any]] = page.evaluate(_RUN)
    return [f"{rule['id']}: {node['target']} {node['failureSummary']}" for rule in found for node in rule["nodes"]]
