"""What a command leaves in the workspace makes no program of a person run anything, at every level of this machine."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.git_tricks import EVIL, NESTED, PLAIN, TRICKS
from sandbox.stage import LEVELS, Stage, found_at, make_sandbox
from treadle.tools.sandbox import CommandSandbox, FoundLevel, find_level
from treadle.tools.sandbox import git_repositories as git_folders
from treadle.tools.sandbox.helper_messages import CommandOrder
from treadle.tools.sandbox.path_guard import MARK_NS, PathGuard
from treadle.tools.sandbox.protected_paths import PROTECTED
from treadle.tools.sandbox.visible_paths import GIT_WRITE_ENV

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self").exists(), reason="the sandbox is for Linux"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git itself is the judge here"),
]
CLEAN = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LANG": "C"}


@pytest.fixture(scope="module", params=LEVELS, ids=lambda level: f"L{level}")
def sandbox(request: pytest.FixtureRequest) -> Iterator[CommandSandbox]:
    """A sandbox of each level; one that the machine lacks is skipped and named."""
    found = found_at(request.param)
    if found is None:
        pytest.skip(f"L{request.param} is not to be had here: {find_level().missing.get(f'L{request.param}')}")
    box = make_sandbox(found)
    yield box
    box.close()


@pytest.fixture
def stage(tmp_path: Path, sandbox: CommandSandbox) -> Stage:
    """A workspace without a repository."""
    made = Stage(tmp_path, sandbox)
    shutil.rmtree(made.root / ".git")
    return made


def prepare(stage: Stage, setup: str) -> None:
    """Do what a person did before."""
    subprocess.run(["/bin/sh", "-c", setup], cwd=stage.root, env=CLEAN, check=True, capture_output=True, timeout=60)


def ask_git(stage: Stage) -> bool:
    """Ask git, as a person, in every folder that there is; tell whether that ran the canary."""
    for folder in [str(stage.root), *(path for path, _, _ in os.walk(stage.root))]:
        os.chmod(folder, 0o755)
        if ".git/" in f"{folder}/":
            continue
        for words in (["status"], ["diff"], ["log", "-1"]):
            subprocess.run(["git", *words], cwd=folder, env=CLEAN, check=False, capture_output=True, timeout=60)
    return (stage.outside / "canary").exists()


def below(place: Path) -> dict[str, bytes]:
    """Return every path below a folder, with what files hold."""
    found: dict[str, bytes] = {}
    for folder, folders, names in os.walk(place):
        found |= {os.path.relpath(f"{folder}/{name}", place): b"" for name in folders}
        found |= {os.path.relpath(f"{folder}/{name}", place): (Path(folder) / name).read_bytes() for name in names}
    return found


@pytest.mark.parametrize("name", TRICKS)
async def test_git_runs_nothing_that_a_command_left(stage: Stage, name: str) -> None:
    """Whatever the command does to repositories, the git of a person runs nothing afterwards."""
    trick = TRICKS[name]
    prepare(stage, trick.setup)
    written, ended = await stage.play(f"{EVIL}{trick.script}\n}} 2>&1; exit 0")
    assert ended.ending == "exited", (written, ended)
    assert not ask_git(stage), (written, ended.undone)


@pytest.mark.parametrize("name", TRICKS)
async def test_where_nothing_guards_the_trick_works(tmp_path: Path, name: str) -> None:
    """Otherwise the test above could not fail."""
    box = make_sandbox(found_at(0))
    try:
        stage = Stage(tmp_path, box)
        shutil.rmtree(stage.root / ".git")
        prepare(stage, TRICKS[name].setup)
        written, ended = await stage.play(f"{EVIL}{TRICKS[name].script}\n}} 2>&1; exit 0", guard=[])
        assert ended.ending == "exited", written
        assert ask_git(stage), written
    finally:
        await asyncio.to_thread(box.close)


ROWS = [row for row in PROTECTED if row.name != ".git" and "/" not in row.name]


async def test_protected_names_cannot_be_made(stage: Stage) -> None:
    """An absent name stays absent, as file and as folder, and nothing of what held it stays behind."""
    script = "\n".join(f"mkdir {row.name} || echo x > {row.name}" for row in ROWS[::2])
    script += "\n" + "\n".join(f"echo x > {row.name} && echo MADE {row.name}" for row in ROWS[1::2])
    written, ended = await stage.play(f"({script}) 2>&1; mkdir .git; ls -A > listed; exit 0")
    assert ended.ending == "exited", written
    names = {row.name for row in ROWS}
    assert not {path.name for path in stage.root.iterdir()} & {*names, ".git"}
    if stage.sandbox.found.level > 2:
        held = {row.name for row in ROWS if row.is_held}
        assert not [name for name in held if f"MADE {name}\n" in written]
        assert {*held, ".git"} <= set((stage.root / "listed").read_text().split())
        assert not [each for each in ended.undone if each.split()[0] in held]
    else:
        assert ended.undone


async def test_protected_names_cannot_be_changed(stage: Stage) -> None:
    """What is there stays as it was: content, links and whole folders, also behind a link."""
    for row in ROWS:
        (stage.root / row.name).write_text("before")
    for name in (".github", ".vscode", "docs"):
        (stage.root / name).unlink(missing_ok=True)
        (stage.root / name).mkdir()
        (stage.root / name / "kept").write_text("before")
    (stage.root / "CLAUDE.md").unlink()
    (stage.root / "CLAUDE.md").symlink_to("docs/kept")
    before = below(stage.root)
    names = " ".join(row.name for row in ROWS)
    script = (
        f"for name in {names}; do echo x >> $name; ln $name hard-$name; echo x >> hard-$name; done"
        "; echo x > .github/new; echo x >> .vscode/kept; mv .github aside; rm -rf .vscode .envrc"
        "; ln -sf inside CLAUDE.md; echo x > AGENTS.md.2; mv AGENTS.md.2 AGENTS.md; rm -f hard-*; exit 0"
    )
    written, ended = await stage.play(f"({script}) 2>&1")
    after = below(stage.root)
    assert ended.ending == "exited", written
    assert {path: after.get(path) for path in before} == before, (written, ended.undone)
    assert os.readlink(stage.root / "CLAUDE.md") == "docs/kept"


async def test_an_ordinary_command_leaves_the_workspace_as_it_is(stage: Stage) -> None:
    """Nothing is moved, nothing stays behind, also when two commands run at once and one is cancelled."""
    prepare(stage, "git init -q . && echo x > f && git add f && touch AGENTS.md")
    before = below(stage.root)
    first = asyncio.create_task(stage.play("ls -A > $TMPDIR/x; sleep 30"))
    for _ in range(3):
        written, ended = await stage.play("git status --short >/dev/null && cat f")
        assert (written, ended.undone) == ("x\n", [])
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    for _ in range(500):
        if below(stage.root) == before:
            break
        await asyncio.sleep(0.01)
    assert below(stage.root) == before


async def test_repositories_of_a_person_stay_where_they_are(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a command could not be guarded, and those that could not be seen before."""
    prepare(stage, f"{PLAIN} && {NESTED} && mkdir other && git init -q --bare other/bare")
    top = str(stage.root.resolve())
    unable = PathGuard(CommandOrder(argv=[], cwd=top, env={}, write=[top], guard=[top]))
    with monkeypatch.context() as broken:
        broken.setattr(git_folders, "named_by_settings", lambda *_: [][1])
        with pytest.raises(IndexError):
            unable.begin()
    assert unable.end() == []
    hidden = PathGuard(CommandOrder(argv=[], cwd=top, env={}, write=[top], guard=[top]))
    look = git_folders._look

    def closed(folder: str, found: git_folders.FoundRepositories) -> list[str]:
        if folder == f"{top}/other":
            raise PermissionError(folder)
        return look(folder, found)

    with monkeypatch.context() as broken:
        broken.setattr(git_folders, "_look", closed)
        hidden.begin()
    assert hidden.end() == []
    assert (stage.root / ".git" / "HEAD").exists()
    assert (stage.root / "sub" / ".git" / "HEAD").exists()
    assert (stage.root / "other" / "bare" / "HEAD").exists()


