import asyncio
import os
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from treadle.canon.errors import ToolError
from treadle.canon.json import read_json
from treadle.tools import ToolContext
from treadle.tools.envelope import write_text
from treadle.tools.local import grep as grep_module
from treadle.tools.local.grep import Records, find_ripgrep, make_grep
from treadle.tools.local.opener import Root
from treadle.tools.sandbox import Found, Sandbox, find_level

LEVELS = {"ripgrep": None, "worker": Found(level=0)}


class Search:
    """The tool's function, with what the model reads parsed back."""

    def __init__(self, place: pathlib.Path, sandbox: Sandbox, ripgrep: str | None) -> None:
        self._place, self._sandbox, self._ripgrep = place, sandbox, ripgrep

    async def __call__(self, pattern: str, allow: tuple[str, ...] = (), **options: Any) -> dict[str, Any]:
        context = ToolContext(output_bytes_max=options.pop("bytes_max", 65_536))
        function = make_grep(Root(self._place, allow=allow), self._sandbox, self._ripgrep)
        return read_json(write_text(await function(context, pattern, **options), "s3"))


@pytest.fixture(params=LEVELS)
async def search(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> AsyncIterator[Search]:
    """A search by ripgrep, and one by our own worker."""
    if request.param == "ripgrep" and (find_ripgrep() is None or find_level().level == 0):
        pytest.skip("there is no ripgrep, or nothing to confine it")
    sandbox = Sandbox(found=LEVELS[request.param])
    yield Search(tmp_path, sandbox, find_ripgrep() if request.param == "ripgrep" else None)
    await asyncio.to_thread(sandbox.close)


async def test_matches_are_those_of_s3(tmp_path: pathlib.Path, search: Search) -> None:
    """`file:line: match`, in order of the paths, with their count; ignored, hidden and secret files are left out."""
    (tmp_path / "b.py").write_text("needle 1\nhay\nneedle 2\n")
    (tmp_path / "a.txt").write_text("a needle\r\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    for name in ("ignored", ".hidden", ".env", "id_rsa", "x.pem"):
        (tmp_path / name).write_text("needle\n")
    (tmp_path / "binary").write_bytes(b"needle\0")
    found = await search("need[l]e")
    assert found == {"output": "a.txt:1: a needle\nb.py:1: needle 1\nb.py:3: needle 2", "count": 3}


async def test_a_search_can_be_narrowed(tmp_path: pathlib.Path, search: Search) -> None:
    """By folder, by file, by name, by case, and to plain text."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text("X.y\nXzy\n")
    (tmp_path / "a.js").write_text("X.y\n")
    assert (await search("X.y", path="sub"))["count"] == 2
    assert (await search("X.y", path="sub/a.py", fixed=True))["output"] == "sub/a.py:1: X.y"
    assert (await search("x.y", include="*.js", ignore_case=True))["output"] == "a.js:1: X.y"
    assert (await search("x.y"))["count"] == 0


async def test_other_modes_name_files_and_counts(tmp_path: pathlib.Path, search: Search) -> None:
    """Without the lines themselves."""
    (tmp_path / "a").write_text("x\nx\n")
    (tmp_path / "b").write_text("x\n")
    assert await search("x", mode="files") == {"output": "a\nb", "count": 2}
    assert await search("x", mode="count") == {"output": "a: 2\nb: 1", "count": 2}


async def test_lines_around_a_match_are_marked_as_such(tmp_path: pathlib.Path, search: Search) -> None:
    """They do not count."""
    (tmp_path / "a").write_text("1\n2\n3\n4\n")
    assert await search("2", context=1) == {"output": "a-1- 1\na:2: 2\na-3- 3", "count": 1}


async def test_a_long_result_ends_early_and_says_so(tmp_path: pathlib.Path, search: Search) -> None:
    """By its limit, by twenty lines of a file, by columns and by what fits into the answer."""
    for number in range(6):
        (tmp_path / f"f{number}").write_text("x\n" * 30)
    found = await search("x", limit=10)
    assert (found["count"], found["truncated"], found["next"]) == (10, True, {"limit": 120})
    assert (await search("x", path="f1"))["count"] == 20
    assert (await search("x", limit=1000, bytes_max=400))["truncated"]
    (tmp_path / "wide").write_text("y" * 5_000 + "\n")
    assert len((await search("y", path="wide"))["output"]) < 400


async def test_a_wrong_pattern_is_explained(tmp_path: pathlib.Path, search: Search) -> None:
    """In the words of whoever searched, with a code; so are paths that are not there."""
    (tmp_path / "a").write_text("x")
    for arguments, code in (
        ({"pattern": "("}, "invalid_pattern"),
        ({"pattern": "a\nb"}, "invalid_pattern"),
        ({"pattern": "a", "include": "../*"}, "invalid_pattern"),
        ({"pattern": "a", "path": "none"}, "not_found"),
        ({"pattern": "a", "path": ".."}, "outside_root"),
    ):
        with pytest.raises(ToolError) as caught:
            await search(**arguments)
        assert caught.value.info.code == code


async def test_an_allowed_secret_is_searched(tmp_path: pathlib.Path, search: Search) -> None:
    """Whoever configures the tools may open a name."""
    (tmp_path / "id_map.py").write_text("needle\n")
    assert (await search("needle"))["count"] == 0
    assert (await search("needle", allow=("id_map.py",)))["count"] == 1


async def test_a_pattern_that_never_ends_is_killed(
    tmp_path: pathlib.Path, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found until then is shown, and that it is not all."""
    monkeypatch.setattr(grep_module, "DEADLINE_S", 0.5)
    (tmp_path / "a").write_text("aab\n")
    (tmp_path / "b").write_text("a" * 40 + "\n")
    found = await search("(a+)+b")
    assert found["output"] == "a:1: aab"
    if search._ripgrep is None:
        assert (found["truncated"], found["code"]) == (True, "stopped_early")


def test_what_a_search_writes_is_read_in_any_pieces() -> None:
    """Records split anywhere; masked paths and noise are no matches."""
    data = b"./a\x001:x\n./.env\x001:x\nrg: noise\nb\x002-y\n"
    for size in (1, 3, len(data)):
        records = Records("content", lambda path: path == ".env")
        for at in range(0, len(data), size):
            assert records.take(data[at : at + size])
        assert [(each.path, each.line, each.is_hit, each.text) for each in records.found] == [
            ("a", 1, True, "x"),
            ("b", 2, False, "y"),
        ]
        assert bytes(records.noise) == b"rg: noise\n"


def test_ripgrep_is_named_by_its_real_path() -> None:
    """So that the sandbox lets it be run."""
    found = find_ripgrep()
    assert found is None or (os.path.isabs(found) and os.path.realpath(found) == found)
