"""The console for everybody: by keys and by voice, light and dark, on a phone, and for those who may only look."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browser.axe import Rules, violations
from browser.conftest import Watched, new_context, shoot
from browser.console_server import KEY, Console, console_server
from unit.server.api.scored import write

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LOOKS: dict[str, dict[str, Any]] = {"light": {}, "dark": {"dark": True}, "phone": {"width": 390, "height": 844}}
TELLING = ("runs", "run", "plan", "approvals", "facts", "tools", "keys", "eval")
"""Views that have everything which looks other in the dark or on a phone."""


class Shown:
    """A server with something in every view, and where to look at it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        for number in range(3):
            console.run(f'get_price {{"article": "A{number}"}}', session="shop")
        self.broken = console.run('get_price {"article": "A7"} ;; look_up {"word": "abracadabra"}')
        console.run("fail")
        self.waiting, _ = console.ask_for("notes.txt", session="letters")
        console.propose(city="Tampere", role="smith")
        console.call("POST", "/treadle/v1/keys", {"name": "robots", "budget": {"usd": 5.0, "period": "month"}})
        session = console.call("GET", "/treadle/v1/sessions")["sessions"][-1]["id"]
        run = f"/console/runs/{self.broken}"
        self.views = {
            "runs": "/console",
            "run": run,
            "plan": f"{run}?node=round-2&tab=plan",
            "request": f"{run}?node=round-1&tab=request",
            "reply": f"{run}?node=round-1&tab=reply",
            "waiting": f"/console/runs/{self.waiting}",
            "sessions": "/console/sessions",
            "session": f"/console/sessions/{session}",
            "approvals": "/console/approvals",
            "facts": "/console/facts",
            "tools": "/console/tools/delete_file",
            "upstreams": "/console/upstreams",
            "guests": "/console/guests",
            "keys": "/console/keys",
            "evals": "/console/evals",
            "eval": "/console/evals/2-new?vs=1-old&cell=s1%0Aoffline",
            "sample": "/console/evals/2-new/s1%2Fx.1",
        }


WORDS = {
    "runs": "abracadabra",
    "run": "went wrong",
    "plan": "The whole plan",
    "request": "written again",
    "reply": "pieces",
    "waiting": "Decide",
    "sessions": "shop",
    "session": "It gave: 12.5",
    "approvals": "destructive",
    "facts": "Tampere",
    "tools": "Who says so",
    "upstreams": "breaker closed",
    "guests": "No guest is configured",
    "keys": "Used of the budget",
    "evals": "against the one before",
    "eval": "lost 1",
    "sample": "Set foo.",
}
"""What shows that a view is there."""

MOVE = "(path) => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }"
TOO_WIDE = """() => [...document.querySelectorAll("main *")]
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 1 && !node.closest("[role=region]"))
  .map((node) => node.outerHTML.slice(0, 100))"""
"""What sticks out of the window, but for what can be scrolled by itself."""

