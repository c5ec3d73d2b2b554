"""Cases beside the corpus: awkward values, damage, and places where nothing may be read."""

import json

import pytest

from dialects.own import TOOLS, Case, cases, chunkings
from treadle.wire.dialects import parse

ALL = list(cases())


@pytest.mark.parametrize("case", ALL, ids=[case.id for case in ALL])
def test_case(case: Case) -> None:
    """The calls are exact; without a call the text is byte-identical; and no cut of the text matters."""
    for chunks in chunkings(case.text):
        got = parse(case.text, TOOLS if case.has_tools else [], chunks)
        calls = [(call["name"], json.loads(call["arguments"])) for call in got["calls"]]
        assert calls == case.calls
        if case.content is None:
            assert got["content"] == case.text
        else:
            assert got["content"].split() == case.content.split()


def test_there_are_more_of_them_than_in_the_corpus() -> None:
    """The corpus only samples the grammars."""
    assert len(ALL) > 2 * 635
    assert len({case.id for case in ALL}) == len(ALL)
    assert sum(not case.calls for case in ALL) > 635
