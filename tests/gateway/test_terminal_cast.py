"""The cast in the documents is a real conversation, and shows what the page says."""

import json
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]
CAST = ROOT / "docs" / "images" / "terminal.cast"


def shown() -> tuple[str, str]:
    """Play the cast; return all that was written, and what the terminal shows of it in the end."""
    head, *events = [json.loads(line) for line in CAST.read_text(encoding="utf-8").splitlines()]
    assert (head["version"], {kind for _, kind, _ in events}) == (2, {"o"})
    assert [at for at, _, _ in events] == sorted(at for at, _, _ in events)
    screen = pyte.HistoryScreen(head["width"], head["height"], history=2_000)
    raw = "".join(text for _, _, text in events)
    pyte.Stream(screen).feed(raw)
    top = ["".join(row[column].data for column in range(head["width"])).rstrip() for row in screen.history.top]
    return raw, "\n".join([*top, *(line.rstrip() for line in screen.display)])


def test_the_cast_is_the_conversation_of_the_page() -> None:
    """Whole pieces of the page stand in it, line by line, and nothing of the machine it was made on."""
    raw, text = shown()
    page = (ROOT / "docs" / "terminal.md").read_text(encoding="utf-8")
    pieces = [
        '> What is the weather in Lyon?\n● get_weather(city="Lyon")\n',
        "It is 24 °C in Lyon, with clear sky.\n\ndemo · 2 rounds · 1 call · 27 tokens ·",
        "  bash approved by policy read-only\n● bash(",
        "    @@ -1 +1 @@\n    -Lyon by train\n    +Lyon by train, Friday\n    +1 -1\n",
    ]
    for piece in pieces:
        assert piece in text
        assert piece in page
    assert "[y] once" in raw
    assert not any(word in raw for word in ("/tmp", "/home", "/root", "Traceback"))
    assert CAST.name in page
