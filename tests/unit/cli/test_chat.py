"""The chat: turns, slash commands, and errors that do not end it."""

import contextlib
import io
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from treadle.canon.errors import NotFound
from treadle.canon.events import RunEnded, RunEvent, TextDelta
from treadle.canon.tools import ServerTool, ToolSpec
from treadle.cli.chat import COMMANDS, Chat
from treadle.cli.terminal.look import Look
from treadle.cli.terminal.screen import Screen
from treadle.config import Settings, Upstream


class FakeSession:
    """Answers every prompt with itself."""

    def __init__(self) -> None:
        self.model = "m"
        self.said: list[str] = []
        self.is_forgotten = False

    async def send(self, prompt: str) -> AsyncGenerator[RunEvent, None]:
        """Answer, or fail."""
        self.said.append(prompt)
        if prompt == "fail":
            raise NotFound("no such model", hint="name another")
        yield TextDelta(index=0, text=f"you said {prompt}")
        yield RunEnded(status="completed", rounds=1)

    def forget(self) -> None:
        """Begin anew."""
        self.is_forgotten = True


class FakeRouter:
    """Knows one model."""

    def models(self) -> list[SimpleNamespace]:
        """List it."""
        return [SimpleNamespace(id="big")]

    def model_for(self, name: str) -> None:
        """Refuse every other."""
        if name != "big":
            raise NotFound(f"no model {name}")


class Typed:
    """A prompt that was typed before."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)

    def between(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is typed between."""
        return contextlib.nullcontext()

    async def read(self) -> str | None:
        """Return the next line."""
        return self.lines.pop(0) if self.lines else None


async def talk(*lines: str, is_demo: bool = False) -> tuple[list[str], FakeSession]:
    """Say the lines and return what the screen shows."""
    session = FakeSession()
    tools = (ServerTool(spec=ToolSpec(name="add", description="Add.\nMore.")),)
    upstream = Upstream(name="a", base_url="http://127.0.0.1:1/v1")
    settings = Settings(upstream=() if is_demo else (upstream,))
    registry = SimpleNamespace(tools=lambda: tools)
    runtime = SimpleNamespace(registry=registry, router=FakeRouter(), settings=settings)
    out = io.StringIO()
    chat = Chat(cast("Any", runtime), cast("Any", session), Screen(out, Look()))
    prompt = Typed(*lines)
    while await chat.step(prompt):
        pass
    return out.getvalue().splitlines(), session


async def test_a_turn_shows_the_answer_and_its_status() -> None:
    """Empty lines are not sent."""
    shown, session = await talk("", "  hello ", " ")
    assert session.said == ["hello"]
    assert shown[0] == "you said hello"
    assert shown[1].startswith("m · 1 round · 0 calls · tokens unknown · ")


async def test_a_turn_that_can_not_start_is_an_error_and_not_the_end() -> None:
    """The chat goes on after a refused request."""
    shown, session = await talk("fail", "again")
    assert shown[:2] == ["✗ no such model", "  hint: name another"]
    assert session.said == ["fail", "again"]


async def test_quit_leaves() -> None:
    """Nothing after /quit is read."""
    _, session = await talk("/quit", "hello")
    assert session.said == []


async def test_help_lists_every_command() -> None:
    """Also those that are added later."""
    shown, _ = await talk("/help")
    assert [line.split()[0] for line in shown[: len(COMMANDS)]] == list(COMMANDS)
    assert shown[-1].startswith("keys: ")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/tools", "  add (write): Add."),
        ("/model", "model m; known: big"),
        ("/model big", "model big from now on"),
        ("/model \x1b[2J", "✗ no model ␛[2J"),
        ("/new", "a new conversation"),
        ("/hepl", "there is no command /hepl; did you mean /help?"),
        ("/zzzz", "there is no command /zzzz; /help lists the commands"),
        ("/foo", "there is no command /foo; /help lists the commands"),
        ("/full", "nothing is folded"),
    ],
)
async def test_slash_commands_answer(line: str, shown: str) -> None:
    """Each command says what it did; a misspelt one says what was probably meant."""
    assert (await talk(line))[0] == [shown]


async def test_without_an_upstream_no_other_model_is_taken() -> None:
    """The demo model does not answer under another's name."""
    shown, session = await talk("/model big", is_demo=True)
    assert (shown[0], session.model) == ("✗ no upstream serves 'big'", "m")


async def test_commands_change_the_session() -> None:
    """/model and /new act on what comes next; a model nobody serves is not taken."""
    _, session = await talk("/model big", "/new", "/model nope")
    assert (session.model, session.is_forgotten, session.said) == ("big", True, [])
