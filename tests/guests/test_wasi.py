"""The real WASI: only by a grant, only in a process of the guest's own, and never beyond the folders granted."""

import os
import sys
from pathlib import Path

import pytest

from guests.playing import Played, stage
from guests.wat import Wat
from treadle.core.errors import ConfigError
from treadle.wasm.engine.guest_limits import Isolation, SandboxLimits
from treadle.wasm.engine.wasi_grants import Folder, GrantWords, WasiGrant, read_grant

WASI = "wasi_snapshot_preview1"
OPEN = f"""(import "{WASI}" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "{WASI}" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "{WASI}" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))"""
FIRST_FD = 3
CREATE, READ, WRITE = 1, 2, 64
NOSYS, BADF = 52, 8


def opening(path: str, *, flags: int = 0, rights: int = READ) -> str:
    """Return a guest that opens a file of its first folder and prints what is in it, or writes `mark` into it."""
    wat = Wat()
    act = "$read" if rights == READ else "$write"
    body = f"""(local.set $r (call $open (i32.const {FIRST_FD}) (i32.const 1) {wat.text(path)}
      (i32.const {flags}) (i64.const {rights}) (i64.const {rights}) (i32.const 0) (i32.const 64)))
    (if (local.get $r) (then (return (local.get $r))))
    (i32.store (i32.const 0) (i32.const 4096)) (i32.store (i32.const 4) (i32.const 4))
    (local.set $r (call {act} (i32.load (i32.const 64)) (i32.const 0) (i32.const 1) (i32.const 8)))
    (if (local.get $r) (then (return (local.get $r))))
    (i32.store (i32.const 4) (i32.load (i32.const 8)))
    (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))"""
    return wat.build(body, wasi=OPEN, more='(data (i32.const 4096) "mark")')


async def play(wat: str, grant: WasiGrant | None, *, isolation: Isolation = "process", stdin: bytes = b"") -> Played:
    """Run a guest with this grant."""
    async with stage() as opened:
        return await opened.play(wat, wasi=grant, isolation=isolation, stdin=stdin)


