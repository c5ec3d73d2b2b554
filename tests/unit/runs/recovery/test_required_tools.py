"""Which abandoned runs a process leaves to others, by what it lacks and what they have called."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from treadle.core.items import CallItem
from treadle.core.journal_entries import entry_of_item
from treadle.core.tool_definitions import AUTO, GUEST, Offer, ServerTool, ToolPolicy, ToolSpec
from treadle.engine.limits import GATEWAY_LIMITS
from treadle.runs.recovery.required_tools import RequiredTools, ToolsMissing
from treadle.runs.recovery.run_record import RunRecord
from treadle.runs.run_setup import FramedOffer, RunFrame

WRITE, READ = ToolPolicy(effect="write"), ToolPolicy(effect="read")


def tool(name: str, policy: ToolPolicy = WRITE, source: str = "python") -> ServerTool:
    """Return a tool of a process."""
    return ServerTool(spec=ToolSpec(name=name), policy=policy, source=source)


def record(*offered: ServerTool, called: str = "", side: Any = "server") -> RunRecord:
    """Return a run that was offered these tools, and called one of them."""
    offers = tuple(
        FramedOffer(name=each.name, offer=Offer(spec=each.spec, side=side, policy=each.policy, source=each.source))
        for each in offered
    )
    call = CallItem(id="fc_1", call_id="c1", name=called, arguments="{}", side="server")
    return cast(
        "RunRecord",
        SimpleNamespace(
            blueprint=SimpleNamespace(
                row=SimpleNamespace(id="run_1"), frame=RunFrame(offers=offers, choice=AUTO, limits=GATEWAY_LIMITS)
            ),
            entries=[entry_of_item(call, at=1.0)] if called else [],
        ),
    )


@pytest.mark.parametrize(
    ("there", "asked", "elsewhere", "left"),
    [
        ([tool("pay")], record(tool("pay"), called="pay"), True, ()),
        ([], record(tool("pay"), called="pay"), False, ("pay",)),
        ([], record(tool("pay"), called="pay"), True, ("pay",)),
        ([], record(tool("pay")), False, ()),
        ([], record(tool("pay")), True, ("pay",)),
        ([tool("pay", READ)], record(tool("pay")), False, ("pay",)),
        ([tool("pay", source="mcp:x")], record(tool("pay")), False, ("pay",)),
        ([tool("a")], record(tool("a"), tool("b"), called="a"), False, ()),
        ([], record(tool("pay", source=GUEST), called="pay"), True, ()),
        ([], record(tool("pay"), side="client"), True, ()),
    ],
)
def test_what_is_lacking_decides_who_goes_on(
    there: list[ServerTool], asked: RunRecord, elsewhere: bool, left: tuple[str, ...]
) -> None:
    """A tool that was called is waited for; one that was only offered while another process has it; others are not."""
    needs = RequiredTools(lambda: there, lambda _: elsewhere)
    if left:
        with pytest.raises(ToolsMissing) as caught:
            needs.check(asked)
        assert caught.value.names == left
    else:
        needs.check(asked)
    assert needs.left() == ({"run_1": left} if left else {})


def test_a_run_is_looked_at_again_when_tools_change() -> None:
    """Here, or at those that had what is lacking; and it is forgotten when it is not abandoned any more."""
    there: list[list[ServerTool]] = [[]]
    has = [True]
    needs = RequiredTools(lambda: there[0], lambda _: has[0])
    with pytest.raises(ToolsMissing):
        needs.check(record(tool("pay"), called="pay"))
    has[0] = False
    assert needs.left() == {"run_1": ("pay",)}
    there[0] = [tool("pay")]
    assert needs.left() == {}
    there[0], has[0] = [], True
    with pytest.raises(ToolsMissing):
        needs.check(record(tool("pay")))
    assert needs.left() == {"run_1": ("pay",)}
    has[0] = False
    assert needs.left() == {}
    with pytest.raises(ToolsMissing):
        needs.check(record(tool("pay"), called="pay"))
    needs.retain([])
    assert needs.left() == {}
