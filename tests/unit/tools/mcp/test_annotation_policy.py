"""Hints make effects: both ways from a trusted server, only upwards from any other."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.tool_definitions import Effect
from treadle.tools.mcp.annotation_policy import Hints, policy_of
from treadle.tools.mcp.server_options import ServerOptions

EFFECTS: tuple[Effect, ...] = get_args(Effect)
HINT = st.sampled_from([None, True, False])
HINTS = st.builds(Hints, read_only=HINT, destructive=HINT, idempotent=HINT, open_world=HINT)


@given(hints=HINTS, effect=st.sampled_from(EFFECTS))
def test_a_stranger_never_makes_its_tool_less_dangerous(hints: Hints, effect: Effect) -> None:
    """Whatever it says, the configured effect is the least."""
    policy, _ = policy_of(hints, ServerOptions(name="x", effect=effect))
    assert EFFECTS.index(policy.effect) >= EFFECTS.index(effect)
    assert policy.egress


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        (Hints(), "write"),
        (Hints(read_only=True), "read"),
        (Hints(read_only=True, destructive=True), "destructive"),
        (Hints(destructive=True), "destructive"),
        (Hints(idempotent=True), "write"),
        (Hints(idempotent=True, destructive=False), "idempotent"),
        (Hints(idempotent=True, destructive=True), "destructive"),
        (Hints(destructive=False), "write"),
    ],
)
def test_a_trusted_server_is_believed(hints: Hints, effect: Effect) -> None:
    """One that contradicts itself is taken at its worse word."""
    assert policy_of(hints, ServerOptions(name="x", trusted=True))[0].effect == effect


def test_time_and_approval_are_the_servers() -> None:
    """They come from the configuration, and reads may run beside one another."""
    options = ServerOptions(name="x", trusted=True, approval="always", timeout_s=7)
    policy, why = policy_of(Hints(read_only=True, open_world=False), options)
    assert (policy.approval, policy.timeout_s, policy.parallel, policy.egress) == ("always", 7, True, False)
    annotation = "annotation of the MCP server x"
    assert why == {
        "effect": annotation,
        "approval": "[[mcp]] x",
        "timeout_s": "[[mcp]] x",
        "parallel": annotation,
        "egress": annotation,
    }
