import hashlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.items import text_message
from treadle.core.plan import Planner, plan_json
from treadle.core.request import Options
from treadle.core.tool_definitions import AUTO, NONE, ToolChoice, ToolSpec
from unit.core import strategies

TOOLS = (ToolSpec(name="get_weather", description="Weather", parameters=msgspec.Raw(b'{"type":"object"}')),)


@given(st.lists(strategies.items, max_size=5), st.integers(0, 5))
def test_the_running_fingerprint_is_the_digest_of_the_whole_plan(items, split):
    """Adding items in any two portions gives the sha256 of the canonical JSON of the whole."""
    planner = Planner("m", TOOLS, Options(temperature=0.5))
    planner.add(items[:split])
    planner.add(items[split:])
    plan = planner.plan(AUTO)
    assert plan.fingerprint == hashlib.sha256(plan_json(plan)).hexdigest()
    assert plan.items == tuple(items)


def test_ids_that_are_never_sent_do_not_change_the_fingerprint():
    """Equal surfaces have equal fingerprints whatever ids Treadle gave the items."""
    first, second = Planner("m", (), Options()), Planner("m", (), Options())
    first.add([text_message("user", "hi", "msg_1")])
    second.add([text_message("user", "hi", "msg_2")])
    assert first.plan(AUTO).fingerprint == second.plan(AUTO).fingerprint


def test_whatever_is_sent_changes_the_fingerprint():
    """Model, text, tools, options and choice are all part of it."""
    base = Planner("m", TOOLS, Options()).plan(AUTO).fingerprint
    others = [
        Planner("n", TOOLS, Options()).plan(AUTO),
        Planner("m", (), Options()).plan(AUTO),
        Planner("m", TOOLS, Options(seed=1)).plan(AUTO),
        Planner("m", TOOLS, Options()).plan(NONE),
        Planner("m", TOOLS, Options()).plan(ToolChoice(mode="named", name="x")),
    ]
    assert len({base, *(plan.fingerprint for plan in others)}) == 6