def granted(folder: Path, *, is_writable: bool = False) -> WasiGrant:
    """Grant one folder."""
    return WasiGrant(folders=(Folder(host=str(folder), guest="/data", is_writable=is_writable),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder to grant, with a file in it, a secret beside it, and links to the secret."""
    inside = tmp_path / "inside"
    (inside / "deep").mkdir(parents=True)
    (inside / "note").write_text("well")
    (tmp_path / "secret").write_text("s3cr")
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "relative").symlink_to("../secret")
    (inside / "up").symlink_to("..")
    return inside


async def test_a_granted_folder_can_be_read(folder: Path) -> None:
    """The guest opens a file of it by the name it has there, and what it prints is heard."""
    played = await play(opening("note"), granted(folder))
    assert (played.answer, [(said.stream, said.text) for said in played.said]) == (0, [("stdout", "well")])


OUTSIDE = ("../secret", "deep/../../secret", "./../secret", "link", "relative", "up/secret", "up", "/etc/passwd", "//x")


@pytest.mark.parametrize("is_writable", [False, True])
async def test_no_path_leads_out_of_a_folder(folder: Path, is_writable: bool) -> None:
    """Neither `..`, nor a link, nor an absolute path: the guest gets an error number and not one byte."""
    grant = granted(folder, is_writable=is_writable)
    found: dict[str, object] = {}
    async with stage() as opened:
        for path in OUTSIDE:
            for guest in (opening(path), opening(path, rights=WRITE), opening(path, flags=CREATE, rights=WRITE)):
                played = await opened.play(guest, wasi=grant, isolation="process")
                if played.answer in (0, None) or played.said:
                    found[path] = played
    assert found == {}
    assert (folder.parent / "secret").read_text() == "s3cr"
    assert sorted(os.listdir(folder.parent)) == ["inside", "secret"]


async def test_a_link_that_the_guest_makes_leads_nowhere_either(folder: Path) -> None:
    """A link to the outside that a guest with a writable folder makes itself is refused, or is as good as broken."""
    wat = Wat()
    link = f'(import "{WASI}" "path_symlink" (func $link (param i32 i32 i32 i32 i32) (result i32)))'
    body = f"""(drop (call $link {wat.text(str(folder.parent / "secret"))} (i32.const {FIRST_FD}) {wat.text("mine")}))
    (drop (call $link {wat.text("../secret")} (i32.const {FIRST_FD}) {wat.text("mine2")})) (i32.const 0)"""
    assert (await play(wat.build(body, wasi=link), granted(folder, is_writable=True))).answer == 0
    for name in ("mine", "mine2"):
        played = await play(opening(name), granted(folder, is_writable=True))
        assert played.answer not in (0, None)
        assert played.said == []


@pytest.mark.parametrize(("name", "flags"), [("note", 0), ("new", CREATE)])
async def test_a_folder_is_read_only_unless_it_is_granted_for_writing(folder: Path, name: str, flags: int) -> None:
    """Without the grant nothing is changed or made; with it the very same guest writes."""
    guest = opening(name, flags=flags, rights=WRITE)
    before = sorted(os.listdir(folder))
    played = await play(guest, granted(folder))
    assert played.answer not in (0, None)
    assert sorted(os.listdir(folder)) == before
    assert (folder / "note").read_text() == "well"
    assert (await play(guest, granted(folder, is_writable=True))).answer == 0
    assert (folder / name).read_text() == "mark"


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_a_guest_that_asks_without_a_grant_gets_nothing(folder: Path, isolation: Isolation) -> None:
    """It starts as ever, has no folder, and every path is a call that is not there."""
    prestat = Wat().build(
        f"(call $p (i32.const {FIRST_FD}) (i32.const 64))",
        wasi=f'(import "{WASI}" "fd_prestat_get" (func $p (param i32 i32) (result i32)))',
    )
    assert (await play(opening(str(folder / "note")), None, isolation=isolation)).answer == NOSYS
    assert (await play(prestat, None, isolation=isolation)).answer == BADF


async def test_one_guests_folder_is_not_there_for_the_next(folder: Path) -> None:
    """Also when both are run by the same process, one after the other."""
    async with stage() as opened:
        first = await opened.play(opening("note"), wasi=granted(folder), isolation="process")
        second = await opened.play(opening("note"), isolation="process")
        other = await opened.play(opening("note"), wasi=granted(folder / "deep"), isolation="process")
    assert [first.answer, second.answer] == [0, NOSYS]
    assert other.answer not in (0, None)


async def test_in_a_thread_a_grant_is_refused(folder: Path) -> None:
    """The message names the key and the value that helps; nothing was started."""
    async with stage() as opened:
        with pytest.raises(ConfigError) as raised:
            await opened.play(opening("note"), wasi=granted(folder), isolation="thread")
        assert opened.quarters.live == 0
    assert (raised.value.param, raised.value.hint) == ("isolation", 'isolation = "process"')


async def test_variables_arguments_and_input_are_handed_in() -> None:
    """Exactly those that were granted."""
    names = ("environ_sizes_get", "args_sizes_get", "environ_get", "args_get")
    wasi = "".join(f'(import "{WASI}" "{name}" (func ${name} (param i32 i32) (result i32)))' for name in names)
    wasi += f"""(import "{WASI}" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "{WASI}" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))"""
    body = """(drop (call $environ_sizes_get (i32.const 0) (i32.const 4)))
    (drop (call $environ_get (i32.const 256) (i32.const 4096)))
    (drop (call $args_sizes_get (i32.const 8) (i32.const 12)))
    (drop (call $args_get (i32.const 512) (i32.add (i32.const 4096) (i32.load (i32.const 4)))))
    (i32.store (i32.const 16) (i32.add (i32.add (i32.const 4096) (i32.load (i32.const 4))) (i32.load (i32.const 12))))
    (i32.store (i32.const 20) (i32.const 100))
    (drop (call $read (i32.const 0) (i32.const 16) (i32.const 1) (i32.const 24)))
    (i32.store (i32.const 16) (i32.const 4096))
    (i32.store (i32.const 20) (i32.add (i32.add (i32.load (i32.const 4)) (i32.load (i32.const 12)))
      (i32.load (i32.const 24))))
    (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 28))"""
    grant = WasiGrant(env=(("LANG", "C"),), args=("guest", "two"))
    played = await play(Wat().build(body, wasi=wasi), grant, stdin=b"in")
    assert "".join(said.text for said in played.said) == "LANG=C\0guest\0two\0in"


SLEEP = f"""(import "{WASI}" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))"""
HOUR = """(i32.store8 (i32.const 8) (i32.const 0)) (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const 3600000000000))
    (call $poll (i32.const 0) (i32.const 128) (i32.const 1) (i32.const 64))"""


async def test_a_guest_that_sleeps_through_its_time_is_killed() -> None:
    """The engine's sleep cannot be interrupted, so the process goes; the next guest gets another."""
    limits = SandboxLimits(cpu_s=0.2, wall_s=0.3)
    async with stage() as opened:
        played = await opened.play(Wat().build(HOUR, wasi=SLEEP), wasi=WasiGrant(), isolation="process", limits=limits)
        after = await opened.play(Wat().build("(i32.const 7)"), isolation="process")
    assert (played.answer, after.answer) == ("timeout", 7)


