"""Chats as the server keeps them: read again, branched, searched, exported; the model, files and keys of the page."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from browser.conftest import Watched, new_context, read_json, shoot
from browser.host import call, hosted
from gateway.server_process import Served

pytestmark = [pytest.mark.browser, pytest.mark.slow]

QUESTION = "What is the weather in Paris?"
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PRICED = """
default_model = "m"
[[upstream]]
name = "up"
base_url = "http://127.0.0.1:9/v1"
models = ["m"]
[[price]]
model = "*"
input = 3.0
output = 15.0
"""


def _posts(page: Page) -> list[dict[str, Any]]:
    bodies: list[dict[str, Any]] = []
    page.on("request", lambda request: bodies.append(request.post_data_json) if request.method == "POST" else None)
    return bodies


def _answers(page: Page, path: str, document: object) -> None:
    """Let the server seem to answer a path with this document."""

    def fulfil(route: Route) -> None:
        route.fulfill(status=200, body=json.dumps(document), content_type="application/json")

    page.route(f"**{path}", fulfil)


def _turns(page: Page, server: Served) -> list[dict[str, Any]]:
    session = page.evaluate("location.hash.slice(1)")
    return read_json(server, f"/treadle/v1/sessions/{session}/turns")["turns"]


def _texts(*texts: str) -> str:
    return "".join(f"[[script]]\ntext = {json.dumps(text)}\n" for text in texts)


def test_a_reload_keeps_what_was_said(watched: Watched) -> None:
    """The open chat comes back whole, with its tool cards, and goes on from where it was."""
    page = watched.open()
    watched.ask(QUESTION)
    expect(page.locator(".tool .state")).to_have_text([re.compile(r"done in \d+ ms")])
    watched.ask("Add 2 and 3")
    expect(page.locator(".tool .state")).to_have_text([re.compile(r"done in \d+ ms")] * 2)
    expect(page.get_by_role("button", name="Copy answer")).to_have_count(2)
    said = page.locator(".turns").inner_text()
    page.reload()
    expect(page.locator(".question")).to_have_text([QUESTION, "Add 2 and 3"])
    expect(page.get_by_role("button", name="Copy answer")).to_have_count(2)
    assert page.locator(".turns").inner_text() == said
    watched.ask("Add 4 and 5")
    expect(page.locator(".prose").last).to_contain_text("9")
    shoot(page, "reloaded")


def test_a_new_browser_knows_the_chats(browser: Browser, server: Served) -> None:
    """The list is the server's; a link opens a chat anywhere, and one to nothing says so."""
    context = new_context(browser)
    page = Watched(context.new_page(), server).open()
    page.get_by_label("Your question").fill("Add 600 and 66")
    page.keyboard.press("Enter")
    expect(page.locator(".prose")).to_contain_text("666")
    address = page.url
    context.close()
    context = new_context(browser)
    page = context.new_page()
    page.goto(address)
    expect(page.locator(".prose")).to_contain_text("666")
    expect(page.get_by_role("navigation").get_by_role("link", name="Add 600 and 66")).to_be_visible()
    page.goto(f"{server.url}/#sess_nothing")
    expect(page.get_by_role("alert")).to_contain_text("There is no session")
    context.close()


