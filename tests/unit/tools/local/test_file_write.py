import os
import pathlib
import stat
from typing import Any

import pytest

from treadle.core.errors import ToolError
from treadle.core.json import read_json
from treadle.tools import ToolContext
from treadle.tools.local.file_read import make_file_read
from treadle.tools.local.file_write import HASHED_BYTES_MAX, SeenFiles, digest, make_file_edit, make_file_write
from treadle.tools.local.safe_open import Root
from treadle.tools.result_rendering import ToolAnswer, write_text

SESSION = ToolContext(run_id="run_1", session_id="sess_1")


class Tools:
    """The three tools that know of each other, on one root."""

    def __init__(self, place: pathlib.Path) -> None:
        root, seen = Root(place), SeenFiles()
        self._read, self._write = make_file_read(root, seen), make_file_write(root, seen)
        self._edit = make_file_edit(root, seen)

    def read(self, path: str, context: ToolContext = SESSION) -> dict[str, Any]:
        return body(self._read(context, path))

    def write(self, path: str, content: str, context: ToolContext = SESSION, **options: Any) -> dict[str, Any]:
        return body(self._write(context, path, content, **options))

    def edit(self, path: str, old: str, new: str, **options: Any) -> dict[str, Any]:
        return body(self._edit(SESSION, path, old, new, **options))


def body(answer: ToolAnswer) -> dict[str, Any]:
    """Return what the model reads."""
    return read_json(write_text(answer, "s3"))


@pytest.fixture
def tools(tmp_path: pathlib.Path) -> Tools:
    """Tools on an empty root."""
    return Tools(tmp_path)


def code_of(error: pytest.ExceptionInfo[ToolError]) -> str:
    """Return the code that stands beside the error."""
    return error.value.info.code


def test_a_new_file_is_written_with_its_folders(tmp_path: pathlib.Path, tools: Tools) -> None:
    """The result is S3's, and a diff."""
    written = tools.write("a/b/c.txt", "one\ntwo\n")
    assert (written["output"], written["bytes"]) == ("Wrote 8 bytes to a/b/c.txt", 8)
    assert (written["added"], written["removed"]) == (2, 0)
    assert written["diff"].splitlines()[-2:] == ["+one", "+two"]
    assert (tmp_path / "a/b/c.txt").read_text() == "one\ntwo\n"
    assert stat.S_IMODE((tmp_path / "a/b/c.txt").stat().st_mode) == 0o644
    assert os.listdir(tmp_path / "a/b") == ["c.txt"]


def test_a_file_that_is_replaced_keeps_its_mode_and_line_ends(tmp_path: pathlib.Path, tools: Tools) -> None:
    """A script stays executable, a file with CRLF stays one."""
    (tmp_path / "run").write_bytes(b"a\r\nb\r\n")
    (tmp_path / "run").chmod(0o750)
    tools.write("run", "a\nc\n")
    assert (tmp_path / "run").read_bytes() == b"a\r\nc\r\n"
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o750


def test_a_file_that_changed_since_it_was_read_is_not_written(tmp_path: pathlib.Path, tools: Tools) -> None:
    """Neither by a write nor by an edit; reading it again makes it possible."""
    (tmp_path / "a").write_text("one")
    tools.read("a")
    (tmp_path / "a").write_text("two, by somebody else")
    for attempt in (lambda: tools.write("a", "x"), lambda: tools.edit("a", "two", "x")):
        with pytest.raises(ToolError, match=r"was changed since it was read: a\. Read it again first") as caught:
            attempt()
        assert code_of(caught) == "changed"
    assert (tmp_path / "a").read_text() == "two, by somebody else"
    tools.read("a")
    assert tools.write("a", "three")["bytes"] == 5
    assert tools.write("a", "four")["bytes"] == 4


def test_a_file_that_is_gone_since_it_was_read_is_not_made_again(tmp_path: pathlib.Path, tools: Tools) -> None:
    """Somebody removed it for a reason."""
    (tmp_path / "a").write_text("one")
    tools.read("a")
    (tmp_path / "a").unlink()
    with pytest.raises(ToolError, match="is gone since it was read"):
        tools.write("a", "x")


