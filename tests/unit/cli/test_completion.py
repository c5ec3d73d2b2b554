"""Shell completion: scripts that the shells accept and that know every command."""

import shutil
import subprocess

import pytest

from treadle.cli.main import COMMANDS, main


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the script for a shell."""
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_completed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table of commands is what the scripts are made from."""
    text = script(shell, capsys)
    assert all(entry.name in text for entry in COMMANDS)
    assert "allow-remote" in text


def test_bash_completes_commands_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """In a real bash: the first word is a command, later ones are its flags."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    probe = (
        'COMP_WORDS=(treadle ser); COMP_CWORD=1; _treadle; echo "${COMPREPLY[@]}"; '
        'COMP_WORDS=(treadle run --out); COMP_CWORD=2; _treadle; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", script("bash", capsys) + probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["serve", "--output"]
