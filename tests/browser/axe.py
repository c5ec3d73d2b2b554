"""The accessibility checker axe-core, which a package of the test extra brings along, run inside a page."""

import json
from importlib.resources import files
from typing import Any, Literal

from playwright.sync_api import Page

_SOURCE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
_RUN = "axe.run(document, {}).then((found) => found.violations)"
Rules = Literal["all", "colours", "shapes"]
"""The rules about colours take most of the time; another size of the window needs only the others."""

_OPTIONS: dict[Rules, dict[str, Any]] = {
    "all": {},
    "colours": {"runOnly": ["color-contrast", "link-in-text-block"]},
    "shapes": {"rules": {"color-contrast": {"enabled": False}, "link-in-text-block": {"enabled": False}}},
}


def violations(page: Page, rules: Rules = "all") -> list[str]:
    """Return what is wrong with the page as it is, one line for each element."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_SOURCE)
    options = json.dumps({"resultTypes": ["violations"], **_OPTIONS[rules]})
    found: list[dict[str, Any]] = page.evaluate(_RUN.replace("{}", options))
    return [f"{rule['id']}: {node['target']} {node['failureSummary']}" for rule in found for node in rule["nodes"]]
