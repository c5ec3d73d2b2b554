"""What keeps a connection alive and says nothing, and what does not."""

import pytest

from treadle.canon.ids import CountingIds
from treadle.wire.answer.keepalives import KEEP_ALIVES, is_keep_alive
from treadle.wire.protocols import UPSTREAMS


@pytest.mark.parametrize("row", KEEP_ALIVES, ids=lambda row: row.name or row.data)
def test_a_known_keep_alive_is_known_by_its_name_or_its_data(row) -> None:
    """However its data are spaced; a row names its provider."""
    assert is_keep_alive(row.name, row.data.replace(":", " : "))
    assert row.provider


@pytest.mark.parametrize(("name", "data"), [("", "keepalive"), ("", "ping"), ("error", "{"), ("", ""), ("", "[]")])
def test_anything_else_is_none(name: str, data: str) -> None:
    """A word that looks like one may be all that is left of a frame."""
    assert not is_keep_alive(name, data)


@pytest.mark.parametrize("protocol", UPSTREAMS)
def test_no_decoder_breaks_at_a_keep_alive(protocol: str) -> None:
    """Nothing is said, and nothing is over."""
    decoder = UPSTREAMS[protocol].decoder(CountingIds())
    for frame in (b": still here\n\n", b"event: ping\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', b"data:\n\n"):
        assert decoder.feed(frame) == []
