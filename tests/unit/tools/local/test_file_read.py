import hashlib
import os
import pathlib
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ToolError
from treadle.core.json import read_json
from treadle.tools import ToolContext
from treadle.tools.local.file_read import FileLine, FileLines, make_file_read
from treadle.tools.local.result_limits import DEFAULT_CAPS, LocalCaps
from treadle.tools.local.safe_open import Root
from treadle.tools.result_rendering import ToolAnswer, write_text

LINE_CHARS_MAX = DEFAULT_CAPS.line_chars_max

Read = Callable[..., dict[str, Any]]


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty root, in a directory of its own."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def file_read(place: pathlib.Path) -> Read:
    """The tool's function, with what the model reads parsed back."""
    function = make_file_read(Root(place))

    def run(path: str, **options: Any) -> dict[str, Any]:
        context = options.pop("context", None) or ToolContext()
        return read_json(write_text(function(context, path, **options), "s3"))

    return run


@pytest.mark.parametrize("text", ["", "one", "one\n", "one\ntwo", "\n\n", "a\r\nb\r\n", "tab\té 漢 🌦\n", "\ufeffbom"])
def test_a_small_file_is_given_back_exactly(place: pathlib.Path, file_read: Read, text: str) -> None:
    """Raw contents, with its line ends, and nothing else in the result."""
    (place / "a").write_bytes(text.encode())
    assert file_read("a") == {"output": text}


def test_lines_can_be_numbered(place: pathlib.Path, file_read: Read) -> None:
    """Numbers count from the start of the file, in six columns and a tab."""
    (place / "a").write_text("one\ntwo\nthree\n")
    assert file_read("a", numbered=True, offset=2) == {"output": "     2\ttwo\n     3\tthree\n"}


def test_a_page_says_where_the_next_begins(place: pathlib.Path, file_read: Read) -> None:
    """Following `next` reads the whole file, and the last page has none."""
    (place / "a").write_text("".join(f"line {each}\n" for each in range(1, 8)))
    assert file_read("a", limit=3) == {
        "output": "line 1\nline 2\nline 3\n",
        "truncated": True,
        "next": {"offset": 4},
    }
    assert file_read("a", offset=4, limit=3)["next"] == {"offset": 7}
    assert file_read("a", offset=7, limit=3) == {"output": "line 7\n"}


def test_two_thousand_lines_are_a_page(place: pathlib.Path, file_read: Read) -> None:
    """The default page ends at 2000 lines."""
    (place / "a").write_text("x\n" * 2_001)
    result = file_read("a")
    assert result["output"] == "x\n" * 2_000
    assert result["next"] == {"offset": 2_001}


def test_a_page_ends_before_the_line_that_does_not_fit(place: pathlib.Path, file_read: Read) -> None:
    """The byte limit cuts between lines, and counts what the text takes as JSON."""
    (place / "a").write_text(('"' * 999 + "\n") * 100)
    result = file_read("a")
    lines = result["output"].count("\n")
    assert lines == DEFAULT_CAPS.file_read_bytes_max // 2_000
    assert result["next"] == {"offset": lines + 1}


@pytest.mark.parametrize("cap", [256, 300, 1_000, 32_768])
def test_the_result_fits_into_the_output_cap(place: pathlib.Path, cap: int) -> None:
    """Whatever the cap, the JSON is whole and its `next` is right, so that the runner has nothing to cut."""
    (place / "a").write_text("\x01é" * 100 + "\nsecond\n" * 5_000)
    answer = make_file_read(Root(place))(ToolContext(output_bytes_max=cap), "a")
    text = write_text(answer, "s3")
    assert len(text.encode()) <= cap
    shown = read_json(text)
    assert shown["truncated"] is True
    is_first_cut = cap < 2_000
    lines = shown["output"].count("\n")
    assert shown["next"] == (
        {"offset": 1, "column": len(shown["output"]) + 1} if is_first_cut else {"offset": lines + 1}
    )


