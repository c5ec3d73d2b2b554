"""Progress: one line on a terminal that is taken away again, and not a byte anywhere else."""

import io

import pytest

from treadle.cli.progress_bar import EVERY_S, WAIT_S, Progress, show_progress


class Terminal(io.StringIO):
    """A terminal that keeps what was written."""

    def isatty(self) -> bool:
        """Say that somebody watches."""
        return True


class Clock:
    """A clock that is moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def term(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the terminal be one that can draw."""
    monkeypatch.setenv("TERM", "xterm")


def test_what_is_done_at_once_shows_nothing() -> None:
    """A line that flashes up helps nobody."""
    out, clock = Terminal(), Clock()
    progress = Progress("copying", out, clock=clock)
    progress.update(1, 2)
    clock.now += WAIT_S / 2
    progress.update(2, 2)
    progress.close()
    assert out.getvalue() == ""


def test_a_slow_one_shows_how_far_it_is_and_how_long_it_takes() -> None:
    """Not at every step, and the line is gone at the end."""
    out, clock = Terminal(), Clock()
    progress = Progress("copying", out, clock=clock)
    clock.now += 2.0
    progress.update(25, 100)
    progress.update(26, 100)
    assert out.getvalue() == "\rcopying [######..................] 25 %, about 6 s left\x1b[K"
    clock.now += EVERY_S
    progress.update(100, 100)
    progress.close()
    assert out.getvalue().endswith("\rcopying [########################] 100 %\x1b[K\r\x1b[K")


def test_without_a_known_end_it_shows_that_it_lives() -> None:
    """A wheel, and the seconds."""
    out, clock = Terminal(), Clock()
    progress = Progress("reading", out, clock=clock)
    clock.now += 3.0
    progress.update(0, 0)
    assert out.getvalue() == "\rreading \\ 3 s\x1b[K"


@pytest.mark.parametrize("name", ["dumb", ""])
def test_a_terminal_that_can_not_draw_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is everything that is no terminal."""
    clock = Clock()
    outs = [io.StringIO()]
    monkeypatch.setenv("TERM", name)
    outs.append(Terminal())
    for out in outs:
        progress = Progress("copying", out, clock=clock)
        clock.now += 10.0
        progress.update(1, 2)
        progress.close()
        assert out.getvalue() == ""


def test_the_line_is_taken_away_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said then stands on a line of its own."""
    monkeypatch.setattr("treadle.cli.progress_bar.WAIT_S", 0.0)
    out = Terminal()

    def fail() -> None:
        with show_progress("copying", out) as tell:
            tell(1, 2)
            raise ValueError("gone wrong")

    with pytest.raises(ValueError, match="gone wrong"):
        fail()
    assert out.getvalue().endswith("\r\x1b[K")
