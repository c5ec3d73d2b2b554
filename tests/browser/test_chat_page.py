"""The chat page in a real Chromium, against a real server, under its real policy."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browser.conftest import Watched, new_context, read_json, shoot
from gateway.server_process import Served, served

pytestmark = [pytest.mark.browser, pytest.mark.slow]

QUESTION = "What is the weather in Paris?"
MARKDOWN = """
# Heading

Some **bold**, *slanted* and `code` text, a [link](https://example.org/a) and [mail](mailto:a@example.org).

1. one
2. two
   - inner

| a | b |
|---|--:|
| 1 | 2 |

```python
print("<b>not bold</b>")
```

> quoted &amp; decoded

- [x] bought
- [ ] sold
"""
STOPPED = "This answer was stopped before it was complete."


def _turn(text: str) -> str:
    return f"[[script]]\ntext = {json.dumps(text)}\n"


def test_a_question_is_answered_with_the_help_of_a_tool(watched: Watched) -> None:
    """The card shows the call and, unfolded, arguments and result; the answer is text."""
    page = watched.open()
    expect(page).to_have_title("Treadle")
    page.get_by_role("button", name=QUESTION).click()
    card = page.locator("details.tool")
    expect(card).to_have_attribute("data-state", "done")
    expect(card.locator(".name")).to_have_text("get_weather")
    expect(page.locator(".prose")).to_contain_text("Paris")
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    expect(card.locator("pre").first).to_be_hidden()
    card.locator("summary").click()
    expect(card.locator("pre").first).to_have_text(re.compile(r'"city":\s*"Paris"'))
    expect(card.locator("pre").last).to_have_text(re.compile(r'"temperature_c"'))
    shoot(page, "chat")


def test_a_conversation_goes_on(watched: Watched) -> None:
    """The second question is asked in the same session, and the server knows what was said before."""
    page = watched.open()
    watched.ask(QUESTION)
    expect(page.get_by_role("button", name="Copy answer")).to_have_count(1)
    watched.ask("Add 2 and 3")
    expect(page.get_by_role("button", name="Copy answer")).to_have_count(2)
    expect(page.locator(".prose").last).to_contain_text("5")
    session = page.evaluate("location.hash.slice(1)")
    first, second = read_json(watched.server, f"/treadle/v1/sessions/{session}/turns")["turns"]
    assert (second["previous_id"], second["model"]) == (first["run_id"], "demo")


def test_chats_are_listed_and_kept_apart(watched: Watched) -> None:
    """A new chat begins empty; the old one is still there to go back to, also by the browser's own button."""
    page = watched.open()
    watched.ask("Add 20 and 30")
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    page.get_by_role("navigation").get_by_role("button", name="New chat").click()
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="Add 20 and 30").first.click()
    expect(page.locator(".question")).to_have_text("Add 20 and 30")
    expect(page.locator(".prose")).to_contain_text("50")
    page.go_back()
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()


def test_a_chat_names_its_tab(watched: Watched) -> None:
    """Many tabs, the history and bookmarks are told apart by it."""
    page = watched.open()
    watched.ask("What is the weather in Quito?")
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    expect(page).to_have_title("What is the weather in Quito? · Treadle")
    page.get_by_role("button", name="New chat").first.click()
    expect(page).to_have_title("Treadle")
    page.go_back()
    expect(page).to_have_title("What is the weather in Quito? · Treadle")


