"""`python -m bench.terminal`: what the terminal costs while an answer streams, against naive rich.Live; and start-up.

Both draw the same markdown at 600 tokens a second in a pseudo-terminal of 100 × 30, in turns. Lag is the time from a
token's arrival to the frame that shows it. Only ratios within one run mean anything.
"""

import argparse
import asyncio
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from statistics import median, quantiles
from termios import TIOCSWINSZ

RATE = 600.0
COLUMNS, ROWS = 100, 30
PIECE_CHARS = 4
BOUND_S = 120.0
SENTENCE = "every call gets a result before the model is asked again and the screen stays true while it streams"


def document(tokens: int) -> str:
    """Return a markdown text of so many pieces."""
    sections: list[str] = []
    while sum(map(len, sections)) < tokens * PIECE_CHARS:
        number = len(sections)
        sections += [
            f"## Part {number}\n\n{SENTENCE}. **{SENTENCE}**, `code` and {SENTENCE}.",
            "\n".join(f"- point {number}.{item}: {SENTENCE[: 20 + 9 * item]}" for item in range(6)),
            "```python\n" + "\n".join(f"value_{line} = call({number}, {line})" for line in range(12)) + "\n```",
        ]
    return "\n\n".join(sections)[: tokens * PIECE_CHARS]


def pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE_CHARS):
        yield text[start : start + PIECE_CHARS]


class Lags:
    """Times from arrival to display."""

    def __init__(self) -> None:
        self.waiting: list[float] = []
        self.seen: list[float] = []
        self.cpu_s = self.wall_s = 0.0

    def arrive(self) -> None:
        self.waiting.append(time.perf_counter())

    def show(self, *_: object) -> None:
        now = time.perf_counter()
        self.seen += [now - at for at in self.waiting]
        self.waiting.clear()


async def stream(text: str, take, lags: Lags) -> None:
    """Hand over the pieces at their times."""
    began, used = time.perf_counter(), time.process_time()
    for number, piece in enumerate(pieces(text)):
        await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        lags.arrive()
        take(piece)
    lags.cpu_s, lags.wall_s = time.process_time() - used, time.perf_counter() - began


async def ours(text: str, lags: Lags) -> None:
    """Draw as `treadle chat` does: finished blocks once, the open one below, an editor and a status line."""
    from prompt_toolkit.history import InMemoryHistory

    from treadle.core.events import RunEnded, TextDelta
    from treadle.terminal.editor.screen_app import InlineScreen
    from treadle.terminal.editor.tab_completion import Completions
    from treadle.terminal.rendering.run_renderer import RunRenderer
    from treadle.terminal.rendering.streaming_markdown import warm
    from treadle.terminal.rendering.styles import TextStyle

    look = TextStyle(rich=True, colour=True)
    face = InlineScreen(sys.stdout, look, history=InMemoryHistory(), completer=Completions({}, {}, ".", list))
    screen = RunRenderer(face, look)
    await face.open()
    face.serve(Status())
    await asyncio.to_thread(warm)
    face.app.after_render += lags.show
    await stream(text, lambda piece: screen.show(TextDelta(index=0, text=piece)), lags)
    screen.show(RunEnded(status="completed"))
    await asyncio.sleep(0.2)
    await face.close()


class Status:
    """What the editor asks for while nothing else happens."""

    is_running = True

    def status_line(self) -> str:
        return f" ask · sandbox L3 · model · {time.monotonic():.1f} s"

    def activity_line(self) -> str:
        return "… waiting"

    def interrupt(self) -> None: ...

    def press(self, action: str) -> None: ...

    def is_instant(self, text: str) -> bool:
        return False

    def do_now(self, text: str) -> None: ...


async def naive(text: str, lags: Lags) -> None:
    """Draw as the obvious program does: all of the text again, ten times a second."""
    from rich.live import Live
    from rich.markdown import Markdown

    whole, next_at = "", 0.0
    Markdown("warm")
    with Live(auto_refresh=False, vertical_overflow="visible") as live:

        def take(piece: str) -> None:
            nonlocal whole, next_at
            whole += piece
            if time.perf_counter() >= next_at:
                live.update(Markdown(whole), refresh=True)
                lags.show()
                next_at = time.perf_counter() + 0.1

        await stream(text, take, lags)
        live.update(Markdown(whole), refresh=True)
        lags.show()


