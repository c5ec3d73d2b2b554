"""The small world of the toolkit: things behave as scenarios say, and show in the document when they matter."""

from typing import Any

import pytest

from treadle.core.errors import ToolFailed
from treadle.evals.constant_tools import plain_tools
from treadle.evals.distractor_tools import ROWS, distractors
from treadle.evals.sample_world import Things
from treadle.evals.scenario_file import ScenarioWorld


def call(things: Things, name: str, **arguments: Any) -> Any:
    """Call a tool of the world as plain Python."""
    return things.tools()[name][0](**arguments)


def test_files_are_read_and_written_whole() -> None:
    """What is not there says so with a code."""
    things = Things(ScenarioWorld(files={"a.txt": "old"}))
    assert call(things, "file.read", path="a.txt") == "old"
    assert call(things, "file.write", path="a.txt", content="new!") == "4 characters written to a.txt."
    assert things.document() == {"files": {"a.txt": "new!"}}
    with pytest.raises(ToolFailed) as caught:
        call(things, "file.read", path="b.txt")
    assert caught.value.info.code == "not_found"


def test_an_order_is_found_by_its_customer_and_cancelled_by_its_id() -> None:
    """An id has to be carried from one call to the next."""
    things = Things(ScenarioWorld(orders={"o-1": "Ada", "o-2": "Grace"}))
    assert call(things, "orders.find", customer="grace") == {"order_id": "o-2", "customer": "Grace"}
    call(things, "orders.cancel", order_id="o-2")
    assert things.document() == {"orders": {"o-1": "Ada"}}
    for name, arguments in (("orders.find", {"customer": "Grace"}), ("orders.cancel", {"order_id": "o-2"})):
        with pytest.raises(ToolFailed):
            call(things, name, **arguments)


def test_a_phone_that_is_off_sends_nothing() -> None:
    """It must be turned on first; what was sent is in the document."""
    things = Things(ScenarioWorld(phone_on=False))
    with pytest.raises(ToolFailed) as caught:
        call(things, "phone.send", to="Bob", text="hi")
    assert caught.value.info.code == "phone_off"
    call(things, "phone.power", on=True)
    call(things, "phone.send", to="Bob", text="hi")
    assert things.document() == {"phone": {"on": True, "sent": [{"to": "Bob", "text": "hi"}]}}


def test_the_log_is_read_in_pages() -> None:
    """One line of it matters."""
    things = Things(ScenarioWorld(log_lines=500))
    assert call(things, "log.read", start=416, count=3).splitlines() == [
        "line 416: ok",
        "line 417: ERROR",
        "line 418: ok",
    ]
    assert len(call(things, "log.read").splitlines()) == 500


async def test_long_work_ends_only_when_it_is_released() -> None:
    """So that a client can leave, or a process die, in the middle of it."""
    things = Things(ScenarioWorld())
    things.release()
    assert await call(things, "long.read") == "looked"
    assert await call(things, "long.write") == "written"
    assert things.document() == {}


def test_distractors_are_tools_of_their_own() -> None:
    """Forty with different names, none of which is a tool of the toolkit."""
    names = [tool.name for tool in distractors(40)]
    assert names == [row[0] for row in ROWS]
    assert len(set(names)) == 40
    assert not set(names) & {*plain_tools(), *Things(ScenarioWorld()).tools()}
    assert [tool.name for tool in distractors(3)] == names[:3]
