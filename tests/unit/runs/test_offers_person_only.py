"""What no model may call is offered to none, whoever brings it."""

import pytest

from treadle.core.errors import ProtocolError
from treadle.core.request import Request
from treadle.core.tool_definitions import ServerTool, ToolChoice, ToolSpec
from treadle.runs.tool_offers import OfferRules, make_offers

SPELLINGS = ["facts.commit", "facts_commit", "FactsCommit", "mcp__x__facts-commit"]


def request(*names: str, **fields: object) -> Request:
    """Return a request with client tools of these names."""
    return Request(protocol="chat", model="m", tools=tuple(ToolSpec(name=name) for name in names), **fields)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_clients_tool_of_that_name_is_left_out_and_named(name):
    """The others stay, in their order."""
    offered = make_offers(request("a", name, "b"), [], OfferRules())
    assert list(offered.offers) == ["a", "b"]
    [note] = offered.notes
    assert (note.code, note.action, note.field, note.count) == ("tools_person_only", "dropped", "tools", 1)
    assert name in note.message


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_servers_tool_of_that_name_is_left_out(name):
    """Also where it did not come through the registry."""
    tools = [ServerTool(spec=ToolSpec(name=each)) for each in ("a", name)]
    assert list(make_offers(request(), tools, OfferRules()).offers) == ["a"]


def test_it_can_not_be_chosen():
    """Neither by name nor as the only one allowed."""
    with pytest.raises(ProtocolError) as caught:
        make_offers(
            request("facts_commit", tool_choice=ToolChoice(mode="named", name="facts_commit")), [], OfferRules()
        )
    assert caught.value.param == "tool_choice"
    allowed = ToolChoice(allowed=("facts_commit", "a"))
    assert list(make_offers(request("facts_commit", "a", tool_choice=allowed), [], OfferRules()).offers) == ["a"]