RULES: dict[str, Rules] = {"light": "all", "dark": "colours", "phone": "shapes"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """The server of this file."""
    folder = tmp_path_factory.mktemp("access")
    write(folder / "runs", "1-old", 100.0, "pass", "pass")
    write(folder / "runs", "2-new", 200.0, "pass", "fail", "broken")
    with console_server(folder, evals=str(folder / "runs")) as console:
        yield Shown(console)


def visit(page: Page, shown: Shown, view: str, *, inside: bool = False) -> None:
    """Open a view, perhaps without loading the page anew, and wait until it is there."""
    if inside and page.url.startswith(shown.console.url):
        page.evaluate(MOVE, shown.views[view])
    else:
        page.goto(f"{shown.console.url}{shown.views[view]}")
    expect(page.locator("main")).to_contain_text(WORDS[view])


@pytest.mark.parametrize("look", LOOKS)
def test_every_view_is_accessible_and_fits(browser: Browser, shown: Shown, look: str) -> None:
    """No violation that axe knows, nothing wider than the window, no complaint, nothing from elsewhere."""
    context = new_context(browser, **LOOKS[look])
    seen = Watched(context.new_page(), shown.console)
    page = seen.page
    found: dict[str, list[str]] = {}
    for view in shown.views if look == "light" else TELLING:
        visit(page, shown, view, inside=True)
        if wrong := violations(page, RULES[look]):
            found[view] = wrong
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert page.evaluate(TOO_WIDE) == [], view
        shoot(page, f"console-{view}-{look}")
    context.close()
    assert found == {}
    assert (seen.complaints, seen.strays) == ([], [])


def test_no_answer_holds_a_providers_key(browser: Browser, shown: Shown) -> None:
    """Neither a page nor any document that a view reads."""
    context = new_context(browser)
    page = context.new_page()
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    for view in shown.views:
        visit(page, shown, view)
    bodies = {url: context.request.get(url).body() for url in sorted(asked) if "/treadle/v1/live" not in url}
    context.close()
    assert len(bodies) > len(shown.views)
    assert [url for url, body in bodies.items() if KEY.encode() in body] == []


@pytest.mark.parametrize("view", ["keys", "evals"])
def test_the_view_that_is_shown_is_in_view_among_the_tabs(browser: Browser, shown: Shown, view: str) -> None:
    """On a phone the tabs are wider than the window, and those of an admin come only when it is known who looks."""
    context = new_context(browser, **LOOKS["phone"])
    page = context.new_page()
    visit(page, shown, view)
    expect(page.get_by_role("link", name="Keys")).to_have_count(1)
    expect(page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=0.99)
    context.close()


def test_a_long_name_does_not_stretch_a_filter(browser: Browser, shown: Shown) -> None:
    """A list is as wide as its longest entry, unless something keeps it from that."""
    context = new_context(browser)
    page = context.new_page()
    visit(page, shown, "runs")
    page.get_by_label("Model").evaluate(
        "(node) => node.append(new Option('a-model-with-a-name-' + 'so-long-'.repeat(20)))"
    )
    box = page.get_by_label("Model").bounding_box()
    assert box is not None
    assert box["width"] <= 200
    context.close()


def test_filters_stand_on_one_line(browser: Browser, shown: Shown) -> None:
    """Their names and their fields, whatever kind of field each is."""
    context = new_context(browser)
    page = context.new_page()
    for view in ("runs", "eval"):
        visit(page, shown, view)
        labels = page.locator(".filters label:not(.check)")
        for part in ("span", "input, select"):
            boxes = [label.locator(part).bounding_box() for label in labels.all()]
            assert len({round(box["y"]) for box in boxes if box}) == 1, (view, part, boxes)
            assert len({round(box["height"]) for box in boxes if box}) == 1, (view, part, boxes)
    context.close()


def test_dialogs_are_accessible_too(browser: Browser, shown: Shown) -> None:
    """The list of keys, and the questions before something is done."""
    context = new_context(browser)
    page = context.new_page()
    visit(page, shown, "run")
    for opening in (lambda: page.keyboard.press("?"), lambda: page.get_by_role("button", name="Fork…").click()):
        opening()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert violations(page) == []
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    context.close()


def test_nothing_moves_for_those_who_want_no_motion(browser: Browser, shown: Shown) -> None:
    """Not even the mark of a run that goes on."""
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    visit(page, shown, "waiting")
    running = page.evaluate("document.getAnimations().filter((each) => each.playState === 'running').length")
    context.close()
    assert running == 0


def test_everything_is_reached_by_the_tab_key(browser: Browser, shown: Shown) -> None:
    """From the link that skips the bar to the buttons of a card; the focus can always be seen."""
    context = new_context(browser)
    page = context.new_page()
    visit(page, shown, "approvals")
    reached: list[str] = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim().slice(0, 40)"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or page.evaluate("document.activeElement === document.body"), reached[-1]
    context.close()
    assert {"Skip to the view", "Approve", "Deny", "Edit", "What led to it"} <= set(reached)
    assert any(name.startswith("Runs") for name in reached)


def test_a_map_of_scenarios_leads_to_transcripts_and_compares(browser: Browser, shown: Shown) -> None:
    """A cell leads to its samples and those to what happened; another run shows what was lost."""
    context = new_context(browser)
    seen = Watched(context.new_page(), shown.console)
    page = seen.page
    visit(page, shown, "evals")
    page.get_by_role("link", name="2-new", exact=True).click()
    expect(page.get_by_role("link", name="s1, offline: 0/1 passed")).to_be_visible()
    expect(page.get_by_role("link", name="s2, offline: broken passed")).to_be_visible()
    page.get_by_role("combobox", name="Against").select_option("1-old")
    expect(page.get_by_role("link", name="s1, offline: 0/1 passed, worse")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="lost 1")).to_contain_text("s1")
    page.get_by_role("combobox", name="Show").select_option("different")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="s1, offline: 0/1 passed, worse").click()
    page.get_by_role("link", name="s1/x.1").click()
    expect(page.get_by_role("heading", name="Set foo.")).to_be_visible()
    expect(page.get_by_role("region", name="The world after")).to_contain_text("bar")
    page.get_by_role("link", name="back to the map").click()
    expect(page.get_by_role("heading", name="s1 · offline")).to_be_visible()
    context.close()
    assert (seen.complaints, seen.strays) == ([], [])


