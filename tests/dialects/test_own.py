"""Cases beside the corpus: awkward values, damage, and places where nothing may be read."""

import json
from typing import Any

import pytest

from dialects.own import TOOLS, Case, cases, chunkings
from treadle.protocols.text_calls import parse
from treadle.protocols.text_calls.dialect_table import DIALECTS

ALL = list(cases())


def misread(case: Case) -> list[Any]:
    """Return what a case was read as, however cut, where that is not what it stands for."""
    wanted = case.calls, case.text if case.content is None else case.content.split()
    return [seen for chunks in chunkings(case.text) if (seen := _seen(case, chunks)) != wanted]


def _seen(case: Case, chunks: list[str]) -> tuple[list[Any], str | list[str]]:
    got = parse(case.text, TOOLS if case.has_tools else [], chunks)
    calls = [(call["name"], json.loads(call["arguments"])) for call in got["calls"]]
    return calls, got["content"] if case.content is None else got["content"].split()


@pytest.mark.parametrize("dialect", [dialect.id for dialect in DIALECTS])
def test_every_case_of_a_dialect(dialect: str) -> None:
    """The calls are exact; without a call the text is byte-identical; and no cut of the text matters."""
    own = [case for case in ALL if case.id.partition("/")[0] == dialect]
    assert own != []
    assert {case.id: wrong for case in own if (wrong := misread(case))} == {}


def test_there_are_more_of_them_than_in_the_corpus() -> None:
    """The corpus only samples the grammars."""
    assert len(ALL) > 2 * 635
    assert len({case.id for case in ALL}) == len(ALL)
    assert sum(not case.calls for case in ALL) > 635
