"""What the settings of a repository name: read as git reads them, however they are spelt."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.tools.sandbox.git_repositories import find, named_by_settings

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")

SPELLINGS = {
    "plain": "[include]\n\tpath = ../named",
    "on the line of the section": "[include] path=../named",
    "in quotes": '[include]\n\tpath = "../named"',
    "in part in quotes": '[include]\n\tpath = .."/na"med',
    "before a comment": "[include]\n\tpath = ../named ; ours",
    "in quotes before a comment": '[include]\n\tpath = "../named" # ours',
    "over two lines": "[include]\n\tpath = ../na\\\nmed",
    "behind a comment that ends in a backslash": "[include]\n\t; ours \\\n\tpath = ../named",
    "in capitals": "[INCLUDE]\n\tPATH = ..//named",
    "on a condition": '[includeIf "gitdir:**"]\n\tpath = ../named',
    "as the folder of hooks": '[core]\n\thooksPath = "named" ; ours',
    "in a command": '[core]\n\tfsmonitor = "./named --quick" # ours',
    "in a command with quotes": '[alias]\n\tx = !\\"./named\\"',
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_what_settings_name_is_found_however_it_is_spelt(tmp_path: Path, spelling: str) -> None:
    """And git agrees that it is named."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=30)
    (tmp_path / "named").touch()
    config = tmp_path / ".git" / "config"
    config.write_text(f"{SPELLINGS[spelling]}\n")
    command = ["git", "config", "--file", str(config), "--list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert "named" in listed
    top = str(tmp_path)
    assert os.path.join(top, "named") in named_by_settings(find([top]), [top])
