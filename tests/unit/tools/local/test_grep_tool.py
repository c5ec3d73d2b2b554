import asyncio
import os
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ToolError
from treadle.core.json import read_json
from treadle.tools import ToolContext
from treadle.tools.local import grep_tool as grep_module
from treadle.tools.local.grep_tool import Records, find_ripgrep, make_grep
from treadle.tools.local.result_limits import DEFAULT_CAPS, LocalCaps
from treadle.tools.local.safe_open import Root
from treadle.tools.result_rendering import write_text
from treadle.tools.sandbox import CommandSandbox, FoundLevel, find_level
from treadle.tools.sandbox.helper_messages import CommandEnded

LEVELS = {"ripgrep": None, "worker": FoundLevel(level=0)}


class Search:
    """The tool's function, with what the model reads parsed back."""

    def __init__(self, place: pathlib.Path, sandbox: CommandSandbox, ripgrep: str | None) -> None:
        self._place, self._sandbox, self._ripgrep = place, sandbox, ripgrep

    async def __call__(self, pattern: str, allow: tuple[str, ...] = (), **options: Any) -> dict[str, Any]:
        context = ToolContext(output_bytes_max=options.pop("bytes_max", 65_536))
        caps = options.pop("caps", DEFAULT_CAPS)
        function = make_grep(Root(self._place, allow=allow), self._sandbox, self._ripgrep, caps)
        return read_json(write_text(await function(context, pattern, **options), "s3"))


@pytest.fixture(params=LEVELS)
async def search(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> AsyncIterator[Search]:
    """A search by ripgrep, and one by our own worker."""
    if request.param == "ripgrep" and (find_ripgrep() is None or find_level().level == 0):
        pytest.skip("there is no ripgrep, or nothing to confine it")
    sandbox = CommandSandbox(found=LEVELS[request.param])
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
    assert await search("x", mode="count") == {"output": "a: 2\nb: 1", "count": 3}


async def test_lines_around_a_match_are_marked_as_such(tmp_path: pathlib.Path, search: Search) -> None:
    """They do not count."""
    (tmp_path / "a").write_text("1\n2\n3\n4\n")
    assert await search("2", context=1) == {"output": "a-1- 1\na:2: 2\na-3- 3", "count": 1}


async def test_a_long_result_ends_early_and_says_so(tmp_path: pathlib.Path, search: Search) -> None:
    """By its limit, by twenty lines of a file, and by what fits into the answer; the count is of all matches."""
    for number in range(6):
        (tmp_path / f"f{number}").write_text("x\n" * 30)
    found = await search("x", limit=10)
    lines = "\n".join(f"f0:{each}: x" for each in range(1, 11))
    assert found == {"output": lines, "count": 180, "truncated": True, "next": {"limit": 120}}
    of_one = await search("x", path="f1")
    assert (of_one["count"], len(of_one["output"].split("\n")), of_one["truncated"]) == (30, 20, True)
    narrow = await search("x", limit=1000, bytes_max=400)
    assert (narrow["count"], narrow["truncated"]) == (180, True)
    assert len(narrow["output"].split("\n")) < 20
    (tmp_path / "wide").write_text("y" * 5_000 + "\n")
    assert len((await search("y", path="wide"))["output"]) < 400


async def test_the_caps_can_be_raised(tmp_path: pathlib.Path, search: Search) -> None:
    """More lines of a file, longer ones, and more in all."""
    (tmp_path / "a").write_text(("x" * 500 + "\n") * 1_500)
    caps = LocalCaps(grep_per_file_max=5_000, grep_line_chars_max=1_000, grep_matches_max=5_000)
    found = await search("x+", limit=5_000, caps=caps, bytes_max=2_000_000)
    assert found == {"output": "\n".join(f"a:{each}: {'x' * 500}" for each in range(1, 1_501)), "count": 1_500}


def test_a_file_that_cannot_be_read_is_named_and_breaks_nothing() -> None:
    """Neither a search that finds something nor one that does not: the rest was searched, and that is said."""
    data = b"rg: ./b/secret: Permission denied (os error 13)\nrg: ./c: Permission denied (os error 13)\n"
    for matches in (b"", b"./a\x001:x\n"):
        records = Records("content", lambda _: False)
        assert records.take(matches + data)
        grep_module._check(CommandEnded(ending="exited", code=2), records)
        asked = msgspec.convert(
            {**dict.fromkeys(("pattern", "path", "include"), "x"), "mode": "content", "context": 0}
            | {"ignore_case": False, "fixed": False, "limit": 10},
            grep_module.Search,
        )
        ended = CommandEnded(ending="exited", code=2)
        found = read_json(write_text(grep_module._answer(asked, records, ended, 65_536, DEFAULT_CAPS), "s3"))
        assert found == {
            "output": "a:1: x" if matches else "",
            "count": 1 if matches else 0,
            "warnings": ["2 files could not be read: b/secret, c."],
        }


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
async def test_an_unreadable_file_is_left_out_with_a_warning(tmp_path: pathlib.Path, search: Search) -> None:
    """As seen by somebody who may not read all files."""
    (tmp_path / "a").write_text("x\n")
    (tmp_path / "b").write_text("x\n")
    (tmp_path / "b").chmod(0)
    for pattern, count in (("x", 1), ("none", 0)):
        found = await search(pattern)
        assert (found["count"], found["warnings"]) == (count, ["1 file could not be read: b."])


async def test_bytes_that_are_no_utf_8_are_said(tmp_path: pathlib.Path, search: Search) -> None:
    """A match is shown with a sign in their place, and a warning; so is a name."""
    (tmp_path / "a").write_bytes(b"caf\xe9 x\n")
    assert await search("x") == {
        "output": "a:1: caf\ufffd x",
        "count": 1,
        "warnings": ["Not valid UTF-8: bytes that could not be decoded were replaced by U+FFFD, once."],
    }
    (tmp_path / os.fsdecode(b"n\xe9")).write_bytes(b"y\n")
    assert await search("y") == {
        "output": "n\ufffd:1: y",
        "count": 1,
        "warnings": ["Names that are not UTF-8, with U+FFFD for bytes that could not be decoded: 1."],
    }


async def test_a_file_that_is_searched_in_part_is_named(tmp_path: pathlib.Path, search: Search) -> None:
    """Our own worker reads ten megabytes of a file, and says which had more."""
    if search._ripgrep is not None:
        pytest.skip("ripgrep reads files of any size")
    with (tmp_path / "big").open("wb") as file:
        file.write(b"x\n" + b"y" * 10_485_760)
    assert await search("x") == {
        "output": "big:1: x",
        "count": 1,
        "warnings": ["Only the first 10485760 bytes were searched of big."],
    }


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