@pytest.mark.parametrize("cap", [256, 1_000, 5_000])
@pytest.mark.parametrize("numbered", [False, True])
def test_following_next_reads_every_character(place: pathlib.Path, cap: int, numbered: bool) -> None:
    """Also of lines that are too large for any page: nothing is skipped, nothing comes twice."""
    text = "first\n" + '\x01é"漢' * 700 + "\n\nlast 🌦" + "y" * 3_000
    (place / "a").write_text(text)
    function = make_file_read(Root(place), caps=LocalCaps(line_chars_max=10_000))
    read, at = "", dict[str, int]()
    for _ in range(2_000):
        page = read_json(write_text(function(ToolContext(output_bytes_max=cap), "a", numbered=numbered, **at), "s3"))
        read += re.sub(r"(?m)^ *\d+\t", "", page["output"]) if numbered else page["output"]
        if "next" not in page:
            break
        assert page["truncated"] is True
        at = page["next"]
    assert read == text


def test_long_lines_are_cut_and_say_so(place: pathlib.Path, file_read: Read) -> None:
    """A line shows its first 2000 characters, how many more there are, and how to read them."""
    (place / "a").write_text("é" * 2_500 + "\nshort\n")
    words = "… [500 more characters: offset 1 with column 2001 shows them]\n"
    assert file_read("a") == {
        "output": "é" * LINE_CHARS_MAX + words + "short\n",
        "truncated": True,
        "next": {"offset": 1, "column": 2_001},
    }
    assert file_read("a", offset=1, column=2_001) == {"output": "é" * 500 + "\nshort\n"}
    assert file_read("a", offset=2, column=2) == {"output": "hort\n"}
    with pytest.raises(ToolError, match="line 2 has 5 characters") as caught:
        file_read("a", offset=2, column=6)
    assert caught.value.info.code == "past_end"


def test_caps_can_be_raised(place: pathlib.Path) -> None:
    """A page has as many bytes, and of a line as many characters, as is configured."""
    (place / "a").write_text("x" * 5_000 + "\n" + "y\n" * 300)
    caps = LocalCaps(file_read_bytes_max=200_000, line_chars_max=10_000)
    found = make_file_read(Root(place), caps=caps)(ToolContext(output_bytes_max=300_000), "a")
    assert read_json(write_text(found, "s3")) == {"output": "x" * 5_000 + "\n" + "y\n" * 300}


def test_one_endless_line_takes_no_memory(place: pathlib.Path, file_read: Read) -> None:
    """A file of tens of megabytes in one line is read in pieces."""
    with (place / "a").open("wb") as file:
        file.truncate(0)
        for _ in range(32):
            file.write(b"x" * 1_048_576)
    assert file_read("a")["output"].endswith(
        f"… [{32 * 1_048_576 - LINE_CHARS_MAX} more characters: offset 1 with column 2001 shows them]"
    )


def test_an_offset_past_the_end_is_an_error(place: pathlib.Path, file_read: Read) -> None:
    """It says how many lines there are."""
    (place / "a").write_text("one\ntwo\n")
    with pytest.raises(ToolError, match="there are 2 lines") as caught:
        file_read("a", offset=3)
    assert caught.value.info.code == "past_end"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_is_decoded_by_its_mark(place: pathlib.Path, file_read: Read, encoding: str) -> None:
    """Wide text with a byte order mark is text."""
    mark = "\ufeff" if encoding.endswith(("le", "be")) else ""
    (place / "a").write_bytes((mark + "héllo\n漢字\n" * 5_000).encode(encoding))
    found = file_read("a", limit=2)
    assert (found["output"], found["encoding"]) == ("héllo\n漢字\n", "utf-32" if "32" in encoding else "utf-16")