def test_editing_a_question_makes_a_branch(browser: Browser, tmp_path: Path) -> None:
    """The old one stays one click away, with everything that followed it; the model reads only its own branch."""
    script = _texts("One.", "Two.", "Other one.", "Other two.")
    with hosted(tmp_path, script=script) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        for number, question in enumerate(("first", "second"), 1):
            seen.ask(question)
            expect(page.get_by_role("button", name="Copy answer")).to_have_count(number)
        page.get_by_role("button", name="Edit").first.click()
        field = page.get_by_label("Edit your question")
        expect(field).to_be_focused()
        field.fill("first, better")
        page.keyboard.press("Enter")
        expect(page.locator(".prose")).to_have_text(["Other one."])
        expect(page.locator(".question")).to_have_text(["first, better"])
        expect(page.get_by_role("group", name="Branches")).to_contain_text("2 / 2")
        seen.ask("and now")
        expect(page.locator(".prose")).to_have_text(["Other one.", "Other two."])
        shoot(page, "branch")
        page.get_by_role("button", name="Branch before").click()
        expect(page.locator(".question")).to_have_text(["first", "second"])
        expect(page.locator(".prose")).to_have_text(["One.", "Two."])
        page.reload()
        expect(page.locator(".question")).to_have_text(["first", "second"])
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_an_answer_can_be_asked_for_again(browser: Browser, tmp_path: Path) -> None:
    """Regenerating keeps both answers, and the chat goes on from the one that is shown."""
    with hosted(tmp_path, script=_texts("Heads.", "Tails.", "Next.")) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("toss")
        expect(page.locator(".prose")).to_have_text("Heads.")
        page.get_by_role("button", name="Ask again").click()
        expect(page.locator(".prose")).to_have_text("Tails.")
        page.get_by_role("button", name="Branch before").click()
        expect(page.locator(".prose")).to_have_text("Heads.")
        seen.ask("go on")
        expect(page.locator(".prose")).to_have_text(["Heads.", "Next."])
        turns = _turns(page, server)
        assert turns[1]["previous_id"] == turns[0]["run_id"] == turns[0]["siblings"][0]
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_chats_are_searched_by_what_was_said(watched: Watched) -> None:
    """Names and messages count; the list narrows as one types, and comes back."""
    page = watched.open()
    watched.ask("What is the weather in Reykjavik?")
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    page.get_by_role("navigation").get_by_role("button", name="New chat").click()
    watched.ask("Add 1 and 1")
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    chats = page.get_by_role("navigation").get_by_role("listitem")
    page.keyboard.press("Tab")
    page.get_by_label("Search all chats").fill("reykjavik")
    expect(chats).to_have_count(1)
    expect(chats).to_contain_text("Reykjavik")
    page.get_by_label("Search all chats").fill("nothing has this")
    expect(page.get_by_text("No chat has that.")).to_be_visible()
    page.get_by_label("Search all chats").fill("")
    expect(chats.first).to_contain_text("Add 1 and 1")


def test_a_chat_that_is_not_listed_can_be_renamed(watched: Watched) -> None:
    """The menu is about the chat that is open, also when a search leaves it out of the list."""
    page = watched.open()
    watched.ask("What is the weather in Accra?")
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    page.get_by_label("Search all chats").fill("nobody said this")
    expect(page.get_by_role("navigation")).to_contain_text("No chat has that.")
    page.get_by_role("button", name="More").click()
    page.get_by_label("Name", exact=True).fill("Ghana")
    page.get_by_role("button", name="Rename").click()
    expect(page).to_have_title("Ghana · Treadle")


def test_a_chat_is_exported(watched: Watched) -> None:
    """As Markdown for people and as JSON Lines for programs, under the chat's name."""
    page = watched.open()
    watched.ask("Add 31 and 11")
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    page.get_by_role("button", name="More").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Markdown").click()
    assert download.value.suggested_filename.startswith("Add 31 and 11")
    assert "42" in Path(download.value.path()).read_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="JSON Lines").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert json.loads(lines[0])


def test_two_chats_of_one_name_are_numbered(watched: Watched) -> None:
    """A name is taken once; the second chat gets a number."""
    page = watched.open()
    for _ in range(2):
        watched.ask("Add 5 and 50")
        expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
        page.get_by_role("navigation").get_by_role("button", name="New chat").click()
    chats = page.get_by_role("navigation").get_by_role("listitem")
    expect(chats.filter(has_text="Add 5 and 50")).to_have_count(2)
    expect(chats.first).to_contain_text("Add 5 and 50 (2)")


def test_tools_can_be_shown_as_lines(watched: Watched) -> None:
    """The thin mode has no cards: one line for each tool, made by the server, and the text."""
    page = watched.open()
    watched.ask(QUESTION)
    expect(page.locator("details.tool")).to_have_attribute("data-state", "done")
    page.get_by_role("button", name="More").click()
    page.get_by_role("button", name="Tools: cards").click()
    page.keyboard.press("Escape")
    expect(page.locator(".line")).to_have_text("Called get_weather.")
    expect(page.locator("details.tool")).to_have_count(0)
    watched.ask("Add 2 and 3")
    expect(page.locator(".line")).to_have_text(["Called get_weather.", "Called add."])
    expect(page.locator(".prose").last).to_contain_text("5")
    page.reload()
    expect(page.locator(".line")).to_have_count(2)


