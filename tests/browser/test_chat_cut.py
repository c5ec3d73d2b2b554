"""Answers that end early: each is shown as cut, and another try loses nothing."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browser.conftest import Watched, new_context
from gateway.server_process import Served, served

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG = "The first half of it. " + "More of it. " * 40
STALLS = f"[[script]]\ntext = {json.dumps(LONG)}\n[script.faults]\nstall_s = 600.0\n"
BREAKS = f"[[script]]\ntext = {json.dumps(LONG)}\n[script.faults]\ndisconnect_after = 2000\n"
WHOLE = '[[script]]\ntext = "All of it."\n'
KEPT = "Try again: what came so far stays, marked as an earlier try."


def _cancel_newest(server: Served) -> None:
    with server.connect() as connection:
        connection.request("GET", "/treadle/v1/runs?limit=1")
        run_id = json.loads(connection.getresponse().read())["runs"][0]["id"]
        connection.request("POST", f"/treadle/v1/runs/{run_id}/cancel", body=b"")
        assert connection.getresponse().status == 200


def test_a_run_that_the_server_cancels_is_cut(browser: Browser, tmp_path: Path, shots: Path) -> None:
    """It says so, offers another try, and keeps what came beside the whole answer."""
    with served(tmp_path, script=STALLS + WHOLE) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        _cancel_newest(server)
        expect(page.get_by_role("alert").locator("p")).to_have_text(
            ["The answer was cut off: the server stopped.", KEPT]
        )
        page.get_by_role("button", name="Try again").click()
        earlier = page.locator("details.earlier")
        expect(page.locator(".turn > .answer > .prose")).to_have_text("All of it.")
        expect(earlier.locator("summary")).to_have_text("Earlier try, not complete")
        expect(earlier.locator(".prose")).to_contain_text("The first half of it.")
        expect(page.locator(".question")).to_have_count(1)
        expect(page.get_by_role("alert")).to_have_count(0)
        page.screenshot(path=shots / "earlier.png")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_server_that_leaves_cuts_its_answers(browser: Browser, tmp_path: Path, shots: Path) -> None:
    """A server that is told to stop ends its runs, and the page does not take the end for an answer."""
    with served(tmp_path, script=STALLS, grace_s=0.1) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        server.leave()
        expect(page.get_by_role("alert")).to_contain_text("The answer was cut off: the server is stopping.")
        expect(page.get_by_role("button", name="Try again")).to_be_visible()
        page.screenshot(path=shots / "cut.png")
        context.close()


def test_a_connection_that_breaks_cuts_the_answer(browser: Browser, tmp_path: Path) -> None:
    """A server that dies says nothing; what came stays through a try that fails as well."""
    with served(tmp_path, script=STALLS) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        server.process.kill()
        expect(page.get_by_role("alert")).to_contain_text("The answer was cut off: the connection was lost.")
        page.get_by_role("button", name="Try again").click()
        expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached.")
        expect(page.locator("details.earlier .prose")).to_contain_text("The first half of it.")
        context.close()


def test_a_provider_that_breaks_off_fails_the_answer(browser: Browser, tmp_path: Path) -> None:
    """The failure is named in the provider's words, and what came is neither lost nor taken for the answer."""
    with served(tmp_path, script=BREAKS + WHOLE) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.get_by_role("alert")).to_contain_text(KEPT)
        expect(page.locator(".turn")).to_have_attribute("data-state", "failed")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".turn > .answer > .prose")).to_have_text("All of it.")
        expect(page.locator("details.earlier .prose")).to_contain_text("The first half of it.")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_stream_without_an_end_is_cut(watched: Watched) -> None:
    """Something between the page and the server may close the connection in good order, and the answer is not whole."""
    events = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.added", "item": {"type": "message", "id": "msg_1"}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Half of"},
    ]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    page = watched.open()
    page.route("**/v1/responses", lambda route: route.fulfill(body=stream, content_type="text/event-stream"))
    watched.ask("tell me")
    expect(page.locator(".prose")).to_have_text("Half of")
    expect(page.get_by_role("alert").locator("p")).to_have_text(
        ["The answer was cut off: the connection was lost.", KEPT]
    )
