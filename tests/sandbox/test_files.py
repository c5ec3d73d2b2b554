"""File tools while somebody swaps links below them as fast as they can: nothing outside is read or written."""

import asyncio
import ctypes
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.stage import LEVELS, SECRET, found_at, make_sandbox
from treadle.core.errors import ToolError
from treadle.tools import ToolContext
from treadle.tools.local.file_read import make_file_read
from treadle.tools.local.file_write import SeenFiles, make_file_edit, make_file_write
from treadle.tools.local.glob_tool import make_glob
from treadle.tools.local.grep_tool import find_ripgrep, make_grep
from treadle.tools.local.safe_open import Opener, Root, open_beneath, open_walking
from treadle.tools.result_rendering import ToolAnswer, write_text

RACE_S = 0.5
AT_FDCWD, RENAME_EXCHANGE = -100, 2


class Swapper:
    """Turns `root/box` by turns into a folder and into a link to the outside, until it is told to stop."""

    def __init__(self, place: Path) -> None:
        self.root, self.outside = place / "root", place / "outside"
        for folder in (self.root / "box", self.outside):
            folder.mkdir(parents=True)
            (folder / "file").write_text("inside\n" if folder.parent == self.root else f"{SECRET}\n")
        os.symlink("../outside", self.root / "evil")
        self.swaps = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._swap, daemon=True)

    def __enter__(self) -> "Swapper":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _swap(self) -> None:
        box, evil = (os.fsencode(self.root / name) for name in ("box", "evil"))
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
        while not self._stop.is_set():
            assert exchange(AT_FDCWD, box, AT_FDCWD, evil, RENAME_EXCHANGE) == 0
            self.swaps += 1


@pytest.fixture
def swapper(tmp_path: Path) -> Iterator[Swapper]:
    """A swapper at work."""
    with Swapper(tmp_path) as made:
        yield made


@pytest.fixture(params=[open_beneath, open_walking], ids=["openat2", "walking"])
def root(request: pytest.FixtureRequest, swapper: Swapper) -> Root:
    """The root that is being swapped in, opened in each way there is."""
    opener: Opener = request.param
    return Root(swapper.root, opener=opener)


def attempts(work: Callable[[int], ToolAnswer]) -> tuple[int, int, list[str]]:
    """Work for a while and return how often it was done, how often refused, and what was read."""
    done, refused, texts = 0, 0, []
    until = time.monotonic() + RACE_S
    for number in itertools.count():
        if time.monotonic() > until:
            return done, refused, texts
        try:
            texts.append(write_text(work(number), "s3"))
            done += 1
        except ToolError:
            refused += 1
    raise AssertionError("unreachable")


def test_reading_never_leaves_the_root(swapper: Swapper, root: Root) -> None:
    """Every read gives what is inside, or is refused."""
    file_read = make_file_read(root, SeenFiles())
    done, _, texts = attempts(lambda _: file_read(ToolContext(), "box/file"))
    assert done
    assert swapper.swaps
    assert [text for text in texts if SECRET in text] == []


def test_finding_never_leaves_the_root(swapper: Swapper, root: Root) -> None:
    """A walk lists nothing that only the outside has."""
    (swapper.outside / "only-outside").write_text("x")
    glob = make_glob(root)
    done, _, texts = attempts(lambda _: glob(ToolContext(), "**/*"))
    assert done
    assert [text for text in texts if "only-outside" in text] == []


def test_writing_never_leaves_the_root(swapper: Swapper, root: Root) -> None:
    """New files, folders and edits land inside, or are refused; the outside stays as it was."""
    file_write, file_edit = make_file_write(root, SeenFiles()), make_file_edit(root, SeenFiles())
    done, _, _ = attempts(lambda number: file_write(ToolContext(), f"box/new{number % 7}", "x"))
    made, _, _ = attempts(lambda number: file_write(ToolContext(), f"box/sub{number % 7}/new", "x"))
    attempts(lambda _: file_edit(ToolContext(), "box/file", "secret", "gone"))
    assert done
    assert made
    assert {path.name: path.read_text() for path in swapper.outside.iterdir()} == {"file": f"{SECRET}\n"}


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: f"L{level}")
async def test_searching_never_leaves_the_root(swapper: Swapper, level: int) -> None:
    """With ripgrep in its sandbox and with our own worker: no line of the outside is found."""
    found = found_at(level)
    if found is None:
        pytest.skip(f"L{level} is not to be had here")
    sandbox = make_sandbox(found)
    try:
        grep = make_grep(Root(swapper.root), sandbox, find_ripgrep())
        for _ in range(10):
            try:
                answer = await grep(ToolContext(), "the-secret|inside", path="box")
            except ToolError:
                continue
            assert SECRET not in write_text(answer, "s3")
    finally:
        await asyncio.to_thread(sandbox.close)


def test_a_link_that_stays_is_followed_and_one_that_leads_out_is_not(tmp_path: Path) -> None:
    """For reading; a write goes through no link at all."""
    (tmp_path / "a").write_text("text")
    os.symlink("a", tmp_path / "good")
    os.symlink("/etc/passwd", tmp_path / "bad")
    root = Root(tmp_path)
    assert '"output":"text"' in write_text(make_file_read(root)(ToolContext(), "good"), "s3")
    with pytest.raises(ToolError, match="Outside the root"):
        make_file_read(root)(ToolContext(), "bad")
    for name in ("good", "bad"):
        with pytest.raises(ToolError, match="Not written through a link"):
            make_file_write(root, SeenFiles())(ToolContext(), name, "x")
    assert (tmp_path / "a").read_text() == "text"