def test_reasoning_is_folded(browser: Browser, tmp_path: Path) -> None:
    """What the model thought is there for whoever opens it."""
    script = '[[script]]\nreasoning = "Let me *think*."\ntext = "Done."\n'
    with hosted(tmp_path, script=script) as server:
        context = new_context(browser)
        page = Watched(context.new_page(), server).open()
        page.get_by_label("Your question").fill("hm")
        page.keyboard.press("Enter")
        expect(page.locator(".prose")).to_have_text("Done.")
        thought = page.locator("details.reasoning")
        expect(thought.locator("p")).to_be_hidden()
        thought.locator("summary").click()
        expect(thought.locator("p")).to_have_text("Let me *think*.")
        context.close()


def test_an_answer_with_nothing_in_it_says_so(browser: Browser, tmp_path: Path) -> None:
    """An empty place would look as if something were still to come."""
    with hosted(tmp_path, script='[[script]]\ntext = ""\n') as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("Say nothing")
        expect(page.locator(".answer")).to_contain_text("The answer is empty.")
        context.close()


def test_tokens_and_cost_are_shown(browser: Browser, tmp_path: Path) -> None:
    """Of each turn below it, of the chat above it; a price that nobody gave is not made up."""
    turn = "[[script]]\ntext = 'Done.'\n[script.usage]\ninput_tokens = 12000\noutput_tokens = 400\n"
    with hosted(tmp_path, toml=PRICED, script=turn * 2) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("one")
        expect(page.locator(".used")).to_contain_text("12.0k in, 400 out · $0.04")
        seen.ask("two")
        expect(page.locator(".totals")).to_have_text("24.8k tokens · $0.08")
        context.close()
    with hosted(tmp_path, script=turn) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("one")
        expect(page.locator(".used")).to_contain_text("12.0k in, 400 out")
        assert "$" not in page.locator(".used").inner_text()
        context.close()


def test_files_go_along_where_the_model_takes_them(browser: Browser, tmp_path: Path) -> None:
    """Pictures and files to a model that takes them, and they stay when the question is edited."""
    with hosted(tmp_path, toml=PRICED, script=_texts("Seen.", "Seen again.")) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        expect(page.get_by_role("combobox", name="Model")).to_have_value("m")
        picker = page.get_by_label("Attach files")
        picker.set_input_files(
            [
                {"name": "dot.png", "mimeType": "image/png", "buffer": PICTURE},
                {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"remember the milk"},
                {"name": "late.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4"},
            ]
        )
        chips = page.get_by_role("list", name="To be attached").get_by_role("listitem")
        expect(chips).to_contain_text(["dot.png", "notes.txt", "late.pdf"])
        page.get_by_role("button", name="Remove late.pdf").click()
        seen.ask("what is this?")
        expect(page.locator(".prose")).to_have_text("Seen.")
        expect(page.get_by_role("list", name="Attached").get_by_role("listitem")).to_have_text(["picture", "notes.txt"])
        page.get_by_role("button", name="Edit").click()
        page.get_by_label("Edit your question").fill("and this?")
        page.keyboard.press("Enter")
        expect(page.locator(".prose")).to_have_text("Seen again.")
        turn = _turns(page, server)[0]
        assert turn["question"]["files"] == [
            {"kind": "image", "name": "picture"},
            {"kind": "text", "name": "notes.txt"},
        ]
        assert turn["question"]["text"] == "and this?"
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_model_without_eyes_gets_text_files_only(watched: Watched) -> None:
    """What it would not take is refused with a reason, before anything is sent; text always goes."""
    page = watched.open()
    picker = page.get_by_label("Attach files")
    picker.set_input_files([{"name": "dot.png", "mimeType": "image/png", "buffer": PICTURE}])
    expect(page.get_by_role("alert")).to_have_text("This model takes no pictures.")
    picker.set_input_files([{"name": "sums.md", "mimeType": "text/markdown", "buffer": b"add 2 and 2"}])
    expect(page.get_by_role("alert")).to_have_count(0)
    watched.ask("Add 2 and 2")
    expect(page.get_by_role("list", name="Attached").get_by_role("listitem")).to_have_text(["sums.md"])
    expect(page.locator(".prose")).to_contain_text("4")


