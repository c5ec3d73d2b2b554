import asyncio
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from treadle.core.errors import NotFound, ToolError, ToolFailed
from treadle.core.json import read_json
from treadle.tools import ToolContext
from treadle.tools.local import bash_tool as bash_module
from treadle.tools.local.bash_tool import CommandOutput, make_bash
from treadle.tools.local.output_read import OutputStore, make_output_read
from treadle.tools.local.result_limits import DEFAULT_CAPS, LocalCaps
from treadle.tools.local.safe_open import Root
from treadle.tools.result_rendering import write_text
from treadle.tools.sandbox import CommandSandbox, FoundLevel, SandboxRules, can_read_only, find_level

CONTEXT = ToolContext(run_id="run_1", session_id="sess_1")


class Shell:
    """The shell tool and the one that pages its outputs, over a shelf in memory."""

    def __init__(self, place: pathlib.Path, sandbox: CommandSandbox) -> None:
        self.kept: dict[str, bytes] = {}
        self.sandbox = sandbox
        self.shelf = shelf = OutputStore(self._put, self._get)
        self._bash, self._read = make_bash(Root(place), sandbox, shelf), make_output_read(shelf)

    async def run(self, command: str, context: ToolContext = CONTEXT, **options: Any) -> dict[str, Any]:
        return read_json(write_text(await self._bash(context, command, **options), "s3"))

    async def read(self, handle: str, **options: Any) -> dict[str, Any]:
        context = options.pop("context", CONTEXT)
        return read_json(write_text(await self._read(context, handle, **options), "s3"))

    async def _put(self, data: bytes, run_id: str) -> str:
        assert run_id == "run_1"
        handle = hashlib.sha256(data).hexdigest()
        self.kept[handle] = data
        return handle

    async def _get(self, piece: tuple[str, int, int], run_id: str) -> bytes:
        handle, offset, length = piece
        if handle not in self.kept or run_id != "run_1":
            raise NotFound("no")
        return self.kept[handle][offset : offset + length]


@pytest.fixture
async def shell(tmp_path: pathlib.Path) -> AsyncIterator[Shell]:
    """A shell at the best level of this machine."""
    sandbox = CommandSandbox()
    yield Shell(tmp_path, sandbox)
    await asyncio.to_thread(sandbox.close)


async def test_a_result_is_that_of_s3_and_names_its_sandbox(shell: Shell) -> None:
    """Output and errors in their order, always an exit code, and how far the command was confined."""
    done = await shell.run("echo one; echo two >&2; echo three; exit 3")
    assert done == {"output": "one\ntwo\nthree\n", "exit_code": 3, "sandbox": shell.sandbox.found.name}


