"""Calls that wait for a person, decided on the chat page: once, by whoever is first, bound to what was read."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from browser.conftest import Watched, new_context, read_json, shoot
from browser.host import Hosted, call, hosted

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ASKS = call("wipe", '{"folder": "./tmp"}', "c1")
DONE = '[[script]]\ntext = "So be it."\n'


def _asked(seen: Watched) -> Page:
    page = seen.open()
    seen.ask("clean up")
    expect(page.locator(".ask")).to_be_visible()
    return page


def _approval(server: Hosted) -> dict[str, object]:
    return read_json(server, "/treadle/v1/approvals")["approvals"][0]


def test_a_call_waits_and_is_approved(browser: Browser, tmp_path: Path) -> None:
    """The card shows what would run and why it is asked; a click lets it run, once."""
    with hosted(tmp_path, script=ASKS + DONE) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = _asked(seen)
        card = page.locator("details.tool")
        expect(card).to_have_attribute("data-state", "asking")
        expect(page.locator(".ask")).to_contain_text("May wipe run? wipe is destructive.")
        expect(page.locator(".ask pre")).to_contain_text('"folder": "./tmp"')
        expect(page.locator(".ask")).to_contain_text("Expires in")
        shoot(page, "approval")
        page.get_by_role("button", name="Approve").click()
        expect(card).to_have_attribute("data-state", "done")
        expect(page.locator(".ask")).to_have_count(0)
        expect(page.locator(".prose")).to_have_text("So be it.")
        card.locator("summary").click()
        expect(card.locator("pre").last).to_contain_text("wiped ./tmp, force False")
        expect(card).to_contain_text("by ada")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_denial_tells_the_model_why(browser: Browser, tmp_path: Path) -> None:
    """The card says denied and not failed, and the reason stands on it."""
    denied = '[[script]]\ntext = "I will not."\n[script.sees]\nresult_code = "denied"\ncontains = "not on a Friday"\n'
    with hosted(tmp_path, script=ASKS + denied) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = _asked(seen)
        page.get_by_label("Reason").fill("not on a Friday")
        page.get_by_role("button", name="Deny").click()
        card = page.locator("details.tool")
        expect(card).to_have_attribute("data-state", "denied")
        expect(page.locator(".prose")).to_have_text("I will not.")
        card.locator("summary").click()
        expect(card).to_contain_text("not on a Friday")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_changed_arguments_are_what_runs(browser: Browser, tmp_path: Path) -> None:
    """Arguments that do not fit are refused with the field's name and can be mended; those that fit run."""
    with hosted(tmp_path, script=ASKS + DONE) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = _asked(seen)
        page.get_by_role("button", name="Edit", exact=True).last.click()
        field = page.get_by_label("Arguments to run with, as JSON")
        field.fill('{"folder": 7}')
        page.get_by_role("button", name="Approve this").click()
        expect(page.get_by_role("alert")).to_contain_text("folder")
        assert _approval(server)["status"] == "pending"
        field.fill("no JSON")
        page.get_by_role("button", name="Approve this").click()
        expect(page.get_by_role("alert")).to_contain_text("JSON")
        field.fill('{"folder": "./build", "force": true}')
        page.get_by_role("button", name="Approve this").click()
        card = page.locator("details.tool")
        expect(card).to_have_attribute("data-state", "done")
        card.locator("summary").click()
        expect(card).to_contain_text("Arguments, changed by a person")
        expect(card.locator("pre").last).to_contain_text("wiped ./build, force True")
        seen.complaints[:] = [each for each in seen.complaints if "status of 4" not in each]
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_two_tabs_decide_once(browser: Browser, tmp_path: Path) -> None:
    """Both show the question; the first answer stands, and the second is told so in words."""
    with hosted(tmp_path, script=ASKS + DONE) as server:
        context = new_context(browser)
        one = Watched(context.new_page(), server)
        page = _asked(one)
        two = Watched(context.new_page(), server)
        two.page.goto(page.url)
        expect(two.page.locator(".ask")).to_be_visible()
        held: list[object] = []
        two.page.route("**/treadle/v1/approvals/*", lambda route: held.append(route))
        with two.page.expect_request("**/treadle/v1/approvals/*"):
            two.page.get_by_role("button", name="Deny").click()
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("details.tool")).to_have_attribute("data-state", "done")
        two.page.unroute("**/treadle/v1/approvals/*")
        answer = two.page.request.post(
            f"{server.url}/treadle/v1/approvals/{_approval(server)['id']}",
            data={"approve": False},
            headers={"origin": server.url},
        )
        assert (answer.status, answer.json()["approval"]["status"]) == (409, "approved")
        expect(two.page.locator("details.tool")).to_have_attribute("data-state", "done")
        expect(two.page.locator(".ask")).to_have_count(0)
        assert _approval(server)["status"] == "approved"
        context.close()


