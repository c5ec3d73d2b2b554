"""Images and files that Python tools return, alone or among other things."""

from pathlib import Path

import pytest

from treadle import file, image, tool
from treadle.core.errors import ToolFailed
from treadle.core.items import AnyPart, FilePart, ImagePart, TextPart
from treadle.tools.result_rendering import answer_of

PNG = b"\x89PNG\r\n"
PNG_URL = "data:image/png;base64,iVBORw0K"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF0000WEBP", "image/webp"),
    ],
)
def test_an_image_is_known_by_its_first_bytes(data: bytes, kind: str) -> None:
    """Nobody has to name its type."""
    assert str(image(data).url).startswith(f"data:{kind};base64,")


def test_an_image_may_be_a_path_or_a_url(tmp_path: Path) -> None:
    """A file is read, an address is handed on."""
    drawn = tmp_path / "x.svg"
    drawn.write_text("<svg/>")
    assert str(image(drawn).url).startswith("data:image/svg+xml;base64,")
    assert image(str(drawn)) == image(drawn)
    assert image("https://example.org/a.png", detail="low") == ImagePart(url="https://example.org/a.png", detail="low")
    assert image(b"odd", mime="image/x-odd").url == "data:image/x-odd;base64,b2Rk"


def test_a_file_has_a_name_and_a_type(tmp_path: Path) -> None:
    """Its own, or those it is given."""
    report = tmp_path / "report.pdf"
    report.write_bytes(b"%PDF")
    assert file(report) == FilePart(url="data:application/pdf;base64,JVBERg==", filename="report.pdf")
    assert file(b"a", name="a.csv") == FilePart(url="data:text/csv;base64,YQ==", filename="a.csv")
    assert file(b"a") == FilePart(url="data:application/octet-stream;base64,YQ==", filename="file")
    assert file("https://example.org/a", name="a") == FilePart(url="https://example.org/a", filename="a")


def test_what_is_no_image_or_not_there_is_said(tmp_path: Path) -> None:
    """The model reads the file's name, not where it lies."""
    with pytest.raises(ToolFailed, match="mime="):
        image(b"plain text")
    for make in (image, file):
        with pytest.raises(ToolFailed, match=r"^gone\.png cannot be read: No such file"):
            make(tmp_path / "gone.png")


def test_a_list_with_an_image_keeps_everything_in_order() -> None:
    """Text stays text, other values become JSON."""
    mixed: list[object] = ["before", image(PNG), {"n": 1}, None]
    assert answer_of(mixed).parts == (
        TextPart(text="before"),
        ImagePart(url=PNG_URL),
        TextPart(text='{"n":1}'),
        TextPart(text="null"),
    )


def test_a_list_without_parts_is_data() -> None:
    """Also an empty one."""
    assert answer_of(["a", 1]).parts == ()
    assert bytes(answer_of([]).envelope.data) == b"[]"


def test_a_tool_is_declared_with_parts_as_its_result() -> None:
    """Nothing but the return value says so."""

    @tool(effect="read")
    def chart() -> list[AnyPart | str]:
        """Draw a chart."""
        return ["here", image(PNG)]

    assert answer_of(chart()).parts == (TextPart(text="here"), ImagePart(url=PNG_URL))