async def test_a_command_starts_where_it_is_told_and_says_where_it_went(tmp_path: pathlib.Path, shell: Shell) -> None:
    """A cd lasts only by the field in the result; outside there is nowhere to start."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    first = await shell.run("cd a/b")
    assert first["cwd"] == "a/b"
    assert (await shell.run("pwd", cwd=first["cwd"]))["output"].strip().endswith("/a/b")
    assert "cwd" not in await shell.run("pwd")
    for cwd, code in (("..", "outside_root"), ("none", "not_found")):
        with pytest.raises(ToolError) as caught:
            await shell.run("pwd", cwd=cwd)
        assert caught.value.info.code == code


async def test_what_a_command_leaves_for_us_to_read_is_not_trusted(shell: Shell) -> None:
    """A pipe or a link in place of the note where it ended neither blocks nor leads anywhere."""
    done = await shell.run('trap - EXIT; rm -f "$TREADLE_CWD"; mkfifo "$TREADLE_CWD"; echo made')
    assert (done["output"], done.get("cwd")) == ("made\n", None)
    done = await shell.run('trap - EXIT; rm -f "$TREADLE_CWD"; ln -s /etc/passwd "$TREADLE_CWD"')
    assert done.get("cwd") is None


async def test_a_command_that_takes_too_long_is_ended(shell: Shell) -> None:
    """What it wrote is shown beside the error; the exit code is 124."""
    done = await shell.run("echo begun; sleep 30", timeout_s=0.5)
    assert (done["code"], done["exit_code"], done["output"]) == ("timeout", 124, "begun\n")
    assert done["error"] == "The command did not finish within 0.5 s and was ended."


async def test_long_output_is_cut_in_the_middle_and_can_be_read_on(shell: Shell) -> None:
    """Head and tail are shown; the handle leads to the whole, page by page."""
    done = await shell.run("seq 1 30000")
    whole = "".join(f"{number}\n" for number in range(1, 30001))
    assert done["truncated"] is True
    assert done["output"].startswith("1\n2\n")
    assert done["output"].endswith("29999\n30000\n")
    assert len(done["output"].encode()) < DEFAULT_CAPS.bash_bytes_max + 300
    handle = done["next"]["handle"]
    assert (await shell.read(handle, offset=done["next"]["offset"], length=64))["output"] == whole[8_192:8_256]
    assert f'output_read with handle "{handle}"' in done["output"]
    text, offset = "", 0
    while True:
        page = await shell.read(handle, offset=offset, length=20_000)
        text += page["output"]
        if "next" not in page:
            break
        offset = page["next"]["offset"]
    assert text == whole


async def test_endless_output_ends_the_command(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the machine is full."""
    monkeypatch.setattr(bash_module, "READ_BYTES_MAX", 1_000_000)
    done = await shell.run("yes")
    assert done["code"] == "output_limit"
    assert done["truncated"] is True


async def test_a_network_is_only_there_where_it_was_allowed(shell: Shell) -> None:
    """Asking for one elsewhere says who can allow it."""
    with pytest.raises(ToolError, match=r"tools\.local\.network") as caught:
        await shell.run("true", network=True)
    assert caught.value.info.code == "network_off"


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_command_that_misses_a_network_is_told_how_to_get_one(
    tmp_path: pathlib.Path, read_only: bool, is_allowed: bool
) -> None:
    """Whatever it looked for: the model asks for a network, or tells the user that there is none."""
    sandbox = CommandSandbox(SandboxRules(network=is_allowed))
    if not can_read_only(sandbox.found):
        pytest.skip("nothing keeps a command from a network here")
    shell = Shell(tmp_path, sandbox)
    lookup = "python3 -c \"import socket; socket.getaddrinfo('example.com', 443)\""
    for command in (lookup, "cat < /dev/tcp/192.0.2.1/80"):
        done = await shell.run(command, read_only=read_only)
        assert done["exit_code"] != 0
        warning = done["warnings"][-1]
        assert ('"network": true' in warning, "tools.local.network" in warning) == (is_allowed, not is_allowed), done
    quiet = await shell.run("echo getaddrinfo", read_only=read_only)
    assert "warnings" not in quiet
    await asyncio.to_thread(sandbox.close)


async def test_sessions_have_scratch_space_of_their_own(shell: Shell) -> None:
    """What one keeps there lasts for itself and is not seen by others."""
    await shell.run('echo mine > "$TMPDIR/note"; echo kept > ~/kept')
    assert (await shell.run('cat "$TMPDIR/note" ~/kept'))["output"] == "mine\nkept\n"
    other = ToolContext(run_id="run_1", session_id="sess_2")
    assert (await shell.run('cat "$TMPDIR/note"', context=other))["exit_code"] == 1


async def test_commands_run_beside_each_other(shell: Shell) -> None:
    """One helper serves them all, and each gets its own output."""
    done = await asyncio.gather(*(shell.run(f"sleep 0.1; echo {number}") for number in range(5)))
    assert [each["output"] for each in done] == [f"{number}\n" for number in range(5)]