def test_bytes_that_are_no_utf_8_are_replaced(place: pathlib.Path, file_read: Read) -> None:
    """Latin-1 text is readable but for the strange letters, and a warning counts them; a real sign does not count."""
    (place / "a").write_bytes(b"caf\xe9\n\xef\xbf\xbd th\xe9\n")
    assert file_read("a") == {
        "output": "caf\ufffd\n\ufffd th\ufffd\n",
        "warnings": ["Not valid UTF-8: bytes that could not be decoded were replaced by U+FFFD, 2 times."],
    }
    assert file_read("a", limit=1)["warnings"] == [
        "Not valid UTF-8: bytes that could not be decoded were replaced by U+FFFD, once."
    ]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0" + b"x" * 100_000, "image/png"),
        (b"\x7fELF\0", "application/x-elf"),
        (b"text and\0nul", "application/octet-stream"),
    ],
)
def test_binary_files_are_described(place: pathlib.Path, file_read: Read, data: bytes, kind: str) -> None:
    """Type, size and hash instead of noise."""
    (place / "a").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    assert file_read("a") == {
        "output": f"Binary file: {kind}, {len(data)} bytes, sha256 {digest}",
        "type": kind,
        "bytes": len(data),
        "sha256": digest,
    }


def test_a_nul_after_the_start_does_not_make_a_file_binary(place: pathlib.Path, file_read: Read) -> None:
    """Only the first 8 KiB are looked at; a later NUL is kept as the character it is."""
    (place / "a").write_bytes(b"x" * 8_192 + b"\n\0\n")
    assert file_read("a", offset=2) == {"output": "\0\n"}


def test_a_directory_is_listed(place: pathlib.Path, file_read: Read) -> None:
    """Names by line, directories with a slash, paged like a file."""
    (place / "d" / "sub").mkdir(parents=True)
    (place / "d" / "b").write_text("")
    (place / "d" / ".a").write_text("")
    assert file_read("d") == {"output": ".a\nb\nsub/\n"}
    assert file_read("d", limit=1) == {"output": ".a\n", "truncated": True, "next": {"offset": 2}}


def test_a_missing_file_names_its_neighbours(place: pathlib.Path, file_read: Read) -> None:
    """S3's error text, and the three nearest names beside it."""
    (place / "src").mkdir()
    for name in ("main.py", "mail.py", "mains.py", "man.py", "zebra"):
        (place / "src" / name).write_text("")
    result = file_read("src/mein.py")
    assert (result["error"], result["code"]) == ("File not found: src/mein.py", "not_found")
    assert len(result["did_you_mean"]) == 3
    assert "src/main.py" in result["did_you_mean"]


def test_what_is_suggested_can_be_read(place: pathlib.Path, file_read: Read) -> None:
    """A link that leads nowhere is not suggested for itself, nor is a file that may hold secrets."""
    (place / "link").symlink_to("gone")
    (place / "id_map.txt").write_text("")
    assert file_read("link") == {"error": "File not found: link", "code": "not_found"}
    assert file_read("id_mop.txt") == {"error": "File not found: id_mop.txt", "code": "not_found"}
    (place / "links").write_text("")
    assert file_read("link")["did_you_mean"] == ["links"]


def test_a_folder_with_too_many_entries_says_so(place: pathlib.Path) -> None:
    """The listing is cut, and says it."""
    for number in range(5):
        (place / f"f{number}").write_text("")
    found = make_file_read(Root(place), caps=LocalCaps(listed_max=3))(ToolContext(), ".")
    shown = read_json(write_text(found, "s3"))
    assert (len(shown["output"].split()), shown["truncated"], shown["warnings"]) == (
        3,
        True,
        ["The folder has more entries than are listed."],
    )


@pytest.mark.parametrize("path", ["none.txt", "no/such/folder/x", "/none"])
def test_a_missing_file_without_neighbours_is_just_missing(place: pathlib.Path, file_read: Read, path: str) -> None:
    """Exactly S3's error and its code."""
    asked = f"{place}{path}" if path.startswith("/") else path
    assert file_read(asked) == {"error": f"File not found: {asked}", "code": "not_found"}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../x", "outside_root"),
        ("/etc/passwd", "outside_root"),
        ("/proc/self/mem", "outside_root"),
        ("zero", "outside_root"),
        ("fifo", "not_a_file"),
        (".env", "masked"),
        ("a\0", "invalid_path"),
        ("x" * 5_000, "invalid_path"),
    ],
)
def test_hostile_paths_are_refused_in_words(place: pathlib.Path, file_read: Read, path: str, code: str) -> None:
    """Nothing outside, nothing that blocks, nothing secret is read."""
    (place / "zero").symlink_to("/dev/zero")
    (place / ".env").write_text("KEY=1")
    os.mkfifo(place / "fifo")
    with pytest.raises(ToolError) as caught:
        file_read(path)
    assert caught.value.info.code == code


