import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from treadle.core.errors import ToolError
from treadle.core.json import read_json
from treadle.tools import ToolContext
from treadle.tools.local.glob_tool import RECENT_S, make_glob
from treadle.tools.local.safe_open import Root, best_opener, open_beneath, open_walking

OPENERS = [open_walking] if best_opener() is open_walking else [open_beneath, open_walking]
NOW = 2_000_000_000.0
Glob = Callable[..., dict[str, Any]]


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty root, in a directory of its own."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture(params=OPENERS, ids=lambda opener: opener.__name__)
def glob(place: pathlib.Path, request: pytest.FixtureRequest) -> Glob:
    """The tool's function, with its data read back."""
    function = make_glob(Root(place, opener=request.param), lambda: NOW)

    def run(pattern: str, **options: Any) -> dict[str, Any]:
        context = options.pop("context", None) or ToolContext()
        return read_json(bytes(function(context, pattern, **options).envelope.data))

    return run


def fill(place: pathlib.Path, *paths: str, age_s: float = 10 * RECENT_S) -> None:
    """Write files that are old enough not to count as recent."""
    for path in paths:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text("x")
        os.utime(place / path, (NOW - age_s, NOW - age_s))


def test_files_are_found_in_order(place: pathlib.Path, glob: Glob) -> None:
    """The result is S3's: paths by line, and their count. Directories are not files."""
    fill(place, "src/b.py", "src/a.py", "src/deep/c.py", "src/x.txt")
    (place / "folder.py").mkdir()
    assert glob("**/*.py") == {"output": "src/a.py\nsrc/b.py\nsrc/deep/c.py", "count": 3}
    assert glob("*.py", path="src") == {"output": "src/a.py\nsrc/b.py", "count": 2}
    assert glob("src/*.{py,txt}") == {"output": "src/a.py\nsrc/b.py\nsrc/x.txt", "count": 3}
    assert glob("*.none") == {"output": "", "count": 0}


def test_what_changed_today_comes_first(place: pathlib.Path, glob: Glob) -> None:
    """Files of the last 24 hours are listed before the others, each group by path."""
    fill(place, "a", "c")
    fill(place, "d", "b", age_s=RECENT_S - 1)
    assert glob("*")["output"] == "b\nd\na\nc"


def test_gitignore_is_respected_also_outside_git(place: pathlib.Path, glob: Glob) -> None:
    """Nested files count, also those above the directory that is searched."""
    fill(place, "a.log", "keep.txt", "build/x", "sub/a.log", "sub/keep.log", "sub/tmp/y", "sub/z")
    (place / ".gitignore").write_text("*.log\nbuild/\n")
    (place / "sub" / ".gitignore").write_text("!keep.log\n/tmp\n")
    assert glob("**")["output"] == "keep.txt\nsub/keep.log\nsub/z"
    assert glob("**", path="sub")["output"] == "sub/keep.log\nsub/z"


def test_a_hostile_gitignore_is_only_a_file(place: pathlib.Path, glob: Glob) -> None:
    """A link outwards, a directory, a FIFO or broken bytes in its place ignore nothing and hang nothing."""
    fill(place, "a/x", "b/x", "c/x", "d/x")
    (place.parent / "rules").write_text("x\n")
    (place / "a" / ".gitignore").symlink_to("../../rules")
    (place / "b" / ".gitignore").mkdir()
    os.mkfifo(place / "c" / ".gitignore")
    (place / "d" / ".gitignore").write_bytes(b"\xff\xfe\n[\n\\\n")
    assert glob("*/x")["output"] == "a/x\nb/x\nc/x\nd/x"


def test_hidden_names_must_be_asked_for(place: pathlib.Path, glob: Glob) -> None:
    """Dotted names appear with hidden or with a dotted pattern; git's own and Treadle's directories never."""
    fill(place, ".config", ".hid/a", ".git/a", ".treadle/a", "b")
    assert glob("**")["output"] == "b"
    assert glob("**", hidden=True)["output"] == ".config\n.hid/a\nb"
    assert glob(".*")["output"] == ".config"
    assert glob(".git/*", hidden=True)["output"] == ""


def test_links_are_listed_when_they_lead_inside_and_never_walked(place: pathlib.Path, glob: Glob) -> None:
    """Links outwards, to nowhere, to directories and loops are left out."""
    (place.parent / "outside").mkdir()
    (place.parent / "outside" / "secret").write_text("x")
    fill(place, "real/file")
    (place / "good").symlink_to("real/file")
    (place / "out").symlink_to("../outside/secret")
    (place / "outfolder").symlink_to("../outside")
    (place / "absolute").symlink_to("/etc/passwd")
    (place / "broken").symlink_to("nowhere")
    (place / "loop").symlink_to(".")
    os.mkfifo(place / "fifo")
    assert sorted(glob("**")["output"].split("\n")) == ["good", "real/file"]


def test_a_base_through_a_link_is_named_by_where_it_is(place: pathlib.Path, glob: Glob) -> None:
    """Paths in the result can be read back as they are."""
    fill(place, "real/file")
    (place / "link").symlink_to("real")
    assert glob("*", path="link") == {"output": "real/file", "count": 1}
    assert glob("*", path=str(place / "real")) == {"output": "real/file", "count": 1}


