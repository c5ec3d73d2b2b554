"""Shell completion: scripts that the shells accept and that know every command."""

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from treadle.cli.commands.completion_command import SHELLS
from treadle.cli.main import COMMANDS, main

BOUND_S = 30.0


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the script for a shell."""
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_completed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table of commands is what the scripts are made from."""
    text = script(shell, capsys)
    assert all(entry.name in text for entry in COMMANDS)
    assert "allow-remote" in text


PROBES = {
    "treadle ser": "serve",
    "treadle run --out": "--output",
    "treadle run --output j": "json jsonl",
    "treadle run --output = te": "text",
    "treadle keys cr": "create",
    "treadle keys create --ro": "--role",
    "treadle keys create ci --role op": "operator",
    "treadle --config x.toml st": "store",
    "treadle --config store ke": "keys",
    "treadle --config = store keys cr": "create",
    "treadle store ba": "backup",
    "treadle run -m serve --ti": "--timeout",
    "treadle eval comp": "compare",
    "treadle completion f": "fish",
    "treadle tools sh": "show",
    "treadle run --schema": "--schema",
    "treadle run --schema x": "",
    "treadle nonsense --": "--help --config --version",
}


def bash() -> str:
    """Return where bash is."""
    found = shutil.which("bash")
    if found is None:
        pytest.skip("no bash here")
    return found


def completed(lines: Iterable[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what a real bash offers for each line."""
    shown = '_treadle; echo "${COMPREPLY[*]}"'
    calls = [f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); {shown}\n" for line in lines]
    program = script("bash", capsys) + "".join(calls)
    done = subprocess.run(
        [bash(), "-eu", "-c", program], cwd=folder, capture_output=True, text=True, check=True, timeout=BOUND_S
    )
    return done.stdout.splitlines()


def test_bash_completes_commands_and_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a real bash: commands, actions, flags, and what a flag takes; a value is not mistaken for a command."""
    assert dict(zip(PROBES, completed(PROBES, tmp_path, capsys), strict=True)) == PROBES


def test_bash_completes_files_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where an argument is a file, files are offered; for a folder only folders; for `eval` its actions and files."""
    (tmp_path / "common").mkdir()
    (tmp_path / "comment.json").touch()
    probes = {
        "treadle run --schema com": "comment.json common",
        "treadle --config com": "comment.json common",
        "treadle eval com": "comment.json common compare",
        "treadle serve --record com": "common",
    }
    found = [" ".join(sorted(line.split())) for line in completed(probes, tmp_path, capsys)]
    assert dict(zip(probes, found, strict=True)) == probes


def test_the_tab_key_completes_in_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bash itself asks the script, as it does at a prompt."""
    (tmp_path / "treadle.bash").write_text(script("bash", capsys), encoding="utf-8")
    shell = bash()
    pid, screen = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(shell, [shell, "--norc", "--noprofile", "-i"], {"TERM": "dumb", "INPUTRC": "/dev/null", "PS1": "> "})
    try:
        _type(screen, "source ./treadle.bash\n", "source ./treadle.bash")
        _type(screen, "treadle appr\t", "treadle approvals ")
        _type(screen, "rul\t", "treadle approvals rules ")
        _type(screen, "--js\t", "treadle approvals rules --json ")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(screen)


def _type(screen: int, keys: str, expected: str) -> None:
    """Type, and wait until the line stands there."""
    os.write(screen, keys.encode())
    seen, limit = "", time.monotonic() + BOUND_S
    while not seen.endswith(expected.split()[-1] + " ") and expected not in seen:
        ready, _, _ = select.select([screen], [], [], max(0.0, limit - time.monotonic()))
        assert ready, f"{expected!r} never came: {seen!r}"
        seen += os.read(screen, 4_096).decode()


@pytest.mark.parametrize(
    ("shell", "arguments"),
    [("zsh", ("-n",)), ("fish", ("--no-execute",)), ("bash", ("-n",))],
)
def test_a_shell_that_is_here_accepts_its_script(
    shell: str, arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It reads the whole script without a complaint."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here")
    (tmp_path / "script").write_text(script(shell, capsys), encoding="utf-8")
    done = subprocess.run(
        [found, *arguments, str(tmp_path / "script")], capture_output=True, text=True, check=False, timeout=BOUND_S
    )
    assert (done.returncode, done.stderr) == (0, "")
