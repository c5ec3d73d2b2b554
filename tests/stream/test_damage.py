"""Damaged streams of every protocol: no call of one runs or is delivered otherwise than it was meant."""

import random

import pytest

from stream.damage import Damaged, Recorded, byte_damages, frame_damages, heard, recorded, wrong

SEED = 27
STREAMS = pytest.mark.parametrize("stream", recorded(), ids=lambda stream: f"{stream.protocol}-{stream.name}")
STRIDE = 3
"""Of the bytes every so many-th is damaged here; `make fuzz` damages all of them, again and again."""


def _found(stream: Recorded, damages: list[Damaged]) -> list[tuple[str, int, str]]:
    return [(each.kind, each.place, what) for each in damages if (what := wrong(stream, each))]


@STREAMS
def test_a_damaged_frame_invents_nothing(stream: Recorded) -> None:
    """Lost, doubled, swapped, merged, cut, garbled: each call and text is what was meant, or the answer failed; where
    whole frames are gone of a protocol that numbers none, it is what the others say."""
    damages = list(frame_damages(stream.body, random.Random(SEED)))
    assert _found(stream, damages) == []
    assert len({each.kind for each in damages}) == (10 if stream.is_document else 13)


@STREAMS
def test_a_damaged_byte_invents_nothing(stream: Recorded) -> None:
    """Lost, changed, doubled, or the last one."""
    places = range(SEED % STRIDE, len(stream.body), STRIDE)
    assert _found(stream, list(byte_damages(stream.body, places, random.Random(SEED)))) == []


@STREAMS
def test_damage_is_seen_however_the_bytes_are_cut(stream: Recorded) -> None:
    """The same comes of a damaged stream byte by byte and all at once."""
    damages = list(frame_damages(stream.body, random.Random(SEED)))[::7]
    assert [each for each in damages if heard(stream.protocol, each.body, 1) != heard(stream.protocol, each.body)] == []


@pytest.mark.parametrize("stream", [each for each in recorded() if not each.is_document], ids=lambda each: each.name)
def test_what_cannot_be_read_breaks_the_answer(stream: Recorded) -> None:
    """Wherever it stands before the end: half a frame, plain text, a list, no UTF-8, two frames in one."""
    unreadable = ("halve", "plain_text", "plain_error", "detail", "list", "not_utf8", "merge_line")
    damages = [each for each in frame_damages(stream.body, random.Random(SEED)) if each.kind in unreadable]
    ends = {"chat": 2, "messages": 2, "responses": 1, "gemini": 1}[stream.protocol]
    last = max(each.place for each in damages) - ends
    early = [each for each in damages if each.place < last]
    assert [(each.kind, each.place) for each in early if heard(stream.protocol, each.body).is_whole] == []