def test_keys_send_break_lines_and_stop(browser: Browser, tmp_path: Path) -> None:
    """Shift-Enter begins a line, Enter sends, Esc stops; the server's run ends as cancelled and can be continued."""
    with served(tmp_path, delay_s=0.4) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        field = page.get_by_label("Your question")
        field.fill("What is the weather")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("in Paris?")
        expect(field).to_have_value("What is the weather\nin Paris?")
        page.keyboard.press("Enter")
        expect(field).to_have_value("")
        expect(page.locator("details.tool")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_text(STOPPED)).to_be_visible()
        assert len(read_json(server, "/treadle/v1/runs?status=cancelled")["runs"]) == 1
        seen.ask("Add 2 and 3")
        answer = page.locator(".turn", has_text="Add 2 and 3")
        expect(answer.locator("details.tool")).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(answer.get_by_text(STOPPED)).to_be_visible()
        expect(answer.get_by_role("button", name="Try again")).to_be_visible()
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_stop_leaves_a_draft_alone(browser: Browser, tmp_path: Path) -> None:
    """What is being written while an answer comes is not sent by the click that stops the answer."""
    with served(tmp_path, delay_s=0.4) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask(QUESTION)
        expect(page.locator("details.tool")).to_be_visible()
        field = page.get_by_label("Your question")
        field.fill("a thought not finished")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_text(STOPPED)).to_be_visible()
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        expect(field).to_have_value("a thought not finished")
        expect(field).to_be_focused()
        expect(page.locator(".question")).to_have_count(1)
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_markdown_becomes_elements(browser: Browser, tmp_path: Path) -> None:
    """Headings, lists, tables, code with a copy button, links to the web and to mail."""
    with served(tmp_path, script=_turn(MARKDOWN)) as server:
        context = new_context(browser)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("show me")
        expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
        prose = page.locator(".prose")
        expect(prose.get_by_role("heading", name="Heading")).to_be_visible()
        expect(prose.locator("strong")).to_have_text("bold")
        expect(prose.locator("ol > li")).to_have_count(2)
        expect(prose.locator("ol ul > li")).to_have_text("inner")
        expect(prose.locator("td.align-right")).to_have_text("2")
        expect(prose.locator("blockquote")).to_have_text("quoted & decoded")
        marks = prose.locator("li.task").get_by_role("img")
        assert [mark.get_attribute("aria-label") for mark in marks.all()] == ["done", "not done"]
        expect(marks).to_have_text(["✓", ""])
        expect(prose.locator("figure.code code")).to_have_text('print("<b>not bold</b>")')
        hrefs = [link.get_attribute("href") for link in prose.locator("a").all()]
        assert hrefs == ["https://example.org/a", "mailto:a@example.org"]
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == 'print("<b>not bold</b>")'
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_code_is_coloured_once_it_is_whole(browser: Browser, tmp_path: Path) -> None:
    """The highlighter is fetched with the first code only, changes no character, and leaves an unknown language."""
    blocks = ['```python\ndef f(a):\n    return "<b>"  # why\n```', "```brainf\n+-<>\n```", "```js\nlet a = 1;\n```"]
    script = _turn("No code.") + _turn("\n\n".join([*blocks, "- [x] bought\n- [ ] sold"]))
    with served(tmp_path, script=script) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        fetched: list[str] = []
        seen.page.on("request", lambda request: fetched.append(request.url.rpartition("/web/")[2]))
        page = seen.open()
        seen.ask("hello")
        expect(page.get_by_role("button", name="Copy answer")).to_have_count(1)
        assert not [name for name in fetched if "highlight" in name]
        seen.ask("show me")
        code = page.locator("figure.code code")
        expect(code.nth(0).locator(".t-keyword")).to_have_text(["def", "return"])
        expect(code.nth(0).locator(".t-string")).to_have_text(['"<b>"'])
        expect(code.nth(2).locator(".t-keyword")).to_have_text(["let"])
        assert code.nth(0).text_content() == 'def f(a):\n    return "<b>"  # why'
        assert code.nth(1).inner_html() == "+-&lt;&gt;"
        grammars = sorted(name for name in fetched if "vendor/highlight/" in name)
        assert grammars == [f"vendor/highlight/{name}.js" for name in ("core", "python", "typescript")]
        shoot(page, "code")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_calls_side_by_side_show_their_own_durations(watched: Watched) -> None:
    """Each card says how long its own call took, as the journal has it."""
    page = watched.open()
    watched.ask("What is the weather in Paris and in Oslo?")
    states = page.locator("details.tool .state")
    expect(states).to_have_text([re.compile(r"^done in \d+ ms$")] * 2)
    run_id = read_json(watched.server, "/treadle/v1/runs?limit=1")["runs"][0]["id"]
    entries = read_json(watched.server, f"/treadle/v1/runs/{run_id}")["entries"]
    took = {entry["call_id"]: entry["data"]["duration_s"] for entry in entries if entry["kind"] == "tool_result"}
    calls = [entry["call_id"] for entry in entries if entry["kind"] == "tool_call"]
    assert states.all_text_contents() == [f"done in {max(1, round(took[call] * 1000))} ms" for call in calls]