def test_memory_of_the_process_cannot_be_read_even_from_the_top() -> None:
    """With / as the root /proc/self/mem is a regular file that cannot be read; the error is said."""
    with pytest.raises(ToolError):
        make_file_read(Root("/"))(ToolContext(), "/proc/self/mem")


def test_a_file_that_grows_is_read_up_to_the_page(place: pathlib.Path, file_read: Read) -> None:
    """A writer that never stops does not hold the reader."""
    stop = threading.Event()

    def write() -> None:
        with (place / "a").open("ab", buffering=0) as file:
            while not stop.is_set() and file.tell() < 200_000_000:
                file.write(b"line\n" * 10_000)

    (place / "a").write_bytes(b"line\n" * 3_000)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        result = file_read("a")
    finally:
        stop.set()
        writer.join(10)
    assert (result["output"], result["next"]) == ("line\n" * 2_000, {"offset": 2_001})


def test_a_growing_binary_is_hashed_to_the_size_it_had(place: pathlib.Path, file_read: Read) -> None:
    """Size and hash belong together."""
    (place / "a").write_bytes(b"\0" * 100_000)
    real = os.fstat

    def fstat_then_grow(fd: int) -> os.stat_result:
        status = real(fd)
        with (place / "a").open("ab") as file:
            file.write(b"more")
        return status

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treadle.tools.local.file_read.os.fstat", fstat_then_grow)
        result = file_read("a")
    size = result["bytes"]
    assert result["sha256"] == hashlib.sha256((place / "a").read_bytes()[:size]).hexdigest()
    assert size < (place / "a").stat().st_size


@pytest.mark.parametrize("content", [b"x\n" * 10, b"\0" * 10])
def test_reading_stops_at_its_deadline(
    place: pathlib.Path, file_read: Read, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text and binary are both bounded in time."""
    monkeypatch.setattr("treadle.tools.local.file_read.DEADLINE_S", -1.0)
    (place / "a").write_bytes(content)
    with pytest.raises(ToolError) as caught:
        file_read("a")
    assert caught.value.info.code == "timeout"


def test_reading_stops_when_nobody_waits(place: pathlib.Path, file_read: Read) -> None:
    """A cancelled call ends at the next piece."""
    (place / "a").write_text("x\n")
    context = ToolContext()
    context.cancel()
    with pytest.raises(ToolError):
        file_read("a", context=context)


def test_summaries_count_lines(place: pathlib.Path) -> None:
    """One line for a person."""
    (place / "a").write_text("one\n")
    (place / "d").mkdir()
    (place / "d" / "x").write_text("")

    def summary(path: str) -> str | None:
        answer: ToolAnswer = make_file_read(Root(place))(ToolContext(), path)
        return answer.summary

    assert [summary(path) for path in ("a", "d", "b")] == ["1 line read", "1 entry read", "File not found: b"]
    (place / "a").write_text("one\ntwo\n")
    assert summary("a") == "2 lines read"


@given(st.text(st.sampled_from("ab\n\ré"), max_size=60), st.lists(st.integers(1, 7)))
def test_lines_do_not_depend_on_how_the_text_is_cut(text: str, cuts: list[int]) -> None:
    """Any cutting into pieces gives the same lines, and together they are the text."""
    lines, found, rest = FileLines(LINE_CHARS_MAX), list[FileLine](), text
    for size in cuts:
        found.extend(lines.feed(rest[:size]))
        rest = rest[size:]
    found.extend(lines.feed(rest))
    found.extend(lines.finish())
    assert "".join(line.text for line in found) == text
    *whole, last = text.split("\n")
    assert [line.text for line in found] == [f"{each}\n" for each in whole] + ([last] if last else [])
