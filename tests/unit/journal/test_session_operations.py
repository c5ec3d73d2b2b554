"""Sessions over a store: what still counts of what was said, and how it is written down."""

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import CallItem, ReasoningItem, text_message, text_result
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.journal.journal_interface import SessionRow
from treadle.journal.session_operations import check_name, drop_voided_items, write_markdown

SESSION = SessionRow(id="sess_1", name="Trip", created_at=0.0, updated_at=0.0)
CALL = CallItem(id="fc_1", call_id="c1", name="glob", arguments='{"pattern":"*.py"}', side="server")


def entries(*items: object) -> list[Entry]:
    """Items as entries."""
    return [entry_of_item(item, at=0.0) for item in items]  # type: ignore[arg-type]


def test_what_a_crash_took_back_does_not_count() -> None:
    """Neither the items of the cut round nor the results its calls were given."""
    void = Entry(kind="void", at=0.0, data=msgspec.Raw(b'{"items":["msg_1","fc_1"],"calls":["c1"],"round":1}'))
    said = entries(text_message("assistant", "Ha", "msg_1"), CALL, text_result(CALL, "x"))
    again = entries(text_message("assistant", "Hallo", "msg_2"))
    assert drop_voided_items([*said, void, *again]) == again


def test_bookkeeping_is_not_said() -> None:
    """Plans, notes and status are not part of a conversation."""
    said = entries(text_message("user", "hi"))
    assert drop_voided_items([Entry(kind="plan", at=0.0), *said, Entry(kind="note", at=0.0)]) == said


def test_markdown_is_for_people() -> None:
    """Each speaker with a heading, calls and results between them; a fence is longer than what it holds."""
    said = entries(
        text_message("user", "Which files?"),
        ReasoningItem(text=("Look.",)),
        CALL,
        text_result(CALL, "a.py\n````\nb"),
        text_message("assistant", "One."),
    )
    assert write_markdown(SESSION, said) == (
        "# Trip\n\n## User\n\nWhich files?\n\n## Reasoning\n\nLook.\n\n"
        '**Calls** `glob(pattern="*.py")`\n\n**Result** of `glob`\n\n`````\na.py\n````\nb\n`````\n\n'
        "## Model\n\nOne.\n"
    )


def test_what_no_bytes_can_say_is_replaced() -> None:
    """A lone surrogate does not end an export."""
    odd = Entry(kind="user", at=0.0, content="a\ud800b")
    assert write_markdown(SESSION, [odd]) == "# Trip\n\n## User\n\na?b\n"


@pytest.mark.parametrize("name", ["", "  ", "x" * 201])
def test_a_name_has_bounds(name: str) -> None:
    """And the field is named."""
    with pytest.raises(ProtocolError) as caught:
        check_name(name)
    assert caught.value.param == "name"
