"""Conversations outlive their terminal: resumed after a kill, and shared by two terminals."""

import signal
from pathlib import Path

from gateway.terminal import TREADLE, Terminal, person_env

HANGS = '''
import os
import time
from treadle import tool

@tool(effect="write", approval="never", timeout_s=60)
def send_letter(name: str) -> str:
    """Send a letter to a name."""
    with open("sent", "a") as file:
        file.write(name)
    while not os.path.exists("never"):
        time.sleep(0.02)
    return "sent"
'''


def test_a_killed_chat_is_resumed_with_what_happened_and_goes_on(tmp_path: Path) -> None:
    """kill -9 during a call with effects: it is not made again, it gets a result, and the model answers."""
    env = person_env(tmp_path)
    (tmp_path / "letters.py").write_text(HANGS, encoding="utf-8")
    first = Terminal([*TREADLE, "--tools", "letters.py"], env, tmp_path)
    try:
        first.prompt()
        first.type("Use send_letter `ada`\r")
        first.until("● send_letter")
        first.process.send_signal(signal.SIGKILL)
        first.wait()
    finally:
        first.close()
    second = Terminal([*TREADLE, "-c", "--tools", "letters.py"], env, tmp_path)
    try:
        second.until("this turn was interrupted")
        second.until("> Use send_letter `ada`")
        second.until("failed (interrupted)")
        second.until("tokens")
        second.type("Use glob with `*.py`\r")
        second.until("tokens", 3)
        second.type("\x04")
        assert second.wait() == 0
    finally:
        second.close()
    assert (tmp_path / "sent").read_text(encoding="utf-8") == "ada"
    third = Terminal([*TREADLE, "-r", "Use send_letter `ada`"], env, tmp_path)
    try:
        third.until("— resumed: Use send_letter `ada` —")
        text = third.text
        places = [text.index(part) for part in ("> Use send_letter", "● send_letter", "> Use glob with `*.py`")]
        assert places == sorted(places)
        third.type("/undo\r")
        third.until_live("> Use glob with `*.py`")
        third.until("taken back, in Use send_letter `ada` (fork)")
    finally:
        third.close()


def test_two_terminals_on_one_session_see_the_same(tmp_path: Path) -> None:
    """What is said in one is shown in the other as it comes; a call of one can be stopped in the other."""
    env = person_env(tmp_path)
    one = Terminal([*TREADLE, "--tools", "mine.py"], env, tmp_path)
    two: Terminal | None = None
    try:
        one.prompt()
        one.type("Use count_lines `eve`\r")
        one.until("tokens")
        two = Terminal([*TREADLE, "-c", "--tools", "mine.py"], env, tmp_path)
        two.until("— resumed: Use count_lines `eve` —")
        two.type("Use wait_for `go`\r")
        two.until("● wait_for")
        one.until("— said elsewhere:")
        one.until("● wait_for")
        one.type("\x03")
        two.until("cancelled")
        one.until("cancelled")
        one.type("Use count_lines `ada`\r")
        two.until("— said elsewhere:")
        two.until("count_lines answered", 2)
    finally:
        one.close()
        if two is not None:
            two.close()
