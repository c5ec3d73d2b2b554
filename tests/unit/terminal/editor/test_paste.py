"""Pastes: short ones as they are, long ones as a word."""

from treadle.terminal.editor.input_buffer import Pastes


def test_short_pastes_stay() -> None:
    """Line ends are those of Unix."""
    assert Pastes().fold("a\r\nb\rc") == "a\nb\nc"


def test_long_pastes_are_folded_and_come_back_whole() -> None:
    """By lines or by characters; two of them are told apart."""
    pastes = Pastes()
    lines, text = "\n".join("x" * 21), "y" * 2_001
    assert pastes.fold(lines) == "[pasted #1, 21 lines]"
    assert pastes.fold(text) == "[pasted #2, 2001 characters]"
    assert pastes.unfold("a [pasted #2, 2001 characters] b [pasted #1, 21 lines]") == f"a {text} b {lines}"


def test_words_that_only_look_like_a_paste_stay() -> None:
    """A person may write what they like."""
    assert Pastes().unfold("[pasted #1, 21 lines]") == "[pasted #1, 21 lines]"


def test_the_end_of_the_last_line_is_no_line() -> None:
    """A file of twenty lines is twenty lines, and short enough to be seen."""
    lines = "".join(f"{number}\n" for number in range(20))
    assert Pastes().fold(lines) == lines
    assert Pastes().fold(f"{lines}more\n") == "[pasted #1, 21 lines]"
