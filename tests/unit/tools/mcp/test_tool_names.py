"""Names of MCP tools can be read back, and never collide."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.tools.mcp.tool_names import PREFIX, SEPARATOR, SERVER_PATTERN, join_name

SERVERS = st.from_regex(SERVER_PATTERN, fullmatch=True)
TOOLS = st.text(min_size=1, max_size=40)


@given(server=SERVERS, tool=TOOLS)
def test_every_name_can_be_read_back(server: str, tool: str) -> None:
    """The first separator behind the prefix ends the server's name; underscores of either side change nothing."""
    assert join_name(server, tool).removeprefix(PREFIX).split(SEPARATOR, 1) == [server, tool]


@given(one=st.tuples(SERVERS, TOOLS), other=st.tuples(SERVERS, TOOLS))
def test_two_tools_never_share_a_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Different servers or different tools have different names."""
    assert (join_name(*one) == join_name(*other)) == (one == other)


@pytest.mark.parametrize("server", ["", "a__b", "a_", "_a", "a b", "ä"])
def test_a_server_that_could_be_misread_has_no_name(server: str) -> None:
    """What would make names ambiguous is not a server's name."""
    assert re.fullmatch(SERVER_PATTERN, server) is None
