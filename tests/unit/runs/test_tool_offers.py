import msgspec
import pytest

from treadle.core.errors import LimitExceeded, ProtocolError
from treadle.core.request import Note, Options, Request
from treadle.core.tool_definitions import Offer, ServerTool, ToolChoice, ToolSpec
from treadle.runs.tool_offers import OfferCache, OfferRules, make_offers, narrow

OURS = [ServerTool(spec=ToolSpec(name="add")), ServerTool(spec=ToolSpec(name="get_weather"))]


def request(*names: str, **fields: object) -> Request:
    """Return a request with client tools of these names."""
    return Request(protocol="chat", model="m", tools=tuple(ToolSpec(name=name) for name in names), **fields)


def sides(*names: str, rules: OfferRules | None = None, **fields: object) -> dict[str, str]:
    """Return who runs what."""
    offered = make_offers(request(*names, **fields), OURS, rules or OfferRules())
    return {name: offer.side for name, offer in offered.offers.items()}


def test_both_kinds_are_offered():
    """The client's tools come first, then the server's."""
    assert sides("mine") == {"mine": "client", "add": "server", "get_weather": "server"}


@pytest.mark.parametrize(("rule", "side"), [("server", "server"), ("client", "client")])
def test_a_name_on_both_sides_follows_the_rule(rule, side):
    """By default Treadle runs it, as S1 wants."""
    assert sides("add", rules=OfferRules(collision=rule))["add"] == side


def test_a_name_on_both_sides_can_be_an_error():
    """The error names the field and the way out."""
    with pytest.raises(ProtocolError) as caught:
        sides("add", rules=OfferRules(collision="error"))
    assert (caught.value.param, "tools.collision" in (caught.value.hint or "")) == ("tools", True)


def test_a_request_that_wants_no_tools_gets_none_of_ours():
    """`tool_choice: none` keeps the client's list and adds nothing."""
    assert sides("mine", tool_choice=ToolChoice(mode="none")) == {"mine": "client"}


def test_allowed_tools_narrow_both_kinds():
    """Only what is allowed is offered."""
    assert sides("mine", "other", tool_choice=ToolChoice(allowed=("mine", "add"))) == {
        "mine": "client",
        "add": "server",
    }


@pytest.mark.parametrize(
    ("names", "choice", "param"),
    [
        ((), ToolChoice(mode="named", name="missing"), "tool_choice"),
        (("mine",), ToolChoice(mode="required", allowed=("gone",)), "tool_choice"),
        (("twice", "twice"), ToolChoice(), "tools[1].name"),
    ],
)
def test_a_choice_or_name_that_cannot_be_is_refused(names, choice, param):
    """The error names the field."""
    with pytest.raises(ProtocolError) as caught:
        make_offers(request(*names, tool_choice=choice), OURS, OfferRules())
    assert caught.value.param == param


@pytest.mark.parametrize("choice", [ToolChoice(mode="required"), ToolChoice(mode="required", allowed=())])
def test_a_call_may_be_required_where_only_the_upstream_has_tools(choice):
    """A hosted tool can be called as well as any; without one there is nothing to call."""
    hosted = Options(extra={"tools": msgspec.Raw(b'[{"type":"web_search"}]')}, extra_protocol="responses")
    offered = make_offers(request(tool_choice=choice, options=hosted), (), OfferRules())
    assert (offered.offers, offered.choice) == ({}, choice)
    with pytest.raises(ProtocolError):
        make_offers(request(tool_choice=choice), (), OfferRules())


def test_too_many_client_tools_are_refused():
    """The list is capped by number and by size."""
    with pytest.raises(LimitExceeded, match="3 tools; 2 are allowed"):
        sides("a", "b", "c", rules=OfferRules(tools_max=2))
    large = Request(
        protocol="chat", model="m", tools=(ToolSpec(name="a", parameters=msgspec.Raw(b'"' + b"x" * 500 + b'"')),)
    )
    with pytest.raises(LimitExceeded, match="503 bytes"):
        make_offers(large, (), OfferRules(tools_bytes_max=400))


def test_server_tools_that_do_not_fit_are_left_out_and_named():
    """The client's tools win; the note says what is missing."""
    offered = make_offers(request("a", "b"), OURS, OfferRules(tools_max=3))
    assert list(offered.offers) == ["a", "b", "add"]
    assert offered.notes == (
        Note(
            code="tools_left_out",
            action="dropped",
            message="Not offered, there are too many tools: get_weather.",
            field="tools",
        ),
    )


def test_an_offer_carries_the_policy_of_its_tool():
    """The engine decides by it."""
    offered = make_offers(request(), OURS[:1], OfferRules())
    assert offered.offers["add"] == Offer(
        spec=OURS[0].spec, side="server", policy=OURS[0].policy, source=OURS[0].source
    )


MANY = [
    ServerTool(spec=ToolSpec(name="get_weather")),
    ServerTool(spec=ToolSpec(name="put"), source="local"),
    ServerTool(spec=ToolSpec(name="mcp__files__read"), source="mcp:files"),
]


@pytest.mark.parametrize(
    ("lists", "names"),
    [
        ((None, None), ["get_weather", "put", "mcp__files__read"]),
        ((("get_*", "mcp:files"), None), ["get_weather", "mcp__files__read"]),
        ((None, ("local",)), ["put"]),
        ((("get_*", "put"), ("local", "mcp:*")), ["put"]),
        ((("get_*",), ("local",)), []),
        (((), None), []),
    ],
    ids=["no list", "of the route", "of the key", "both", "nothing in common", "an empty list"],
)
def test_allow_lists_narrow_the_servers_tools(lists, names):
    """A tool must be let in by the list of its route and by that of its key, by name or by source."""
    assert [tool.name for tool in narrow(MANY, *lists)] == names


def test_the_first_route_that_fits_a_model_says_its_tools():
    """A route without a list lets in all; a call without a model has no route."""
    rules = OfferRules(routes=(("gpt-4*", ("get_*",)), ("gpt-*", None), ("*", ())))
    assert [rules.allowed(model) for model in ("gpt-4o", "gpt-5", "other", "treadle:call")] == [
        ("get_*",),
        None,
        (),
        None,
    ]


def test_requests_without_tools_share_what_they_are_offered_until_the_tools_change():
    """Then what was made of it can be used again; a request that differs in anything gets its own."""
    offers, ours = OfferCache(OfferRules()), tuple(OURS)
    usual = offers.make(request(), ours, "m", None)
    assert offers.make(request(), ours, "other", None) is usual
    mine = request("mine")
    own = offers.make(mine, ours, "m", None)
    assert own.offers.keys() == {"mine", *(tool.name for tool in ours)}
    assert offers.make(mine, ours, "m", None) is own
    assert offers.make(request("mine"), ours, "m", None) is not own
    assert offers.make(request(tool_choice=ToolChoice(mode="none")), ours, "m", None).offers == {}
    assert offers.make(request(), ours[:1], "m", None).offers.keys() == {ours[0].name}
    assert offers.make(request(), ours, "m", (ours[0].name,)).offers.keys() == {ours[0].name}
    assert offers.make(request(), ours, "m", None).offers == usual.offers
