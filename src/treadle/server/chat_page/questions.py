"""Builds the items of a question from the page: text, images and files, or an earlier question again."""

import base64
import binascii
import re
from collections.abc import Sequence

import msgspec

from treadle.core.errors import ProtocolError
from treadle.core.items import AnyItem, AnyPart, FilePart, ImagePart, MessageItem, TextPart
from treadle.core.journal_entries import Entry, item_of_entry

FILES_MAX = 10
NAME_CHARS_MAX = 200
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/x-yaml", "application/toml", "image/svg+xml"}
)
_FENCES = re.compile(r"`{3,}")
_FILE_TEXT = re.compile(r"^File (.+):\n\n(`{3,})\n(?:.*\n)?\2$", re.DOTALL)


class QuestionFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that comes with a question; `data` is base64."""

    name: str
    media_type: str
    data: str


def read_files(files: Sequence[QuestionFile], takes: Sequence[str]) -> list[AnyPart]:
    """Return files as parts of a message: text files as text, others unchanged if the model accepts them.

    Raises: ProtocolError, naming the file.
    """
    if len(files) > FILES_MAX:
        raise ProtocolError(f"A question has at most {FILES_MAX} files.", param="files")
    return [_part(file, f"files[{number}]", takes) for number, file in enumerate(files)]


def _part(file: QuestionFile, param: str, takes: Sequence[str]) -> AnyPart:
    if not 1 <= len(file.name) <= NAME_CHARS_MAX or not file.name.isprintable():
        raise ProtocolError(f"A file's name has 1 to {NAME_CHARS_MAX} printable characters.", param=f"{param}.name")
    try:
        data = base64.b64decode(file.data, validate=True)
    except (binascii.Error, ValueError):
        raise ProtocolError("The data of a file is base64.", param=f"{param}.data") from None
    text = _as_text(file, data)
    if text is not None:
        return TextPart(text=text)
    kind = "image" if file.media_type in IMAGES else "file"
    if kind not in takes:
        what = "pictures" if kind == "image" else "files that are no text"
        raise ProtocolError(f"This model takes no {what}.", param=param, hint="Choose another model, or leave it out.")
    if not re.fullmatch(r"[\w.+-]+/[\w.+-]+", file.media_type):
        raise ProtocolError("media_type is a type such as application/pdf.", param=f"{param}.media_type")
    url = f"data:{file.media_type};base64,{file.data}"
    return ImagePart(url=url) if kind == "image" else FilePart(url=url, filename=file.name)


def _as_text(file: QuestionFile, data: bytes) -> str | None:
    """Return a text file as a fenced block; None for a file that is not text."""
    if not (file.media_type.startswith("text/") or file.media_type in _TEXT_TYPES or not file.media_type):
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    fence = "`" * max(3, 1 + max((len(found[0]) for found in _FENCES.finditer(text)), default=2))
    return f"File {file.name}:\n\n{fence}\n{text.rstrip()}\n{fence}"


def file_name_of(text: str) -> str | None:
    """Return the name of the file that a text part contains, if it contains one."""
    found = _FILE_TEXT.fullmatch(text)
    return found[1] if found else None


def ask_again(entries: Sequence[Entry], text: str | None, more: Sequence[AnyPart]) -> tuple[AnyItem, ...]:
    """Return the input of an earlier run, optionally with another text and more parts; its files stay."""
    items = [item_of_entry(entry) for entry in entries if entry.is_input and entry.kind == "user"]
    questions = [item for item in items if isinstance(item, MessageItem)]
    if text is None and not more:
        return tuple(msgspec.structs.replace(item, id="") for item in questions)
    parts = [part for item in questions for part in item.content]
    files = [part for part in parts if not isinstance(part, TextPart) or file_name_of(part.text) is not None]
    asked = (
        text
        if text is not None
        else "".join(part.text for part in parts if part not in files and isinstance(part, TextPart))
    )
    return (question(asked, [*files, *more]),)


def question(text: str, parts: Sequence[AnyPart]) -> MessageItem:
    """Return a user message."""
    texts = (TextPart(text=text.encode("utf-8", "replace").decode()),) if text else ()
    return MessageItem(role="user", content=(*texts, *parts))
