"""Dialects in the configuration: a name that is none is named, with the nearest one."""

import pytest

from treadle.config import read_settings
from treadle.core.errors import ConfigError
from treadle.runtime import repair_rules

UPSTREAM = '[[upstream]]\nname = "a"\nbase_url = "http://127.0.0.1:1/v1"\nmodels = ["*"]\n'


def write(folder: pytest.TempPathFactory, text: str) -> str:
    """Write a file of settings and return its path."""
    path = folder.mktemp("repair") / "treadle.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[repair]\ndialects = ["qwen3_codr"]\n', "repair.dialects[0]"),
        ('[repair]\ndialects = ["-nothing_at_all"]\n', "treadle dialects"),
        ('[repair]\ndialects = ["native"]\n', "there is no dialect 'native'"),
        (f'{UPSTREAM}repair = ["marked", "hermes"]\n', "upstream[0].repair[1]"),
        (f'{UPSTREAM}[[route]]\nmodel = "m"\nupstream = "a"\nrepair = ["x"]\n', "route[0].repair[0]"),
        ('[repair]\ntiers = ["all"]\n', "repair.tiers"),
        ('[repair]\neffects = "perhaps"\n', "repair.effects"),
        ("[repair]\nheld_chars_max = 1\n", "repair.held_chars_max"),
    ],
)
def test_what_is_wrong_is_named(tmp_path_factory: pytest.TempPathFactory, text: str, said: str) -> None:
    """The field, and a way out."""
    with pytest.raises(ConfigError) as caught:
        read_settings(write(tmp_path_factory, text), env={"HOME": "/nowhere"})
    assert said in f"{caught.value} {caught.value.hint}"


def test_an_upstream_has_its_own_rules(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tiers and names in one list; without it the common ones hold."""
    common = '[repair]\ntiers = ["native"]\ndialects = ["react"]\n'
    other = UPSTREAM.replace('"a"', '"b"').replace('["*"]', '["b-*"]')
    text = f'{common}{UPSTREAM}repair = ["marked", "-longcat"]\n{other}'
    settings = read_settings(write(tmp_path_factory, text), env={"HOME": "/nowhere"}).settings
    rules = [repair_rules(upstream.repair, settings) for upstream in settings.upstream]
    assert [(rule.tiers, rule.dialects) for rule in rules] == [(("marked",), ("-longcat",)), (("native",), ("react",))]
