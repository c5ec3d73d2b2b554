"""Logging in by a one-time link, and what each scope may do on the page."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browser.conftest import Watched, new_context, shoot
from browser.host import call, hosted

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ALWAYS = '[server]\nlogin = "always"\n'
MAKE_LINK = """async (scope) => {
  const headers = {'content-type': 'application/json', 'x-treadle-page': '1'};
  const body = JSON.stringify({name: 'ada', scope});
  return (await (await fetch('/treadle/v1/logins', {method: 'POST', body, headers})).json()).path;
}"""


def test_a_link_logs_in_once(browser: Browser, tmp_path: Path) -> None:
    """Without it there is a page that says how; with it the chat; a second use is refused."""
    with hosted(tmp_path, toml=ALWAYS) as server:
        context = new_context(browser, is_person=False)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        expect(page.get_by_role("heading", name="Log in to Treadle")).to_be_visible()
        shoot(page, "login")
        page.goto(f"{server.url}{server.login}")
        expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
        assert server.login.partition("#")[2] not in page.url
        cookie = context.cookies()[0]
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert page.evaluate("document.cookie") == ""
        seen.ask("Add 2 and 3")
        expect(page.locator(".prose")).to_contain_text("demo model")
        page.reload()
        expect(page.locator(".prose")).to_contain_text("demo model")
        other = new_context(browser, is_person=False)
        second = other.new_page()
        second.goto(f"{server.url}{server.login}")
        expect(second.get_by_role("status")).to_contain_text("This link was used already")
        second.goto(f"{server.url}/")
        expect(second.get_by_role("heading", name="Log in to Treadle")).to_be_visible()
        other.close()
        context.close()
        assert seen.strays == []


def test_a_decision_leads_to_the_login_and_back(browser: Browser, tmp_path: Path) -> None:
    """The link works in the tab that asks for it, where only what is behind the # changes, and leads to the call."""
    script = call("wipe", '{"folder": "./tmp"}', "c1") + '[[script]]\ntext = "So be it."\n'
    with hosted(tmp_path, script=script) as server:
        context = new_context(browser, is_person=False)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("clean up")
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("status")).to_contain_text("This needs a login")
        page.goto(f"{server.url}{server.login}")
        expect(page.locator(".ask")).to_be_visible()
        page.get_by_role("button", name="Approve").click()
        expect(page.locator(".prose")).to_have_text("So be it.")
        page.goto(f"{server.url}{server.login}")
        expect(page.get_by_role("status").locator("code").first).to_have_text("treadle login")
        context.close()


def test_stopping_an_answer_leads_to_the_login_and_back(browser: Browser, tmp_path: Path) -> None:
    """Where no key is needed the answer was asked for without a login; ending it needs one."""
    script = '[[script]]\ntext = "One. Two. Three. Four. Five."\n[script.faults]\nstall_s = 600.0\n'
    with hosted(tmp_path, script=script) as server:
        context = new_context(browser, is_person=False)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".prose")).to_contain_text("One.")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("status")).to_contain_text("This needs a login")
        page.goto(f"{server.url}{server.login}")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("This answer was stopped before it was complete.")).to_be_visible()
        context.close()


def test_logging_out_ends_it(browser: Browser, tmp_path: Path) -> None:
    """The cookie is gone here and good nowhere."""
    with hosted(tmp_path, toml=ALWAYS) as server:
        context = new_context(browser, is_person=False)
        page = context.new_page()
        page.goto(f"{server.url}{server.login}")
        expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
        kept = context.cookies()
        page.get_by_role("button", name="More").click()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_role("heading", name="Log in to Treadle")).to_be_visible()
        assert context.cookies() == []
        context.add_cookies(kept)
        page.goto(f"{server.url}/")
        expect(page.get_by_role("heading", name="Log in to Treadle")).to_be_visible()
        context.close()


def test_a_viewer_may_only_look(browser: Browser, tmp_path: Path) -> None:
    """The page offers nothing that the server would refuse, and the server refuses it all the same."""
    with hosted(tmp_path, toml=ALWAYS) as server:
        admins = new_context(browser, is_person=False)
        seen = Watched(admins.new_page(), server)
        seen.page.goto(f"{server.url}{server.login}")
        expect(seen.page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
        seen.ask("Add 2 and 3")
        expect(seen.page.get_by_role("button", name="Copy answer")).to_be_visible()
        address = seen.page.url
        link = server.url + seen.page.evaluate(MAKE_LINK, "viewer")
        context = new_context(browser, is_person=False)
        page = context.new_page()
        page.goto(link)
        expect(page.get_by_placeholder("You may only look")).to_be_disabled()
        page.goto(address)
        expect(page.locator(".prose")).to_contain_text("demo model")
        expect(page.get_by_role("button", name="Ask again")).to_have_count(0)
        expect(page.get_by_role("button", name="Edit")).to_have_count(0)
        status = page.evaluate(
            """async () => (await fetch('/treadle/v1/sessions', {method: 'POST', body: '{"name": "x"}',
            headers: {'content-type': 'application/json', 'x-treadle-page': '1'}})).status"""
        )
        assert status == 403
        context.close()
        admins.close()
