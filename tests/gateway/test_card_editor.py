"""The card editor of the examples, as it is started: import, the model's work, a person's decision, export."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from gateway.card_editor import started
from person import person_headers

CARD = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {
        "name": "Bo",
        "creator": "kim",
        "character_version": "2",
        "description": "",
        "personality": "Gruff.",
        "tags": ["smith"],
        "extensions": {"own": {"deep": [1]}},
        "character_book": {"entries": []},
    },
}


@pytest.fixture
def editor() -> Iterator[str]:
    """The editor's address."""
    with started() as address:
        yield address


def ask(editor: str, method: str, path: str, **given: Any) -> httpx2.Response:
    """Ask the editor."""
    headers = {**person_headers(), **given.pop("headers", {})}
    return httpx2.request(method, f"{editor}{path}", headers=headers, timeout=20, **given)


def say(editor: str, text: str) -> None:
    """Tell the model something and wait until it has answered."""
    answer = ask(editor, "POST", "/treadle/v1/runs", json={"input": text, "stream": True})
    assert "run.ended" in answer.text


def test_a_card_is_imported_worked_on_confirmed_and_exported(editor: str) -> None:
    """The model fills what is empty, a person makes the name fact, and nothing of the card is lost."""
    assert ask(editor, "POST", "/editor/import", json=CARD).status_code == 200
    say(editor, "A smith called Ada who hums")
    workspace = ask(editor, "GET", "/treadle/v1/workspaces/card").json()
    assert workspace["draft"]["description"] == "A smith called Ada who hums"
    assert workspace["draft"]["personality"] == "Gruff."
    assert (workspace["facts"]["name"], workspace["ui"]["panel"]) == ("Bo", "proposals")
    [proposal] = workspace["proposals"]
    place = f"/treadle/v1/workspaces/card/proposals/{proposal['id']}/confirm"
    assert ask(editor, "POST", place, json={"version": 0}).status_code == 200
    data = ask(editor, "GET", "/editor/export").json()["data"]
    assert (data["name"], data["creator"], data["character_version"]) == ("Ada", "kim", "2")
    assert (data["tags"], data["extensions"]) == (["smith"], {"own": {"deep": [1]}})
    assert data["character_book"] == {"entries": []}


def test_an_exported_card_is_the_one_that_was_imported(editor: str) -> None:
    """What the editor does not know stays; what it needs and misses is empty."""
    ask(editor, "POST", "/editor/import", json=CARD)
    first = ask(editor, "GET", "/editor/export").json()
    assert first["data"].items() >= CARD["data"].items()  # type: ignore[attr-defined]
    ask(editor, "POST", "/editor/import", json=first)
    assert ask(editor, "GET", "/editor/export").json() == first


def test_a_locked_field_stays_and_the_model_says_why(editor: str) -> None:
    """The whole patch is refused, and nothing of it is there."""
    ask(editor, "POST", "/editor/import", json=CARD)
    ask(editor, "POST", "/treadle/v1/workspaces/card/locks", json={"path": "/draft/description"})
    say(editor, "A smith who hums")
    draft = ask(editor, "GET", "/treadle/v1/workspaces/card").json()["draft"]
    assert (draft["description"], draft["scenario"]) == ("", "")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"spec": "chara_card_v2"}, "spec must be"),
        ({"spec": "chara_card_v3", "data": {}}, "data.name must be a text"),
        ({"spec": "chara_card_v3", "data": {"name": "Bo", "scenario": 1}}, "data.scenario must be a text"),
        ([], "spec must be"),
    ],
)
def test_what_is_no_card_is_refused_by_name(editor: str, body: Any, why: str) -> None:
    """And the card that was there stays."""
    answer = ask(editor, "POST", "/editor/import", json=body)
    assert (answer.status_code, why in answer.json()["error"]) == (400, True)
    assert ask(editor, "GET", "/editor/export").json()["data"]["name"] == "Nobody yet"


def test_the_page_is_served_with_its_script(editor: str) -> None:
    """And a page from elsewhere cannot import anything."""
    assert "/editor/page.js" in ask(editor, "GET", "/").text
    assert "refresh()" in ask(editor, "GET", "/editor/page.js").text
    plain = ask(editor, "POST", "/editor/import", content="{}", headers={"content-type": "text/plain"})
    assert plain.status_code == 415