async def test_pages_end_on_characters(shell: Shell) -> None:
    """A character is never cut, also where the answer has little room; past the end is an error."""
    handle = await shell._put(("é漢🌦" * 50).encode(), "run_1")
    text, offset = "", 0
    while True:
        narrow = ToolContext(run_id="run_1", output_bytes_max=200)
        page = await shell.read(handle, offset=offset, length=16, context=narrow)
        assert "�" not in page["output"]
        text += page["output"]
        if "next" not in page:
            break
        offset = page["next"]["offset"]
    assert text == "é漢🌦" * 50
    stranger = {"context": ToolContext(run_id="run_2")}
    for options, code in (
        ({"offset": 10_000}, "past_end"),
        ({"handle": "0" * 64}, "not_found"),
        (stranger, "not_found"),
    ):
        with pytest.raises(ToolError) as caught:
            await shell.read(**{"handle": handle, **options})
        assert caught.value.info.code == code


def test_what_is_shown_fits_whatever_it_takes_to_write_it() -> None:
    """Control characters grow sixfold in JSON; the cut follows."""
    written = CommandOutput()
    written.take(b"\x1b" * 40_000)
    shown = written.shown(5_000, None)
    assert (shown.missing_from is not None, shown.replaced) == (True, 0)
    assert 1_000 < len(shown.text) * 6 < 6_000


@pytest.mark.parametrize("bytes_max", [256, 300, 400, 1_000])
@pytest.mark.parametrize("command", ["seq 1 30000", "echo short", "printf '\\001%.0s' {1..500}; exit 7"])
async def test_a_result_fits_into_the_smallest_cap(shell: Shell, command: str, bytes_max: int) -> None:
    """It stays JSON with its exit code, shows what fits, and says that there is more."""
    context = ToolContext(run_id="run_1", session_id="sess_1", output_bytes_max=bytes_max)
    answer = await shell._bash(context, command)
    text = write_text(answer, "s3")
    done = read_json(text)
    assert len(text.encode()) <= bytes_max
    assert done["exit_code"] == (7 if "exit 7" in command else 0)
    assert done.get("truncated", False) is (command != "echo short")
    assert answer.is_cut is done.get("truncated", False)


async def test_the_cap_can_be_raised(tmp_path: pathlib.Path) -> None:
    """A command shows as much as is configured."""
    sandbox = CommandSandbox()
    try:
        run = make_bash(Root(tmp_path), sandbox, OutputStore(), LocalCaps(bash_bytes_max=300_000))
        answer = await run(ToolContext(output_bytes_max=400_000), "seq 1 30000")
        assert read_json(write_text(answer, "s3"))["output"] == "".join(f"{each}\n" for each in range(1, 30001))
    finally:
        await asyncio.to_thread(sandbox.close)


async def test_bytes_that_are_no_utf_8_are_said(shell: Shell) -> None:
    """They are shown as a sign, and a warning counts them."""
    done = await shell.run(r"printf 'caf\xe9 \xff\n'")
    assert (done["output"], done["warnings"]) == (
        "caf\ufffd \ufffd\n",
        ["Not valid UTF-8: bytes that could not be decoded were replaced by U+FFFD, 2 times."],
    )


async def test_offsets_hold_where_bytes_were_replaced(shell: Shell) -> None:
    """The offset that a cut names is that of the text that is kept."""
    done = await shell.run(r"for i in {1..9000}; do printf '\xff%04d\n' $i; done")
    offset = int(re.search(r"offset (\d+) shows", done["output"])[1])  # type: ignore[index]
    head = done["output"].split("\n[")[0]
    page = await shell.read(done["next"]["handle"], offset=offset, length=64)
    last = int(head[-4:]) if head[-4:].isdigit() else None
    assert len(head.encode()) == offset
    assert last is None or f"{last + 1:04d}" in page["output"]


async def test_the_end_of_what_is_kept_says_that_there_was_more(tmp_path: pathlib.Path, shell: Shell) -> None:
    """Whoever reads a kept output to its end learns that it is not the end of what was written."""
    shell._bash = make_bash(Root(tmp_path), shell.sandbox, shell.shelf, LocalCaps(kept_bytes_max=50_000))
    done = await shell.run("seq 1 30000")
    assert "as far as the first 50000 bytes go]" in done["output"]
    page = await shell.read(done["next"]["handle"], offset=49_990, length=400)
    assert page["output"].endswith("[118894 more bytes were not kept]")


