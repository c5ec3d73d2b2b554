"""Ground truth of a public benchmark, written in every dialect, cut at random and read back."""

import pytest

from dialects.bfcl import WHEEL_VARIABLE, Entry, comes_back, find_wheel, read_entries
from dialects.own import TOOLS
from treadle.protocols.text_calls.dialect_grammar import Dialect
from treadle.protocols.text_calls.dialect_table import DIALECTS

STEP = 20
"""Every so many entries is read back here; `python -m dialects.bfcl WHEEL` reads all of them."""


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    """Return a sample of the benchmark."""
    wheel = find_wheel()
    if wheel is None:
        pytest.skip(f"no bfcl-eval: `pip download --no-deps bfcl-eval`, then {WHEEL_VARIABLE}=ITS_WHEEL")
    return list(read_entries(wheel))[::STEP]


@pytest.mark.parametrize("dialect", DIALECTS, ids=[dialect.id for dialect in DIALECTS])
def test_ground_truth_comes_back_exactly(entries: list[Entry], dialect: Dialect) -> None:
    """Names, order, types and every character of every value."""
    assert [entry.id for number, entry in enumerate(entries) if not comes_back(entry, dialect, number)] == []


def test_what_does_not_come_back_is_noticed() -> None:
    """The judge can say no: a tool that is not offered is no call."""
    offered = Entry(id="x", tools=TOOLS, calls=[("ring_bell", {})])
    unknown = Entry(id="y", tools=TOOLS, calls=[("fly_away", {})])
    hermes = DIALECTS[0]
    assert comes_back(offered, hermes, 1)
    assert not comes_back(unknown, hermes, 1)
