"""Whose untrusted output stands in a conversation already."""

import pytest

from treadle.core.items import AnyItem, CallItem, ResultItem
from treadle.core.tool_definitions import Offer, ServerTool, ToolPolicy, ToolSpec
from treadle.runs.approvals.taint import tainted_before

WEB = ServerTool(spec=ToolSpec(name="fetch"), policy=ToolPolicy(effect="read", egress=True), source="web")
LOOK = ServerTool(spec=ToolSpec(name="look"), policy=ToolPolicy(effect="read"))


def turn(name: str, *, side: str = "server", rc: str = "ok") -> list[AnyItem]:
    """A call and its result."""
    made = CallItem(call_id=f"call_{name}", name=name, side=side)  # type: ignore[arg-type]
    return [made, ResultItem(call_id=made.call_id, name=name, rc=rc)]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (turn("fetch"), {"fetch": "web"}),
        (turn("fetch", rc="failed"), {"fetch": "web"}),
        (turn("fetch", rc="denied"), {}),
        (turn("fetch", side="client"), {}),
        (turn("look"), {}),
        (turn("gone"), {"gone": ""}),
        (turn("gone", rc="unknown_tool"), {}),
        ([ResultItem(call_id="call_stray", name="fetch")], {}),
        ([], {}),
    ],
)
def test_what_is_not_offered_any_more_has_still_been_read(history: list[AnyItem], expected: dict[str, str]) -> None:
    """What Treadle itself answered was no tool's word, and what the client ran is the client's own."""
    assert tainted_before(history, {}, [WEB, LOOK]) == expected


def test_what_is_offered_is_left_to_the_turn() -> None:
    """A client's tool that only has the same name says nothing of the one that ran."""
    mine = {"fetch": Offer(spec=WEB.spec, side="client")}
    served = {"fetch": Offer(spec=WEB.spec, side="server", policy=WEB.policy, source="web")}
    assert tainted_before(turn("fetch"), served, [WEB]) == {}
    assert tainted_before(turn("fetch"), mine, [WEB]) == {"fetch": "web"}
