"""Untrusted output counts for the rest of the run, also that of tools which the run does not offer."""

import msgspec
import pytest

from treadle.core.events import Finished, ItemDone
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, MessageItem, OpaqueItem, OpaquePart, ResultItem, TextPart
from treadle.core.plan import Planner
from treadle.core.request import Options
from treadle.core.tool_definitions import Offer
from treadle.engine.run_decisions import CallModel, CarriedCalls, PlannedCall, RunTools
from treadle.engine.run_state import RunState
from unit.engine.fakes import call, server

PUT = server("put", effect="write")
PAGE = server("fetch", untrusted=True)


def turn(*offers: Offer) -> RunState:
    """A turn that offers these."""
    named = {offer.spec.name: offer for offer in offers}
    return RunState(Planner("m", tuple(offer.spec for offer in offers), Options()), named, ids=CountingIds())


def reasons(run: RunState, name: str) -> tuple[str, ...]:
    """Let the model make one call; return why a person is asked about it."""
    run.feed(ItemDone(index=0, item=call(name, call_id="call_next")))
    run.feed(Finished(stop="calls"))
    decided = run.decide()
    assert isinstance(decided, RunTools)
    [planned] = decided.calls
    return planned.reasons


@pytest.mark.parametrize(("rc", "expected"), [("ok", ("untrusted output of fetch was read before",)), ("denied", ())])
def test_what_a_carried_call_gives_counts_although_its_tool_is_not_offered(rc: str, expected: tuple[str, ...]) -> None:
    """A call that an earlier run left is run under its own offer; what Treadle answered in its place does not count."""
    run = turn(PUT)
    left = call("fetch")
    run.carry_over(CarriedCalls(calls=(PlannedCall(index=0, call=left, offer=PAGE),), order=(left.call_id,)))
    assert isinstance(run.begin(), RunTools)
    asked = run.settle([ResultItem(id="res_1", call_id=left.call_id, name="fetch", rc=rc)])
    assert isinstance(asked, CallModel)
    assert reasons(run, "put") == expected


def test_what_was_read_before_the_run_counts() -> None:
    """Its tool is named in the question, whether the run offers it or not."""
    run = turn(PUT)
    run.add_tainted({"fetch": "web"})
    run.ask()
    assert reasons(run, "put") == ("untrusted output of fetch was read before",)


@pytest.mark.parametrize(("source", "is_asked"), [("mcp:files", False), ("mcp:other", True), ("", True)])
def test_a_read_from_the_server_that_was_read_stays_free(source: str, is_asked: bool) -> None:
    """Also when what was read before came from a tool of it that is not offered now."""
    look = server("look", effect="read", egress=True)
    offer = Offer(spec=look.spec, side="server", policy=look.policy, source="mcp:files")
    run = turn(offer)
    run.add_tainted({"gone": source})
    run.ask()
    assert bool(reasons(run, "look")) is is_asked


SEARCHED = OpaqueItem(protocol="responses", raw=msgspec.Raw(b'{"type":"web_search_call","id":"ws_1"}'))
RAN = OpaquePart(protocol="gemini", raw=msgspec.Raw(b'{"codeExecutionResult":{"output":"42"}}'))
BY_PROVIDER = ("untrusted output of a tool of the provider's was read before",)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (SEARCHED, BY_PROVIDER),
        (MessageItem(role="assistant", content=(TextPart(text="so "), RAN)), BY_PROVIDER),
        (MessageItem(role="user", content=(RAN,)), ()),
        (MessageItem(role="assistant", content=(TextPart(text="so"),)), ()),
    ],
)
def test_what_a_providers_tool_gave_is_untrusted(item: AnyItem, expected: tuple[str, ...]) -> None:
    """In the answer that makes the call as in the history before it; what a person sent counts as theirs."""
    run = turn(PUT)
    run.ask()
    run.feed(ItemDone(index=1, item=item))
    assert reasons(run, "put") == expected
    planner = Planner("m", (PUT.spec,), Options())
    planner.add([item])
    later = RunState(planner, {"put": PUT}, ids=CountingIds())
    later.ask()
    assert reasons(later, "put") == expected