def test_keys_do_everything(browser: Browser, tmp_path: Path) -> None:
    """New chat, search, steps through turns, edit, ask again, colours and the list of keys, without a mouse."""
    with hosted(tmp_path, script=_texts("One.", "Two.", "Two again.", "Other.")) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        for number, question in enumerate(("first", "second"), 1):
            seen.ask(question)
            expect(page.get_by_role("button", name="Copy answer")).to_have_count(number)
        page.get_by_role("main").focus()
        page.keyboard.press("r")
        expect(page.locator(".prose")).to_have_text(["One.", "Two again."])
        expect(page.get_by_role("button", name="Copy answer")).to_have_count(2)
        page.get_by_role("main").focus()
        page.keyboard.press("e")
        expect(page.get_by_label("Edit your question")).to_have_value("second")
        page.keyboard.press("Escape")
        expect(page.get_by_label("Edit your question")).to_have_count(0)
        page.get_by_role("main").focus()
        page.keyboard.press("k")
        page.keyboard.press("k")
        expect(page.locator(".turn").first).to_be_focused()
        page.keyboard.press("j")
        expect(page.locator(".turn").last).to_be_focused()
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("/")
        expect(page.get_by_label("Search all chats")).to_be_focused()
        page.keyboard.press("Alt+n")
        expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_what_was_to_be_asked_next_is_given_back(browser: Browser, tmp_path: Path) -> None:
    """Whoever leaves the chat, or stops it while writing something else, loses neither a question nor a file."""
    stuck = f"[[script]]\ntext = {json.dumps('Slowly. ' * 60)}\n[script.faults]\nstall_s = 600.0\n"
    with hosted(tmp_path, script=stuck + stuck) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        field = page.get_by_label("Your question")
        seen.ask("one")
        expect(page.locator(".prose")).to_contain_text("Slowly.")
        page.locator("input[type=file]").set_input_files([{"name": "a.txt", "mimeType": "text/plain", "buffer": b"a"}])
        seen.ask("two")
        seen.ask("three")
        waiting = page.get_by_role("list", name="Asked when the answer is complete").get_by_role("listitem")
        expect(waiting).to_have_count(2)
        field.fill("a thought")
        page.get_by_role("button", name="New chat").first.click()
        expect(field).to_have_value("two\n\nthree\n\na thought")
        expect(page.get_by_role("list", name="To be attached").get_by_role("listitem")).to_contain_text("a.txt")
        expect(waiting).to_have_count(0)
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_an_edited_question_waits_for_an_answer_that_comes(browser: Browser, tmp_path: Path) -> None:
    """Somebody else asks meanwhile: what is being written stays, cannot be sent yet, and can be sent after that."""
    stuck = "[[script]]\ntext = 'never'\n[script.faults]\nstall_s = 600.0\n"
    with hosted(tmp_path, script=_texts("One.") + stuck + _texts("Three.")) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("one")
        expect(page.locator(".prose")).to_have_text("One.")
        page.get_by_role("button", name="Edit").click()
        field = page.get_by_label("Edit your question")
        field.fill("one, in other words")
        session = page.url.partition("#")[2]
        page.request.post(f"{server.url}/treadle/v1/sessions/{session}/turns", data={"input": "from elsewhere"})
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        expect(page.locator(".editing").get_by_role("button", name="Ask again")).to_be_disabled()
        field.press("Enter")
        expect(field).to_have_value("one, in other words")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        expect(field).to_have_value("one, in other words")
        field.press("Enter")
        expect(page.locator(".prose")).to_have_text("Three.")
        expect(page.locator(".question")).to_have_text("one, in other words")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_question_asked_too_early_waits(browser: Browser, tmp_path: Path) -> None:
    """It is asked when the answer is complete, can be taken back, and is not asked after a stop."""
    paused = f"[[script]]\ntext = {json.dumps('Slowly. ' * 60)}\n[script.faults]\nstall_s = 2.0\n"
    stuck = paused.replace("2.0", "600.0")
    with hosted(tmp_path, script=paused + _texts("Next.") + stuck) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("one")
        expect(page.locator(".prose")).to_contain_text("Slowly.")
        seen.ask("two")
        seen.ask("three")
        waiting = page.get_by_role("list", name="Asked when the answer is complete").get_by_role("listitem")
        expect(waiting).to_contain_text(["Next: two", "Next: three"])
        waiting.last.get_by_role("button", name="Do not ask").click()
        expect(page.locator(".question")).to_have_text(["one", "two"])
        expect(page.locator(".prose").last).to_have_text("Next.")
        expect(waiting).to_have_count(0)
        seen.ask("four")
        expect(page.locator(".prose")).to_have_count(3)
        seen.ask("five")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_label("Your question")).to_have_value("five")
        expect(page.locator(".question")).to_have_text(["one", "two", "four"])
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_the_end_is_followed_until_somebody_scrolls_up(browser: Browser, tmp_path: Path) -> None:
    """However much comes at once; who reads further up is left there, and one click leads back."""
    long = "\n\n".join(f"Line {n} of a long answer." for n in range(200))
    with hosted(tmp_path, script=_texts(long, long, "Short.")) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        for number in (1, 2):
            seen.ask("tell me")
            expect(page.get_by_role("button", name="Copy answer")).to_have_count(number)
            expect(page.get_by_role("button", name="Copy answer").last).to_be_in_viewport()
            expect(page.get_by_role("button", name="Latest")).to_have_count(0)
        page.get_by_role("main").hover()
        page.mouse.wheel(0, -2000)
        expect(page.get_by_role("button", name="Latest")).to_be_visible()
        page.get_by_role("button", name="Latest").click()
        expect(page.get_by_role("button", name="Copy answer").last).to_be_in_viewport()
        page.mouse.wheel(0, -2000)
        expect(page.get_by_role("button", name="Latest")).to_be_visible()
        seen.ask("and now")
        expect(page.locator(".prose").last).to_have_text("Short.")
        expect(page.get_by_role("button", name="Copy answer").last).to_be_in_viewport()
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_failed_tool_says_why(browser: Browser, tmp_path: Path) -> None:
    """The card is marked and holds the error, and the answer goes on."""
    script = call("fail", '{"why": "the disk is full"}', "c1") + _texts("It failed.")
    with hosted(tmp_path, script=script) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("try")
        card = page.locator("details.tool")
        expect(card).to_have_attribute("data-state", "error")
        expect(card.locator(".state")).to_contain_text("failed")
        card.locator("summary").click()
        expect(card.locator("pre").last).to_contain_text("the disk is full")
        expect(page.locator(".prose")).to_have_text("It failed.")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_browser_without_storage_still_chats(browser: Browser, server: Served) -> None:
    """Nothing is remembered in it, and nothing need be."""
    context = new_context(browser)
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no'); } })"
    )
    seen = Watched(context.new_page(), server)
    page = seen.open()
    seen.ask(QUESTION)
    expect(page.locator(".prose")).to_contain_text("Paris")
    context.close()
    assert (seen.complaints, seen.strays) == ([], [])


