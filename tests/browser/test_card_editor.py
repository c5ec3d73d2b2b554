"""The card editor of the examples in a real browser: a card goes in, is worked on, decided upon, and comes out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from browser.conftest import new_context, shoot
from gateway.card_editor import started
from person import person_headers

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CARD: dict[str, Any] = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {"name": "Bo", "creator": "kim", "description": "", "personality": "Gruff.", "extensions": {"own": [1]}},
}


@pytest.fixture(scope="module")
def editor() -> Iterator[str]:
    """The editor's address."""
    with started() as address:
        yield address


class Desk:
    """A person before the editor; at the end nothing may have complained or left the origin."""

    def __init__(self, page: Page, editor: str) -> None:
        self.page = page
        self.editor = editor
        self.complaints: list[str] = []
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self._see(request.url))

    def _see(self, url: str) -> None:
        if not url.startswith((f"{self.editor}/", "data:")):
            self.complaints.append(f"stray: {url}")

    def import_card(self) -> None:
        """Choose a file, as with the mouse."""
        self.page.goto(self.editor)
        card = {"name": "card.json", "mimeType": "application/json", "buffer": json.dumps(CARD).encode()}
        self.page.get_by_label("Import a card").set_input_files(files=[card])
        expect(self.page.get_by_role("status")).to_have_text("Imported.")

    def tell(self, text: str) -> None:
        """Tell the model something and wait for its answer."""
        self.page.get_by_label("Tell the model").fill(text)
        self.page.keyboard.press("Enter")
        expect(self.page.get_by_role("button", name="Go")).to_be_enabled()
        expect(self.page.get_by_label("Tell the model")).to_have_value("")

    def propose_elsewhere(self, **facts: str) -> dict[str, Any]:
        """Make a proposal in another place, and return it."""
        changes = [{"path": f"/facts/{name}", "value": value} for name, value in facts.items()]
        return self.ask("POST", "/proposals", json={"changes": changes, "reason": "from elsewhere"})

    def ask(self, method: str, path: str = "", **given: Any) -> Any:
        """Use the API beside the page."""
        where = f"{self.editor}/treadle/v1/workspaces/card{path}"
        answer = httpx2.request(method, where, headers=person_headers(), timeout=20, **given)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def facts(self) -> dict[str, str]:
        """Return the facts that the page shows."""
        names, values = self.page.locator("#facts dt"), self.page.locator("#facts dd")
        return dict(zip(names.all_inner_texts(), values.all_inner_texts(), strict=True))


@pytest.fixture
def desk(browser: Browser, editor: str) -> Iterator[Desk]:
    """A desktop window."""
    context = new_context(browser)
    seated = Desk(context.new_page(), editor)
    yield seated
    context.close()
    assert seated.complaints == []


def test_a_card_is_imported_filled_decided_and_exported(desk: Desk) -> None:
    """The model fills what is empty and proposes a name; the person writes it otherwise, and exports the card."""
    page = desk.page
    desk.import_card()
    assert desk.facts() == {"name": "Bo", "creator": "kim"}
    desk.tell("A smith called Ada who hums")
    expect(page.get_by_role("status")).to_have_text("I filled what was empty. Please look at it.")
    expect(page.get_by_label("description", exact=True)).to_have_value("A smith called Ada who hums")
    expect(page.get_by_label("personality", exact=True)).to_have_value("Gruff.")
    assert desk.facts()["name"] == "Bo"
    proposal = page.locator("#proposals article")
    expect(proposal).to_contain_text("Proposed: You named the character.")
    expect(proposal.locator("td.old")).to_have_text(["Bo"])
    shoot(page, "card-proposal", whole=True)
    proposal.get_by_label("New value of /facts/name").fill("Ada Smith")
    proposal.get_by_role("button", name="Confirm").click()
    expect(page.get_by_role("status")).to_have_text("Confirmed: it is a fact now.")
    expect(proposal).to_have_count(0)
    assert desk.facts()["name"] == "Ada Smith"
    expect(page.locator("#history li").first).to_have_text("confirmed by person")
    page.get_by_label("personality", exact=True).fill("Gruff, but kind.")
    page.get_by_label("personality", exact=True).blur()
    expect(page.locator("#history li").first).to_have_text("patched by person")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Export the card").click()
    data = json.loads(Path(downloading.value.path()).read_text("utf-8"))["data"]
    assert (data["name"], data["creator"], data["personality"]) == ("Ada Smith", "kim", "Gruff, but kind.")
    assert data["description"] == "A smith called Ada who hums"
    assert data["extensions"] == {"own": [1]}


