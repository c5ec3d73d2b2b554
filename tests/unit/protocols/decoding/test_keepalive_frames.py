"""What keeps a connection alive and says nothing, and what does not."""

import json

import pytest

from treadle.core.ids import CountingIds
from treadle.protocols.decoding.keepalive_frames import KEEP_ALIVES, is_keep_alive
from treadle.protocols.protocol_registry import PROTOCOLS

KEEPING = (
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b"data:\n\n",
    b"data: null\n\n",
    b'data: ""\n\n',
    b'data: {"type":"keepalive","sequence_number":3}\n\n',
    b'data: {"type":"ping","cost":"0.1"}\n\n',
    b"event: heartbeat\ndata: 123\n\n",
)
ANSWERS = [("", json.dumps({"type": "ping", name: []})) for name in ("choices", "candidates", "delta", "error")]


@pytest.mark.parametrize("row", KEEP_ALIVES, ids=lambda row: row.name or row.data or row.type)
def test_a_known_keep_alive_is_known_by_its_name_or_its_data(row) -> None:
    """However its data are spaced; a row names its provider."""
    data = row.data or json.dumps({"type": row.type, "cost": "0.1"} if row.type else 1)
    assert is_keep_alive(row.name, data.replace(":", " : "))
    assert row.provider


@pytest.mark.parametrize(
    ("name", "data"), [("", "keepalive"), ("", "ping"), ("error", "{"), ("", ""), ("", "[]"), *ANSWERS]
)
def test_anything_else_is_none(name: str, data: str) -> None:
    """A word that looks like one may be all that is left of a frame."""
    assert not is_keep_alive(name, data)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_decoder_breaks_at_a_keep_alive(protocol: str) -> None:
    """Nothing is said, and nothing is over."""
    decoder = PROTOCOLS[protocol].codec.decoder(CountingIds())
    for frame in (b": still here\n\n", b"event: ping\n\n", *KEEPING):
        assert decoder.feed(frame) == []
