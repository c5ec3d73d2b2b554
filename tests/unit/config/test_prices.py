"""Prices of models: read in order, the first that matches holds, and what cannot be a price is refused by its key."""

from pathlib import Path

import pytest

from treadle.config import load_settings
from treadle.core.errors import ConfigError
from treadle.core.usage import Price, Usage
from treadle.runtime.provider_setup import Prices

TABLES = """
[[price]]
model = "gpt-5-mini"
input = 0.25
output = 2
[[price]]
model = "gpt-*"
input = 1.25
output = 10
cached = 0.125
"""


def load(folder: Path, text: str) -> Prices:
    """Read the prices of a configuration."""
    file = folder / "treadle.toml"
    file.write_text(text, encoding="utf-8")
    return Prices(load_settings(file, env={"HOME": str(folder)}))


def test_the_first_price_that_matches_holds(tmp_path: Path) -> None:
    """A name before its family; a model that no price names has none, and neither has an unknown usage."""
    prices = load(tmp_path, TABLES)
    assert prices.price("gpt-5-mini") == Price(input=0.25, output=2.0)
    assert prices.price("gpt-5") == Price(input=1.25, output=10.0, cached=0.125)
    assert prices.price("claude") is None
    assert prices.cost("gpt-5", Usage(input_tokens=2_000_000, cached_tokens=1_000_000, output_tokens=100_000)) == 2.375
    assert prices.cost("gpt-5", None) is None
    assert prices.cost("claude", Usage(input_tokens=1)) is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('[[price]]\nmodel = "a"\ninput = -1\noutput = 1\n', "price[0].input"),
        ('[[price]]\nmodel = "a"\ninput = 1\n', "output"),
        ('[[price]]\nmodel = "a"\ninput = 1\noutput = 1\ncached = -0.5\n', "price[0].cached"),
        ('[[price]]\nmodel = "**"\ninput = 1\noutput = 1\n', "price[0].model"),
        ('[[price]]\nmodel = "a"\ninput = "free"\noutput = 1\n', "price[0].input"),
    ],
)
def test_what_cannot_be_a_price_is_refused_by_its_key(tmp_path: Path, text: str, path: str) -> None:
    """Less than nothing, nothing at all, no number, a pattern of two stars."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert path in str(caught.value.message)
