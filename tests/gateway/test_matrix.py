"""Four protocols in, four out: every pair, streamed and whole, judged by the vendors' SDKs.

Here what an upstream says comes in one piece; in small ones, as `tests/stream` has it without HTTP, in
`make test-exhaustive`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.gateway import Gateway
from gateway.judges import FAILED, JUDGES, TOOL_NAME, Seen, close_clients
from treadle.core.items import ResultItem
from treadle.core.plan import Plan
from treadle.core.usage import Usage
from treadle.providers.fakes.scripted_reply import Faults, Reply, ReplyCall
from treadle.tools.demo_tools import DEMO_TOOLS

UPSTREAMS = ("chat", "responses", "messages", "gemini")
TWO = ReplyCall(name=TOOL_NAME, args={"seats": 2, "place": 'Café ☕ "Zoë"\n'})
THREE = ReplyCall(name=TOOL_NAME, args={"seats": 3})
NONE = ReplyCall(name=TOOL_NAME)
PARIS = ReplyCall(name="get_weather", args={"city": "Paris"})
USAGE = Usage(input_tokens=11, output_tokens=7)
TEXT = "Bonjour, 世界 👩‍🚀!"

REPLIES: dict[str, Reply] = {
    "text": Reply(text=TEXT, usage=USAGE),
    "call": Reply(calls=(TWO,), usage=USAGE),
    "text_and_call": Reply(text="One moment. ", calls=(TWO,), usage=USAGE),
    "parallel": Reply(calls=(TWO, THREE, NONE), usage=USAGE),
    "no_arguments": Reply(calls=(NONE,), usage=USAGE),
    "length": Reply(text="Once upon", finish="length", usage=USAGE),
    "filtered": Reply(text="I", finish="filtered", usage=USAGE),
    "cut": Reply(text=TEXT * 20, faults=Faults(disconnect_after=900)),
    "refused": Reply(faults=Faults(status=400)),
    "server": Reply(calls=(PARIS,), usage=USAGE),
    "mixed": Reply(calls=(PARIS, TWO), usage=USAGE),
}
CALL = (TOOL_NAME, '{"place": "Café ☕ \\"Zoë\\"\\n", "seats": 2}')
ONCE = (11, 7)
EXPECTED: dict[str, Seen] = {
    "text": Seen(text=TEXT, usage=ONCE),
    "call": Seen(calls=(CALL,), stop="calls", usage=ONCE),
    "text_and_call": Seen(text="One moment. ", calls=(CALL,), stop="calls", usage=ONCE),
    "parallel": Seen(calls=(CALL, (TOOL_NAME, '{"seats": 3}'), (TOOL_NAME, "{}")), stop="calls", usage=ONCE),
    "no_arguments": Seen(calls=((TOOL_NAME, "{}"),), stop="calls", usage=ONCE),
    "length": Seen(text="Once upon", stop="length", usage=ONCE),
    "filtered": Seen(text="I", stop="filtered", usage=ONCE),
    "cut": FAILED,
    "refused": FAILED,
    "server": Seen(text="It is fine.", usage=(22, 14)),
    "mixed": Seen(calls=(CALL,), stop="calls", usage=ONCE),
}


def answer(plan: Plan) -> Reply:
    """Play the scenario that the model is named after; results of server tools are answered in words."""
    if isinstance(plan.items[-1], ResultItem):
        return Reply(text="It is fine.", usage=USAGE)
    return REPLIES[plan.model]


CUT = [pytest.param(f"{name}-{size}", marks=pytest.mark.exhaustive) for name in UPSTREAMS for size in (1, 7)]


@pytest.fixture(scope="module", params=[*(f"{name}-0" for name in UPSTREAMS), *CUT])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Start a Treadle in front of an upstream of one protocol that sends chunks of one size (0: whole)."""
    protocol, _, size = request.param.partition("-")
    folder: Path = tmp_path_factory.mktemp("matrix")
    with Gateway(answer, folder, tools=DEMO_TOOLS, chunk_bytes=int(size) or None, protocol=protocol) as running:
        yield running
        close_clients()


@pytest.mark.parametrize("client", JUDGES)
@pytest.mark.parametrize("scenario", REPLIES)
def test_a_client_of_any_protocol_sees_what_a_model_of_any_protocol_says(
    gateway: Gateway, client: str, scenario: str
) -> None:
    """Text, calls, endings, failures and usage arrive the same whatever the pair, the chunks and the way of asking."""
    assert JUDGES[client](gateway, scenario, True) == EXPECTED[scenario]
    if gateway.chunk_bytes is None:
        assert JUDGES[client](gateway, scenario, False) == EXPECTED[scenario]
