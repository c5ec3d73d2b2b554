"""The server keeps the run: reloads, other tabs and other devices show the same one going on, over one stream."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from browser.conftest import Watched, new_context, read_json, shoot
from browser.host import Hosted, hosted
from gateway.server_process import Served
from person import person_headers

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIRST = "The first half of it. " + "More of it. " * 60
WHOLE = FIRST + "The very end."
PAUSED = f"[[script]]\ntext = {json.dumps(WHOLE)}\n[script.faults]\nstall_s = 2.5\n"
STUCK = f"[[script]]\ntext = {json.dumps(WHOLE)}\n[script.faults]\nstall_s = 600.0\n"
END = '[[script]]\ntext = "All of it."\n'


def _ask(page: Page, text: str) -> None:
    page.get_by_label("Your question").fill(text)
    page.keyboard.press("Enter")


def _run(server: Served) -> dict[str, str]:
    return read_json(server, "/treadle/v1/runs?limit=1")["runs"][0]


def test_a_reload_in_the_middle_shows_the_same_run_going_on(browser: Browser, tmp_path: Path) -> None:
    """What had come is there again, and the rest follows; there is one run and it ends well."""
    with hosted(tmp_path, script=PAUSED) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        page.reload()
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        expect(page.locator(".prose")).to_contain_text("The very end.")
        expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
        assert page.locator(".prose").inner_text() == WHOLE
        assert len(read_json(server, "/treadle/v1/runs")["runs"]) == 1
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_another_device_sees_the_run_and_can_stop_it(browser: Browser, tmp_path: Path) -> None:
    """A second browser finds the chat in its list, reads along, and its Stop ends the run on both."""
    with hosted(tmp_path, script=STUCK + END) as server:
        contexts = [new_context(browser), new_context(browser)]
        one, two = (Watched(context.new_page(), server) for context in contexts)
        two.open()
        one.open()
        one.ask("tell me")
        expect(one.page.locator(".prose")).to_contain_text("The first half of it.")
        link = two.page.get_by_role("navigation").get_by_role("link", name="tell me")
        expect(link.get_by_role("img", name="answering")).to_be_visible()
        link.click()
        expect(two.page.locator(".prose")).to_contain_text("The first half of it.")
        two.page.get_by_role("button", name="Stop").click()
        for seen in (one, two):
            expect(seen.page.get_by_text("This answer was stopped before it was complete.")).to_be_visible()
        _ask(two.page, "go on")
        expect(two.page.locator(".prose").last).to_have_text("All of it.")
        expect(one.page.locator(".question")).to_have_text(["tell me", "go on"])
        expect(one.page.locator(".prose").last).to_have_text("All of it.")
        for context, seen in zip(contexts, (one, two), strict=True):
            context.close()
            assert (seen.complaints, seen.strays) == ([], [])


def test_closing_the_tab_does_not_stop_the_run(browser: Browser, tmp_path: Path) -> None:
    """It ends by itself, and whoever opens the chat later reads all of it."""
    with hosted(tmp_path, script=PAUSED) as server:
        context = new_context(browser)
        page = Watched(context.new_page(), server).open()
        _ask(page, "tell me")
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        address = page.url
        page.close()
        again = context.new_page()
        again.goto(address)
        expect(again.locator(".prose")).to_contain_text("The very end.")
        assert _run(server)["status"] == "completed"
        context.close()


def test_all_tabs_share_one_stream(browser: Browser, server: Served) -> None:
    """Seven tabs load and follow a run, though a browser has six connections; the leader's end hands over."""
    context = new_context(browser)
    streams: list[Request] = []
    open_now: set[Request] = set()

    def began(request: Request) -> None:
        if "/treadle/v1/live" in request.url:
            streams.append(request)
            open_now.add(request)

    context.on("request", began)
    context.on("requestfailed", lambda request: open_now.discard(request))
    context.on("requestfinished", lambda request: open_now.discard(request))
    pages = [context.new_page() for _ in range(7)]
    for page in pages:
        page.goto(f"{server.url}/")
        expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    _ask(pages[-1], "What is the weather in Oslo?")
    expect(pages[-1].locator(".prose")).to_contain_text("Oslo")
    assert len(open_now) == 1, [request.url for request in open_now]
    pages[0].close()
    _ask(pages[3], "What is the weather in Rome?")
    expect(pages[3].locator(".prose")).to_contain_text("Rome")
    for page in (pages[1], pages[6]):
        link = page.get_by_role("navigation").get_by_role("link", name="What is the weather in Rome?")
        expect(link.first).to_be_visible()
    context.close()


def test_a_tab_that_comes_later_lists_the_chats(browser: Browser, server: Served) -> None:
    """Another tab has opened the stream before: the list is read all the same."""
    context = new_context(browser)
    one = Watched(context.new_page(), server).open()
    _ask(one, "What is the weather in Cairo?")
    expect(one.get_by_role("button", name="Copy answer")).to_be_visible()
    two = Watched(context.new_page(), server).open()
    expect(two.get_by_role("navigation").get_by_role("link", name="What is the weather in Cairo?")).to_be_visible()
    context.close()


