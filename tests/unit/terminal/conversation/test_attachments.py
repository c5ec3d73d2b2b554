"""What goes with a prompt: a pipe, texts, pictures."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.core.errors import LimitExceeded, RequestError
from treadle.core.items import ImagePart, text_of
from treadle.terminal.conversation import attachments as attach


@pytest.mark.parametrize(
    ("prompt", "piped", "joined"),
    [
        ("ask", "", "ask"),
        (" ask ", " \n", "ask"),
        ("ask", "data\n", "ask\n\n<input>\ndata\n</input>"),
        (None, "data\n", "data"),
        ("", "", ""),
        (None, "", ""),
    ],
)
def test_piped_text_is_added_as_a_block(prompt: str | None, piped: str, joined: str) -> None:
    """Either part may be missing; the input is marked as input."""
    assert attach.join_prompt(prompt, piped) == joined


def feed(monkeypatch: pytest.MonkeyPatch, file: Path, data: bytes) -> None:
    """Make a file the standard input."""
    file.write_bytes(data)
    monkeypatch.setattr(sys, "stdin", file.open(encoding="utf-8"))


def test_a_file_on_stdin_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are replaced, not fatal."""
    feed(monkeypatch, tmp_path / "in", b"a\xffb")
    with sys.stdin:
        assert attach.read_piped() == "a\N{REPLACEMENT CHARACTER}b"


def test_stdin_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More than the bound is refused, naming it."""
    monkeypatch.setattr(attach, "INPUT_BYTES_MAX", 3)
    feed(monkeypatch, tmp_path / "in", b"abcd")
    with sys.stdin, pytest.raises(LimitExceeded, match="larger than 3 bytes"):
        attach.read_piped()


def test_dev_null_and_no_stdin_are_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job without input does not count as a pipe."""
    with open(os.devnull, encoding="utf-8") as source:
        monkeypatch.setattr(sys, "stdin", source)
        assert attach.read_piped() == ""
    monkeypatch.setattr(sys, "stdin", None)
    assert attach.read_piped() == ""


def test_texts_are_blocks_and_pictures_are_pictures(tmp_path: Path) -> None:
    """In the order they were named."""
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "b.png").write_bytes(b"\x89PNG\0")
    message = attach.message_of("look", [str(tmp_path / "a.py"), str(tmp_path / "b.png")])
    assert text_of(message.content) == 'look\n\n<input name="a.py">\nx = 1\n</input>'
    assert message.content[1] == ImagePart(url="data:image/png;base64,iVBORwA=")


@pytest.mark.parametrize(("name", "words"), [("gone", "can not be read"), ("bin", "neither text nor a picture")])
def test_what_can_not_be_sent_is_refused_by_name(tmp_path: Path, name: str, words: str) -> None:
    """A missing file is often a prompt that was not quoted; the hint says so."""
    (tmp_path / "bin").write_bytes(b"\0\1")
    with pytest.raises(RequestError, match=words) as caught:
        attach.message_of("look", [str(tmp_path / name)])
    assert name in caught.value.message
    assert caught.value.param == "files"


def test_files_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A disk image is no input."""
    monkeypatch.setattr(attach, "INPUT_BYTES_MAX", 3)
    (tmp_path / "big").write_text("abcd", encoding="utf-8")
    with pytest.raises(LimitExceeded):
        attach.message_of("look", [str(tmp_path / "big")])


def test_a_silent_pipe_says_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that forgot to close it would seem to hang; what comes late is read all the same."""
    monkeypatch.setattr(attach, "SILENCE_S", 0.0)
    reader, writer = os.pipe()
    with os.fdopen(reader, encoding="utf-8") as stdin, os.fdopen(writer, "w", encoding="utf-8") as other:
        monkeypatch.setattr(sys, "stdin", stdin)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(attach.read_piped)
            while attach.WAITS not in capsys.readouterr().err:
                assert not reading.done()
            other.write("late")
            other.close()
            assert reading.result(10) == "late"
