"""Calls that stood in text: what they may run is the tool's effect and the setting, never the model's word."""

import msgspec
import pytest

from treadle.core.events import ToolFinished
from treadle.core.items import Origin
from treadle.engine.limits import Limits
from treadle.engine.ports import ApprovalVerdict
from unit.engine.fakes import Bench, FakeModel, FakeToolbox, ask_for, call, ok, say, server

DENIED, RAN = "denied", "ok"
CASES = [
    ("model", "write", "deny", RAN),
    ("recovered", "read", "deny", RAN),
    ("recovered", "idempotent", "ask", RAN),
    ("recovered", "write", "allow", RAN),
    ("recovered", "write", "deny", DENIED),
    ("recovered", "write", "ask", DENIED),
    ("guessed", "read", "deny", RAN),
    ("guessed", "idempotent", "allow", DENIED),
    ("guessed", "write", "allow", DENIED),
    ("repaired", "write", "deny", RAN),
]


@pytest.mark.parametrize(("origin", "effect", "rule", "rc"), CASES)
async def test_a_call_from_text_runs_only_what_it_may(origin: Origin, effect: str, rule: str, rc: str) -> None:
    """A tool without effects always, one with effects as the setting says, and never on a guess."""
    asked = msgspec.structs.replace(call("tool"), origin=origin)
    limits = Limits(recovered_effects=rule)  # type: ignore[arg-type]
    offer = server("tool", effect=effect, approval="never")
    bench = Bench(FakeModel(ask_for(asked), say("done")), FakeToolbox(tool=ok()), offer, limits=limits)
    await bench.run()
    assert [event.result.rc for event in bench.of(ToolFinished)] == [rc]


async def test_asking_is_asking() -> None:
    """Somebody who agrees makes it run."""
    asked = msgspec.structs.replace(call("tool"), origin="recovered")
    offer = server("tool", effect="write", approval="never")
    yes = ApprovalVerdict(approved=True)
    bench = Bench(FakeModel(ask_for(asked), say("done")), FakeToolbox(tool=ok()), offer, verdict=yes)
    await bench.run()
    assert [event.result.rc for event in bench.of(ToolFinished)] == [RAN]
    assert bench.approver.asked == ["call_1"]
