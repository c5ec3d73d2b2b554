"""Decisions in the console: calls approved, denied and changed, facts confirmed and rejected, from two windows once."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from browser.conftest import Watched, new_context
from browser.console_server import Console, console_server

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    """A server on which nothing has happened."""
    with console_server(tmp_path) as running:
        yield running


@pytest.fixture
def windows(browser: Browser, console: Console) -> Iterator[tuple[Watched, Watched]]:
    """Two windows, as of two people; a refused second decision is noted by the browser and by nothing else."""
    contexts = [new_context(browser), new_context(browser)]
    first, second = (Watched(context.new_page(), console) for context in contexts)
    yield first, second
    for context in contexts:
        context.close()
    said = [line for line in (*first.complaints, *second.complaints) if "status of 409" not in line]
    assert (said, first.strays, second.strays) == ([], [], [])


def deafen(page: Page) -> None:
    """Let a window hear of nothing that others do."""
    page.route("**/treadle/v1/live*", lambda route: route.fulfill(content_type="text/event-stream", body=""))


def output(console: Console, run_id: str) -> str:
    """What the first call of a run gave."""
    found: str = console.call("GET", f"/treadle/v1/runs/{run_id}/trace")["trace"]["rounds"][0]["calls"][0]["output"]
    return found


def test_a_call_is_approved_by_a_key(windows: tuple[Watched, Watched], console: Console) -> None:
    """It shows up by itself with what it would do and why it asks; then it runs, and is told as decided."""
    page = windows[0].page
    page.goto(f"{console.url}/console/approvals")
    expect(page.get_by_text("Nothing waits.").first).to_be_visible()
    run_id, _ = console.ask_for("a.txt")
    card = page.get_by_role("article", name="delete_file, pending")
    expect(card).to_contain_text("delete_file is destructive")
    expect(card).to_contain_text('"path": "a.txt"')
    expect(page.get_by_role("link", name="Approvals 1 to decide")).to_be_visible()
    card.get_by_text("What led to it").click()
    expect(card).to_contain_text("Let me see.")
    page.keyboard.press("a")
    expect(card).to_have_count(0)
    console.wait(run_id)
    assert output(console, run_id) == "a.txt is gone"
    expect(page.get_by_role("row", name=re.compile("^approved delete_file"))).to_have_count(1)


def test_a_call_is_denied_with_a_reason_that_the_model_reads(
    windows: tuple[Watched, Watched], console: Console
) -> None:
    """The first press asks why, the second denies."""
    page = windows[0].page
    run_id, _ = console.ask_for("b.txt")
    page.goto(f"{console.url}/console/approvals")
    expect(page.get_by_role("article", name="delete_file, pending")).to_be_visible()
    page.keyboard.press("d")
    page.get_by_label("Why not? The model reads this.").fill("keep it")
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_role("article", name="delete_file, pending")).to_have_count(0)
    console.wait(run_id)
    assert "a person denied this call: keep it" in output(console, run_id)


def test_a_call_runs_with_the_arguments_that_a_person_wrote(windows: tuple[Watched, Watched], console: Console) -> None:
    """What is no JSON is refused in words and stays undecided; what is, runs."""
    page = windows[0].page
    run_id, _ = console.ask_for("c.txt")
    page.goto(f"{console.url}/console/approvals")
    expect(page.get_by_role("article", name="delete_file, pending")).to_be_visible()
    page.keyboard.press("e")
    field = page.get_by_label("Arguments to run with instead")
    field.fill("{no json")
    page.get_by_role("button", name="Approve as changed").click()
    expect(page.get_by_role("alert")).to_contain_text("not JSON")
    windows[0].complaints.clear()
    field.fill('{"path": "other.txt"}')
    page.get_by_role("button", name="Approve as changed").click()
    expect(page.get_by_role("article", name="delete_file, pending")).to_have_count(0)
    console.wait(run_id)
    assert "other.txt is gone" in output(console, run_id)


def test_two_windows_decide_once(windows: tuple[Watched, Watched], console: Console) -> None:
    """The second is told kindly what stands, and nothing runs twice."""
    run_id, approval = console.ask_for("d.txt")
    first, second = (window.page for window in windows)
    deafen(second)
    for page in (first, second):
        page.goto(f"{console.url}/console/approvals/{approval['id']}")
        expect(page.get_by_role("article", name="delete_file, pending")).to_be_visible()
    first.get_by_role("button", name="Deny").click()
    first.get_by_role("button", name="Deny").click()
    second.get_by_role("button", name="Approve", exact=True).click()
    expect(second.get_by_role("status").filter(has_text="Somebody was quicker")).to_be_visible()
    for page in (first, second):
        expect(page.get_by_role("article", name="delete_file, denied")).to_be_visible()
        expect(page.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
    console.wait(run_id)
    assert "denied" in output(console, run_id)


def test_a_call_that_nobody_decides_expires_and_is_nobodys_refusal(browser: Browser, tmp_path: Path) -> None:
    """Both windows see it end by itself: no buttons any more, nobody named, and the model is told that time is over."""
    with console_server(tmp_path, decide_s=1.0) as console:
        contexts = [new_context(browser), new_context(browser)]
        listed, linked = (context.new_page() for context in contexts)
        listed.goto(f"{console.url}/console/approvals")
        expect(listed.get_by_text("Nothing waits.").first).to_be_visible()
        run_id = console.run('delete_file {"path": "late.txt"}')
        [approval] = console.call("GET", f"/treadle/v1/approvals?run={run_id}")["approvals"]
        linked.goto(f"{console.url}/console/approvals/{approval['id']}")
        expect(listed.get_by_role("row", name=re.compile("^expired delete_file –"))).to_have_count(1)
        expect(linked.get_by_role("article", name="delete_file, expired")).to_be_visible()
        for page in (listed, linked):
            expect(page.get_by_role("article", name="delete_file, pending")).to_have_count(0)
            expect(page.get_by_role("button", name=re.compile("Approve|Deny"))).to_have_count(0)
        linked.get_by_role("link", name="its run").click()
        expect(linked.get_by_role("treeitem", selected=True)).to_contain_text("expired")
        expect(linked.get_by_role("region", name="What is marked")).to_contain_text("No person denied it.")
        assert "nobody decided about this call in time" in output(console, run_id)
        for context in contexts:
            context.close()


def test_a_decision_is_remembered_and_can_be_forgotten(windows: tuple[Watched, Watched], console: Console) -> None:
    """Every call of the tool in this session runs without asking, until the rule is taken away."""
    page = windows[0].page
    first, _ = console.ask_for("e.txt", session="trusted")
    page.goto(f"{console.url}/console/approvals")
    page.get_by_label("and remember").select_option("every call of this tool, in this session")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_role("listitem").filter(has_text="every call")).to_be_visible()
    console.wait(first)
    second = console.run('delete_file {"path": "f.txt"}', session="trusted")
    assert output(console, second) == "f.txt is gone"
    page.get_by_role("button", name="Ask again for delete_file").click()
    expect(page.get_by_text("Agreed to without asking")).to_have_count(0)
    console.ask_for("g.txt", session="trusted")
    expect(page.get_by_role("article", name="delete_file, pending")).to_be_visible()


def test_a_proposal_is_confirmed_in_part(windows: tuple[Watched, Watched], console: Console) -> None:
    """It shows up by itself with what is and what would be; only what is ticked becomes fact."""
    page = windows[0].page
    page.goto(f"{console.url}/console/facts")
    expect(page.get_by_text("Nothing is proposed.").first).to_be_visible()
    console.propose(city="Tampere", role="smith")
    card = page.get_by_role("article", name="Proposal, open")
    expect(card).to_contain_text("the letter says so")
    expect(card.get_by_role("region", name="/facts/city now")).to_have_text('"Turku"')
    expect(card.get_by_role("region", name="/facts/city then")).to_have_text('"Tampere"')
    expect(card.get_by_role("region", name="/facts/role now")).to_have_text("(nothing)")
    card.get_by_role("checkbox", name="/facts/role").uncheck()
    page.get_by_role("button", name="Confirm what is ticked").click()
    expect(card).to_have_count(0)
    facts = console.call("GET", "/treadle/v1/workspaces/desk")["facts"]
    assert facts == {"city": "Tampere"}
    expect(page.get_by_role("row", name=re.compile("^confirmed"))).to_have_count(1)


def test_a_proposal_is_edited_before_it_becomes_fact(windows: tuple[Watched, Watched], console: Console) -> None:
    """What is no JSON is said and not sent."""
    page = windows[0].page
    console.propose(age=41)
    page.goto(f"{console.url}/console/facts")
    expect(page.get_by_role("article", name="Proposal, open")).to_be_visible()
    page.keyboard.press("e")
    page.get_by_label("Value of /facts/age").fill("forty-two")
    page.get_by_role("button", name="Confirm, as changed").click()
    expect(page.get_by_role("alert")).to_contain_text("is no JSON")
    page.get_by_label("Value of /facts/age").fill("42")
    page.get_by_role("button", name="Confirm, as changed").click()
    expect(page.get_by_role("article", name="Proposal, open")).to_have_count(0)
    assert console.call("GET", "/treadle/v1/workspaces/desk")["facts"]["age"] == 42


def test_a_proposal_is_rejected_with_a_reason(windows: tuple[Watched, Watched], console: Console) -> None:
    """By keys and words."""
    page = windows[0].page
    proposal = console.propose(city="Oulu")
    page.goto(f"{console.url}/console/facts")
    expect(page.get_by_role("article", name="Proposal, open")).to_be_visible()
    page.keyboard.press("d")
    page.get_by_label("Why not? The model reads this.").fill("an old letter")
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("article", name="Proposal, open")).to_have_count(0)
    path = f"/treadle/v1/workspaces/desk/proposals/{proposal['id']}"
    decided = console.call("GET", path)
    assert (decided["status"], decided["decision"]["reason"]) == ("rejected", "an old letter")


def test_facts_that_moved_on_are_shown_three_ways(windows: tuple[Watched, Watched], console: Console) -> None:
    """A window that shows older facts cannot confirm: it is told, and sees what was, is and was proposed."""
    first, second = (window.page for window in windows)
    deafen(second)
    console.propose(city="Espoo")
    console.propose(city="Vantaa")
    for page in (first, second):
        page.goto(f"{console.url}/console/facts")
        expect(page.get_by_role("article", name="Proposal, open")).to_have_count(2)
    cards = first.get_by_role("article", name="Proposal, open")
    cards.filter(has_text="Espoo").get_by_role("button", name="Confirm").click()
    stale = second.get_by_role("article", name="Proposal, open").filter(has_text="Vantaa")
    stale.get_by_role("button", name="Confirm").click()
    expect(stale.get_by_role("region", name="/facts/city as it was")).to_have_text('"Turku"')
    expect(stale.get_by_role("region", name="/facts/city now")).to_have_text('"Espoo"')
    expect(stale.get_by_role("region", name="/facts/city proposed")).to_have_text('"Vantaa"')
    expect(stale.get_by_role("button", name="Confirm")).to_have_count(0)
    assert console.call("GET", "/treadle/v1/workspaces/desk")["facts"]["city"] == "Espoo"


def test_what_is_to_be_decided_is_never_more_than_text(windows: tuple[Watched, Watched], console: Console) -> None:
    """A model that writes markup into its arguments or its facts only shows it."""
    page = windows[0].page
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    console.ask_for(hostile)
    console.propose(city=hostile)
    for view, name in (("approvals", "delete_file, pending"), ("facts", "Proposal, open")):
        page.goto(f"{console.url}/console/{view}")
        expect(page.get_by_role("article", name=name)).to_contain_text(hostile)
        expect(page.locator("#app article img, #app article script")).to_have_count(0)


def test_a_command_is_shown_line_by_line(windows: tuple[Watched, Watched], console: Console) -> None:
    """What stands behind a line break cannot hide in an escape."""
    page = windows[0].page
    console.ask_for("a.txt\\nrm -rf /")
    page.goto(f"{console.url}/console/approvals")
    block = page.get_by_role("region", name="path, line by line")
    expect(block).to_have_text("a.txt\nrm -rf /", use_inner_text=True)
