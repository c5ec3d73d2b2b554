import contextlib
import gc
import os
import pathlib
import shutil
import socket
import threading
import time

import pytest

from treadle.core.errors import ConfigError, ToolError
from treadle.tools.local.safe_open import LINKS_MAX, Opener, Root, best_opener, open_beneath, open_walking

OPENERS = [open_walking] if best_opener() is open_walking else [open_beneath, open_walking]


@pytest.fixture(params=OPENERS, ids=lambda opener: opener.__name__)
def opener(request: pytest.FixtureRequest) -> Opener:
    """Each way of opening that this system has."""
    return request.param


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """A root with some files, and a secret beside it."""
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "a.txt").write_text("inside")
    return root


def read(root: Root, path: str) -> str:
    """Read a file through the root."""
    fd = root.open(path).fd
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)


def read_or_refuse(root: Root, path: str) -> str:
    """Read a file through the root, or return the one word for all refusals."""
    try:
        return read(root, path)
    except ToolError:
        return "refused"


def code_of(root: Root, path: str) -> str:
    """Return the code with which a path is refused."""
    with pytest.raises(ToolError) as caught:
        os.close(root.open(path).fd)
    return caught.value.info.code


@pytest.mark.parametrize("path", ["src/a.txt", "./src//a.txt", "src/deep/../a.txt", "src/deep/../../src/a.txt"])
def test_paths_inside_are_opened(place: pathlib.Path, opener: Opener, path: str) -> None:
    """Detours that stay inside are allowed, and the real name is known."""
    root = Root(place, opener=opener)
    assert read(root, path) == "inside"
    opened = root.open(path)
    os.close(opened.fd)
    assert opened.name == "src/a.txt"


@pytest.mark.parametrize("path", [".", "", "src/..", "./"])
def test_the_root_itself_can_be_opened(place: pathlib.Path, opener: Opener, path: str) -> None:
    """Its name is a dot, and it can be listed more than once."""
    root = Root(place, opener=opener)
    for _ in range(2):
        opened = root.open(path)
        assert (opened.name, os.listdir(opened.fd)) == (".", ["src"])
        os.close(opened.fd)


def test_an_absolute_path_below_the_root_is_understood(place: pathlib.Path, opener: Opener) -> None:
    """Models like absolute paths; those that lexically lie inside are taken, under the given and the real name."""
    linked = place.parent / "linked"
    linked.symlink_to(place)
    root = Root(linked, opener=opener)
    assert read(root, f"{linked}/src/a.txt") == "inside"
    assert read(root, f"{place}/src/a.txt") == "inside"
    assert code_of(root, f"{place}x/src/a.txt") == "outside_root"


@pytest.mark.parametrize(
    "path", ["..", "../secret", "src/../../secret", "/etc/passwd", "/", "/proc/self/mem", "//etc/passwd", "/dev/zero"]
)
def test_paths_that_leave_are_refused(place: pathlib.Path, opener: Opener, path: str) -> None:
    """Neither dots nor absolute paths lead out."""
    assert code_of(Root(place, opener=opener), path) == "outside_root"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("../secret", "outside_root"),
        ("/etc/passwd", "outside_root"),
        ("/dev/zero", "outside_root"),
        ("/proc/self/mem", "outside_root"),
        ("../root/../secret", "outside_root"),
        ("nowhere", "not_found"),
        ("link", "too_many_links"),
    ],
)
def test_links_that_leave_are_refused(place: pathlib.Path, opener: Opener, target: str, code: str) -> None:
    """A link is followed only as far as it stays inside, as a last and as a middle component."""
    (place / "link").symlink_to(target)
    root = Root(place, opener=opener)
    assert code_of(root, "link") == code
    assert code_of(root, "link/x") == code


def test_links_that_stay_are_followed(place: pathlib.Path, opener: Opener) -> None:
    """Relative links to files and directories inside work, also through dots; the real name is the target's."""
    (place / "file").symlink_to("src/a.txt")
    (place / "folder").symlink_to("src/deep/..")
    (place / "src" / "up").symlink_to("../src")
    root = Root(place, opener=opener)
    for path in ("file", "folder/a.txt", "src/up/up/a.txt"):
        assert read(root, path) == "inside"
        opened = root.open(path)
        os.close(opened.fd)
        assert opened.name == "src/a.txt"


