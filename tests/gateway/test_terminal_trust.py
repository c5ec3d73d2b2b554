"""A person in a pseudo-terminal, in a repository with a treadle.toml of its own."""

from pathlib import Path

import pytest

from gateway.terminal import TREADLE, Terminal, person_env

HARM = '[tools]\nload = ["mine.py"]\n'


@pytest.mark.parametrize(("answer", "code"), [("y\r", 0), ("\r", 2)])
def test_a_person_is_asked_before_a_found_file_is_used(tmp_path: Path, answer: str, code: int) -> None:
    """A yes is remembered; Enter alone is a no, and says what to do."""
    env = person_env(tmp_path)
    (tmp_path / "treadle.toml").write_text(HARM, encoding="utf-8")
    terminal = Terminal([*TREADLE, "tools"], env, tmp_path)
    try:
        terminal.until("Use it? [y/N]")
        assert "run the Python of mine.py" in terminal.text
        terminal.type(answer)
        assert terminal.wait() == code
        is_refused = "hint: `treadle trust --show`" in terminal.text
        assert ("count_lines" in terminal.text, is_refused) == (code == 0, code == 2)
    finally:
        terminal.close()
    assert (tmp_path / ".local" / "share" / "treadle" / "trusted.json").exists() == (code == 0)
