"""Help as a manual: every command and action says what it does, shows how, and where to read on."""

import argparse
import re

import pytest

from rules.tree import ROOT
from treadle.cli.argument_parser import actions_of, commands_of
from treadle.cli.help_pages import SEE_ALSO, examples_of, finish_help, fit
from treadle.cli.main import COMMANDS, build_parser, main

PARSER = build_parser()
LEAVES = [
    (f"{name} {action}", inner)
    for name, parser in commands_of(PARSER).items()
    for action, inner in commands_of(parser).items()
]


@pytest.mark.parametrize(("name", "parser"), LEAVES, ids=[name for name, _ in LEAVES])
def test_every_action_says_what_it_does(name: str, parser: argparse.ArgumentParser) -> None:
    """A sentence, and a line for every flag and word it takes."""
    shown = parser.format_help()
    assert shown.startswith(f"usage: treadle {name}")
    assert re.search(r"^[A-Z].*\.$", parser.description or "", re.DOTALL)
    assert [each.dest for each in actions_of(parser) if each.help in (None, "")] == []


def test_every_action_shows_an_example() -> None:
    """Their command's own examples, written once; else the shortest line that it takes."""
    assert [name for name, parser in LEAVES if "examples:\n  " not in parser.format_help()] == []
    append = dict(LEAVES)["ws append"]
    assert append.format_help().endswith("examples:\n  treadle ws append WORKSPACE PATH VALUE\n")


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_command_says_where_to_read_on(entry: object) -> None:
    """Commands that exist, and documents that are there."""
    name = getattr(entry, "name", "")
    see = SEE_ALSO[name]
    assert " ".join(commands_of(PARSER)[name].format_help().split()).endswith(f"see also: {see}")
    for document in re.findall(r"docs/[a-z]+\.md", see):
        assert (ROOT / document).exists()
    for other in re.findall(r"treadle ([a-z]+)", see):
        assert other in commands_of(PARSER)


@pytest.mark.parametrize("columns", [80, 60])
def test_prose_is_broken_between_words_and_examples_are_not(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that was laid out for a wide terminal is read in a narrow one; a command can still be copied."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for parser in (PARSER, *commands_of(PARSER).values()):
        for line in parser.format_help().splitlines():
            is_whole = line.startswith("  ") or " " not in line.strip()
            assert len(line) <= columns or is_whole, line


@pytest.mark.parametrize(
    ("block", "columns", "shown"),
    [
        ("one two\nthree", 9, "one two\nthree"),
        ("one two\nthree four", 9, "one two\nthree\nfour"),
        ("  go on    what it does here", 36, "  go on    what it does here"),
        (f"  go on    what {'it does ' * 3}", 36, "  go on    what it does it does it\n           does"),
        ("  treadle run it all   what it does", 26, "  treadle run it all\n      what it does"),
        ("  treadle run it all over", 12, "  treadle run it all over"),
    ],
)
def test_a_block_is_left_as_it_is_where_it_fits(block: str, columns: int, shown: str) -> None:
    """Meanings are broken beside their names, or below them; a line without one is a command."""
    assert fit(block.rstrip(), columns, columns) == shown


def test_the_first_help_names_variables_files_and_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """What a newcomer needs before the first command."""
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    for word in ("OPENAI_API_KEY", "NO_COLOR", "TREADLE_CONFIG", "treadle.toml", "treadle.db", "exit codes:"):
        assert word in shown


def test_examples_are_found_by_their_words() -> None:
    """With variables and pipes in front; not those of other actions, and not what comes after them."""
    parser = argparse.ArgumentParser(prog="treadle x")
    parser.epilog = "Words.\n\nexamples:\n  treadle x go 1\n  A=1 treadle x go 2\n  treadle x gone\n\nexit codes: 0"
    actions = parser.add_subparsers()
    inner = actions.add_parser("go", help="go there")
    finish_help(parser, "x")
    assert examples_of(parser.epilog) == ["treadle x go 1", "A=1 treadle x go 2", "treadle x gone"]
    assert inner.description == "Go there."
    assert (inner.epilog or "").splitlines() == ["examples:", "  treadle x go 1", "  A=1 treadle x go 2"]
