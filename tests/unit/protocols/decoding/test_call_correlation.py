import pytest

from treadle.protocols.decoding.call_correlation import Correlator, Piece

P = Piece
FULL = '{"a":1}'


def _placed(*deltas: list[Piece] | Piece) -> list[int]:
    """Return for each piece the position of its call."""
    correlator = Correlator()
    positions: list[int] = []
    for delta in deltas:
        correlator.start_delta()
        for piece in delta if isinstance(delta, list) else [delta]:
            call, _ = correlator.place(piece)
            call.arguments.feed(piece.text)
            positions.append(correlator.calls.index(call))
    return positions


@pytest.mark.parametrize(
    ("case", "deltas", "positions"),
    [
        ("by index", [P(index=0, id="a", name="f"), P(index=0, text="{")], [0, 0]),
        (
            "interleaved",
            [P(index=0, id="a", name="f"), P(index=1, id="b", name="f"), P(index=0), P(index=1)],
            [0, 1, 0, 1],
        ),
        ("by id, no index", [P(id="a", name="f"), P(id="b", name="f"), P(id="a", text="{")], [0, 1, 0]),
        (
            "id wins over index",
            [P(index=0, id="a", name="f"), P(index=0, id="b", name="f"), P(index=0, id="a")],
            [0, 1, 0],
        ),
        (
            "reused index goes to the newest",
            [P(index=0, id="a", name="f"), P(index=0, id="b", name="g"), P(index=0)],
            [0, 1, 1],
        ),
        (
            "same id, other index and a name",
            [P(index=0, id="a", name="f"), P(index=1, id="a", name="f"), P(index=1)],
            [0, 1, 1],
        ),
        ("same id, other index, no name", [P(index=0, id="a", name="f"), P(index=1, id="a", text="{")], [0, 0]),
        (
            "same id twice, told apart by index",
            [P(index=0, id="a", name="f"), P(index=1, id="a", name="f"), P(index=0, id="a")],
            [0, 1, 0],
        ),
        ("same id, other name", [P(id="a", name="f"), P(id="a", name="g")], [0, 1]),
        ("id and name repeated", [P(index=0, id="a", name="f"), P(index=0, id="a", name="f", text="{")], [0, 0]),
        (
            "sent again as a whole",
            [P(index=0, id="a", name="f", text=FULL), P(index=0, id="a", name="f", text=FULL)],
            [0, 0],
        ),
        (
            "same id and name, complete, other arguments",
            [P(id="a", name="f", text=FULL), P(id="a", name="f", text='{"a":2}')],
            [0, 1],
        ),
        ("no id, different name", [P(index=0, name="f"), P(index=0, name="g")], [0, 1]),
        ("no id, name repeated while open", [P(index=0, name="f", text="{"), P(index=0, name="f", text='"a"')], [0, 0]),
        (
            "no id, name again when complete",
            [P(index=0, name="f", text=FULL), P(index=0, name="f", text='{"a"')],
            [0, 1],
        ),
        ("nothing but text: the last one", [P(name="f"), P(name="g"), P(text="{")], [0, 1, 1]),
        ("nothing at all first", [P(text="{"), P(id="a", name="f"), P(text="}")], [0, 0, 0]),
        ("late id", [P(index=0, name="f"), P(index=0, id="a"), P(id="a", text="{")], [0, 0, 0]),
        ("late index", [P(id="a", name="f"), P(index=0, text="{"), P(index=0)], [0, 0, 0]),
        ("an id for every chunk", [P(index=0, id="a", name="f", text="{"), P(index=0, id="b", text='"a"')], [0, 0]),
        ("a new id behind a complete call", [P(index=0, id="a", name="f", text=FULL), P(index=0, id="b")], [0, 1]),
        ("siblings of one name", [[P(index=0, name="f"), P(index=1, name="f")], P(index=0), P(index=1)], [0, 1, 0, 1]),
        ("siblings at one index", [[P(index=0, name="f"), P(index=0, name="f")], P(index=0)], [0, 1, 1]),
        ("sparse and negative", [P(index=7, name="f"), P(index=-1, name="g"), P(index=7)], [0, 1, 0]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_piece_finds_its_call(case: str, deltas: list[list[Piece] | Piece], positions: list[int]) -> None:
    """Id first, then index, then the last call; a name that begins another call begins one."""
    assert _placed(*deltas) == positions