def test_what_is_being_written_stays_while_the_page_is_shown_anew(desk: Desk) -> None:
    """A field is saved while the next one, or a proposal, is written: neither a letter nor the cursor is lost."""
    page = desk.page
    desk.import_card()
    desk.propose_elsewhere(name="Cy")
    page.reload()
    expect(page.locator("#history li").first).to_be_visible()
    held: list[Route] = []
    page.route("**/history?limit=20", lambda route: held.append(route))
    first, second = (page.get_by_label(name, exact=True) for name in ("personality", "description"))
    first.fill("Kind.")
    with page.expect_request("**/history?limit=20"):
        second.click()
        page.keyboard.type("She ")
    page.keyboard.type("hums")
    held.pop().continue_()
    expect(page.locator("#history li").first).to_have_text("patched by person")
    page.unroute("**/history?limit=20")
    expect(second).to_be_focused()
    page.keyboard.type(".")
    expect(second).to_have_value("She hums.")
    wish = page.get_by_label("New value of /facts/name")
    with page.expect_response("**/history?limit=20"):
        wish.click()
        page.keyboard.type("ril")
    expect(wish).to_be_focused()
    expect(wish).to_have_value("Cyril")
    draft = desk.ask("GET")["draft"]
    assert (draft["personality"], draft["description"]) == ("Kind.", "She hums.")


def test_a_stale_proposal_is_shown_from_three_sides_and_settled_by_hand(desk: Desk) -> None:
    """What moved meanwhile is marked; nothing is merged, and the person writes what shall be true."""
    page = desk.page
    desk.import_card()
    desk.tell("A smith called Ada")
    other = desk.propose_elsewhere(name="Zoe", creator="lee")
    confirm = page.locator("#proposals article").get_by_role("button", name="Confirm")
    expect(confirm).to_have_count(1)
    desk.ask("POST", f"/proposals/{other['id']}/confirm", json={"version": 0})
    confirm.click()
    expect(page.get_by_role("status")).to_contain_text("but they are at version 1")
    article = page.locator("#proposals article")
    expect(article).to_contain_text("it is stale: /facts/name was changed since it was made")
    expect(article.locator("th")).to_have_text(["", "", "then", "now", "proposed"])
    clash = article.locator("tr.clash")
    expect(clash.locator("td")).to_have_text(["", "name", "Bo", "Zoe", ""])
    expect(clash.get_by_label("New value of /facts/name")).to_have_value("Ada")
    assert desk.facts() == {"name": "Zoe", "creator": "lee"}
    shoot(page, "card-three-way", whole=True)
    article.get_by_label("New value of /facts/name").fill("Zoe Ada")
    expect(article.get_by_label("Take /facts/name")).to_be_checked()
    expect(article.get_by_label("Take /facts/creator")).to_have_count(0)
    article.get_by_role("button", name="Confirm as written here").click()
    expect(page.get_by_role("status")).to_have_text("Confirmed: it is a fact now.")
    assert desk.facts() == {"name": "Zoe Ada", "creator": "lee"}
    desk.complaints.clear()  # the browser writes the 409 into its console
    assert desk.ask("GET", "/audit")["problems"] == []


def test_a_rejection_reaches_the_model_with_its_reason(desk: Desk) -> None:
    """And the facts stay."""
    page = desk.page
    desk.import_card()
    desk.tell("A smith called Ada")
    page.get_by_label("Reason of the rejection").fill("That is her sister.")
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("status")).to_have_text("Rejected: the model will read why.")
    assert desk.facts()["name"] == "Bo"
    desk.tell("Go on")
    expect(page.get_by_role("status")).to_contain_text("was rejected: That is her sister.")


def test_a_locked_field_stays_and_what_is_no_card_is_refused(desk: Desk) -> None:
    """The lock is seen in the page, and the model says that it is in the way."""
    page = desk.page
    desk.import_card()
    page.get_by_role("button", name="Lock description").click()
    expect(page.get_by_label("description", exact=True)).to_be_disabled()
    desk.tell("A smith who hums")
    expect(page.get_by_role("status")).to_contain_text("the lock `/draft/description` is in the way")
    expect(page.get_by_label("description", exact=True)).to_have_value("")
    page.get_by_role("button", name="Unlock description").click()
    expect(page.get_by_label("description", exact=True)).to_be_enabled()
    wrong = {"name": "x.json", "mimeType": "application/json", "buffer": b'{"spec":"other"}'}
    page.get_by_label("Import a card").set_input_files(files=[wrong])
    expect(page.get_by_role("status")).to_have_text('spec must be "chara_card_v3"')
    expect(page.get_by_role("status")).to_have_class("wrong")
    desk.complaints.clear()  # the browser writes the 400 into its console


def test_the_page_fits_a_telephone(browser: Browser, editor: str) -> None:
    """Nothing reaches over the edge, and proposals come first."""
    context = new_context(browser, width=390, height=800, dark=True)
    desk = Desk(context.new_page(), editor)
    desk.import_card()
    desk.tell("A smith called Ada who hums")
    page = desk.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    above = page.locator("#proposals").bounding_box()
    below = page.locator("#draft").bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] < below["y"]
    shoot(page, "card-phone", whole=True)
    context.close()
    assert desk.complaints == []