PLAYERS = {"treadle": ours, "rich.Live": naive}


def play(name: str, tokens: int, out: Path) -> None:
    """Draw in this terminal and write down what it took."""
    lags = Lags()
    asyncio.run(PLAYERS[name](document(tokens), lags))
    p95 = quantiles(lags.seen, n=20)[18]
    figures = {"cpu_s": lags.cpu_s, "wall_s": lags.wall_s, "p50_s": median(lags.seen), "p95_s": p95}
    out.write_text(json.dumps(figures), encoding="utf-8")


def in_terminal(command: list[str], wanted: bytes = b"", env: dict[str, str] | None = None) -> tuple[float, int]:
    """Run a command in a pseudo-terminal until it ends, or until it shows something; return seconds and bytes."""
    master, slave = pty.openpty()
    ioctl(master, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began, seen = time.perf_counter(), b""
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm-256color", **(env or {})}
    )
    os.close(slave)
    try:
        while time.perf_counter() - began < BOUND_S:
            if not select.select([master], [], [], 1.0)[0]:
                continue
            try:
                data = os.read(master, 1 << 16)
            except OSError:
                break
            seen += data
            if wanted and wanted in seen:
                break
        return time.perf_counter() - began, len(seen)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def measure(tokens: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Let both draw in turns."""
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in PLAYERS}
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        out = Path(folder) / "out.json"
        for _ in range(rounds):
            for name in PLAYERS:
                words = [sys.executable, "-m", "bench.terminal", "--play", name, "--tokens", str(tokens)]
                _, written = in_terminal([*words, "--out", str(out)])
                figures[name].append({**json.loads(out.read_text(encoding="utf-8")), "bytes": written})
    return figures


def start_up(rounds: int) -> dict[str, float]:
    """Return the seconds until help is printed, and until the first prompt stands there."""
    program = [sys.executable, "-m", "treadle.cli.main"]
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as home:
        env = {"HOME": home, "XDG_DATA_HOME": home}
        cases = {
            "python -c pass": ([sys.executable, "-c", "pass"], b""),
            "treadle run --help": ([*program, "run", "--help"], b""),
            "first prompt": ([*program, "chat"], b"opening"),
            "all opened": ([*program, "chat"], "ask ·".encode()),
        }
        return {
            name: median(in_terminal(command, wanted, env)[0] for _ in range(rounds))
            for name, (command, wanted) in cases.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.terminal", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of 1 500 tokens")
    parser.add_argument("--tokens", type=int, default=6_000)
    parser.add_argument("--play", choices=tuple(PLAYERS), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.play:
        play(args.play, args.tokens, args.out)
        return
    tokens, rounds = (1_500, 1) if args.quick else (args.tokens, 2)
    figures = measure(tokens, rounds)
    print(f"{tokens} tokens at {RATE:.0f} a second, {COLUMNS} × {ROWS}; medians of {rounds} rounds")
    print(f"{'':<11}{'CPU':>8}{'lag p50':>10}{'lag p95':>10}{'written':>11}")
    middle: dict[str, dict[str, float]] = {}
    for name, rows in figures.items():
        middle[name] = {key: median(row[key] for row in rows) for key in rows[0]}
        row = middle[name]
        share = row["cpu_s"] / row["wall_s"]
        print(
            f"{name:<11}{share:>8.1%}{row['p50_s'] * 1000:>8.0f}ms{row['p95_s'] * 1000:>8.0f}ms"
            f"{row['bytes'] / 1000:>9.0f}kB"
        )
    ours_, theirs = middle["treadle"], middle["rich.Live"]
    ratio = {key: theirs[key] / ours_[key] for key in ("cpu_s", "p95_s", "bytes")}
    print("rich.Live takes " + ", ".join(f"{value:.1f} × the {key}" for key, value in ratio.items()))
    for name, seconds in start_up(3 if args.quick else 5).items():
        print(f"{name:<20}{seconds * 1000:>7.0f} ms")


if __name__ == "__main__":
    main()