def test_sessions_do_not_know_what_others_read(tmp_path: pathlib.Path, tools: Tools) -> None:
    """What one has read binds only itself."""
    (tmp_path / "a").write_text("one")
    tools.read("a")
    (tmp_path / "a").write_text("two")
    assert tools.write("a", "x", context=ToolContext(run_id="run_2", session_id="sess_2"))["bytes"] == 1


def test_an_expected_hash_is_compared(tmp_path: pathlib.Path, tools: Tools) -> None:
    """With the right one a file is written, with another or without a file it is not."""
    (tmp_path / "a").write_text("one")
    with pytest.raises(ToolError, match="expected sha256") as caught:
        tools.write("a", "x", expect_sha256="0" * 64)
    assert code_of(caught) == "changed"
    assert tools.write("a", "x", expect_sha256=digest(b"one").upper())["bytes"] == 1
    with pytest.raises(ToolError, match="expected sha256"):
        tools.write("none", "x", expect_sha256=digest(b""))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../a", "outside_root"),
        ("/etc/treadle-test", "outside_root"),
        (".env", "masked"),
        ("sub/ID_rsa", "masked"),
        (".git/hooks/pre-commit", "read_only"),
        ("sub/.GIT/config", "read_only"),
        *((f"{way}.git{rest}", "read_only") for way in ("", "./", "a/../") for rest in ("", "/", "/./x", "/HEAD")),
        *(
            (f"sub/{name}", "read_only")
            for name in (".gIt", ".git ", ".git.", ".g\u200cit/x", "GIT~1/config", ".git:x")
        ),
        *((f"{name}", "read_only") for name in ("AGENTS.md", "claude.md", "deep/.cursor/rules", ".vscode/tasks.json")),
        *(
            (f"{name}", "read_only")
            for name in (".envrc", ".github/workflows/a.yml", ".npmrc", ".husky/x", ".mcp.json")
        ),
        *((f"{name}", "read_only") for name in (".gitattributes", ".config/fish/config.fish", ".profile", "x/.zshrc")),
        (".treadle/x", "masked"),
        ("treadle.toml", "read_only"),
        (".local/share/treadle/trusted.json", "read_only"),
        (".local/share/Treadle/allowed.json", "read_only"),
        ("a\0b", "invalid_path"),
        ("folder", "not_a_file"),
        ("fifo", "not_a_file"),
        ("..", "invalid_path"),
        ("1/2/3/4/5/6/7/8/9/a", "not_found"),
        ("file/a", "not_found"),
    ],
)
def test_what_may_not_be_written_is_refused(tmp_path: pathlib.Path, tools: Tools, path: str, code: str) -> None:
    """Outside, secrets, what runs later, and what is no file; nothing is left behind."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ToolError) as caught:
        tools.write(path, "x")
    assert code_of(caught) == code
    assert sorted(os.listdir(tmp_path)) in (["fifo", "file", "folder"], ["fifo", "file", "folder", "sub"])


def test_text_that_cannot_be_written_is_refused(tools: Tools) -> None:
    """Too large, or no Unicode."""
    with pytest.raises(ToolError, match="Too large") as caught:
        tools.write("a", "x" * (HASHED_BYTES_MAX + 1))
    assert code_of(caught) == "too_large"
    with pytest.raises(ToolError, match="not valid Unicode"):
        tools.write("a", "\ud800")


def test_an_edit_replaces_what_is_unique(tmp_path: pathlib.Path, tools: Tools) -> None:
    """The rest stays byte for byte."""
    (tmp_path / "a").write_bytes(b"\tone\r\ntwo \xc3\xa9\r\n")
    edited = tools.edit("a", "one\ntwo", "1\n2")
    assert (edited["output"], edited["count"]) == ("Replaced 1 occurrence in a", 1)
    assert (tmp_path / "a").read_bytes() == b"\t1\r\n2 \xc3\xa9\r\n"


def test_an_edit_of_many_places_must_be_meant(tmp_path: pathlib.Path, tools: Tools) -> None:
    """Two occurrences are an error that says so, or all are replaced."""
    (tmp_path / "a").write_text("x x")
    with pytest.raises(ToolError, match="2 times") as caught:
        tools.edit("a", "x", "y")
    assert code_of(caught) == "not_unique"
    assert tools.edit("a", "x", "y", replace_all=True)["count"] == 2
    assert (tmp_path / "a").read_text() == "y y"


def test_only_spaces_at_line_ends_may_differ_and_that_is_said(tmp_path: pathlib.Path, tools: Tools) -> None:
    """Other differences are no match."""
    (tmp_path / "a").write_text("if x:   \n    go()\t\nend\n")
    assert "(spaces at line ends differed)" in tools.edit("a", "if x:\n    go()", "pass")["output"]
    assert (tmp_path / "a").read_text() == "pass\nend\n"
    with pytest.raises(ToolError, match="not in the file") as caught:
        tools.edit("a", " pass", "x")
    assert code_of(caught) == "no_match"


def test_an_edit_needs_a_text_file_and_a_change(tmp_path: pathlib.Path, tools: Tools) -> None:
    """A missing file, bytes, and nothing to change are errors."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    cases = (("none", "a", "b", "not_found"), ("bytes", "a", "b", "not_text"), ("x", "a", "a", "no_change"))
    for path, old, new, code in cases:
        with pytest.raises(ToolError) as caught:
            tools.edit(path, old, new)
        assert code_of(caught) == code


