"""What can be completed is read from the parsers: commands, actions, flags and what they take."""

from treadle.cli.bash_completion import write_bash
from treadle.cli.command_tree import ArgumentPlace, CommandFlag, Word, read_places
from treadle.cli.fish_completion import write_fish
from treadle.cli.main import build_parser
from treadle.cli.zsh_completion import write_zsh

PLACES = {place.path: place for place in read_places(build_parser())}


def test_every_place_is_there() -> None:
    """Commands, their actions, and the program itself."""
    assert {"treadle", "treadle serve", "treadle keys create", "treadle store prune"} <= set(PLACES)
    assert "treadle serve" not in {word.text for word in PLACES["treadle"].words}
    assert Word(text="serve", summary="start the gateway: the APIs and the pages") in PLACES["treadle"].words


def test_flags_know_what_they_take() -> None:
    """A choice, a file, a text, or nothing."""
    flags = {name: flag for flag in PLACES["treadle run"].flags for name in flag.names}
    assert (flags["--output"].kind, flags["--output"].choices) == ("choice", ("text", "json", "jsonl"))
    assert [flags[name].kind for name in ("--schema", "-m", "--ephemeral", "--help")] == [
        "file",
        "text",
        "nothing",
        "nothing",
    ]
    assert flags["-m"] is flags["--model"]
    assert PLACES["treadle store restore"].takes_files


def test_words_of_people_are_quoted() -> None:
    """A summary may hold a quote, a colon or a dollar sign; no shell may run it."""
    evil = 'it\'s $(touch x) `y` \\ "z"'
    flag = CommandFlag(names=("--a", "-b"), summary=evil, kind="nothing")
    place = ArgumentPlace(path="treadle", flags=(flag,), words=(Word(text="w", summary=evil),))
    assert "'--a:it'\\''s $(touch x) `y` \\ \"z\"'" in write_zsh([place])
    assert "-d 'it\\'s $(touch x) `y` \\\\ \"z\"'" in write_fish([place])
    assert "touch" not in write_bash([place])
