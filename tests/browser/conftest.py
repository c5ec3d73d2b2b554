"""A real Chromium: the distribution's own, found on PATH or named by TREADLE_CHROMIUM.

One without windows is taken first, where there is one: a page of it costs half as much.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from gateway.server_process import Served, served
from person import person_headers

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SCREENSHOTS = os.environ.get("TREADLE_SCREENSHOTS")
expect.set_options(timeout=15_000)


def _chromium() -> str:
    names = (os.environ.get("TREADLE_CHROMIUM", ""), *NAMES)
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is not None:
        return found
    message = "there is no Chromium on PATH, and TREADLE_CHROMIUM names none"
    if os.environ.get("TREADLE_REQUIRE_BROWSER") == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for this folder: while it is open its loop runs, and no async test could run in the same worker."""
    path = _chromium()
    # Chromium refuses its own sandbox to root; a plain user keeps it.
    flags = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        yield browser
        browser.close()


class Watched:
    """A page whose complaints and requests are kept."""

    def __init__(self, page: Page, server: Served) -> None:
        self.page = page
        self.server = server
        self.complaints: list[str] = []
        self.strays: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", self._see)

    def _see(self, request: Request) -> None:
        if not request.url.startswith(f"{self.server.url}/"):
            self.strays.append(request.url)

    def open(self) -> Page:
        """Go to the chat page."""
        self.page.goto(f"{self.server.url}/")
        return self.page

    def ask(self, question: str) -> None:
        """Type a question and send it by the keyboard."""
        self.page.get_by_label("Your question").fill(question)
        self.page.keyboard.press("Enter")


def read_json(server: Served, path: str) -> Any:
    """Ask the server itself."""
    with server.connect() as connection:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The demo model, a little slow, so that streaming can be seen."""
    with served(tmp_path_factory.mktemp("pages"), delay_s=0.02) as running:
        yield running


def new_context(
    browser: Browser, *, width: int = 1180, height: int = 800, dark: bool = False, is_person: bool = True
) -> BrowserContext:
    """Open a window of that size; what is done in it is a person's, unless the test is about logging in."""
    scheme = "dark" if dark else "light"
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    context.set_default_timeout(15_000)
    if is_person:
        context.set_extra_http_headers(person_headers())
    return context


@pytest.fixture
def watched(browser: Browser, server: Served) -> Iterator[Watched]:
    """A desktop window on the chat page; at the end nothing may have complained or left the origin."""
    context = new_context(browser)
    seen = Watched(context.new_page(), server)
    yield seen
    context.close()
    assert (seen.complaints, seen.strays) == ([], [])


def shoot(page: Page, name: str, *, whole: bool = False) -> None:
    """Keep a picture of the page, if TREADLE_SCREENSHOTS names a folder for it."""
    if SCREENSHOTS:
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=whole)


@pytest.fixture
def seen(browser: Browser, console: Served) -> Iterator[Watched]:
    """A window on a module's console; at the end nothing may have complained or left the origin."""
    context = new_context(browser)
    watched = Watched(context.new_page(), console)
    yield watched
    context.close()
    assert (watched.complaints, watched.strays) == ([], [])


@pytest.fixture
def page(seen: Watched) -> Page:
    """Its page."""
    return seen.page
