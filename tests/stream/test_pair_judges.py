"""Every pair judged by the vendors' SDKs: each scenario in small chunks, and each shape of a stream.

The other tests of pairs read with our own decoders; here the accumulators that clients really use read the same bytes.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from stream import gemini_shapes, messages_shapes, responses_shapes, shapes
from stream.answers import as_run, decode
from stream.pairs import Seen, seen_of, strays
from stream.sdk_judges import READERS, close_clients, plain
from stream.shapes import Shape
from stream.test_pairs import SCENARIOS, TOOLS, UPSTREAM, said
from treadle.core.events import ModelEvent
from treadle.core.ids import CountingIds
from treadle.core.request import Request, Surface
from treadle.protocols.protocol_registry import PROTOCOLS

SIZES = [7, *(pytest.param(size, marks=pytest.mark.exhaustive) for size in (1, 1 << 30))]
SHAPES: dict[str, tuple[Shape, ...]] = {
    "chat": shapes.ALL_SHAPES,
    "responses": responses_shapes.ALL_SHAPES,
    "messages": messages_shapes.ALL_SHAPES,
    "gemini": gemini_shapes.ALL_SHAPES,
}


@pytest.fixture(scope="module", autouse=True)
def _clients() -> Iterator[None]:
    """Close the SDKs' clients in the end."""
    yield
    close_clients()


def sent(client: Any, events: list[ModelEvent]) -> bytes:
    """Return the bytes that a client of this protocol is sent."""
    surface = Surface(stream=True, include_usage=True)
    request = Request(protocol=client, model="m", tools=TOOLS, surface=surface)
    encoder = PROTOCOLS[client].codec.encoder(request, CountingIds(namespace="c"))
    return b"".join(frame for event in as_run(events) for frame in encoder.feed(event))


def differs(client: str, raw: bytes, size: int) -> dict[str, tuple[Seen, Seen]]:
    """Return where the SDK reads otherwise than our own decoder, which other tests hold against what was said."""
    ours = seen_of(decode(PROTOCOLS[client].codec.decoder(CountingIds()), raw))
    theirs = READERS[client](raw, size)
    return strays({client: plain(theirs, ours)}, {client: plain(ours, theirs)})


@UPSTREAM
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_sdk_of_every_client_reads_what_every_upstream_said(scenario: str, size: int, upstream: str) -> None:
    """At seven bytes a read; `make test-exhaustive` also reads one by one, and all at once."""
    reply, _ = SCENARIOS[scenario]
    events = await said(reply, upstream, size)
    assert [differs(client, sent(client, events), size) for client in READERS] == [{}] * len(READERS)


@pytest.mark.parametrize(
    ("upstream", "shape"),
    [(upstream, shape) for upstream, table in SHAPES.items() for shape in table],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_the_sdk_of_every_client_reads_every_shape(upstream: str, shape: Shape) -> None:
    """Interleaved, fragmented, nameless, doubled, cut: no stream of an upstream makes a stream that an SDK misreads."""
    events = decode(PROTOCOLS[upstream].codec.decoder(CountingIds()), shape.body)
    assert [differs(client, sent(client, events), 1 << 30) for client in READERS] == [{}] * len(READERS)
