"""What outlives a reload: the list of chats, what was said in them, and the model; and what is there to begin with."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from browser.conftest import Watched, new_context
from gateway.server_process import Served, served

pytestmark = [pytest.mark.browser, pytest.mark.slow]

QUESTION = "What is the weather in Paris?"
GONE = "The server no longer has this chat."


def _delete(server: Served, response_id: str) -> None:
    with server.connect() as connection:
        connection.request("DELETE", f"/v1/responses/{response_id}")
        assert connection.getresponse().status == 200


def _posts(page: Page) -> list[dict[str, Any]]:
    bodies: list[dict[str, Any]] = []
    page.on("request", lambda request: bodies.append(request.post_data_json) if request.method == "POST" else None)
    return bodies


def _answers(page: Page, path: str, document: object) -> None:
    """Let the server seem to answer a path with this document."""

    def fulfil(route: Route) -> None:
        route.fulfill(status=200, body=json.dumps(document), content_type="application/json")

    page.route(f"**{path}", fulfil)


def test_a_reload_keeps_the_chats_and_what_was_said(watched: Watched, shots: Path) -> None:
    """The open chat comes back whole, with its tool cards, and goes on from where it was."""
    page = watched.open()
    bodies = _posts(page)
    watched.ask(QUESTION)
    expect(page.locator(".tool .state")).to_have_text([re.compile(r"done in \d+ ms")])
    watched.ask("Add 2 and 3")
    expect(page.locator(".tool .state")).to_have_text([re.compile(r"done in \d+ ms")] * 2)
    said = page.locator(".turns").inner_text()
    page.reload()
    expect(page.locator(".question")).to_have_text([QUESTION, "Add 2 and 3"])
    expect(page.locator(".tool .state")).to_have_text([re.compile(r"done in \d+ ms")] * 2)
    assert page.locator(".turns").inner_text() == said
    watched.ask("Add 4 and 5")
    expect(page.locator(".prose").last).to_contain_text("9")
    expect(page.get_by_role("navigation").get_by_role("listitem")).to_have_count(1)
    page.screenshot(path=shots / "reloaded.png")
    assert bodies[2]["previous_response_id"] not in ("", bodies[1]["previous_response_id"])


def test_a_new_tab_begins_anew_and_knows_the_others(watched: Watched) -> None:
    """Each tab has its own open chat; the list is one for all, and a chat removed from it stays away."""
    page = watched.open()
    watched.ask(QUESTION)
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    other = page.context.new_page()
    other.goto(f"{watched.server.url}/")
    expect(other.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    other.get_by_label("Your question").fill("Add 2 and 3")
    other.keyboard.press("Enter")
    expect(other.get_by_role("button", name="Copy answer")).to_be_visible()
    chats = page.get_by_role("navigation")
    chats.get_by_role("button", name="Add 2 and 3", exact=True).click()
    expect(page.locator(".prose")).to_contain_text("5")
    page.get_by_role("button", name="Remove from the list: Add 2 and 3").click()
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    page.reload()
    expect(chats.get_by_role("button", name=QUESTION, exact=True)).to_be_visible()
    expect(chats.get_by_role("button", name="Add 2 and 3", exact=True)).to_have_count(0)


def test_a_chat_that_the_server_lost_says_so(watched: Watched) -> None:
    """Half of it gone is a note above the rest; all of it gone is a fresh start in its place."""
    page = watched.open()
    bodies = _posts(page)
    watched.ask(QUESTION)
    expect(page.get_by_role("button", name="Copy answer")).to_have_count(1)
    watched.ask("Add 2 and 3")
    expect(page.get_by_role("button", name="Copy answer")).to_have_count(2)
    last_id = page.evaluate("JSON.parse(localStorage.getItem('treadle.chats')).rows[0].lastId")
    _delete(watched.server, bodies[1]["previous_response_id"])
    page.reload()
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text("The beginning of this chat is not shown")
    expect(page.locator(".question")).to_have_text(["Add 2 and 3"])
    _delete(watched.server, last_id)
    page.reload()
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text(GONE)
    watched.ask("Add 4 and 5")
    expect(page.locator(".prose")).to_contain_text("9")
    expect(page.get_by_text(GONE)).to_have_count(0)
    assert "previous_response_id" not in bodies[2]
    # The browser itself reports each 404.
    assert all("404" in complaint for complaint in watched.complaints)
    watched.complaints.clear()


def test_an_answer_left_unfinished_is_not_shown_as_whole(browser: Browser, tmp_path: Path) -> None:
    """Leaving the page ends the run; coming back shows what there was, and offers another try."""
    script = f"[[script]]\ntext = {json.dumps('Part. ' * 100)}\n[script.faults]\nstall_s = 600.0\n"
    with served(tmp_path, script=script + '[[script]]\ntext = "All of it."\n') as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("tell me")
        expect(page.locator(".prose")).to_contain_text("Part.")
        page.reload()
        expect(page.get_by_text("This answer was stopped before it was complete.")).to_be_visible()
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".turn > .answer > .prose")).to_have_text("All of it.")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_browser_without_storage_still_chats(browser: Browser, server: Served) -> None:
    """Nothing is remembered, and the page says that."""
    context = new_context(browser)
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no'); } })"
    )
    seen = Watched(context.new_page(), server)
    page = seen.open()
    expect(page.get_by_role("navigation")).to_contain_text("This browser keeps no list")
    seen.ask(QUESTION)
    expect(page.locator(".prose")).to_contain_text("Paris")
    context.close()
    assert (seen.complaints, seen.strays) == ([], [])


def test_the_footer_says_where_things_are_kept(watched: Watched) -> None:
    """The list is the browser's, the content the server's."""
    page = watched.open()
    expect(page.get_by_role("navigation").locator("p")).to_have_text(
        "This browser keeps the list; the server keeps what was said."
    )


@pytest.mark.parametrize("width", [1180, 390], ids=["desk", "phone"])
def test_a_server_that_lists_no_model_gets_a_field_for_it(
    browser: Browser, server: Served, shots: Path, width: int
) -> None:
    """What is written there is asked of, and is still there after a reload."""
    context = new_context(browser, width=width)
    seen = Watched(context.new_page(), server)
    _answers(seen.page, "/v1/models", {"object": "list", "data": []})
    page = seen.open()
    bodies = _posts(page)
    field = page.get_by_role("textbox", name="Model")
    field.fill("my-model")
    page.screenshot(path=shots / f"model-{width}.png")
    seen.ask(QUESTION)
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    page.reload()
    expect(field).to_have_value("my-model")
    assert bodies[0]["model"] == "my-model"
    assert page.evaluate("document.documentElement.scrollWidth") == width
    context.close()
    assert (seen.complaints, seen.strays) == ([], [])


def test_a_model_that_is_not_listed_can_be_named(watched: Watched) -> None:
    """The last row of the list opens the field; what was typed is remembered, and the list is one click away."""
    page = watched.open()
    picker = page.get_by_role("combobox", name="Model")
    picker.select_option("Another model…")
    field = page.get_by_role("textbox", name="Model")
    field.fill("some/model")
    page.reload()
    expect(field).to_have_value("some/model")
    page.get_by_role("button", name="List").click()
    expect(picker).to_have_value("demo")
    page.reload()
    expect(picker).to_have_value("demo")


def test_a_chosen_model_is_chosen_again_while_it_is_listed(browser: Browser, server: Served) -> None:
    """One that has left the list gives way to the first that is on it."""
    context = new_context(browser)
    seen = Watched(context.new_page(), server)
    listed = {"object": "list", "data": [{"id": "one"}, {"id": "two"}]}
    _answers(seen.page, "/v1/models", listed)
    page = seen.open()
    picker = page.get_by_role("combobox", name="Model")
    picker.select_option("two")
    page.reload()
    expect(picker).to_have_value("two")
    listed["data"] = [{"id": "three"}, {"id": "four"}]
    page.unroute("**/v1/models")
    _answers(page, "/v1/models", listed)
    page.reload()
    expect(picker).to_have_value("three")
    context.close()
    assert (seen.complaints, seen.strays) == ([], [])


@pytest.mark.parametrize(
    ("tools", "model", "questions"),
    [
        (
            [("get_weather", ["city"]), ("add", ["title"])],
            "demo",
            [QUESTION, "Show me what add can do", "What can you do here?"],
        ),
        (
            [("read_file", ["path"])],
            "gpt",
            [
                "Show me what read_file can do",
                "Explain recursion in three sentences",
                "Write a Python function that finds duplicates in a list",
                "What can you do here?",
            ],
        ),
        (
            [],
            "gpt",
            [
                "Explain recursion in three sentences",
                "Write a Python function that finds duplicates in a list",
                "Compare tea and coffee in a small table",
                "What can you do here?",
            ],
        ),
        ([], "demo", ["What can you do here?"]),
    ],
    ids=["some known", "unknown", "none", "none for the demo"],
)
def test_the_first_questions_fit_what_is_there(
    watched: Watched, tools: list[tuple[str, list[str]]], model: str, questions: list[str]
) -> None:
    """A tool is asked for only if it is there and takes what the question gives."""
    shown = [
        {
            "spec": {
                "name": name,
                "description": "",
                "parameters": {"type": "object", "properties": {key: {} for key in takes}},
            }
        }
        for name, takes in tools
    ]
    _answers(watched.page, "/treadle/v1/tools", {"tools": shown})
    _answers(watched.page, "/v1/models", {"object": "list", "data": [{"id": model}]})
    page = watched.open()
    expect(page.locator(".examples button")).to_have_text(questions)