def test_a_failure_says_what_to_do_and_can_be_tried_again(browser: Browser, tmp_path: Path) -> None:
    """The provider's refusal is shown; the second try is another branch of the same question, and both stay."""
    script = '[[script]]\n[script.faults]\nstatus = 400\nmessage = "No such thing"\n' + _turn("Now it works.")
    with served(tmp_path, script=script) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("hello")
        expect(page.get_by_role("alert")).to_contain_text("No such thing")
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(".prose")).to_have_text("Now it works.")
        expect(page.locator(".question")).to_have_count(1)
        expect(page.get_by_role("group", name="Branches")).to_contain_text("2 / 2")
        page.get_by_role("button", name="Branch before").click()
        expect(page.get_by_role("alert")).to_contain_text("No such thing")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_refused_question_stays_and_can_be_sent_again(watched: Watched) -> None:
    """What the server would not take is shown with its advice, and nothing that was written is lost."""
    page = watched.open()
    body = json.dumps({"error": {"message": "Slow down.", "hint": "Wait a minute.", "code": "x", "param": None}})
    page.route("**/turns?*", lambda route: route.fulfill(status=429, body=body, content_type="application/json"))
    watched.ask("Add 4 and 4")
    expect(page.get_by_role("alert").locator("p")).to_have_text(["Slow down.", "Wait a minute."])
    page.unroute("**/turns?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".prose")).to_contain_text("8")
    expect(page.locator(".question")).to_have_text(["Add 4 and 4"])
    assert all("429" in complaint for complaint in watched.complaints)
    watched.complaints.clear()


def test_a_server_that_is_gone_is_said_plainly(browser: Browser, tmp_path: Path) -> None:
    """A dead server is an alert with advice, not an endless wait."""
    with served(tmp_path) as server:
        context = new_context(browser)
        page = Watched(context.new_page(), server).open()
        expect(page.get_by_role("combobox")).to_be_visible()
    page.get_by_label("Your question").fill("hello")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    context.close()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_everything_in_one_column(browser: Browser, server: Served, dark: bool) -> None:
    """Nothing is wider than the screen, and the list of chats slides in and out."""
    context = new_context(browser, width=390, height=844, dark=dark)
    seen = Watched(context.new_page(), server)
    page = seen.open()
    expect(page.get_by_role("navigation")).to_be_hidden()
    page.get_by_role("button", name=QUESTION).click()
    expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
    page.locator("details.tool summary").click()
    assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    shoot(page, f"phone-{'dark' if dark else 'light'}")
    page.get_by_role("button", name="Chats").click()
    expect(page.get_by_role("navigation")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("navigation")).to_be_hidden()
    context.close()
    assert (seen.complaints, seen.strays) == ([], [])


def test_the_screen_reader_hears_sentences(watched: Watched) -> None:
    """The polite region is told whole sentences of the answer."""
    page = watched.open()
    watched.ask(QUESTION)
    expect(page.locator("[aria-live=polite]")).to_have_text(re.compile(r"^It is .*Paris.*\.$"))


def test_a_wrong_address_leads_back(watched: Watched) -> None:
    """The page for what is not there is styled and has the way to what is."""
    page = watched.page
    page.goto(f"{watched.server.url}/nowhere")
    watched.complaints.clear()
    page.get_by_role("link", name="Open the chat").click()
    expect(page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