@pytest.mark.parametrize(
    ("body", "wasi", "answer"),
    [
        ("(loop (drop (call $w (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))) br 0) (i32.const 0)",
         f'(import "{WASI}" "fd_write" (func $w (param i32 i32 i32 i32) (result i32)))', "quota"),
        ("(call $w (i32.const 9)) (i32.const 0)", f'(import "{WASI}" "proc_exit" (func $w (param i32)))', 9),
        ("(call $w (i32.const 1) (i32.const -8) (i32.const 1) (i32.const 8))",
         f'(import "{WASI}" "fd_write" (func $w (param i32 i32 i32 i32) (result i32)))', "trap"),
        ("(i32.const 0)", f'(import "{WASI}" "fd_write" (func $w (param i64) (result i32)))', "link"),
        ("(i32.const 0)", f'(import "{WASI}" "no_such_call" (func $w (result i32)))', 0),
        ("(loop br 0) (i32.const 0)", "", "timeout"),
    ],
    ids=["prints without end", "exits", "writes from beyond memory", "other types", "a call unknown to WASI", "spins"],
)  # fmt: skip
async def test_the_limits_hold_for_guests_with_a_grant(body: str, wasi: str, answer: int | str) -> None:
    """As they do for all others."""
    body = f"(i32.store (i32.const 0) (i32.const 4096)) (i32.store (i32.const 4) (i32.const 4096)) {body}"
    assert (await play(Wat().build(body, wasi=wasi), WasiGrant())).answer == answer


async def test_a_folder_that_is_gone_is_said_so(tmp_path: Path) -> None:
    """The grant was read at start; the folder may go away later."""
    played = await play(opening("note"), granted(tmp_path / "gone"))
    assert played.answer == "link"
    assert "folder" in str(played.ended.stop)


def test_a_grant_is_read_from_words(tmp_path: Path) -> None:
    """A folder has its own name for the guest unless it is given another; only variables that are set are handed on."""
    (tmp_path / "in").mkdir()
    words = GrantWords(read=(f"{tmp_path}/in",), write=(f"{tmp_path}/in:/out/x",), env=("A", "B"), args=("me",))
    host = os.path.realpath(tmp_path / "in")
    assert read_grant(words, {"A": "1", "C": "3"}) == WasiGrant(
        folders=(Folder(host=host, guest="/in"), Folder(host=host, guest="/out/x", is_writable=True)),
        env=(("A", "1"),),
        args=("me",),
    )
    assert read_grant(GrantWords(), {"A": "1"}) is None


@pytest.mark.parametrize(
    ("words", "param"),
    [
        (GrantWords(read=("/nowhere/at/all",)), "wasi_read"),
        (GrantWords(write=(sys.executable,)), "wasi_write"),
        (GrantWords(read=("/:/../x",)), "wasi_read"),
        (GrantWords(read=("/:/a", "/tmp:/a")), "wasi_read"),
        (GrantWords(read=("/:/a",) * 17), "wasi_read"),
        (GrantWords(env=("A=B",)), "wasi_env"),
    ],
)
def test_a_grant_that_cannot_be_names_its_key(words: GrantWords, param: str) -> None:
    """A folder that is not there, a file, a name that climbs, two of one name, too many, no name of a variable."""
    with pytest.raises(ConfigError) as raised:
        read_grant(words, {})
    assert raised.value.param == param