@pytest.mark.parametrize("width", [1180, 390], ids=["desk", "phone"])
def test_a_server_that_lists_no_model_gets_a_field_for_it(browser: Browser, server: Served, width: int) -> None:
    """What is written there is asked of, and is still there after a reload."""
    context = new_context(browser, width=width)
    seen = Watched(context.new_page(), server)
    _answers(seen.page, "/treadle/v1/models", {"default": "", "models": []})
    page = seen.open()
    bodies = _posts(page)
    field = page.get_by_role("textbox", name="Model")
    field.fill("my-model")
    shoot(page, f"model-{width}")
    seen.ask(QUESTION)
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    page.reload()
    expect(field).to_have_value("my-model")
    assert bodies[1]["model"] == "my-model"
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
    listed = {"default": "", "models": [{"id": "one", "takes": []}, {"id": "two", "takes": []}]}
    _answers(seen.page, "/treadle/v1/models", listed)
    page = seen.open()
    picker = page.get_by_role("combobox", name="Model")
    picker.select_option("two")
    page.reload()
    expect(picker).to_have_value("two")
    listed = {"default": "", "models": [{"id": "three", "takes": []}, {"id": "four", "takes": []}]}
    page.unroute("**/treadle/v1/models")
    _answers(page, "/treadle/v1/models", listed)
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
    _answers(watched.page, "/treadle/v1/models", {"default": model, "models": [{"id": model, "takes": []}]})
    page = watched.open()
    expect(page.locator(".examples button")).to_have_text(questions)


def test_many_tools_are_listed_in_lines_that_fit(browser: Browser, server: Served) -> None:
    """However many there are and however long their names; a phone is narrow."""
    context = new_context(browser, width=390, height=844)
    page = context.new_page()
    tools = [{"spec": {"name": f"tool_{n}_{'long_' * n}", "description": "", "parameters": {}}} for n in range(20)]
    _answers(page, "/treadle/v1/tools", {"tools": tools})
    page.goto(f"{server.url}/")
    listed = page.locator(".empty .tools code")
    expect(listed).to_have_count(20)
    boxes = [code.bounding_box() for code in listed.all()]
    assert [box for box in boxes if box is None or box["x"] < 0 or box["x"] + box["width"] > 390] == []
    context.close()
