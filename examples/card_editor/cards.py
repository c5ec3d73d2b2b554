"""Character cards (CCv3 JSON) as a workspace: who the character is are facts, what is written about them is draft."""

from typing import Any

SPEC = "chara_card_v3"
FACTS = ("name", "creator", "character_version")
FIELDS = ("description", "personality", "scenario", "first_mes", "mes_example", "system_prompt", "creator_notes")
EMPTY: dict[str, Any] = {
    **dict.fromkeys(FIELDS, ""),
    "post_history_instructions": "",
    "alternate_greetings": [],
    "group_only_greetings": [],
    "tags": [],
    "extensions": {},
}


class BadCard(ValueError):
    """What was given is no card; the message says why."""


def read_card(card: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts and the draft of a card. Fields that this editor does not know stay in the draft.

    Raises: BadCard.
    """
    if not isinstance(card, dict) or card.get("spec") != SPEC:
        raise BadCard(f'spec must be "{SPEC}"')
    data = card.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("name"), str) or not data["name"].strip():
        raise BadCard("data.name must be a text")
    wrong = [name for name in (*FACTS, *FIELDS) if not isinstance(data.get(name, ""), str)]
    if wrong:
        raise BadCard(f"data.{wrong[0]} must be a text")
    facts = {name: data[name] for name in FACTS if name in data}
    draft = {name: value for name, value in data.items() if name not in FACTS}
    return facts, {**EMPTY, **draft}


def write_card(facts: dict[str, Any], draft: dict[str, Any]) -> dict[str, Any]:
    """Return the card that a workspace holds."""
    defaults = dict.fromkeys(FACTS, "")
    return {"spec": SPEC, "spec_version": "3.0", "data": {**draft, **defaults, **facts}}