async def test_a_name_that_a_killed_process_left_held_goes_with_the_next_command(stage: Stage) -> None:
    """An empty folder with the mark is nobody's own."""
    left = stage.root / ".envrc"
    left.mkdir()
    os.utime(left, ns=(MARK_NS, MARK_NS))
    (stage.root / ".vscode").mkdir()
    await stage.play("true")
    assert (stage.root / ".vscode").is_dir()
    assert left.exists() is (stage.sandbox.found.level < 3)


async def test_what_a_person_allowed_by_name_is_written(stage: Stage) -> None:
    """That path, and nothing beside it."""
    (stage.root / ".github").mkdir()
    (stage.root / ".github" / "other").write_text("before")
    allowed = [f"{stage.root.resolve()}/{name}" for name in ("AGENTS.md", ".github/workflows", "made/.git")]
    script = "echo x > AGENTS.md; mkdir .github/workflows; echo x > .github/workflows/ci; git init -q made"
    written, ended = await stage.play(f"({script}; echo x > CLAUDE.md; echo x >> .github/other) 2>&1", allowed=allowed)
    assert ended.ending == "exited"
    assert (stage.root / "AGENTS.md").read_text() == (stage.root / ".github/workflows/ci").read_text() == "x\n", written
    assert (stage.root / "made" / ".git" / "HEAD").exists()
    assert not (stage.root / "CLAUDE.md").exists()
    assert (stage.root / ".github" / "other").read_text() == "before"


