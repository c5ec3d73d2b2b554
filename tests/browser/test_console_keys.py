"""Keys in the console: made and shown once, used and counted, revoked."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser.conftest import Watched
from browser.console_server import Console, console_server

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    """A server without keys."""
    with console_server(tmp_path) as running:
        yield running


def ask(console: Console, key: str) -> int:
    """Ask something with a key, and return the status of the answer."""
    with console.connect() as connection:
        body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hello"}]})
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def test_a_key_is_made_used_counted_and_revoked(seen: Watched, console: Console) -> None:
    """Its text is shown once; what it used is added up beside its budget; revoked, it opens nothing."""
    page = seen.page
    page.goto(f"{console.url}/console/keys")
    page.get_by_role("button", name="Make a key…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("robots")
    dialog.get_by_label("Budget in US dollars").fill("5")
    dialog.get_by_role("button", name="Make it").click()
    told = page.get_by_role("status").filter(has_text="It is shown only now.")
    key = told.locator("code").inner_text()
    assert ask(console, key) == 200
    page.reload()
    card = page.get_by_role("article", name="Key robots")
    expect(card).to_contain_text("$5.00 a month")
    expect(card.get_by_role("row", name="today 1 1.2k 40 $0.0028")).to_be_visible()
    assert key not in page.content()
    console.run("somebody else's")
    card.get_by_role("link", name="its runs").click()
    expect(page.locator("tr[data-at]")).to_have_count(1)
    expect(page.locator("tr[data-at]")).to_contain_text("Hello")
    page.get_by_role("button", name=re.compile("^key key_")).click()
    expect(page.locator("tr[data-at]")).to_have_count(2)
    page.go_back()
    card.get_by_role("button", name="Revoke…").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(card).to_contain_text("revoked")
    assert ask(console, key) == 401


def test_a_key_that_cannot_be_made_is_said(seen: Watched, console: Console) -> None:
    """A name that is taken, and nothing is made."""
    console.call("POST", "/treadle/v1/keys", {"name": "robots"})
    page = seen.page
    page.goto(f"{console.url}/console/keys")
    page.get_by_role("button", name="Make a key…").click()
    page.get_by_role("dialog").get_by_label("Name").fill("robots")
    page.get_by_role("dialog").get_by_role("button", name="Make it").click()
    expect(page.get_by_role("alert")).to_contain_text("There is a key 'robots' already.")
    expect(page.get_by_role("article")).to_have_count(1)
    [said] = seen.complaints
    assert "409" in said
    seen.complaints.clear()
