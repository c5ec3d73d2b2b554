"""Whatever somebody types in a page stays: no answer, no redrawing and no failure takes a letter back."""

import itertools
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from browser.conftest import Watched
from browser.console_server import Console, console_server

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WORD = "abracadabra"
PAUSES_MS = (0, 90, 240, 260, 30, 255, 245, 0, 120, 250, 10)
"""Between the letters: around the moment after which a filter goes into the address."""

TYPE_WHILE_IT_MOVES = """([selector, word]) => {
  const field = document.querySelector(selector);
  const type = (letter) => {
    field.value += letter;
    field.dispatchEvent(new InputEvent("input", { bubbles: true }));
  };
  const rest = [...word];
  addEventListener("treadle-moved", () => rest.length > 0 && type(rest.shift()));
  type(rest.shift());
}"""
"""Types the next letter in the very moment in which the one before goes into the address."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A server with a run, a session and an approval."""
    with console_server(tmp_path_factory.mktemp("typing")) as running:
        running.run(f'look_up {{"word": "{WORD}"}}')
        running.call("POST", "/treadle/v1/sessions", {"name": WORD})
        yield running


@pytest.mark.parametrize("view", ["runs", "sessions", "tools"])
def test_a_letter_is_kept_that_comes_while_the_address_changes(page: Page, console: Console, view: str) -> None:
    """The page is drawn anew for what was typed before, and the newest letter stays nevertheless."""
    page.goto(f"{console.url}/console/{view}")
    field = page.locator("[data-find]")
    expect(field).to_be_visible()
    page.evaluate(TYPE_WHILE_IT_MOVES, ["[data-find]", "abra"])
    expect(page).to_have_url(re.compile("text=abra$"))
    expect(field).to_have_value("abra")


def test_no_letter_is_lost_at_any_pace_while_answers_are_late(page: Page, console: Console) -> None:
    """Answers come out of step with the keys, each drawing the list anew."""
    waiting: list[Route] = []

    def late(route: Route) -> None:
        """Answer with each request the one before."""
        waiting.append(route)
        if len(waiting) > 1:
            waiting.pop(0).continue_()

    page.route("**/treadle/v1/runs?*", late)
    page.goto(f"{console.url}/console/runs")
    field = page.get_by_label("Search messages and tool calls")
    field.focus()
    for letter, pause_ms in zip(WORD, itertools.cycle(PAUSES_MS), strict=False):
        page.keyboard.type(letter)
        page.wait_for_timeout(pause_ms)
    expect(page).to_have_url(re.compile(f"text={WORD}$"))
    expect(field).to_have_value(WORD)
    page.unroute("**/treadle/v1/runs?*")
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"text={WORD[:-1]}$"), timeout=2_000)
    expect(page.locator("tr[data-at]")).to_have_count(1)


def test_a_filter_follows_the_address_and_never_another_view(page: Page, console: Console) -> None:
    """Back and links set the field; what was typed in a view that was left filters nothing elsewhere."""
    page.goto(f"{console.url}/console/runs?text=first")
    page.get_by_role("link", name="Sessions", exact=True).click()
    field = page.get_by_label("Named or said")
    expect(field).to_have_value("")
    page.evaluate(
        """() => {
          const field = document.querySelector("[data-find]");
          field.value = "later";
          field.dispatchEvent(new InputEvent("input", { bubbles: true }));
          [...document.querySelectorAll(".tabs a")].find((link) => link.textContent === "Tools").click();
        }"""
    )
    expect(page.get_by_label("Name, source or description")).to_have_value("")
    page.evaluate("() => new Promise((passed) => setTimeout(passed, 400))")
    assert page.url.endswith("/console/tools")
    page.go_back()
    page.go_back()
    expect(page.get_by_label("Search messages and tool calls")).to_have_value("first")
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_label("Search messages and tool calls")).to_have_value("")


def test_a_failed_reading_leaves_what_is_being_written(seen: Watched, console: Console) -> None:
    """The server is away for a moment while somebody edits a call: the trouble is told, the text stays."""
    page = seen.page
    run_id, _ = console.ask_for("kept.txt")
    page.goto(f"{console.url}/console/approvals")
    card = page.get_by_role("article").first
    card.get_by_role("button", name="Edit").click()
    card.get_by_role("textbox").fill('{"path": "other.txt"}')
    page.route("**/treadle/v1/approvals*", lambda route: route.abort())
    console.ask_for("more.txt")
    expect(page.get_by_role("alert").first).to_contain_text("The server cannot be reached.")
    expect(card.get_by_role("textbox")).to_have_value('{"path": "other.txt"}')
    page.unroute("**/treadle/v1/approvals*")
    page.get_by_role("button", name="Try again").first.click()
    expect(page.get_by_role("alert")).to_have_count(0)
    card = page.get_by_role("article").filter(has=page.get_by_role("textbox"))
    card.get_by_role("button", name="Approve as changed").click()
    console.wait(run_id)
    assert '"other.txt is gone"' in str(console.call("GET", f"/treadle/v1/runs/{run_id}/trace")).replace("'", '"')
    seen.complaints = [said for said in seen.complaints if "ERR_FAILED" not in said]


def test_a_dialog_keeps_what_was_written_when_it_fails(seen: Watched, console: Console) -> None:
    """The name of a key is taken: another one is written in its place, and the rest need not be written again."""
    page = seen.page
    console.call("POST", "/treadle/v1/keys", {"name": "taken"})
    page.goto(f"{console.url}/console/keys")
    page.get_by_role("button", name="Make a key…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("taken")
    dialog.get_by_label("Days until it expires").fill("7")
    dialog.get_by_role("button", name="Make it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("There is a key 'taken' already.")
    expect(dialog.get_by_label("Days until it expires")).to_have_value("7")
    dialog.get_by_label("Name").fill("free")
    dialog.get_by_role("button", name="Make it").click()
    expect(page.get_by_text("It is shown only now.")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    seen.complaints = [said for said in seen.complaints if "409" not in said]


def test_a_model_is_typed_letter_by_letter(page: Page, console: Console) -> None:
    """Nothing is cut off while it is written; the spaces around it are, when it is asked."""
    page.goto(f"{console.url}/")
    page.get_by_label("Model").select_option("")
    page.get_by_label("Model").press_sequentially(" demo one ")
    expect(page.get_by_label("Model")).to_have_value(" demo one ")
    page.get_by_label("Model").fill(" demo ")
    page.get_by_label("Your question").fill("hello")
    page.keyboard.press("Enter")
    expect(page.get_by_role("article").get_by_text("You said: hello")).to_be_visible()
