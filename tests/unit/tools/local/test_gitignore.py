import pathlib
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.tools.local.gitignore import RULES_MAX, is_ignored, read_ignore


def ignored(text: str, path: str) -> bool:
    """Ask about a path as a walk does: each directory above it first. A trailing slash means a directory."""
    file = read_ignore(text, 0)
    names = path.rstrip("/").split("/")
    for count in range(1, len(names)):
        if is_ignored([file], names[:count], is_folder=True):
            return True
    return is_ignored([file], names, is_folder=path.endswith("/"))


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("*.log", "a.log", True),
        ("*.log", "deep/er/a.log", True),
        ("/a.log", "b/a.log", False),
        ("build/", "build/", True),
        ("build/", "build", False),
        ("build/", "x/build/y", True),
        ("doc/*.txt", "doc/a.txt", True),
        ("doc/*.txt", "doc/x/a.txt", False),
        ("doc/*.txt", "x/doc/a.txt", False),
        ("**/logs", "a/b/logs", True),
        ("logs/**", "logs/a/b", True),
        ("logs/**", "logs/", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/b", True),
        ("a/***/b", "a/x/y/b", True),
        ("a/****/b", "a/b", True),
        ("***/logs", "a/b/logs", True),
        ("logs/***", "logs/a/b", True),
        ("a***/b", "ax/y/b", True),
        ("***", "a/b", True),
        ("*\n!keep", "keep", False),
        ("!keep\n*", "keep", True),
        ("dir/\n!dir/keep", "dir/keep", True),
        ("dir/*\n!dir/keep", "dir/keep", False),
        ("# comment", "# comment", False),
        ("\\# name", "# name", True),
        ("\\!name", "!name", True),
        ("trail   ", "trail", True),
        ("trail\\ ", "trail ", True),
        ("a[", "a[", False),
        ("x\\", "x\\", False),
        ("", "a", False),
        ("!", "!", False),
        ("/", "a", False),
        ("**", "a", True),
        ("a\r\nb", "a", True),
        ("\ufeffa", "a", True),
        (".*", ".env", True),
        ("a**/b", "ab", True),
        ("a***/b", "a/c/b", True),
        ("x/a**/b", "x/aq/b", True),
        ("*a**/b", "ab", False),
        ("a\n!/a**", "a/a", False),
    ],
)
def test_rules_mean_what_they_mean_in_git(text: str, path: str, expected: bool) -> None:
    """Anchors, directories, negation, escapes and comments follow gitignore(5)."""
    assert ignored(text, path) is expected


def test_the_deeper_file_decides() -> None:
    """A nested .gitignore speaks of what is below it, and before those above."""
    top, nested = read_ignore("*.log\n/only_top", 0), read_ignore("!keep.log\n/here", 1)
    files = [top, nested]
    assert is_ignored(files, ["sub", "a.log"], is_folder=False) is True
    assert is_ignored(files, ["sub", "keep.log"], is_folder=False) is False
    assert is_ignored(files, ["sub", "here"], is_folder=False) is True
    assert is_ignored(files, ["sub", "only_top"], is_folder=False) is False


def test_the_number_of_rules_is_bounded() -> None:
    """A huge file is read up to a bound."""
    assert len(read_ignore("a\n" * (RULES_MAX + 10), 0).rules) == RULES_MAX


name = st.text("ab", min_size=1, max_size=2)
line = st.tuples(
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(
        st.one_of(name, st.sampled_from(["*", "**", "***", "****", "a**", "a***", "a*", "?", "[ab]", "[!a]", "*b"])),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["", "/"]),
).map(lambda each: each[0] + each[1] + "/".join(each[2]) + each[3])


@pytest.mark.skipif(shutil.which("git") is None, reason="git itself is the judge here")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(line, min_size=1, max_size=4),
    paths=st.lists(st.lists(name, min_size=1, max_size=4), min_size=1, max_size=6),
)
def test_git_agrees(tmp_path: pathlib.Path, lines: list[str], paths: list[list[str]]) -> None:
    """For any rules and any paths git ignores the same ones."""
    if not (tmp_path / ".git").exists():
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=30)
    text = "\n".join(lines)
    (tmp_path / ".gitignore").write_text(text)
    asked = sorted({"/".join(names) for names in paths})
    answer = subprocess.run(
        ["git", "-C", str(tmp_path), "check-ignore", "--no-index", "--stdin"],
        input="\n".join(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert sorted(path for path in asked if ignored(text, path)) == sorted(answer.stdout.split())
