"""The chat for everyone: no violation that axe finds in any state, both colours, phone width, keyboard, less motion."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from browser.axe import Rules, violations
from browser.conftest import Watched, new_context, shoot
from browser.host import call, hosted

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RICH = """
# Title

Text with **bold**, `code` and a [link](https://example.org).

1. one
   - inner
2. two

| a | b |
|---|---|
| 1 | 2 |

```python
def f(x: int) -> int:
    return x + 1  # why not
```

> quoted

- [x] done
- [ ] open
"""
SCRIPT = "".join(
    (
        f"[[script]]\nreasoning = 'Hm.'\ntext = {json.dumps(RICH)}\n",
        "[script.usage]\ninput_tokens = 10\noutput_tokens = 5\n",
        call("look", '{"folder": "a"}', "c1"),
        "[[script]]\ntext = 'Looked.'\n",
        call("fail", '{"why": "x"}', "c2"),
        "[[script]]\ntext = 'Failed.'\n",
        "[[script]]\n[script.faults]\nstatus = 400\nmessage = 'No.'\n",
        call("wipe", '{"folder": "b"}', "c3"),
        "[[script]]\ntext = 'Wiped.'\n",
    )
)
STOPS = (
    "Skip to the question",
    "New chat",
    "Search all chats",
    "Model",
    "More",
    "Edit",
    "Copy",
    "Copy answer",
    "Ask again",
    "Attach files",
    "Your question",
    "Send",
)


def _fill(seen: Watched) -> None:
    """Bring about every kind of card."""
    page = seen.page
    for number, question in enumerate(("rich", "look", "fail"), 1):
        seen.ask(question)
        expect(page.get_by_role("button", name="Copy answer")).to_have_count(number)
    seen.ask("break")
    expect(page.get_by_role("alert")).to_be_visible()
    seen.ask("wipe")
    expect(page.locator(".ask")).to_be_visible()
    for folded in page.locator(".turns details > summary").all():
        folded.click()


@pytest.mark.parametrize(
    ("width", "dark", "rules"),
    [(1180, False, "all"), (1180, True, "colours"), (390, False, "shapes")],
    ids=["desk", "dark", "phone"],
)
def test_axe_finds_nothing(browser: Browser, tmp_path: Path, width: int, dark: bool, rules: Rules) -> None:
    """On the empty page, on a full chat with every card, on each dialog, and on the open list."""
    with hosted(tmp_path, script=SCRIPT) as server:
        context = new_context(browser, width=width, height=844, dark=dark)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        expect(page.locator(".examples button").first).to_be_visible()
        found = {"empty": violations(page, rules)}
        _fill(seen)
        page.get_by_role("button", name="Edit").last.click()
        found["chat"] = violations(page, rules)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        shoot(page, f"full-{width}-{'dark' if dark else 'light'}")
        page.get_by_role("button", name="More").click()
        found["menu"] = violations(page, rules)
        page.keyboard.press("Escape")
        # A bare key counts only once the dialog is closed.
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.get_by_role("main").focus()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
        found["keys"] = violations(page, rules)
        page.keyboard.press("Escape")
        if width < 700:
            page.get_by_role("button", name="Chats").click()
            expect(page.get_by_role("navigation")).to_be_visible()
            found["list"] = violations(page, rules)
        context.close()
        assert {place: lines for place, lines in found.items() if lines} == {}
        assert (seen.complaints, seen.strays) == ([], [])


def test_axe_finds_nothing_on_small_pages(browser: Browser, tmp_path: Path) -> None:
    """The login and the page for what is not there; and it finds what there is to find."""
    with hosted(tmp_path) as server:
        context = new_context(browser)
        page = context.new_page()
        for path in ("/login", "/nowhere"):
            page.goto(f"{server.url}{path}")
            assert violations(page) == [], path
        page.evaluate("() => document.querySelector('main').append(document.createElement('button'))")
        page.evaluate("() => (document.querySelector('h1').style.cssText = 'color: #888; background: #999')")
        assert {line.partition(":")[0] for line in violations(page)} == {"button-name", "color-contrast"}
        assert [line.partition(":")[0] for line in violations(page, "colours")] == ["color-contrast"]
        assert [line.partition(":")[0] for line in violations(page, "shapes")] == ["button-name"]
        context.close()


def test_everything_is_reached_by_tab(browser: Browser, tmp_path: Path) -> None:
    """From the top through the list and the chat to the question, each stop is visible and has a name."""
    with hosted(tmp_path, script=SCRIPT) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("rich")
        expect(page.get_by_role("button", name="Copy answer")).to_be_visible()
        page.evaluate("document.activeElement.blur()")
        names = _tabbed(page, 30)
        missing = [wanted for wanted in STOPS if not any(name.startswith(wanted) for name in names)]
        assert missing == [], names
        context.close()


def _tabbed(page: Page, stops: int) -> list[str]:
    """Press Tab and return the names of what gets the focus."""
    named = """() => {
      const node = document.activeElement;
      const label = node.labels?.[0]?.innerText.replace('+', '').trim();
      return (node.ariaLabel || label || node.innerText || node.placeholder || '').trim();
    }"""
    found: list[str] = []
    for _ in range(stops):
        page.keyboard.press("Tab")
        found.append(page.evaluate(named))
    return found


STILL = "document.getAnimations().every((one) => one.playState !== 'running')"


def test_less_motion_is_respected(browser: Browser, tmp_path: Path) -> None:
    """Whoever asks their system for less motion gets none that goes on."""
    script = "[[script]]\ntext = 'never'\n[script.faults]\nstall_s = 600.0\n"
    with hosted(tmp_path, script=script) as server:
        context = browser.new_context(reduced_motion="reduce")
        page = context.new_page()
        page.goto(f"{server.url}/")
        page.get_by_label("Your question").fill("wait")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        page.wait_for_function(STILL)
        context.close()


def test_colours_can_be_chosen_and_stay(browser: Browser, tmp_path: Path) -> None:
    """Against the system's, for all pages of the browser, from the first paint on."""
    with hosted(tmp_path) as server:
        context = new_context(browser, dark=True)
        page = Watched(context.new_page(), server).open()
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_role("button", name="More").click()
        page.get_by_role("button", name="Colours: auto").click()
        expect(page.get_by_role("button", name="Colours: light")).to_be_visible()
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert light != dark
        page.goto(f"{server.url}/nowhere")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
        context.close()