def test_a_long_chain_of_links_ends(place: pathlib.Path, opener: Opener) -> None:
    """Beyond the bound a chain is refused like a loop."""
    for each in range(LINKS_MAX + 5):
        (place / f"l{each}").symlink_to(f"l{each + 1}")
    (place / f"l{LINKS_MAX + 5}").write_text("end")
    root = Root(place, opener=opener)
    assert code_of(root, "l0") == "too_many_links"
    assert read(root, "l10") == "end"


def test_what_is_no_regular_file_is_refused_at_once(place: pathlib.Path, opener: Opener) -> None:
    """A FIFO does not block, a socket and a device are not read."""
    os.mkfifo(place / "fifo")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listening:
        # A UNIX socket's path is short, so it is bound from inside its directory.
        before = os.getcwd()
        os.chdir(place)
        try:
            listening.bind("socket")
        finally:
            os.chdir(before)
        root = Root(place, opener=opener)
        started = time.monotonic()
        assert code_of(root, "fifo") == "not_a_file"
        assert code_of(root, "socket") == "not_a_file"
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("path", ["zero", "null", "full"])
def test_devices_are_refused(opener: Opener, path: str) -> None:
    """Even with all of /dev as the root a device is not opened for reading."""
    assert code_of(Root("/dev", opener=opener), path) == "not_a_file"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("src/a.txt\0.png", "invalid_path"),
        ("\0", "invalid_path"),
        ("x" * 5_000, "invalid_path"),
        ("x" * 300, "invalid_path"),
        ("a/" * 2_000 + "b", "not_found"),
        ("none.txt", "not_found"),
        ("src/a.txt/x", "not_found"),
        ("src/a.txt/..", "not_found"),
        ("CON", "not_found"),
        ("src/a.txt::$DATA", "not_found"),
        ("src/\udcff", "not_found"),
    ],
)
def test_odd_paths_are_refused_in_words(place: pathlib.Path, opener: Opener, path: str, code: str) -> None:
    """NUL, overlong and foreign names are answered, not misread."""
    assert code_of(Root(place, opener=opener), path) == code


@pytest.mark.parametrize(
    "path", [".env", ".env.local", "src/.env", "key.pem", "KEY.PEM", "id_rsa", ".ENV", ".treadle/x", ".treadle"]
)
def test_secrets_are_masked(place: pathlib.Path, opener: Opener, path: str) -> None:
    """Names that may hold secrets are not opened, by their own name or through a link."""
    if "/" in path:
        (place / path).parent.mkdir(exist_ok=True)
    if path == ".treadle":
        (place / path).mkdir()
    else:
        (place / path).write_text("secret")
    (place / "innocent").symlink_to(path)
    root = Root(place, opener=opener)
    assert code_of(root, path) == "masked"
    assert code_of(root, "innocent") == "masked"
    allowed = Root(place, allow=(path,), opener=opener)
    os.close(allowed.open(path).fd)
    os.close(allowed.open("innocent").fd)


def test_names_that_only_resemble_secrets_are_read(place: pathlib.Path, opener: Opener) -> None:
    """A directory called .env and a file called environment are not secrets."""
    (place / ".env").mkdir()
    for path in (".env/a", "environment", "pem"):
        (place / path).write_text("inside")
        assert read(Root(place, opener=opener), path) == "inside"


def test_a_file_without_permission_is_refused(place: pathlib.Path, opener: Opener) -> None:
    """The reason is said; the superuser is never refused, so it is asked only of others."""
    (place / "src" / "a.txt").chmod(0)
    if os.geteuid() == 0:
        assert read(Root(place, opener=opener), "src/a.txt") == "inside"
    else:
        assert code_of(Root(place, opener=opener), "src/a.txt") == "permission_denied"