WRITES = (
    "git add f && git -c user.name=a -c user.email=a@b commit -qm second && git tag v1 && git branch other "
    "&& git checkout -q other && echo z > f && git -c user.name=a -c user.email=a@b stash -q && git stash pop -q"
    " && git checkout -q f && git -c user.name=a -c user.email=a@b commit -q --amend && git log --format=%s"
)


async def test_a_git_write_writes_the_repository_and_runs_no_hook(stage: Stage) -> None:
    """Ordinary work on the repository is possible for a command that may; its hooks and settings stay as they are."""
    hook = ".git/hooks/pre-commit"
    prepare(stage, f"{PLAIN} && printf '#!/bin/sh\\ntouch ran\\n' > {hook} && chmod +x {hook}")
    config = (stage.root / ".git" / "config").read_bytes()
    (stage.root / "f").write_text("y")
    order = {"git": True, "more_env": GIT_WRITE_ENV}
    written, ended = await stage.play(WRITES, **order)
    assert (ended.code, written.split(), ended.undone) == (0, ["second", "first"], []), written
    assert not (stage.root / "ran").exists()
    assert (stage.root / ".git" / "config").read_bytes() == config


async def test_without_it_the_repository_is_read_only(stage: Stage) -> None:
    """Where mounts can do that; reading goes on as ever."""
    prepare(stage, PLAIN)
    (stage.root / "f").write_text("y")
    written, ended = await stage.play("git diff --stat | cat && git add f")
    assert "f | 2 +-" in written
    assert (ended.code != 0) is (stage.sandbox.found.level > 2), written


@pytest.mark.parametrize("name", TRICKS)
async def test_a_git_write_leaves_nothing_that_git_runs(stage: Stage, name: str) -> None:
    """Also a command that may write repositories plants nothing in them."""
    trick = TRICKS[name]
    prepare(stage, trick.setup)
    written, ended = await stage.play(f"{EVIL}{trick.script}\n}} 2>&1; exit 0", git=True, more_env=GIT_WRITE_ENV)
    assert ended.ending == "exited", (written, ended)
    assert not ask_git(stage), (written, ended.undone)


ENDINGS = {
    "a signal": "kill -9 $PPID",
    "a signal to its group": "kill -9 -- -$PPID",
    "a signal of threads": 'tgkill = 234 if os.uname().machine == "x86_64" else 131; call(tgkill, pid, pid, 9)',
    "a signal by a descriptor": "call(424, os.open(f'/proc/{pid}', os.O_RDONLY), 9, 0, 0)",
    "a limit": "import resource; resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0))",
    "a file that it owns": (
        "import fcntl, socket, time; a, b = socket.socketpair(); fcntl.fcntl(a, fcntl.F_SETOWN, pid); "
        "fcntl.fcntl(a, 10, 9); fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC); b.send(b'x'); time.sleep(0.2)"
    ),
}
START = "import ctypes, os; call = ctypes.CDLL(None).syscall; pid = int(os.environ['WATCHER']); "


@pytest.mark.parametrize("abi", [1, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("how", ENDINGS)
async def test_what_puts_things_back_is_not_ended_by_the_command(tmp_path: Path, how: str, abi: int) -> None:
    """Also where Landlock lets signals out, and where it never sees what ends a process."""
    best = find_level()
    if best.level < 1 or best.abi < min(abi, 6):
        pytest.skip(f"Landlock {abi} is not to be had here")
    box = make_sandbox(FoundLevel(level=1 if abi < 4 else 2, abi=min(abi, best.abi)))
    stage = Stage(tmp_path, box)
    shutil.rmtree(stage.root / ".git")
    is_shell = ENDINGS[how].startswith("kill ")
    script = ENDINGS[how] if is_shell else '"$PY" -I -S -c "$CODE"'
    root = str(stage.root.resolve())
    stage.env["CODE"] = START + ENDINGS[how]
    line = f"mkdir .git; echo x > .git/HEAD; export WATCHER=$PPID; {script}; sleep 0.2; true"
    _, ended = await stage.play(line, guard=[root])
    box.close()
    assert ended.ending == "exited", ended
    assert not (stage.root / ".git").exists()
