"""Attachments of a prompt: piped text and named files, as text blocks or images."""

import base64
import mimetypes
import os
import select
import stat
import sys
from pathlib import Path

from treadle.core.errors import LimitExceeded, RequestError
from treadle.core.items import AnyPart, ImagePart, MessageItem, TextPart

INPUT_BYTES_MAX = 8_388_608
SILENCE_S = 2.0
WAITS = "treadle: waiting for standard input, which is a pipe; < /dev/null says that there is none"
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def read_piped() -> str:
    """Return what a pipe or a file feeds into standard input; nothing from a terminal or /dev/null.

    Raises: LimitExceeded.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    if not stat.S_ISREG(mode) and not select.select([sys.stdin.fileno()], [], [], SILENCE_S)[0]:
        print(WAITS, file=sys.stderr, flush=True)
    raw = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    if len(raw) > INPUT_BYTES_MAX:
        raise LimitExceeded(f"standard input is larger than {INPUT_BYTES_MAX} bytes", param="stdin")
    return raw.decode("utf-8", "replace")


def join_prompt(prompt: str | None, piped: str) -> str:
    """Put the piped text below the prompt, marked as input; either may be missing."""
    asked = (prompt or "").strip()
    if not piped.strip():
        return asked
    return f"{asked}\n\n<input>\n{piped.rstrip()}\n</input>" if asked else piped.strip()


def message_of(prompt: str, files: list[str]) -> MessageItem:
    """Return the prompt as a message, with files as blocks below it and pictures as pictures.

    Raises: RequestError, naming the file; LimitExceeded.
    """
    text, images = prompt, list[AnyPart]()
    for name in files:
        data = _read(Path(name))
        kind = mimetypes.guess_type(name)[0] or ""
        if kind in _IMAGES:
            images.append(ImagePart(url=f"data:{kind};base64,{base64.b64encode(data).decode()}"))
        elif b"\0" in data[:8192]:
            raise RequestError(f"{name} is neither text nor a picture", param="files")
        else:
            shown = data.decode("utf-8", "replace").rstrip()
            text += f'\n\n<input name="{os.path.basename(name)}">\n{shown}\n</input>'
    whole = TextPart(text=text.encode("utf-8", "replace").decode())
    return MessageItem(role="user", content=(whole, *images))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        hint = f"quote the prompt if {str(path)!r} is a part of it"
        raise RequestError(f"{path} can not be read: {error.strerror}", param="files", hint=hint) from None
    if len(data) > INPUT_BYTES_MAX:
        raise LimitExceeded(f"{path} is larger than {INPUT_BYTES_MAX} bytes", param="files")
    return data