def test_a_root_that_is_no_directory_is_a_config_error(tmp_path: pathlib.Path) -> None:
    """The error names the path."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(ConfigError, match=str(path)):
            Root(path)


def test_no_descriptor_is_lost(place: pathlib.Path, opener: Opener) -> None:
    """Whatever a path ends in, all descriptors but the root's are given back."""
    (place / "out").symlink_to("../secret")
    os.mkfifo(place / "fifo")
    root = Root(place, opener=opener)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for path in ("src/a.txt", "out", "fifo", "none", "src/../../x", "src/a.txt/x", ".", "src/deep/.."):
        with contextlib.suppress(ToolError):
            os.close(root.open(path).fd)
    assert len(os.listdir("/proc/self/fd")) == before
    root.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1


@pytest.mark.parametrize("what", ["last", "middle"])
def test_swapping_a_link_while_opening_never_leads_out(place: pathlib.Path, opener: Opener, what: str) -> None:
    """However a component flips between a file and a link outwards, only inside bytes are ever read."""
    outside = place.parent / "folder"
    outside.mkdir()
    (outside / "a.txt").write_text("outside")
    good, evil, target = place / "good", place / "evil", place / "target"
    if what == "last":
        path = "target"
        good.write_text("inside")
        evil.symlink_to("../secret")
    else:
        path = "target/a.txt"
        good.mkdir()
        (good / "a.txt").write_text("inside")
        evil.symlink_to("../folder")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for each in (good, evil):
                os.rename(each, target)
                os.rename(target, each)

    swapper = threading.Thread(target=swap)
    swapper.start()
    root = Root(place, opener=opener)
    seen = {"inside": 0, "refused": 0}
    deadline = time.monotonic() + 10
    try:
        while (min(seen.values()) < 50 or sum(seen.values()) < 2_000) and time.monotonic() < deadline:
            seen[read_or_refuse(root, path)] += 1
    finally:
        stop.set()
        swapper.join(10)
    assert min(seen.values()) > 0


def test_what_a_root_hides_is_masked_there_alone(place: pathlib.Path, opener: Opener) -> None:
    """The journal that lies in the root, and what the database keeps beside it, whatever the case."""
    for name in ("My.db", "My.db-wal", "other.db"):
        (place / name).write_text("x")
    root = Root(place, hidden=("my.db", "my.db-*"), opener=opener)
    assert [code_of(root, name) for name in ("My.db", "My.db-wal")] == ["masked", "masked"]
    os.close(root.open("other.db").fd)
    os.close(Root(place, opener=opener).open("My.db").fd)


GONE: dict[str, str] = {
    "removed": "was removed or moved",
    "moved": "was removed or moved",
    "replaced": "Something else was put in the place",
    "a link elsewhere": "Something else was put in the place",
    "a file": "Something else was put in the place",
}


@pytest.mark.parametrize("what", GONE)
def test_a_root_that_is_not_there_any_more_is_said_to_be_gone(place: pathlib.Path, opener: Opener, what: str) -> None:
    """Not that a file is missing: nothing is read, written or made, neither in the old folder nor in the new one."""
    root = Root(place, opener=opener)
    assert read(root, "src/a.txt") == "inside"
    away = place.rename(place.with_name("away"))
    if what == "removed":
        shutil.rmtree(away)
    elif what == "replaced":
        (place / "src").mkdir(parents=True)
        (place / "src" / "a.txt").write_text("another")
    elif what == "a link elsewhere":
        place.symlink_to(place.parent)
    elif what == "a file":
        place.write_text("")
    for work in (
        lambda: root.open("src/a.txt"),
        lambda: root.open("."),
        lambda: root.open_folder_of("src/b.txt"),
        lambda: root.open_folder_of("new/b.txt", make=True),
    ):
        with pytest.raises(ToolError, match=GONE[what]) as caught:
            work()
        assert (caught.value.info.code, str(place) in caught.value.message) == ("root_gone", True)
    if what in ("moved", "replaced"):
        assert sorted(each.name for each in away.iterdir()) == ["src"]
    place.unlink() if place.is_symlink() or place.is_file() else shutil.rmtree(place, ignore_errors=True)
    if away.is_dir():
        away.rename(place)
        assert read(root, "src/a.txt") == "inside"