def test_a_person_allows_a_protected_path_by_its_name(tmp_path: pathlib.Path, tools: Tools) -> None:
    """That path and no other, and never where a link leads."""
    tools.write("AGENTS.md", "x", protected=True)
    tools.edit("AGENTS.md", "x", "y", protected=True)
    assert (tmp_path / "AGENTS.md").read_text() == "y"
    tools.write(".github/workflows/a.yml", "x", protected=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "way").symlink_to(".git")
    for options in ({"protected": True}, {}):
        with pytest.raises(ToolError, match="Protected") as caught:
            tools.write("way/config", "x", **options)
        assert code_of(caught) == "read_only"
    with pytest.raises(ToolError, match="may hold secrets"):
        tools.write(".env", "x", protected=True)


def test_the_settings_may_allow_protected_paths(tmp_path: pathlib.Path) -> None:
    """Those that are named, and what lies in them."""
    root = Root(tmp_path, writable=["AGENTS.md", ".github/"])
    write = make_file_write(root, SeenFiles())
    for path in ("AGENTS.md", ".github/workflows/a.yml"):
        write(SESSION, path, "x")
    with pytest.raises(ToolError, match="call again with protected=true"):
        write(SESSION, "CLAUDE.md", "x")


def test_no_repository_is_made_file_by_file(tmp_path: pathlib.Path, tools: Tools) -> None:
    """Whichever of its files comes last, and however the folders are spelled."""
    for order in (("HEAD", "objects/x", "refs/x"), ("refs/x", "HEAD", "objects/x"), ("HEAD", "commondir")):
        place = f"bare{len(os.listdir(tmp_path))}"
        for name in order[:-1]:
            tools.write(f"{place}/{name}", "x")
        with pytest.raises(ToolError, match=f"git takes {place} for a repository"):
            tools.write(f"{place}/{order[-1]}", "x")
    for name in ("objects/x", "refs/x"):
        tools.write(f"done/{name}", "x")
    (tmp_path / "done" / "HEAD").write_text("ref: refs/heads/main")
    with pytest.raises(ToolError, match="git takes done for a repository"):
        tools.write("done/config", "x")


def test_what_the_settings_of_a_repository_name_is_protected(tmp_path: pathlib.Path, tools: Tools) -> None:
    """Included settings, the folder of hooks, and files in commands; nothing that is merely called alike."""
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "sub" / "tools").mkdir()
    (tmp_path / "sub" / "tools" / "clean.py").write_text("x")
    (tmp_path / "sub" / ".git" / "config").write_text(
        '[include]\n path = ../shared\n[core]\n\thooksPath = own\n[filter "x"] clean = python3 "tools/clean.py" %f\n'
        "[user]\n\tname = plain\n"
    )
    (tmp_path / "sub" / "plain").write_text("x")
    for path in ("sub/shared", "sub/own/pre-commit", "sub/tools/clean.py"):
        with pytest.raises(ToolError, match="the settings of the git repository name it"):
            tools.write(path, "x")
    tools.write("sub/plain", "y")
    tools.write("sub/tools/other.py", "y")
