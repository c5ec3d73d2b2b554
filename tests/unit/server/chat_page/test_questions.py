"""A question of the page as items: files where the model takes them, and an earlier question once more."""

import base64

import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import FilePart, ImagePart, MessageItem, TextPart
from treadle.core.journal_entries import entry_of_item
from treadle.server.chat_page.questions import FILES_MAX, QuestionFile, ask_again, file_name_of, question, read_files

ALL = ("image", "file")


def _file(name: str = "a.txt", media_type: str = "text/plain", data: bytes = b"hello") -> QuestionFile:
    return QuestionFile(name=name, media_type=media_type, data=base64.b64encode(data).decode())


def test_a_text_file_is_read_out() -> None:
    """Inside a fence that nothing in it closes, under its name, for every model."""
    (part,) = read_files([_file(data="```\ncode\n```\nend é".encode())], ())
    assert part == TextPart(text="File a.txt:\n\n````\n```\ncode\n```\nend é\n````")
    assert isinstance(part, TextPart)
    assert file_name_of(part.text) == "a.txt"


@pytest.mark.parametrize("text", ["File a.txt: what is it?", "File a:\n\n```\nx", "hello", ""])
def test_what_somebody_wrote_is_no_file(text: str) -> None:
    """Only what we wrote ourselves is taken for one."""
    assert file_name_of(text) is None


def test_pictures_and_files_go_as_they_are() -> None:
    """As data URLs: nothing is fetched by anybody."""
    picture, paper = read_files([_file("p.png", "image/png"), _file("p.pdf", "application/pdf")], ALL)
    assert picture == ImagePart(url="data:image/png;base64,aGVsbG8=")
    assert paper == FilePart(url="data:application/pdf;base64,aGVsbG8=", filename="p.pdf")


@pytest.mark.parametrize(
    ("file", "takes", "message", "param"),
    [
        (_file("p.png", "image/png"), ("file",), "takes no pictures", "files[0]"),
        (_file("p.pdf", "application/pdf"), ("image",), "takes no files that are no text", "files[0]"),
        (_file("t.txt", "text/plain", b"\xff"), (), "takes no files that are no text", "files[0]"),
        (_file(""), ALL, "name has 1 to", "files[0].name"),
        (_file("a\nb"), ALL, "printable", "files[0].name"),
        (QuestionFile(name="a", media_type="image/png", data="%%"), ALL, "base64", "files[0].data"),
        (_file("p", 'image/x";evil="'), ALL, "media_type", "files[0].media_type"),
    ],
)
def test_what_cannot_go_is_refused_by_name(
    file: QuestionFile, takes: tuple[str, ...], message: str, param: str
) -> None:
    """The error says which file and what of it."""
    with pytest.raises(ProtocolError, match=message) as refused:
        read_files([file], takes)
    assert refused.value.param == param


def test_files_are_counted() -> None:
    """A question has so many."""
    with pytest.raises(ProtocolError, match="at most"):
        read_files([_file()] * (FILES_MAX + 1), ALL)


def test_a_question_is_asked_again_with_its_files() -> None:
    """As it was, or in other words; what came with it stays, and more can come."""
    (text,) = read_files([_file()], ())
    asked = question("what?", [ImagePart(url="data:x"), text])
    entries = [entry_of_item(asked, at=1.0, is_input=True), entry_of_item(question("no", []), at=1.0)]
    assert ask_again(entries, None, []) == (asked,)
    assert ask_again(entries, "and now?", []) == (question("and now?", [ImagePart(url="data:x"), text]),)
    more = [FilePart(url="data:y", filename="y")]
    assert ask_again(entries, None, more) == (question("what?", [ImagePart(url="data:x"), text, *more]),)


def test_a_question_without_words_is_its_files() -> None:
    """A picture alone is a question."""
    assert question("", [ImagePart(url="data:x")]) == MessageItem(role="user", content=(ImagePart(url="data:x"),))