def test_a_browser_without_locks_has_a_stream_for_each_tab(browser: Browser, server: Served) -> None:
    """Pages over plain HTTP from elsewhere have none: two tabs still follow the same chat."""
    context = new_context(browser)
    context.add_init_script("Object.defineProperty(navigator, 'locks', { value: undefined })")
    one, two = context.new_page(), context.new_page()
    for page in (one, two):
        page.goto(f"{server.url}/")
        expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    _ask(one, "What is the weather in Lima?")
    expect(one.locator(".prose")).to_contain_text("Lima")
    link = two.get_by_role("navigation").get_by_role("link", name="What is the weather in Lima?")
    link.first.click()
    expect(two.locator(".prose")).to_contain_text("Lima")
    context.close()


def test_a_hidden_tab_lets_go_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    """After half a minute out of sight its stream is closed; back in sight it reads what it missed."""
    with hosted(tmp_path, script=PAUSED) as server:
        context = new_context(browser)
        page = context.new_page()
        page.clock.install()
        page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => Boolean(globalThis.isHidden) })")
        page.goto(f"{server.url}/")
        _ask(page, "tell me")
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        hide = "(hidden) => { globalThis.isHidden = hidden; document.dispatchEvent(new Event('visibilitychange')); }"
        page.evaluate(hide, True)
        with page.expect_event("requestfailed", lambda request: "/treadle/v1/live" in request.url):
            page.clock.fast_forward(31_000)
        page.evaluate(hide, False)
        expect(page.locator(".prose")).to_contain_text("The very end.")
        context.close()


def test_a_server_that_comes_back_goes_on(browser: Browser, tmp_path: Path) -> None:
    """While it is away the page says so; when it is back the page reads on by itself."""
    context = new_context(browser)
    with hosted(tmp_path, script=END) as server:
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".prose")).to_have_text("All of it.")
    expect(page.get_by_text("The connection is lost.")).to_be_visible()
    with hosted(tmp_path, script=END, port=server.port):
        expect(page.get_by_text("The connection is lost.")).to_be_hidden()
        _ask(page, "once more")
        expect(page.locator(".prose").last).to_have_text("All of it.")
        expect(page.locator(".question")).to_have_text(["tell me", "once more"])
    context.close()


def test_a_provider_that_breaks_off_fails_the_answer(browser: Browser, tmp_path: Path) -> None:
    """The failure is named, what came stays, and another try is another branch."""
    breaks = f"[[script]]\ntext = {json.dumps(WHOLE)}\n[script.faults]\ndisconnect_after = 2000\n"
    with hosted(tmp_path, script=breaks + END) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".turn")).to_have_attribute("data-state", "failed")
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        shoot(page, "cut")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".prose")).to_have_text("All of it.")
        expect(page.get_by_role("group", name="Branches")).to_contain_text("2 / 2")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_run_that_the_server_cancels_says_so(browser: Browser, tmp_path: Path) -> None:
    """Somebody else may end it: what came stays, and it can be asked again."""
    with hosted(tmp_path, script=STUCK + END) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        _cancel(server)
        expect(page.get_by_text("This answer was stopped before it was complete.")).to_be_visible()
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".prose")).to_have_text("All of it.")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_server_that_leaves_cuts_its_answers(browser: Browser, tmp_path: Path) -> None:
    """It ends its runs first, and the page is told so before the connection goes."""
    with hosted(tmp_path, script=STUCK) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".prose")).to_contain_text("The first half of it.")
        server.leave()
        expect(page.get_by_role("alert")).to_contain_text("The answer was cut off: the server is stopping.")
        expect(page.get_by_role("button", name="Try again")).to_be_visible()
        context.close()


def test_the_list_follows_other_tabs(browser: Browser, server: Served) -> None:
    """A chat made, renamed or deleted elsewhere is so here too."""
    contexts = [new_context(browser), new_context(browser)]
    one, two = (Watched(context.new_page(), server).open() for context in contexts)
    _ask(one, "Add 71 and 8")
    expect(one.get_by_role("button", name="Copy answer")).to_be_visible()
    chats = two.get_by_role("navigation")
    expect(chats.get_by_role("link", name="Add 71 and 8")).to_be_visible()
    one.get_by_role("button", name="More").click()
    one.get_by_label("Name").fill("Sums")
    one.get_by_role("button", name="Rename").click()
    expect(chats.get_by_role("link", name=re.compile("^Sums"))).to_be_visible()
    one.get_by_role("button", name="More").click()
    one.get_by_role("button", name="Delete this chat…").click()
    one.get_by_role("button", name="Delete", exact=True).click()
    expect(one.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    expect(chats.get_by_role("link", name=re.compile("^Sums"))).to_have_count(0)
    for context in contexts:
        context.close()


def _cancel(server: Hosted) -> None:
    with server.connect() as connection:
        connection.request("POST", f"/treadle/v1/runs/{_run(server)['id']}/cancel", body=b"", headers=person_headers())
        assert connection.getresponse().status == 200
