"""Treadle's own git calls: whatever the repository's settings name, nothing of it runs."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.tools.git_command import run_git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")
COMMANDS = (
    ("diff", "HEAD"),
    ("status", "--short"),
    ("ls-files", "--others", "--exclude-standard"),
    ("log", "-1", "-p"),
)


def git(place: Path, *words: str) -> None:
    """Do something as the person who made the repository."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True, timeout=60)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one file that was changed."""
    place = tmp_path / "repository"
    place.mkdir()
    git(place, "init", "-q")
    (place / "a.txt").write_text("one\n")
    git(place, "add", "a.txt")
    git(place, "commit", "-qm", "first")
    (place / "a.txt").write_text("two and more\n")
    (place / ".gitattributes").write_text("*.txt filter=x=y diff=x\n")
    return place


def runs(place: Path, name: str) -> str:
    """Return a command that leaves a file with a name outside."""
    return f"touch {place.parent}/ran-{name}; cat"


async def test_nothing_that_a_repository_names_is_run(repository: Path) -> None:
    """Monitors, hooks, filters of any name, diffs, pagers, in settings of its own, included or of the worktree."""
    hooks = repository / ".git" / "hooks"
    for name in ("post-index-change", "fsmonitor-watchman"):
        (hooks / name).write_text(f"#!/bin/sh\n{runs(repository, name)}\n")
        (hooks / name).chmod(0o755)
    names = ("core.fsmonitor", "core.pager", "pager.diff", "pager.log", "diff.x.textconv", "diff.x.command")
    for name in (*names, "diff.external", "filter.x=y.clean", "filter.x=y.process", "core.sshCommand", "gpg.program"):
        git(repository, "config", name, runs(repository, name.replace(".", "-").replace("=", "-")))
    git(repository, "config", "filter.x=y.required", "true")
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "extensions.worktreeConfig", "true")
    (repository / ".git" / "config.worktree").write_text(
        f'[filter "x=y"]\n\tsmudge = "{runs(repository, "worktree")}"\n'
    )
    (repository / "more").write_text(f'[core]\n\tfsmonitor = "{runs(repository, "included")}"\n')
    git(repository, "config", "include.path", "../more")
    for words in COMMANDS:
        code, out = await run_git(str(repository), *words)
        assert code == 0, out
    assert "+two and more" in (await run_git(str(repository), "diff", "HEAD"))[1]
    assert [name for name in os.listdir(repository.parent) if name.startswith("ran-")] == []
    control = {"cwd": repository, "check": False, "capture_output": True, "timeout": 60}
    await asyncio.to_thread(subprocess.run, ["git", "diff", "HEAD"], **control)
    assert len([name for name in os.listdir(repository.parent) if name.startswith("ran-")]) >= 2


async def test_settings_of_a_submodule_and_of_a_bare_repository_are_not_obeyed(repository: Path) -> None:
    """Neither is one that only looks like a repository taken for one."""
    git(repository.parent, "init", "-q", "lib")
    git(repository.parent / "lib", "commit", "-q", "--allow-empty", "-m", "first")
    git(repository, "submodule", "--quiet", "add", "../lib", "sub")
    git(repository, "commit", "-qam", "second")
    (repository / "sub" / "f").write_text("x")
    git(repository / "sub", "add", "f")
    git(repository / "sub", "config", "core.fsmonitor", runs(repository, "submodule"))
    git(repository.parent, "init", "-q", "--bare", "bare")
    bare = repository.parent / "bare"
    git(bare, "config", "core.bare", "false")
    git(bare, "config", "core.worktree", "..")
    git(bare, "config", "core.fsmonitor", runs(repository, "bare"))
    for words in COMMANDS:
        await run_git(str(repository), *words)
        await run_git(str(bare), *words)
    assert [name for name in os.listdir(repository.parent) if name.startswith("ran-")] == []


async def test_a_program_that_is_not_there_is_said(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git there is no answer, and no exception."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert await run_git(str(repository), "diff") == (127, "git: No such file or directory")