async def test_without_a_shelf_the_rest_is_only_counted(tmp_path: pathlib.Path) -> None:
    """No handle is named that leads nowhere."""
    sandbox = CommandSandbox()
    try:
        answer = await make_bash(Root(tmp_path), sandbox, OutputStore())(CONTEXT, "seq 1 30000")
        done = read_json(write_text(answer, "s3"))
        assert "next" not in done
        assert "bytes left out]" in done["output"]
    finally:
        await asyncio.to_thread(sandbox.close)


needs_confinement = pytest.mark.skipif(not can_read_only(find_level()), reason="nothing keeps a command from writing")


@needs_confinement
async def test_a_command_that_runs_read_only_reads_everything_and_writes_nothing(
    tmp_path: pathlib.Path, shell: Shell
) -> None:
    """The result says so, and where something was refused also how to ask for more."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("text")
    done = await shell.run("cd a && cat file", read_only=True)
    level = shell.sandbox.found.name
    assert done == {"output": "text", "exit_code": 0, "cwd": "a", "sandbox": level, "read_only": True}
    refused = await shell.run("echo x > made", read_only=True)
    assert (refused["exit_code"], refused["read_only"]) == (1, True)
    assert '"read_only": false' in refused["warnings"][0]
    assert not (tmp_path / "made").exists()
    assert "read_only" not in await shell.run("echo x > made", read_only=False)
    assert (tmp_path / "made").exists()


@needs_confinement
async def test_the_scratch_space_of_a_read_only_command_is_its_own_and_goes_with_it(shell: Shell) -> None:
    """Programs that need a temporary file work; nothing of it is there afterwards, also what cannot be listed."""
    closed = 'mkdir -p "$TMPDIR/a/b" && (umask 777; mkdir "$TMPDIR/a/closed")'
    script = closed + '; echo kept > "$HOME/x"; cat "$HOME/x"; echo $HOME'
    kept, home = (await shell.run(script, read_only=True))["output"].split()[-2:]
    assert kept == "kept"
    assert not pathlib.Path(home).parent.exists()
    assert "No such file" in (await shell.run('cat "$HOME/x"', read_only=True))["output"]


@needs_confinement
async def test_a_network_that_is_allowed_is_not_for_what_runs_read_only(tmp_path: pathlib.Path) -> None:
    """Neither when it asks for one nor when it takes one."""
    sandbox = CommandSandbox(SandboxRules(network=True))
    shell = Shell(tmp_path, sandbox)
    with pytest.raises(ToolError, match="no network"):
        await shell.run("ls", read_only=True, network=True)
    done = await shell.run("exec 3<>/dev/tcp/127.0.0.1/9 || echo refused", read_only=True)
    assert "Operation not permitted" in done["output"] or "Permission denied" in done["output"]
    await asyncio.to_thread(sandbox.close)


@pytest.mark.parametrize("command", ["ls", "touch made"])
async def test_a_machine_that_cannot_keep_a_command_from_writing_does_not_run_it_read_only(
    tmp_path: pathlib.Path, command: str
) -> None:
    """A decision that was made elsewhere is held to, or not carried out."""
    sandbox = CommandSandbox(found=FoundLevel(level=0))
    shell = Shell(tmp_path, sandbox)
    with pytest.raises(ToolFailed, match="Nothing on this machine keeps a command from writing"):
        await shell.run(command, read_only=True)
    assert not (tmp_path / "made").exists()
    await asyncio.to_thread(sandbox.close)


@needs_confinement
@pytest.mark.parametrize("level", [1, 2, 3])
async def test_a_read_only_command_reads_no_secret_of_the_folder_at_any_level(
    tmp_path: pathlib.Path, level: int
) -> None:
    """Everything beside them is readable; a link that leads out of the folder opens nothing."""
    found = find_level()
    if level > found.level:
        pytest.skip(f"L{level} is not to be had here")
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a" / "b").mkdir(parents=True)
    (root / ".ssh").mkdir()
    outside.mkdir()
    for name in (".env", "a/b/.env", ".ssh/id_rsa"):
        (root / name).write_text("a-secret")
    (root / "a" / "b" / "file").write_text("text")
    (outside / "kept").write_text("a-secret")
    (root / "out").symlink_to(outside)
    (root / "a" / "out").symlink_to(outside / "kept")
    sandbox = CommandSandbox(found=msgspec.structs.replace(found, level=level))
    done = await Shell(root, sandbox).run(
        "cat .env a/b/.env .ssh/id_rsa out/kept a/out; cd a/b && cat file ../../a/b/file; ls", read_only=True
    )
    assert "a-secret" not in done["output"]
    assert done["output"].endswith("texttextfile\n")
    await asyncio.to_thread(sandbox.close)


@needs_confinement
@pytest.mark.parametrize("level", [1, 2, 3])
async def test_no_other_folder_opens_a_secret_to_a_read_only_command(tmp_path: pathlib.Path, level: int) -> None:
    """Neither the folder of a program on PATH nor one that the settings name, above the workspace or in it."""
    found = find_level()
    if level > found.level:
        pytest.skip(f"L{level} is not to be had here")
    root = tmp_path / "home" / "root"
    for folder in ("bin", "data"):
        (root / folder).mkdir(parents=True)
        (root / folder / ".env").write_text("a-secret")
        (root / folder / "file").write_text("text")
    (root / ".env").write_text("a-secret")
    reads = (str(tmp_path / "home"), str(root / "data"))
    environ = {"PATH": f"{root}/bin:/usr/bin:/bin"}
    for rules in (SandboxRules(), SandboxRules(read=reads), SandboxRules(write=reads)):
        sandbox = CommandSandbox(rules, found=msgspec.structs.replace(found, level=level), environ=environ)
        done = await Shell(root, sandbox).run("cat .env */.env */file", read_only=True)
        assert done["output"].endswith("texttext")
        assert "a-secret" not in done["output"]
        await asyncio.to_thread(sandbox.close)


@needs_confinement
async def test_what_was_not_searched_for_secrets_is_closed_to_a_read_only_command(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is bounded; in folders beyond it nothing is known to be harmless."""
    monkeypatch.setattr(bash_module, "MASK_SEARCH_MAX", 50)
    for number in range(60):
        (tmp_path / f"file{number}").touch()
    for path in (tmp_path / ".env", tmp_path / "deep" / ".env"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("a-secret")
    for level in range(1, find_level().level + 1):
        sandbox = CommandSandbox(found=msgspec.structs.replace(find_level(), level=level))
        done = await Shell(tmp_path, sandbox).run("cat .env deep/.env; ls", read_only=True)
        assert "file59" in done["output"]
        assert "a-secret" not in done["output"]
        await asyncio.to_thread(sandbox.close)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")
async def test_a_git_write_is_asked_for(tmp_path: pathlib.Path, shell: Shell) -> None:
    """Without it the result says how; with it the repository is written, and what else was made is moved and told."""
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(tmp_path)], check=True, timeout=30)
    who = "git -c user.name=a -c user.email=a@b"
    commit = f"echo x > f && {who} add f && {who} commit -qm first"
    refused = await shell.run(commit)
    if shell.sandbox.found.level > 2:
        assert refused["exit_code"] != 0
        assert [each for each in refused["warnings"] if "git=true" in each]
    done = await shell.run(f"{commit}; git init -q made; echo x > AGENTS.md; git log --format=%s", git=True)
    assert "first" in done["output"]
    assert "made/.git is protected and was moved to .git.blocked" in done["warnings"]
    assert sorted(os.listdir(tmp_path)) in ([".git", "f", "made"], [".git", "AGENTS.md.blocked", "f", "made"])


async def test_protected_paths_are_named(tmp_path: pathlib.Path, shell: Shell) -> None:
    """Those that a person allowed are written; a path outside is none."""
    await shell.run("echo x > AGENTS.md; mkdir .vscode && echo x > .vscode/a", protected=["./AGENTS.md", ".vscode/"])
    assert sorted(os.listdir(tmp_path)) == [".vscode", "AGENTS.md"]
    with pytest.raises(ToolError) as caught:
        await shell.run("true", protected=["../AGENTS.md"])
    assert caught.value.info.code == "outside_root"