def test_the_second_to_decide_is_told_what_stands(browser: Browser, tmp_path: Path) -> None:
    """A page that has not heard of the decision yet shows the refusal instead of a second decision."""
    with hosted(tmp_path, script=ASKS + DONE) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = _asked(seen)
        approval = _approval(server)
        page.route("**/treadle/v1/live*", lambda route: route.abort())
        body = json.dumps({"error": {"message": "This call was denied already.", "hint": "It stands.", "code": "x"}})
        path = f"**/treadle/v1/approvals/{approval['id']}"
        page.route(path, lambda route: route.fulfill(status=409, body=body, content_type="application/json"))
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("alert")).to_have_text("This call was denied already. It stands.")
        context.close()


def test_a_question_that_nobody_answers_expires(browser: Browser, tmp_path: Path) -> None:
    """Expired is a state of its own: nobody refused, and the card says that."""
    expired = '[[script]]\ntext = "Nobody was there."\n[script.sees]\nresult_code = "expired"\n'
    toml = "[approvals]\nwait_s = 1.5\nstored_s = 1.5\n"
    with hosted(tmp_path, toml=toml, script=ASKS + expired) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = seen.open()
        seen.ask("clean up")
        card = page.locator("details.tool")
        expect(card).to_have_attribute("data-state", "expired")
        expect(card.locator(".state")).to_have_text("expired")
        expect(page.locator(".prose")).to_have_text("Nobody was there.")
        expect(page.locator(".ask")).to_have_count(0)
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_reload_finds_the_question_again(browser: Browser, tmp_path: Path) -> None:
    """The question is a row in the store: reload, decide by key, and the run goes on."""
    with hosted(tmp_path, script=ASKS + DONE) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = _asked(seen)
        page.reload()
        expect(page.locator(".ask")).to_be_visible()
        page.get_by_role("main").focus()
        page.keyboard.press("a")
        expect(page.locator("details.tool")).to_have_attribute("data-state", "done")
        expect(page.locator(".prose")).to_have_text("So be it.")
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])


def test_a_remembered_answer_is_not_asked_again(browser: Browser, tmp_path: Path) -> None:
    """Every call of the tool in this chat, and not in another."""
    again = call("wipe", '{"folder": "./other"}', "c2") + DONE + call("wipe", '{"folder": "./third"}', "c3") + DONE
    with hosted(tmp_path, script=ASKS + DONE + again) as server:
        context = new_context(browser)
        seen = Watched(context.new_page(), server)
        page = _asked(seen)
        page.get_by_label("Remember").select_option("tool")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator(".prose")).to_have_text(["So be it."])
        seen.ask("once more")
        expect(page.locator(".prose")).to_have_text(["So be it.", "So be it."])
        page.get_by_role("navigation").get_by_role("button", name="New chat").click()
        seen.ask("elsewhere")
        expect(page.locator(".ask")).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("details.tool")).to_have_attribute("data-state", "stopped")
        expect(page.locator("details.tool .state")).to_have_text("stopped")
        expect(page.locator(".ask")).to_have_count(0)
        context.close()
        assert (seen.complaints, seen.strays) == ([], [])