@pytest.mark.parametrize(
    ("pattern", "path", "code"),
    [
        ("*", "..", "outside_root"),
        ("*", "/etc", "outside_root"),
        ("*", "none", "not_found"),
        ("*", "file", "not_a_directory"),
        ("*", "a\0b", "invalid_path"),
        ("*", ".treadle", "masked"),
        ("../*", ".", "invalid_pattern"),
        ("/etc/*", ".", "invalid_pattern"),
        ("a[", ".", "invalid_pattern"),
        ("{a,b}" * 20, ".", "invalid_pattern"),
    ],
)
def test_wrong_arguments_are_refused_in_words(
    place: pathlib.Path, glob: Glob, pattern: str, path: str, code: str
) -> None:
    """Each has its code."""
    fill(place, "file", ".treadle/x")
    with pytest.raises(ToolError) as caught:
        glob(pattern, path=path)
    assert caught.value.info.code == code


def test_the_limit_says_how_to_see_more(place: pathlib.Path, glob: Glob) -> None:
    """A cut list names the arguments that show the rest."""
    fill(place, *(f"f{each:02}" for each in range(12)))
    assert glob("*", limit=2) == {"output": "f00\nf01", "count": 12, "truncated": True, "next": {"limit": 12}}
    assert glob("*", limit=12)["count"] == 12
    assert "truncated" not in glob("*", limit=12)


def test_the_result_fits_into_the_output_cap(place: pathlib.Path, glob: Glob) -> None:
    """What the model may read at most holds for the JSON as a whole, so it is never cut in the middle."""
    fill(place, *(f"{each:03}" + "é" * 50 for each in range(50)))
    result = glob("*", context=ToolContext(output_bytes_max=1_000))
    assert result["truncated"] is True
    assert (result["count"], len(result["output"].split("\n"))) == (50, 7)


def test_odd_names_stay_on_their_line_and_are_valid(place: pathlib.Path, glob: Glob) -> None:
    """A line break in a name cannot forge a path, and bytes that are no UTF-8 are shown as such."""
    fill(place, "a\nb", "c\x1bd", "tab\tx")
    (pathlib.Path(os.fsdecode(bytes(place) + b"/\xff\xfe"))).write_text("x")
    assert sorted(glob("*")["output"].split("\n")) == sorted(["a\\nb", "c\\x1bd", "tab\\tx", "\ufffd\ufffd"])


def test_a_walk_stops_when_nobody_waits(place: pathlib.Path, glob: Glob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many files are walked only as long as somebody wants the result; what was found is returned as partial."""
    monkeypatch.setattr("treadle.tools.local.directory_walk.CHECK_EVERY", 10)
    fill(place, *(f"f{each}" for each in range(100)))
    context = ToolContext()
    context.cancel()
    result = glob("**", context=context)
    assert result["count"] == 9
    assert (result["truncated"], result["code"]) == (True, "stopped_early")


def test_a_walk_stops_at_its_deadline(place: pathlib.Path, glob: Glob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is bounded without anybody's help."""
    monkeypatch.setattr("treadle.tools.local.directory_walk.CHECK_EVERY", 1)
    monkeypatch.setattr("treadle.tools.local.glob_tool.DEADLINE_S", -1.0)
    fill(place, "a")
    assert glob("**") == {"output": "", "count": 0, "truncated": True, "code": "stopped_early"}


def test_the_number_of_matches_in_memory_is_bounded(
    place: pathlib.Path, glob: Glob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk over everything does not collect without end."""
    monkeypatch.setattr("treadle.tools.local.directory_walk.MATCHES_MAX", 5)
    fill(place, *(f"f{each}" for each in range(20)))
    result = glob("**")
    assert (result["truncated"], result["code"]) == (True, "stopped_early")
    assert result["count"] == 5


def test_a_wide_tree_is_walked_to_its_end(place: pathlib.Path, glob: Glob) -> None:
    """Thousands of files in nested directories are well within the deadline, and only the limit is shown."""
    for folder in range(22):
        fill(place, *(f"d{folder}/e/f{each}.py" for each in range(100)))
    result = glob("**/*.py", limit=50)
    assert (result["count"], result["next"]) == (2200, {"limit": 2000})
    assert "code" not in result


def test_deep_directories_are_walked_without_recursion(place: pathlib.Path, glob: Glob) -> None:
    """Depth is bounded by the length of a path, not by the stack."""
    deep = place
    for _ in range(200):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "end").write_text("x")
    assert glob("**/end")["count"] == 1


def test_summaries_count_files(place: pathlib.Path) -> None:
    """S3's words for a person."""
    function = make_glob(Root(place), lambda: NOW)
    assert function(ToolContext(), "*").summary == "0 files found"
    fill(place, "a")
    assert function(ToolContext(), "*").summary == "1 file found"
    fill(place, "b", "c")
    assert function(ToolContext(), "*").summary == "3 files found"