def test_who_may_only_look_cannot_do_anything(browser: Browser, tmp_path: Path) -> None:
    """The buttons are off for a viewer, who sees all the rest; an operator decides under their own name."""
    with console_server(tmp_path, login="always") as console:
        contexts = [new_context(browser, is_person=False) for _ in range(3)]
        admin, viewer, operator = (context.new_page() for context in contexts)
        admin.goto(f"{console.url}{console.login}")
        expect(admin).to_have_url(f"{console.url}/")
        for page, name in ((viewer, "viewer"), (operator, "operator")):
            made = admin.request.post(
                f"{console.url}/treadle/v1/logins",
                data={"name": f"Ada the {name}", "scope": name},
                headers={"x-treadle-page": "1"},
            )
            page.goto(f"{console.url}{made.json()['path']}")
            expect(page).to_have_url(f"{console.url}/")
        started = operator.request.post(
            f"{console.url}/treadle/v1/runs",
            data={"input": 'delete_file {"path": "a.txt"}'},
            headers={"x-treadle-page": "1"},
        )
        viewer.goto(f"{console.url}/console/approvals")
        expect(viewer.get_by_role("article", name="delete_file, pending")).to_be_visible()
        expect(viewer.get_by_role("link", name="Keys")).to_have_count(0)
        for name in ("Approve", "Deny", "Edit"):
            expect(viewer.get_by_role("button", name=name, exact=True)).to_be_disabled()
        viewer.goto(f"{console.url}/console/runs/{started.json()['id']}")
        expect(viewer.get_by_role("button", name="Cancel")).to_be_disabled()
        operator.goto(f"{console.url}/console/approvals")
        operator.get_by_role("button", name="Approve", exact=True).click()
        expect(operator.get_by_role("row", name="approved delete_file Ada the operator")).to_be_visible()
        expect(viewer.get_by_role("treeitem").first).to_contain_text("completed")
        for context in contexts:
            context.close()


def test_who_is_not_logged_in_sees_nothing(browser: Browser, tmp_path: Path) -> None:
    """Neither the page nor what is behind it; the way in is said."""
    with console_server(tmp_path, login="always") as console:
        context = new_context(browser, is_person=False)
        page = context.new_page()
        answer = page.goto(f"{console.url}/console/runs")
        assert answer is not None
        assert answer.status == 401
        expect(page.get_by_text("log in", exact=False).first).to_be_visible()
        assert page.request.get(f"{console.url}/treadle/v1/evals").status == 401
        context.close()
